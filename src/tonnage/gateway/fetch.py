"""A GET of the gateway's own: health checks, lists of models, metrics."""

from __future__ import annotations

import asyncio
import ssl

import httptools

from tonnage.bench.wire.request import Target

MOST = 4_194_304
"""Bytes of a response that are read."""


class _Document:
    """A whole response."""

    def __init__(self) -> None:
        self.body = b""
        self.complete = False

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete = True


async def fetch(target: Target, path: str, seconds: float, tls: ssl.SSLContext | None = None) -> tuple[int, bytes]:
    """The status and body of a GET.

    Raises:
        OSError: no connection, no answer in time, or none that is HTTP.
    """
    writer: asyncio.StreamWriter | None = None
    document = _Document()
    parser = httptools.HttpResponseParser(document)
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(target.host, target.port, ssl=tls)
            head = f"GET {path} HTTP/1.1\r\nHost: {target.authority}\r\nAccept: */*\r\nConnection: close\r\n\r\n"
            writer.write(head.encode())
            read = 0
            while not document.complete:
                data = await reader.read(65_536)
                read += len(data)
                if not data or read > MOST:
                    break
                parser.feed_data(data)
        return parser.get_status_code(), document.body
    except (TimeoutError, httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
        raise OSError(f"no answer from {target.authority} ({error})") from None
    finally:
        if writer is not None:
            writer.transport.abort()


def said(error: OSError) -> str:
    """Why a backend could not be reached, in few words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        return "it does not speak TLS as it should"
    return "no connection"

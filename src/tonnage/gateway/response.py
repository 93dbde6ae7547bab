"""Responses: the head of a backend's, read strictly and written again for the client, and those that the gateway makes itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import httptools

from tonnage.gateway.request import HOP_BY_HOP, Headers, connection_options

NO_BODY = (204, 304)


class BrokenResponse(Exception):
    """A backend sent what is no HTTP response, or one that the gateway does not pass on."""


class Reading:
    """What the parser has seen of a response; bodies are looked through for their end and not kept."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.reason = b""
        self.headers: Headers = []
        self.complete = False
        self.overrun = False

    def on_message_begin(self) -> None:
        """A response begins; after a complete one it is one that nobody asked for."""
        self.overrun = self.complete

    def on_status(self, status: bytes) -> None:
        """A piece of the reason phrase."""
        self.reason += status

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer of a chunked body."""
        self.headers.append((name, value))

    def on_message_complete(self) -> None:
        """The response is whole."""
        self.complete = True


class Unchunking(Reading):
    """The same with the body's bytes kept until they are taken: for clients that do not know chunks."""

    def __init__(self) -> None:
        """Nothing yet."""
        super().__init__()
        self._parts: list[bytes] = []

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._parts.append(body)

    def take(self) -> bytes:
        """What has come since the last call."""
        parts, self._parts = self._parts, []
        return b"".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A status line and its headers.

    Attributes:
        status, reason: of the status line.
        headers: in order.
        chunked: whether the body is in chunks.
        until_close: whether it ends with the connection.
        keep: whether the connection to the backend can carry another request.
    """

    status: int
    reason: bytes
    headers: Headers
    chunked: bool
    until_close: bool
    keep: bool

    def wire(self, *, close: bool, chunked: bool) -> bytes:
        """The head as the client gets it: hop-by-hop headers removed, the others as they were."""
        dropped = HOP_BY_HOP | connection_options(self.headers)
        lines = [b"HTTP/1.1 %d %s\r\n" % (self.status, self.reason)]
        lines += [b"%s: %s\r\n" % line for line in self.headers if line[0].lower() not in dropped]
        if chunked:
            lines.append(b"Transfer-Encoding: chunked\r\n")
        if close:
            lines.append(b"Connection: close\r\n")
        return b"".join([*lines, b"\r\n"])


def read_head(data: bytes, reading: Reading, *, bodiless: bool) -> tuple[Head, Callable[[bytes], None]]:
    """Read a head that ends with its empty line; returns it, and what the body is to be fed to.

    Raises BrokenResponse: no HTTP response, or a transfer coding other than "chunked".
    """
    parser = httptools.HttpResponseParser(reading)
    try:
        parser.feed_data(data)
        status, version = parser.get_status_code(), parser.get_http_version()
    except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
        raise BrokenResponse(f"no HTTP response ({error})") from None
    if not data.startswith(b"HTTP/1."):
        raise BrokenResponse("no HTTP response")
    coding = [value.strip().lower() for name, value in reading.headers if name.lower() == b"transfer-encoding"]
    if coding not in ([], [b"chunked"]):
        raise BrokenResponse("a transfer coding other than chunked")
    if bodiless or status in NO_BODY:
        reading.complete = True
    sized = any(name.lower() == b"content-length" for name, _ in reading.headers)
    until_close = not (reading.complete or coding or sized)
    words = connection_options(reading.headers)
    keep = version == "1.1" and b"close" not in words and not until_close
    head = Head(
        status=status,
        reason=reading.reason,
        headers=list(reading.headers),
        chunked=bool(coding) and not reading.complete,
        until_close=until_close,
        keep=keep,
    )
    return head, parser.feed_data


JSON = "application/json"


def response(status: int, body: bytes, *, kind: str = JSON, close: bool = False, later: bool = False, head: bool = False) -> bytes:
    """A whole response; ``later`` adds ``Retry-After``, and ``head`` leaves out the body."""
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    if later:
        lines.append("Retry-After: 1")
    if close:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode() + (b"" if head else body)


def document(status: int, value: Any, *, close: bool = False, head: bool = False) -> bytes:
    """A response with a JSON body."""
    return response(status, json.dumps(value).encode(), close=close, head=head)


KINDS = {404: "not_found_error", 429: "rate_limit_error"}


def refusal(status: int, message: str, *, close: bool = False, head: bool = False) -> bytes:
    """An error in the form of the OpenAI API; 429 and 503 say when to come again."""
    kind = KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")
    body = json.dumps({"error": {"message": message, "type": kind, "param": None, "code": status}}).encode()
    return response(status, body, close=close, later=status in (429, 503), head=head)

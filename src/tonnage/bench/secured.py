"""TLS between a socket and an exchange: bytes in, bytes out, no socket of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl

PIECE = 65_536


class Secured:
    """One encrypted connection. ``ssl.SSLError`` where the peer does not keep to the protocol or cannot be trusted."""

    def __init__(self, context: ssl.SSLContext, name: str) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname=name)

    async def shake_hands(self, loop: asyncio.AbstractEventLoop, connected: socket.socket) -> None:
        """Agree on keys, and check the peer's certificate.

        Raises:
            ssl.SSLError: it is not to be trusted, or does not speak TLS.
            OSError: the connection was lost.
        """
        done = False
        while not done:
            try:
                self._tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                await self._flush(loop, connected)
                data = await loop.sock_recv(connected, PIECE)
                if data:
                    self._in.write(data)
                else:
                    self._in.write_eof()
        await self._flush(loop, connected)

    async def _flush(self, loop: asyncio.AbstractEventLoop, connected: socket.socket) -> None:
        if data := self._out.read():
            await loop.sock_sendall(connected, data)

    def encrypted(self, data: bytes) -> bytes:
        """What to send for ``data``."""
        self._tls.write(data)
        return self._out.read()

    def decrypted(self, data: bytes) -> tuple[bytes, bool]:
        """What the peer says with these bytes, and whether it says that this is the end.

        Raises:
            ssl.SSLError: they are not what it should send.
        """
        self._in.write(data)
        parts: list[bytes] = []
        with contextlib.suppress(ssl.SSLWantReadError):
            while True:
                try:
                    part = self._tls.read(PIECE)
                except ssl.SSLZeroReturnError:
                    part = b""
                if not part:
                    return b"".join(parts), True
                parts.append(part)
        return b"".join(parts), False

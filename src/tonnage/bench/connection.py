"""One connection of the client: stamps what it receives at once, and reads it a moment later.

``data_received`` does three things: it takes the time, keeps the bytes and looks whether the reply may be complete. The
bytes are read after all sockets of the same turn of the loop have been stamped.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Protocol

from tonnage.bench.exchange import Exchange
from tonnage.bench.reply import Reply
from tonnage.bench.wire.broken import BrokenReply

HELD = 128
"""Pieces of an unfinished reply that are kept unread at most."""

LARGE = 16_384
"""Bytes from which a piece is not kept waiting."""

ENDED_EARLY = ("cut off", "closed without a reply")
"""What a reply says that its connection ended before it."""

_clock = time.monotonic_ns


class Owner(Protocol):
    """Who hears of the end of exchanges and connections."""

    def exchanged(self, connection: Connection, exchange: Exchange) -> None:
        """An exchange is over; ``connection.usable`` says whether the connection can carry another."""

    def lost(self, connection: Connection) -> None:
        """A connection without an exchange has ended."""


class Connection(asyncio.Protocol):
    """A transport with at most one exchange at a time.

    Attributes:
        exchange: the one in flight; None between two.
        used: how many it has carried.
        usable: whether it can carry another.
    """

    __slots__ = ("_eager", "_looking", "_loop", "_open", "_owner", "_pieces", "_transport", "exchange", "usable", "used")

    def __init__(self, loop: asyncio.AbstractEventLoop, owner: Owner) -> None:
        self._loop = loop
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._open = False
        self._eager = True
        self._looking = False
        self._pieces: list[tuple[int, bytes]] = []
        self.exchange: Exchange | None = None
        self.used = 0
        self.usable = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands."""
        self._transport = transport  # type: ignore[assignment] # what a stream connection always gives
        self._open = self.usable = True

    def send(self, exchange: Exchange) -> None:
        """Send a request; its reply ends in ``Owner.exchanged``."""
        self.exchange = exchange
        self.used += 1
        self._eager = True
        exchange.sent_ns = _clock()
        if self._transport is None or not self._open:
            self._end(exchange)
            return
        self._transport.write(exchange.data)

    def data_received(self, data: bytes) -> None:
        """Stamp and keep a piece; read soon where the reply may be complete, or is long."""
        pieces = self._pieces
        pieces.append((_clock(), data))
        if (data.endswith(b"\r\n\r\n") or self._eager or len(pieces) > HELD or not 8 <= len(data) < LARGE) and not self._looking:
            self._looking = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        """Read what has come; the exchange is over once the reply is complete or broken."""
        self._looking = False
        exchange = self.exchange
        if exchange is None:
            if self._pieces:  # bytes that nothing has asked for
                self._pieces = []
                self.close()
            return
        reply = exchange.reply
        try:
            self._read(reply)
            if reply.http.complete:
                reply.end()
                exchange.judge()
                self.usable = self._open and reply.http.keep_alive
            elif self._open:
                # The end of a chunked body shows in its last bytes; of other bodies every piece must be looked at.
                self._eager = "transfer-encoding" not in reply.http.headers
                return
            else:
                reply.end()
                exchange.judge()
        except BrokenReply as broken:
            self.usable = False
            exchange.fail(*((str(broken),) if str(broken) in ENDED_EARLY else ("broken reply", str(broken))))
        self._finish(exchange)

    def _read(self, reply: Reply) -> None:
        """Read the pieces that have come.

        Raises:
            BrokenReply: they are not what the endpoint should send.
        """
        pieces, self._pieces = self._pieces, []
        reply.read(pieces)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended; what had come before is still read."""
        self._open = self.usable = False
        if self.exchange is None:
            self._owner.lost(self)
        else:
            self._end(self.exchange)

    def _end(self, exchange: Exchange) -> None:
        """Read what is left of an exchange whose connection has ended."""
        if not self._looking:
            self._looking = True
            self._loop.call_soon(self._look)

    def abort(self, outcome: str) -> None:
        """Give the exchange up and close."""
        exchange = self.exchange
        self.usable = False
        if exchange is not None:
            self.exchange = None
            exchange.fail(outcome)
            with contextlib.suppress(BrokenReply):
                self._read(exchange.reply)
            self._owner.exchanged(self, exchange)
        self.close()

    def close(self) -> None:
        """End the connection at once."""
        self._open = self.usable = False
        if self._transport is not None:
            self._transport.abort()

    def _finish(self, exchange: Exchange) -> None:
        self.exchange = None
        self._eager = True
        if not self.usable:
            self.close()
        self._owner.exchanged(self, exchange)

"""Connections whose requests must begin in time: uvicorn alone waits for a header without end, in
seconds and in bytes.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# seconds from a connection, or the first byte of a further request, to the end of its header
HEADER_S = 20.0
MOST_BYTES = 2**18  # of a header


class _Awaited:
    """A connection that closes itself where a header takes longer than ``HEADER_S``."""

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    cycle: Any  # the request that came last, None before the first
    awaited: asyncio.TimerHandle | None = None  # while a header is not complete
    received = 0  # bytes of it

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a header."""
        super().connection_made(transport)  # type: ignore[misc]
        self._await_header()

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request; those between two requests belong to the next header."""
        if self.awaited is None and (self.cycle is None or self.cycle.response_complete):
            self._await_header()
        super().data_received(data)  # type: ignore[misc]

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_waiting()
        super().connection_lost(exc)  # type: ignore[misc]

    def _await_header(self) -> None:
        self.received = 0
        self.awaited = self.loop.call_later(HEADER_S, self.transport.close)

    def _stop_waiting(self) -> None:
        if self.awaited is not None:
            self.awaited.cancel()
            self.awaited = None


class BoundedHeaders(_Awaited, HttpToolsProtocol):
    """Closes a connection whose header takes longer than ``HEADER_S`` or has more than
    ``MOST_BYTES``.
    """

    def data_received(self, data: bytes) -> None:
        """Count the bytes of a header."""
        super().data_received(data)
        if self.awaited is not None:
            self.received += len(data)
            if self.received > MOST_BYTES:
                self.transport.close()

    def on_message_begin(self) -> None:
        """Start the clock of a pipelined request's header."""
        if self.awaited is None:
            self._await_header()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Wait no longer."""
        self._stop_waiting()
        super().on_headers_complete()


class BoundedStrictHeaders(_Awaited, H11Protocol):
    """Bounds the seconds of a header for the stricter reader, which bounds its bytes itself, by 16
    kB.
    """

    def handle_events(self) -> None:
        """Wait no longer where a request has begun."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._stop_waiting()


def silence_ended_requests(*causes: type[BaseException]) -> None:
    """Let uvicorn print no traceback of a request that is cancelled as its server ends, or that one
    of these exceptions ends on purpose.
    """
    silent: tuple[type[BaseException], ...] = (asyncio.CancelledError, *causes)
    logging.getLogger("uvicorn.error").addFilter(
        lambda record: not (record.exc_info and isinstance(record.exc_info[1], silent))
    )

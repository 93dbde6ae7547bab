"""A client's connection: reads requests one after the other, and writes their responses in the same order."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from typing import Protocol

from tonnage.gateway.core import Core
from tonnage.gateway.exchange import Exchange
from tonnage.gateway.request import Refused, Request, RequestReader
from tonnage.gateway.response import refusal
from tonnage.gateway.upstream import Write

LINGER_S = 2.0
"""How long a client that was refused may go on sending, so that it reads the answer before the connection is reset."""

FLUSH_S = 10.0
"""How long a client may take to read the rest of what was written before its connection ends."""

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Own(Protocol):
    """What the gateway answers itself."""

    def answer(self, request: Request, reply: Callable[[bytes], None]) -> bool:
        """Answer now or later; False where the request is one for a backend."""


class Client(asyncio.Protocol):
    """One connection of a client.

    Attributes:
        paused: whether the client reads more slowly than the backend writes.
        deadline: the loop's time at which the connection is given up.
    """

    __slots__ = (
        "_body",
        "_core",
        "_exchange",
        "_held",
        "_last",
        "_lingering",
        "_own",
        "_owned",
        "_reader",
        "_refused",
        "_stopped",
        "_transport",
        "deadline",
        "paused",
    )

    def __init__(self, core: Core, own: Own) -> None:
        """Of a gateway."""
        self._core = core
        self._own = own
        self._reader = RequestReader(core.limits)
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._owned: Request | None = None  # a request that the gateway is about to answer itself
        self._refused: Refused | None = None
        self._lingering = self._stopped = self._last = False
        self._body = self._held = 0  # bytes of the body at hand, and of all that this connection has made the gateway hold
        self.paused = False
        self.deadline = math.inf

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody has connected."""
        self._transport = transport  # type: ignore[assignment] # what a stream connection always gives
        if len(self._core.clients) >= self._core.limits.connections:
            transport.abort()  # type: ignore[attr-defined] # the same
            return
        self._core.clients.add(self)
        self._wait(self._core.limits.keep_alive_s)

    def _wait(self, seconds: float) -> None:
        self.deadline = self._core.loop.time() + seconds

    @property
    def _busy(self) -> bool:
        return self._exchange is not None or self._owned is not None

    def data_received(self, data: bytes) -> None:
        """Read on; what has become complete is served."""
        if self._lingering or self._last or self._refused is not None:
            return
        reader, began, in_body = self._reader, self._reader.begun, self._reader.in_body
        try:
            reader.feed(data)
        except Refused as refused:
            self._refused = refused
        self._weigh()
        if reader.in_body and self._core.held > self._core.limits.held and self._refused is None:
            self._refused = Refused(503, "the gateway holds as many bytes of requests as it may")
        if not self._busy:
            self._next()
            if reader.expects and not self._busy and self._transport is not None:
                reader.expects = False
                self._transport.write(CONTINUE)
            if not self._busy and reader.begun and (not began or reader.in_body != in_body):
                self._wait(self._core.limits.body_s if reader.in_body else self._core.limits.head_s)
        if self._busy and reader.ready and not self._stopped and self._transport is not None:
            self._stopped = True
            self._transport.pause_reading()

    def _weigh(self) -> None:
        """Say how many bytes of bodies are held for this client."""
        held = self._body + self._reader.held
        self._core.held += held - self._held
        self._held = held

    def _next(self) -> None:
        """Serve what is complete, one request at a time; then say what was refused."""
        ready = self._reader.ready
        while ready and not self._busy and not self._last:
            self._serve(ready.popleft())
        if self._busy or self._last or self._transport is None or self._lingering:
            return
        if self._refused is not None:
            self._refuse(self._refused)
        elif self._stopped:
            self._stopped = False
            self._transport.resume_reading()

    def _serve(self, request: Request) -> None:
        core, close, head = self._core, not request.keep, request.method == b"HEAD"
        self.deadline, self._owned, self._body = math.inf, request, len(request.body)
        if self._own.answer(request, self._answered):
            return
        if core.in_flight >= core.limits.in_flight:
            core.refused[429] += 1
            message = f"{core.limits.in_flight:,} requests are being served, which is the gateway's limit"
            self._answered(refusal(429, message, close=close, head=head))
            return
        self._owned = None
        self._exchange = Exchange(core, self, request)
        self._exchange.start()

    def _answered(self, data: bytes) -> None:
        """The gateway's own answer to the request at hand."""
        request, self._owned = self._owned, None
        if request is None or self._transport is None or self._transport.is_closing():
            return
        self._transport.write(data)
        self._go_on(request.keep)

    def writer(self) -> Write:
        """What takes bytes for the client."""
        if self._transport is None:
            raise RuntimeError("there is no connection yet")
        return self._transport.write

    def responded(self, *, keep: bool) -> None:
        """The response has been written whole."""
        self._exchange = None
        self._go_on(keep)

    def _go_on(self, keep: bool) -> None:
        """Wait for the next request, or serve one that is there already."""
        self._body = 0
        self._weigh()
        if not keep:
            self._finish()
            return
        self._wait(self._core.limits.head_s if self._reader.begun else self._core.limits.keep_alive_s)
        if self._reader.ready or self._refused is not None or self._stopped:
            self._core.loop.call_soon(self._continue)

    def _continue(self) -> None:
        if not self._busy:
            self._next()

    def cut(self) -> None:
        """A response broke off: end the connection without the end of the body."""
        self._exchange = None
        self._finish()

    def _finish(self) -> None:
        """End the connection once everything has been written."""
        self._last = True
        self._wait(FLUSH_S)
        if self._transport is not None:
            self._transport.close()

    def _refuse(self, refused: Refused) -> None:
        """Answer what cannot be served; read on for a moment, since a reset would take the answer away."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._core.refused[refused.status] += 1
        self._lingering = True
        self._reader.close()
        self._weigh()
        self._wait(LINGER_S)
        transport.write(refusal(refused.status, str(refused), close=True))
        if self._stopped:
            self._stopped = False
            transport.resume_reading()
        with contextlib.suppress(OSError, RuntimeError, NotImplementedError):
            transport.write_eof()

    def expire(self) -> None:
        """The deadline has passed: say so to a client that was in the middle of a request, and leave the others."""
        if self._busy or self._lingering or self._last or not self._reader.begun:
            self.close()
            return
        self._refused = Refused(408, "the request took too long to arrive")
        self._refuse(self._refused)

    def close(self) -> None:
        """End the connection at once."""
        self.deadline = math.inf
        if self._transport is not None:
            self._transport.abort()

    def pause_writing(self) -> None:
        """The client reads too slowly: hold the backend up."""
        self.paused = True
        self._wait(self._core.limits.idle_s)
        if self._exchange is not None:
            self._exchange.pause()

    def resume_writing(self) -> None:
        """It has caught up."""
        self.paused = False
        if self._busy:
            self.deadline = math.inf
        if self._exchange is not None:
            self._exchange.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has left; what was running for it ends."""
        self.deadline, self._owned = math.inf, None
        self._core.clients.discard(self)
        exchange, self._exchange = self._exchange, None
        self._lingering = True  # should anything still be read, it is dropped
        self._reader.close()
        self._body = 0
        self._weigh()
        if exchange is not None:
            exchange.cancel()

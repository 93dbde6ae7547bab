"""A client's connection, which reads requests and writes their responses in the same order, and the exchange of each with a backend."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
from collections.abc import Callable

from tonnage.gateway.backend import Upstream, Write
from tonnage.gateway.core import Core
from tonnage.gateway.http import Head, Refused, Request, RequestReader, refusal

NO_MODEL, BAD_GATEWAY, NO_BACKEND, TOO_LATE = 404, 502, 503, 504


class Exchange:
    """A request and what becomes of it, at one backend after the other: at most two."""

    __slots__ = (
        *("_at", "_begun", "_client", "_core", "_keep", "_left", "_model"),
        *("_request", "_second", "_started", "_status", "_task", "_upstream"),
    )

    def __init__(self, core: Core, client: Client, request: Request) -> None:
        self._core, self._client, self._request = core, client, request
        self._model = request.model
        self._started = core.loop.time()
        self._task: asyncio.Task[None] | None = None
        self._upstream: Upstream | None = None
        self._at = -1  # the backend that has the request
        self._left = 0  # its tokens still to come there
        self._status = 0
        self._begun = self._second = False
        self._keep = request.keep

    def start(self) -> None:
        """Send it where the policy says."""
        core = self._core
        core.in_flight += 1
        chosen = core.balancer.choose(self._request, core.loop.time(), model=self._model)
        if chosen >= 0:
            self._to(chosen)
        elif any(backend.serves(self._model) for backend in core.backends):
            self._refuse(NO_BACKEND, "no backend takes requests at the moment")
        else:
            self._refuse(NO_MODEL, f"The model `{self._model}` does not exist.")

    def _to(self, chosen: int) -> None:
        """Count it at a backend, and send it there."""
        self._at, backend = chosen, self._core.backends[chosen]
        self._left = self._request.prompt_tokens + self._request.output_tokens
        backend.requests += 1
        backend.tokens += self._left
        found = backend.pooled()
        if found is None:
            self._connect()
        else:
            self._write(found)

    def _connect(self) -> None:
        self._upstream = None
        self._task = self._core.loop.create_task(self._connected())

    async def _connected(self) -> None:
        """Connect to the backend, and send; a failure keeps other requests away from it for a moment."""
        core, backend = self._core, self._core.backends[self._at]
        upstream = Upstream(core.loop, core.limits.headers)
        backend.connects += 1
        try:
            async with asyncio.timeout(core.limits.connect_s):
                await core.loop.create_connection(lambda: upstream, backend.target.host, backend.target.port)
        except OSError as error:  # a time-out among them
            self._task = None
            if error.errno not in (errno.EMFILE, errno.ENFILE):  # which say nothing of the backend
                backend.avoid_until(core.loop.time() + core.limits.open_s)
            self.failed("no connection", again=True)
            return
        except asyncio.CancelledError:
            upstream.close()
            raise
        self._task = None
        self._write(upstream)

    def _write(self, upstream: Upstream) -> None:
        backend, request = self._core.backends[self._at], self._request
        self._upstream = upstream
        upstream.deadline = self._core.loop.time() + self._core.limits.first_byte_s
        upstream.fresh = False
        backend.busy.add(upstream)
        upstream.send(self, request.wire(backend.authority), bodiless=request.method == b"HEAD", unchunked=request.version == "1.0")

    def began(self, head: Head) -> Write:
        """Pass the head on; returns what takes the body."""
        core, request = self._core, self._request
        self._came(request.prompt_tokens)
        self._begun, self._status = True, head.status
        core.backends[self._at].answered(core.loop.time() - self._started)
        chunked = head.chunked and request.version != "1.0"
        self._keep = request.keep and not head.until_close and chunked == head.chunked and not core.draining
        write = self._client.writer()
        write(head.wire(close=not self._keep, chunked=chunked))
        if self._client.paused:
            self.pause()
        if core.balancer.policy != "least-tokens":
            return write

        def counted(data: bytes) -> None:  # a piece of a stream is a token, as near as can be known without reading it
            self._came(1)
            write(data)

        return counted

    def _came(self, tokens: int) -> None:
        """Take tokens off the expected ones."""
        tokens = min(tokens, self._left)
        self._left -= tokens
        self._core.backends[self._at].tokens -= tokens

    def ended(self) -> None:
        """The response has come whole."""
        self._release("error" if self._status >= 500 else "ok", keep=True)
        self._core.in_flight -= 1
        self._client.responded(keep=self._keep)

    def failed(self, why: str, *, again: bool) -> None:
        """The backend failed: the stream is cut if it has begun, else there may be another attempt."""
        if self._begun:
            self._release("cut")
            self._core.in_flight -= 1
            self._client.cut()
        elif again and self._upstream is not None and self._upstream.used > 1:
            # An idle connection that the backend closed at this very moment says nothing of the backend.
            self._core.backends[self._at].busy.discard(self._upstream)
            self._connect()
        elif not (again and self._moved()):
            name = self._core.backends[self._at].name
            self._release("failed")
            self._refuse(BAD_GATEWAY if why != "it took too long" else TOO_LATE, f"backend {name}: {why}")

    def withdraw(self) -> None:
        """The backend no longer passes its health checks: go elsewhere if nothing has come and another one takes requests."""
        if not self._begun:
            self._moved()

    def _moved(self) -> bool:
        """Go to another backend; False where this is the second one, or no other takes requests."""
        core = self._core
        chosen = -1 if self._second else core.balancer.choose(self._request, core.loop.time(), (self._at,), self._model)
        if chosen < 0:
            return False
        self._second = True
        core.retries += 1
        self._release("retried")
        self._to(chosen)
        return True

    def _release(self, outcome: str, *, keep: bool = False) -> None:
        """Let go of the backend, and count how it ended; what still runs there is ended unless the connection is to be kept."""
        backend, upstream, task = self._core.backends[self._at], self._upstream, self._task
        backend.requests -= 1
        backend.tokens -= self._left
        backend.outcomes[outcome] += 1
        self._left, self._task, self._upstream = 0, None, None
        if task is not None:
            task.cancel()
        if upstream is not None:
            backend.busy.discard(upstream)
            if keep and upstream.usable:
                backend.idle.append(upstream)
            else:
                upstream.close()

    def cancel(self) -> None:
        """The client has left: so does the request."""
        self._release("cancelled")
        self._core.in_flight -= 1

    def pause(self) -> None:
        """The client reads too slowly: read no more from the backend."""
        if self._begun and self._upstream is not None:
            self._upstream.pause()

    def resume(self) -> None:
        """The client has caught up."""
        if self._begun and self._upstream is not None:
            self._upstream.resume()

    def _refuse(self, status: int, message: str) -> None:
        core, request = self._core, self._request
        core.in_flight -= 1
        core.refused[status] += 1
        self._client.writer()(refusal(status, message, close=not request.keep, head=request.method == b"HEAD"))
        self._client.responded(keep=request.keep)


LINGER_S = 2.0  # How long a client that was refused may go on sending, so that it reads the answer before the connection is reset
FLUSH_S = 10.0  # How long a client may take to read the rest of what was written before its connection ends

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


Own = Callable[[Request, Write], bool]  # Answers now or later what is the gateway's own; False where the request is one for a backend


class Client(asyncio.Protocol):
    """One connection of a client."""

    __slots__ = (
        *("_body", "_core", "_exchange", "_held", "_last", "_lingering", "_own"),
        *("_owned", "_reader", "_refused", "_stopped", "_transport", "deadline", "paused"),
    )

    def __init__(self, core: Core, own: Own) -> None:
        self._core = core
        self._own = own
        self._reader = RequestReader(core.limits)
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._owned: Request | None = None  # a request that the gateway is about to answer itself
        self._refused: Refused | None = None
        self._lingering = self._stopped = self._last = False
        self._body = self._held = 0  # bytes of the body at hand, and of all that this connection has made the gateway hold
        self.paused = False  # whether the client reads more slowly than the backend writes
        self.deadline = math.inf  # the loop's time at which the connection is given up

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
        """Read on, and serve complete requests."""
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
        if self._own(request, self._answered):
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
        """The client has left; its requests end."""
        self.deadline, self._owned = math.inf, None
        self._core.clients.discard(self)
        exchange, self._exchange = self._exchange, None
        self._lingering = True  # should anything still be read, it is dropped
        self._reader.close()
        self._body = 0
        self._weigh()
        if exchange is not None:
            exchange.cancel()

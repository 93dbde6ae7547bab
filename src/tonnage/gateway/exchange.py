"""One request on its way: a backend is chosen, and another one if the first fails before its response has begun."""

from __future__ import annotations

import asyncio
import errno
from typing import Protocol

from tonnage.gateway.core import Core
from tonnage.gateway.request import Request
from tonnage.gateway.response import Head, refusal
from tonnage.gateway.upstream import Upstream, Write

NO_MODEL, BAD_GATEWAY, NO_BACKEND, TOO_LATE = 404, 502, 503, 504


class Sink(Protocol):
    """The client's side of an exchange."""

    paused: bool

    def writer(self) -> Write:
        """What takes bytes for the client."""

    def responded(self, *, keep: bool) -> None:
        """The response has been passed on whole."""

    def cut(self) -> None:
        """It broke off after its first byte: the client must see that it is not whole."""


class Exchange:
    """A request and what becomes of it, at one backend after the other: at most two."""

    __slots__ = (
        *("_at", "_begun", "_client", "_core", "_keep", "_left", "_model"),
        *("_request", "_second", "_started", "_status", "_task", "_upstream"),
    )

    def __init__(self, core: Core, client: Sink, request: Request) -> None:
        """Not sent yet."""
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
        """Take tokens off those that are still to come."""
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

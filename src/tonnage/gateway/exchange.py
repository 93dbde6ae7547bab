"""One request on its way: a backend is chosen, and another one if the first fails before its response has begun."""

from __future__ import annotations

import asyncio
from typing import Protocol

from tonnage.gateway.answers import refusal
from tonnage.gateway.core import Core
from tonnage.gateway.fetch import said
from tonnage.gateway.keys import Account
from tonnage.gateway.request import Request
from tonnage.gateway.response import Head
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
    """A request and what becomes of it."""

    __slots__ = (
        *("_account", "_at", "_begun", "_client", "_core", "_keep", "_left", "_model"),
        *("_request", "_started", "_status", "_task", "_tried", "_upstream"),
    )

    def __init__(self, core: Core, client: Sink, request: Request, account: Account | None = None) -> None:
        """Not sent yet.

        Args:
            core: of the gateway.
            client: who asked.
            request: what.
            account: that it has been counted in.
        """
        self._core = core
        self._client = client
        self._account = account
        self._model = model = request.model
        alias = core.settings.aliases.get(model)
        if alias is not None:
            request, self._model = request.renamed(alias), alias
        self._request = request if account is None else request.without_key()
        self._started = core.loop.time()
        self._tried: set[int] = set()
        self._task: asyncio.Task[None] | None = None
        self._upstream: Upstream | None = None
        self._at = -1
        self._left = 0
        self._status = 0
        self._begun = False
        self._keep = request.keep

    def start(self) -> None:
        """Send it where the policy says."""
        self._core.in_flight += 1
        chosen = self._core.balancer.choose(self._request, self._core.loop.time(), model=self._model)
        if chosen < 0 and not any(backend.serves(self._model) for backend in self._core.backends):
            self._refuse(NO_MODEL, f"The model `{self._model}` does not exist.")
        elif chosen < 0:
            self._refuse(NO_BACKEND, "no backend takes requests at the moment")
        else:
            self._to(chosen)

    def _to(self, chosen: int, *, anew: bool = False) -> None:
        """Send it to a backend; ``anew`` on a new connection."""
        core, request = self._core, self._request
        self._at, self._left = chosen, request.prompt_tokens + request.output_tokens
        core.balancer.requests[chosen] += 1
        core.balancer.tokens[chosen] += self._left
        backend = core.backends[chosen]
        found = None if anew else backend.pooled()
        if found is None:
            self._task = core.loop.create_task(self._connect())
        else:
            self._send(found)

    async def _connect(self) -> None:
        """Connect to the backend, and send; a failure opens its circuit."""
        core, backend, upstream = self._core, self._core.backends[self._at], Upstream(self._core.loop, self._core.limits.headers)
        backend.connects += 1
        try:
            async with asyncio.timeout(core.limits.connect_s):
                await core.loop.create_connection(lambda: upstream, backend.target.host, backend.target.port, ssl=core.tls_to(backend))
        except OSError as error:  # a time-out among them
            self._task = None
            backend.open_until = core.loop.time() + core.limits.open_s
            self.failed(said(error), again=True)
            return
        except asyncio.CancelledError:
            upstream.close()
            raise
        self._task = None
        self._send(upstream)

    def _send(self, upstream: Upstream) -> None:
        backend, request = self._core.backends[self._at], self._request
        self._upstream = upstream
        upstream.deadline = self._core.loop.time() + self._core.limits.first_byte_s
        upstream.fresh = False
        backend.busy.add(upstream)
        upstream.send(self, request.wire(backend.authority), bodiless=request.method == b"HEAD", unchunked=request.version == "1.0")

    def began(self, head: Head) -> Write:
        """Pass the head on; returns what takes the body."""
        core, request = self._core, self._request
        core.waits[self._at].observe(core.loop.time() - self._started)
        self._begun, self._status = True, head.status
        chunked = head.chunked and request.version != "1.0"
        self._keep = request.keep and not head.until_close and chunked == head.chunked and not core.draining
        self._came(request.prompt_tokens)
        write = self._client.writer()
        write(head.wire(close=not self._keep, chunked=chunked))
        if self._client.paused:
            self.pause()
        if core.balancer.policy != "least-tokens":
            return write

        def counted(data: bytes) -> None:  # a piece of a stream is a token, as near as can be told without reading it
            self._came(1)
            write(data)

        return counted

    def _came(self, tokens: int) -> None:
        """Take tokens off those that are still to come."""
        tokens = min(tokens, self._left)
        self._left -= tokens
        self._core.balancer.tokens[self._at] -= tokens

    def ended(self) -> None:
        """The response has come whole."""
        outcome = "error" if self._status >= 500 else "ok"
        self._release(outcome, keep=True)
        self._over(outcome)
        self._client.responded(keep=self._keep)

    def failed(self, why: str, *, again: bool) -> None:
        """The backend failed: the stream is cut if it has begun, else there may be another attempt."""
        if self._begun:
            self._release("cut")
            self._over("cut")
            self._client.cut()
            return
        upstream = self._upstream
        if again and upstream is not None and upstream.used > 1:
            # An idle connection that the backend closed at this very moment says nothing of the backend.
            chosen = self._at
            self._release("")
            self._to(chosen, anew=True)
        elif not (again and self._moved()):
            name = self._core.backends[self._at].name
            self._release("failed")
            self._refuse(BAD_GATEWAY if why != "it took too long" else TOO_LATE, f"backend {name}: {why}")

    def withdraw(self) -> None:
        """The backend no longer passes its health checks: go elsewhere if nothing has come and another one takes requests."""
        if not self._begun:
            self._moved()

    def _moved(self) -> bool:
        """Make the one further attempt on another backend; False where it has been made, or there is no other."""
        if self._tried:
            return False
        chosen = self._core.balancer.choose(self._request, self._core.loop.time(), (self._at,), self._model)
        if chosen < 0:
            return False
        self._tried.add(self._at)
        self._core.retries += 1
        self._release("retried")
        self._to(chosen)
        return True

    def cancel(self) -> None:
        """The client has left: so does the request."""
        self._release("cancelled")
        self._over("cancelled")

    def pause(self) -> None:
        """The client reads too slowly: read no more from the backend."""
        if self._upstream is not None and self._begun:
            self._upstream.pause()

    def resume(self) -> None:
        """The client has caught up."""
        if self._upstream is not None:
            self._upstream.resume()

    def _release(self, outcome: str, *, keep: bool = False) -> None:
        """Let go of the backend, and count how the request to it ended."""
        core, backend, upstream = self._core, self._core.backends[self._at], self._upstream
        core.balancer.requests[self._at] -= 1
        core.balancer.tokens[self._at] -= self._left
        self._left = 0
        if outcome:
            backend.outcomes[outcome] += 1
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if upstream is not None:
            self._upstream = None
            backend.busy.discard(upstream)
            if keep and upstream.usable:
                backend.keep(upstream)
            else:
                upstream.close()

    def _over(self, outcome: str) -> None:
        """The request has ended, however it did: count it out, and log it."""
        core, request = self._core, self._request
        core.in_flight -= 1
        if self._account is not None:
            self._account.over()
        core.log.write(
            key="" if self._account is None else self._account.key.name,
            model=self._model,
            method=request.method,
            target=request.target,
            backend=core.backends[self._at].name if self._at >= 0 else "",
            status=self._status,
            outcome=outcome,
            seconds=core.loop.time() - self._started,
        )

    def _refuse(self, status: int, message: str) -> None:
        core, request = self._core, self._request
        self._status = status
        self._over("failed" if self._at >= 0 else "refused")
        core.refused[status] += 1
        self._client.writer()(refusal(status, message, close=not request.keep, head=request.method == b"HEAD"))
        self._client.responded(keep=request.keep)

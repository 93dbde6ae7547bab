"""A request at one backend: a connection is found or made, the request is sent, its response is heard of."""

from __future__ import annotations

import asyncio
import errno
from typing import Protocol

from tonnage.gateway.core import Core
from tonnage.gateway.fetch import said
from tonnage.gateway.request import Request
from tonnage.gateway.response import Head
from tonnage.gateway.upstream import Upstream, Write


class Judge(Protocol):
    """Who decides what becomes of an attempt."""

    def began(self, attempt: Attempt, head: Head) -> Write:
        """Its response has begun; returns what takes the body."""

    def ended(self, attempt: Attempt) -> None:
        """Its response is whole."""

    def failed(self, attempt: Attempt, why: str, *, again: bool) -> None:
        """There will be no more of it."""

    def withdraw(self, attempt: Attempt) -> None:
        """Its backend has stopped passing its health checks."""


class Attempt:
    """One attempt.

    Attributes:
        at: the number of its backend.
    """

    __slots__ = ("_core", "_judge", "_left", "_request", "_task", "_upstream", "at")

    def __init__(self, core: Core, judge: Judge, request: Request, at: int) -> None:
        """Counted at its backend, and not sent yet."""
        self._core, self._judge, self._request, self.at = core, judge, request, at
        self._left = request.prompt_tokens + request.output_tokens
        self._task: asyncio.Task[None] | None = None
        self._upstream: Upstream | None = None
        core.counts.requests.add(at)
        core.counts.tokens.add(at, self._left)

    @property
    def reused(self) -> bool:
        """Whether it was sent on a connection that had carried another request: it may have been closed at this very moment."""
        return self._upstream is not None and self._upstream.used > 1

    def send(self, *, anew: bool = False) -> None:
        """Send it; ``anew`` on a new connection."""
        if self._upstream is not None:
            self._core.backends[self.at].busy.discard(self._upstream)
            self._upstream.close()
            self._upstream = None
        found = None if anew else self._core.backends[self.at].pooled()
        if found is None:
            self._task = self._core.loop.create_task(self._connect())
        else:
            self._write(found)

    async def _connect(self) -> None:
        """Connect to the backend, and send; a failure keeps others away from it for a moment."""
        core, backend, upstream = self._core, self._core.backends[self.at], Upstream(self._core.loop, self._core.limits.headers)
        core.counts.connects.add(self.at)
        try:
            async with asyncio.timeout(core.limits.connect_s):
                target = backend.target
                await core.loop.create_connection(lambda: upstream, target.host, target.port, ssl=core.tls_to(backend))
        except OSError as error:  # a time-out among them
            self._task = None
            if error.errno not in (errno.EMFILE, errno.ENFILE):  # which say nothing of the backend
                backend.avoid_until(core.loop.time() + core.limits.open_s)
            self.failed(said(error), again=True)
            return
        except asyncio.CancelledError:
            upstream.close()
            raise
        self._task = None
        self._write(upstream)

    def _write(self, upstream: Upstream) -> None:
        backend, request = self._core.backends[self.at], self._request
        self._upstream = upstream
        upstream.deadline = self._core.loop.time() + self._core.limits.first_byte_s
        upstream.fresh = False
        backend.busy.add(upstream)
        upstream.send(self, request.wire(backend.authority), bodiless=request.method == b"HEAD", unchunked=request.version == "1.0")

    def began(self, head: Head) -> Write:
        """The head is there; returns what takes the body."""
        self._came(self._request.prompt_tokens)
        write = self._judge.began(self, head)
        if self._core.balancer.policy != "least-tokens":
            return write

        def counted(data: bytes) -> None:  # a piece of a stream is a token, as near as can be told without reading it
            self._came(1)
            write(data)

        return counted

    def _came(self, tokens: int) -> None:
        """Take tokens off those that are still to come."""
        tokens = min(tokens, self._left)
        self._left -= tokens
        self._core.counts.tokens.add(self.at, -tokens)

    def ended(self) -> None:
        """The response is whole."""
        self._judge.ended(self)

    def failed(self, why: str, *, again: bool) -> None:
        """There will be no more of it; ``again`` says whether another attempt may do better."""
        self._judge.failed(self, why, again=again)

    def withdraw(self) -> None:
        """The backend has stopped passing its health checks."""
        self._judge.withdraw(self)

    def pause(self) -> None:
        """Read no more of the response until ``resume``."""
        if self._upstream is not None:
            self._upstream.pause()

    def resume(self) -> None:
        """Read on."""
        if self._upstream is not None:
            self._upstream.resume()

    def release(self, outcome: str, *, keep: bool = False) -> None:
        """Let go of the backend, and count how it ended; what still runs there is ended unless the connection is to be kept."""
        core, backend, upstream = self._core, self._core.backends[self.at], self._upstream
        core.counts.requests.add(self.at, -1)
        core.counts.tokens.add(self.at, -self._left)
        core.counts.ended(self.at, outcome)
        self._left = 0
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

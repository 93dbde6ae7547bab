"""A backend: where it is, whether it takes requests, what it serves, the connections to it, and what became of its requests."""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_left
from collections.abc import Callable
from typing import Protocol

import httptools

from tonnage.bench.connection import Target
from tonnage.gateway.http import BrokenResponse, Head, Reading, Unchunking, read_head

Write = Callable[[bytes], None]


class Receiver(Protocol):
    """Who hears of a response."""

    def began(self, head: Head) -> Write:
        """The head is there; returns what takes the body."""

    def ended(self) -> None:
        """The response is whole."""

    def failed(self, why: str, *, again: bool) -> None:
        """There will be no more of it; ``again`` says whether another attempt may do better."""

    def withdraw(self) -> None:
        """The backend has stopped passing its health checks."""


class Upstream(asyncio.Protocol):
    """A transport with at most one request at a time."""

    __slots__ = (
        "_bodiless", "_feed", "_head", "_loop", "_most", "_reading", "_receiver", "_transport", "_unchunking", "_until_close", "_write",
        "deadline", "fresh", "paused", "since", "usable", "used",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int) -> None:
        """Of responses whose head has at most ``most`` bytes."""
        self._loop = loop
        self._most = most
        self._transport: asyncio.Transport | None = None
        self._receiver: Receiver | None = None
        self._write: Write | None = None
        self._feed: Callable[[bytes], None] | None = None
        self._reading = Reading()
        self._unchunking: Unchunking | None = None
        self._head = b""
        self._bodiless = self._until_close = False
        # usable: whether it can be given a request; fresh: whether bytes have come since somebody last set this to False; paused: whether
        # reading is held up, because the client is slow
        self.usable = self.fresh = self.paused = False
        self.used = 0  # how many it has been given
        self.since = 0.0  # the loop's time at which the last one ended
        self.deadline = math.inf  # the loop's time at which the response is too late

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self._transport = transport  # type: ignore[assignment] # what a stream connection always gives
        self.usable = True

    def send(self, receiver: Receiver, data: bytes, *, bodiless: bool, unchunked: bool) -> None:
        """Send a request; ``unchunked`` wants the body without its chunks."""
        self._receiver, self._write, self._head = receiver, None, b""
        self._unchunking = Unchunking() if unchunked else None
        self._bodiless = bodiless
        self.used += 1
        if self._transport is not None:
            self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        """Hand a piece of a body on; the end of a chunked one is found by the parser."""
        self.fresh = True
        write, feed = self._write, self._feed
        if write is None or feed is None:
            self._begin(data)
            return
        reading = self._reading
        try:
            feed(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._break("bytes that are no part of an HTTP response")
            return
        if reading.overrun:
            self._break("more bytes than the response has")
            return
        write(data if self._unchunking is None else self._unchunking.take())
        if reading.complete:
            self._end()

    def _begin(self, data: bytes) -> None:
        """Read the head once all of it is there; interim responses (1xx) are dropped."""
        if self._receiver is None:
            self.close()
            return
        data = self._head + data
        try:
            while True:
                end = data.find(b"\r\n\r\n") + 4
                if end < 4 or end > self._most:
                    if len(data) > self._most:
                        raise BrokenResponse("a head that is too long")
                    self._head = data
                    return
                self._reading = self._unchunking or Reading()
                head, self._feed = read_head(data[:end], self._reading, bodiless=self._bodiless)
                data = data[end:]
                if head.status >= 200:
                    break
                self._unchunking = Unchunking() if self._unchunking else None
                if head.status == 101:
                    raise BrokenResponse("a change of protocol that nobody asked for")
        except BrokenResponse as broken:
            self._break(str(broken))
            return
        self._until_close = head.until_close
        self.usable = self.usable and head.keep
        self._write = self._receiver.began(head)
        if data and self._reading.complete:
            self._break("more bytes than the response has")
        elif data:
            self.data_received(data)
        elif self._reading.complete:
            self._end()

    def _end(self) -> None:
        receiver, self._receiver, self._write, self._feed = self._receiver, None, None, None
        self.resume()
        self.since = self._loop.time()
        if receiver is not None:
            receiver.ended()

    def _break(self, why: str) -> None:
        self.fail(why, again=False)

    def fail(self, why: str, *, again: bool) -> None:
        """Give the response up, close, and tell the receiver."""
        receiver, self._receiver = self._receiver, None
        self.close()
        if receiver is not None:
            receiver.failed(why, again=again)

    def withdraw(self) -> None:
        """Tell the receiver that the backend has stopped passing its health checks."""
        if self._receiver is not None:
            self._receiver.withdraw()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended: too early, unless that is how the body ends."""
        self.usable = False
        if self._receiver is not None and self._write is not None and self._until_close and exc is None:
            self._end()
        else:
            self.fail("the connection was lost", again=True)

    def close(self) -> None:
        """End the connection at once without telling anyone."""
        self.usable = False
        self._receiver = None
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        """Read no more until ``resume``: the backend will notice."""
        if not self.paused and self._transport is not None and not self._transport.is_closing():
            self.paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self.paused and self._transport is not None:
            self.paused = False
            self.fresh = True
            if not self._transport.is_closing():
                self._transport.resume_reading()


OUTCOMES = ("ok", "error", "cut", "failed", "retried", "cancelled")
"""How a request to a backend ends.

    ok          the response came whole
    error       it came whole and its status was 500 or more
    cut         it broke off after its first byte had been passed on
    failed      there was no response, and the client got an error
    retried     there was no response, and the request went to another backend
    cancelled   the client left first
"""

FIRST_BYTE = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of the buckets of the time to a response's first byte, in seconds; one more bucket has no bound."""


class Backend:
    """One backend; every method runs on the loop's thread."""

    def __init__(self, target: Target, weight: float) -> None:
        self.target = target
        self.name = target.authority  # host and port
        self.authority = target.authority.encode()
        self.weight = weight  # relative capacity
        self.up = False  # whether the last health checks passed
        self.fault = ""  # what was wrong at the last check that failed; "" where it passed
        self.kv_used = self.waited = 0.0  # kv_used: the share of its KV cache in use, as last scraped
        # requests, tokens: its requests that have not ended, and an estimate of their tokens still to come; connects: connections opened to
        # it
        self.requests = self.tokens = self.connects = 0
        self.outcomes = dict.fromkeys(OUTCOMES, 0)  # its requests by how they ended
        # and waited: responses that began within each bucket of ``FIRST_BYTE``, and the sum of their waits in seconds
        self.waits = [0] * (len(FIRST_BYTE) + 1)
        # its list of models by name, each as the backend gives it; None until it has given one: it may serve any
        self.models: dict[str, object] | None = None
        self.busy: set[Upstream] = set()  # connections that carry a request now
        self.idle: list[Upstream] = []  # connections that can carry another one, the most recently used last
        self._failures = 0
        self._avoided_until = 0.0

    def passed(self) -> None:
        """A health check has passed."""
        self.up, self._failures, self.fault = True, 0, ""

    def failed(self, fault: str, *, allowed: int) -> None:
        """A health check has failed; ``allowed`` of them in a row take the backend out, and its requests go elsewhere where they can."""
        self.fault = fault
        self._failures += 1
        if self._failures >= allowed and self.up:
            self.up = False
            for upstream in list(self.busy):
                upstream.withdraw()

    def avoid_until(self, moment: float) -> None:
        """Send it nothing before that moment of the loop's time: a connection has failed."""
        self._avoided_until = moment

    def takes(self, now: float) -> bool:
        """Whether it may be sent a request."""
        return self.up and now >= self._avoided_until

    def serves(self, model: str) -> bool:
        """Whether it serves a model by that name; "" is any."""
        return not model or self.models is None or model in self.models

    def answered(self, seconds: float) -> None:
        """A response has begun, so long after its request was complete."""
        self.waits[bisect_left(FIRST_BYTE, seconds)] += 1
        self.waited += seconds

    def pooled(self) -> Upstream | None:
        """An idle connection that is still open; None where there is none."""
        while self.idle:
            found = self.idle.pop()
            if found.usable:
                return found
        return None

    def close_idle(self, before: float) -> None:
        """Close the idle connections that have not been used since a moment."""
        stale = [upstream for upstream in self.idle if upstream.since < before]
        if stale:
            self.idle = [upstream for upstream in self.idle if upstream.since >= before]
            for upstream in stale:
                upstream.close()

"""A connection to a backend: sends a request, reads the response's head, and hands the bytes of its body on as they come."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Protocol

import httptools

from tonnage.gateway.response import BrokenResponse, Head, Reading, Unchunking, read_head

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
    """A transport with at most one request at a time.

    Attributes:
        usable: whether it can be given a request.
        used: how many it has been given.
        since: the loop's time at which the last one ended.
        fresh: whether bytes have come since somebody last set this to False.
        paused: whether reading is held up, because the client is slow.
        deadline: the loop's time at which the response is too late.
    """

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
        self.usable = self.fresh = self.paused = False
        self.used = 0
        self.since = 0.0
        self.deadline = math.inf

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands."""
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
        """Give the response up and close; the receiver is told."""
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
        """End the connection at once; nobody is told."""
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

"""The conductor of one run: who sends when, until everything has come back."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from tonnage.bench.alarm import Alarm
from tonnage.bench.client import Client
from tonnage.bench.exchange import CANCELLED, Exchange
from tonnage.bench.load import Load

AHEAD = 1_024
"""Requests that are made ready before their time at most."""

AHEAD_BYTES = 67_108_864


class Maker(Protocol):
    """Makes a request ready to be sent."""

    def __call__(self, number: int, isl: int, osl: int) -> Exchange:
        """The exchange of one request; ``number`` as in the record."""


class Conductor:
    """Runs one load over a client.

    Attributes:
        load: what is sent and when.
        sent: requests begun.
        over: requests that are over.
        start_ns: when the run began, on the monotonic clock.
        stopped: whether it was ended from outside.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, load: Load, make: Maker, taken: Callable[[Exchange], None]) -> None:
        """Make the first requests ready; nothing is sent yet.

        Args:
            loop: on whose thread everything happens.
            load: what is sent and when.
            make: makes requests ready.
            taken: called with each exchange that is over.
        """
        self._loop = loop
        self.load = load
        self._make = make
        self._taken = taken
        self._ready: deque[Exchange] = deque()
        self._made = 0
        self._bytes = 0
        self._client: Client | None = None
        self._ended = asyncio.Event()
        self._closing = False
        self._alarm = Alarm(loop, self._due)
        self._deadline_ns = -1
        self.sent = 0
        self.over = 0
        self.start_ns = -1
        self.stopped = False
        self._prepare(min(max(load.concurrency, 64), AHEAD))

    def planned_start(self, moment_ns: int | None = None) -> int:
        """Fix the moment that the schedule counts from: a millisecond from now, unless told."""
        self.start_ns = time.monotonic_ns() + 1_000_000 if moment_ns is None else moment_ns
        return self.start_ns

    async def run(self, client: Client) -> None:
        """Send everything and wait until it is over; ``planned_start`` has been called just before."""
        self._client = client
        load = self.load
        self._deadline_ns = -1 if load.seconds == float("inf") else self.start_ns + round(load.seconds * 1e9)
        if not len(load):
            self._ended.set()
        elif load.due_ns is not None:
            self._due_list = load.due_ns.tolist()
            self._alarm.set(self.start_ns + self._due_list[0])
        else:
            step = load.ramp_s / load.concurrency if load.ramp_s > 0 else 0.0
            self._joins = deque(self.start_ns + round(k * step * 1e9) for k in range(min(load.concurrency, len(load))))
            self._alarm.set(self._joins[0])
        last_s = load.seconds + load.grace_s
        late = None if last_s == float("inf") else self._loop.call_later(last_s, self._end_late)
        await self._ended.wait()
        self._alarm.close()
        if late is not None:
            late.cancel()

    def stop(self) -> None:
        """Send nothing more and give up what is in flight; what was measured stays."""
        self.stopped = True
        self._end_late()

    def _end_late(self) -> None:
        """The time and its grace are over: give up what is still in flight."""
        self._closing = True
        if self._client is not None:
            self._client.give_up_all(CANCELLED)
        self._check()

    def done(self, exchange: Exchange) -> None:
        """An exchange is over; in a closed loop its client goes on at once."""
        self.over += 1
        free_ns = time.monotonic_ns()
        if self.load.due_ns is None and self._may_send(free_ns):
            self._send(free_ns)
        self._taken(exchange)
        self._check()

    def _may_send(self, now: int) -> bool:
        if not self._closing and (self.sent >= len(self.load) or 0 <= self._deadline_ns <= now):
            self._closing = True
        return not self._closing

    def _due(self) -> None:
        """Send what is due, and set the alarm for the next."""
        now = time.monotonic_ns()
        if self.load.due_ns is None:
            while self._joins and self._joins[0] <= now and self._may_send(now):
                self._send(self._joins.popleft())
            if self._joins and not self._closing:
                self._alarm.set(self._joins[0])
            return
        due = self._due_list
        while self.sent < len(due) and not self._closing:
            moment = self.start_ns + due[self.sent]
            if moment > time.monotonic_ns():
                self._alarm.set(moment)
                return
            self._send(moment)
        self._closing = True
        self._check()

    def _send(self, due_ns: int) -> None:
        if not self._ready:
            self._prepare(1)
        exchange = self._ready.popleft()
        self._bytes -= len(exchange.data)
        self.sent += 1
        exchange.due_ns = due_ns
        if self._client is not None:
            self._client.start(exchange)
        if len(self._ready) < 64:
            self._loop.call_soon(self._prepare, 1)

    def _prepare(self, count: int) -> None:
        """Make up to ``count`` further requests ready."""
        load = self.load
        for _ in range(count):
            if self._made >= len(load) or self._bytes > AHEAD_BYTES:
                return
            number = self._made
            self._made += 1
            exchange = self._make(number, int(load.isl[number]), int(load.osl[number]))
            self._bytes += len(exchange.data)
            self._ready.append(exchange)

    def _check(self) -> None:
        """End where nothing is in flight and nothing will be sent."""
        if self._closing and self.over >= self.sent:
            self._ended.set()

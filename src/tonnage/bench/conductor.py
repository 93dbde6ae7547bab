"""The conductors of a run: requests sent when they are due, or turns of conversations, until
everything has come back.

A turn is due when the answer before it has come and its pause is over.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tonnage.bench.client import Client
from tonnage.bench.conversations import Conversations, History, TurnLog
from tonnage.bench.load import Load
from tonnage.bench.reply import CANCELLED, COMPLETED, Exchange
from tonnage.bench.timer import Alarm

AHEAD = 1_024  # Requests that are made ready before their time at most

AHEAD_BYTES = 67_108_864


# A request that fails sooner would let a closed loop ask thousands of times a second
AT_ONCE_NS = 100_000_000
# After one such failure, doubled with each in a row, and at most where a time ends the run
SHORTEST_WAIT_S, LONGEST_WAIT_S = 0.01, 1.0
# Where a number of requests ends it, so that a server that refuses all of them is seen soon
LONGEST_OF_A_COUNT_S = 0.05


# The exchange of a request by its number, as in the record, and its tokens in and out
Maker = Callable[[int, int, int], Exchange]


class _Conducting:
    """Runs a load of single requests or of conversations over a client."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        load: Load,
        on_ended: Callable[[Exchange], None],
        due: Callable[[], None],
    ) -> None:
        """Prepare; nothing is sent yet. ``on_ended`` gets each exchange that has ended, on the
        loop's thread, and ``due`` is called at its time.
        """
        self._loop, self.load, self._taken = loop, load, on_ended  # load: requests with their times
        self._client: Client | None = None
        self._ended = asyncio.Event()
        self._closing = False
        self._alarm = Alarm(loop, due)
        # sent: requests, or turns, begun; over: how many of these have ended
        self.sent = self.over = 0
        self.start_ns = -1  # when the run began, on the monotonic clock
        self.stopped = False  # whether it was ended from outside
        self.held = 0  # requests of an open loop that waited for one of those in flight to end
        self.waits = 0  # how often a client waited because its request had failed at once

    def planned_start(self, moment_ns: int | None = None) -> int:
        """Fix the run's time zero: ``moment_ns``, or a millisecond from now."""
        self.start_ns = time.monotonic_ns() + 1_000_000 if moment_ns is None else moment_ns
        return self.start_ns

    def stop(self) -> None:
        """Send nothing more and cancel requests in flight; measurements stay."""
        self.stopped = True
        self._end_late()

    def _end_late(self) -> None:
        """The time and its grace are over: give up what is still in flight."""
        self._closing = True
        if self._client is not None:
            self._client.give_up_all(CANCELLED)
        self._check()

    def _check(self) -> None:
        """End where nothing is in flight and nothing will be sent."""
        raise NotImplementedError

    def _wait_s(self, exchange: Exchange, free_ns: int) -> float:
        """Seconds that a client of a closed loop waits after an exchange: none unless it failed at
        once.
        """
        if exchange.outcome == COMPLETED or free_ns - exchange.begun_ns > AT_ONCE_NS:
            return 0.0
        self.waits += 1
        longest = LONGEST_OF_A_COUNT_S if self.load.seconds == float("inf") else LONGEST_WAIT_S
        return float(min(longest, SHORTEST_WAIT_S * 2.0 ** min(exchange.failures, 10)))


class Conductor(_Conducting):
    """Runs one load of single requests."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        load: Load,
        make: Maker,
        on_ended: Callable[[Exchange], None],
    ) -> None:
        super().__init__(loop, load, on_ended, self._due)
        self._make = make
        self._ready: deque[Exchange] = deque()
        self._made = 0
        self._bytes = 0
        self._deadline_ns = -1
        self._full = False  # whether a request is due that the cap on those in flight holds back
        self._prepare(min(max(load.concurrency, 64), AHEAD))

    async def run(self, client: Client) -> None:
        """Send everything and wait until it is over; ``planned_start`` has been called just
        before.
        """
        self._client = client
        load = self.load
        self._deadline_ns = (
            -1 if load.seconds == float("inf") else self.start_ns + round(load.seconds * 1e9)
        )
        if not len(load):
            self._ended.set()
        elif load.due_ns is not None:
            self._due_list = load.due_ns.tolist()
            self._alarm.set(self.start_ns + self._due_list[0])
        else:
            step = load.ramp_s / load.concurrency if load.ramp_s > 0 else 0.0
            self._joins = deque(
                self.start_ns + round(k * step * 1e9)
                for k in range(min(load.concurrency, len(load)))
            )
            self._alarm.set(self._joins[0])
        last_s = load.seconds + load.grace_s
        late = None if last_s == float("inf") else self._loop.call_later(last_s, self._end_late)
        await self._ended.wait()
        self._alarm.close()
        if late is not None:
            late.cancel()

    def done(self, exchange: Exchange) -> None:
        """An exchange is over; in a closed loop its client goes on at once."""
        self.over += 1
        free_ns = time.monotonic_ns()
        if self.load.due_ns is None and self._may_send(free_ns):
            wait_s = self._wait_s(exchange, free_ns)
            if wait_s:
                self._loop.call_later(wait_s, self._go_on, exchange.failures + 1)
            else:
                self._send(free_ns)
        elif self._full:
            self._full = False
            self._due_now(free_ns)
        self._taken(exchange)
        self._check()

    def _go_on(self, failures: int) -> None:
        """Send the next request of a client that has waited after ``failures`` in a row."""
        now = time.monotonic_ns()
        if not self._ended.is_set() and self._may_send(now):
            self._send(now, failures)
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
        if not self._full:
            self._due_now(-1)

    def _due_now(self, free_ns: int) -> None:
        """Send what an open loop has due, as long as its cap lets it; requests held back until
        ``free_ns`` are due then.
        """
        due, cap = self._due_list, self.load.in_flight
        while self.sent < len(due) and not self._closing:
            moment = self.start_ns + due[self.sent]
            if moment > time.monotonic_ns():
                self._alarm.set(moment)
                return
            if cap and self.sent - self.over >= cap:
                self._full = True
                return
            self.held += moment < free_ns
            self._send(max(moment, free_ns))
        self._closing = True
        self._check()

    def _send(self, due_ns: int, failures: int = 0) -> None:
        if not self._ready:
            self._prepare(1)
        exchange = self._ready.popleft()
        self._bytes -= len(exchange.data)
        self.sent += 1
        exchange.due_ns, exchange.failures = due_ns, failures
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


TurnMaker = Callable[..., Exchange]  # Makes the request of one turn, as ``Setup.turn`` does


@dataclass(slots=True)
class _Talk:
    """A conversation under way: its number, its requests that are planned or in flight, its
    messages, and its client's failures before.
    """

    number: int
    open: int = 0
    tokens: int = 0
    failures: int = 0
    history: History = field(default_factory=list)


class TalkConductor(_Conducting):
    """Runs conversations."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        load: Load,
        make: TurnMaker,
        on_ended: Callable[[Exchange], None],
    ) -> None:
        """Takes the arguments of ``Conductor``, and a load with conversations."""
        if load.conversations is None:
            raise ValueError("a load without conversations has another conductor")
        super().__init__(loop, load, on_ended, self._ring)
        self._make = make
        self._talks: Conversations = load.conversations
        graph = self._talks.graph()
        self._starts, self._rows, self._waits = (
            graph.starts.tolist(),
            graph.rows.tolist(),
            graph.waits.tolist(),
        )
        self._ready = [0] * len(self._waits)
        self._due: list[tuple[int, int, _Talk, int, Exchange]] = []
        self._order = itertools.count()
        self._asked: dict[Exchange, tuple[_Talk, int]] = {}
        self._begun = 0
        self._who, self._turn = array("q"), array("q")

    @property
    def log(self) -> TurnLog:
        """Record which turn each request was."""
        return TurnLog(
            conversation=np.array(self._who, dtype=np.int64),
            turn=np.array(self._turn, dtype=np.int64),
        )

    async def run(self, client: Client) -> None:
        """Hold every conversation and wait until the last is over; ``planned_start`` has been
        called just before.
        """
        self._client = client
        load, talks = self.load, self._talks
        if talks.due_ns is None:
            step = load.ramp_s / load.concurrency if load.ramp_s > 0 else 0.0
            for place in range(min(load.concurrency, len(talks))):
                self._begin(self.start_ns + round(place * step * 1e9))
        else:
            self._next_arrival()
        handles = []
        if load.seconds != float("inf"):
            handles.append(self._loop.call_later(load.seconds, self._time_over))
            if load.grace_s != float("inf"):
                handles.append(self._loop.call_later(load.seconds + load.grace_s, self._end_late))
        self._set()
        self._check()
        await self._ended.wait()
        self._alarm.close()
        for handle in handles:
            handle.cancel()

    def done(self, exchange: Exchange) -> None:
        """An answer has come, or none will: turns that waited for it follow; after the last of a
        conversation another one begins.
        """
        self.over += 1
        free_ns = time.monotonic_ns()
        talk, place = self._asked.pop(exchange)
        talk.open -= 1
        if not self._closing and exchange.outcome == COMPLETED:
            reply = exchange.reply
            if self._talks.contents is None:
                talk.history.append((exchange.question, "".join(reply.texts)))
                talk.tokens = exchange.isl + (reply.tokens if reply.tokens > 0 else exchange.osl)
            ended_ns = reply.last_ns if reply.last_ns >= 0 else free_ns
            for row in self._rows[self._starts[place] : self._starts[place + 1]]:
                self._waits[row] -= 1
                self._ready[row] = max(self._ready[row], ended_ns)
                if not self._waits[row]:
                    self._plan(talk, row, self._ready[row] + int(self._talks.pause_ns[row]))
        if not self._closing and not talk.open and self._talks.due_ns is None:
            wait_s = self._wait_s(exchange, free_ns)
            self._begin(free_ns + round(wait_s * 1e9), exchange.failures + 1 if wait_s else 0)
        self._taken(exchange)
        self._set()
        self._check()

    def _begin(self, due_ns: int, failures: int = 0) -> None:
        """Start the next conversation, if one is left, for a client that has had ``failures`` in a
        row.
        """
        if self._begun < len(self._talks):
            self._plan(
                _Talk(self._begun, failures=failures), int(self._talks.starts[self._begun]), due_ns
            )
            self._begun += 1

    def _next_arrival(self) -> None:
        if self._talks.due_ns is not None and self._begun < len(self._talks):
            self._begin(self.start_ns + int(self._talks.due_ns[self._begun]))

    def _plan(self, talk: _Talk, place: int, due_ns: int) -> None:
        """Make a turn of a conversation ready, and put it where its moment is."""
        talks = self._talks
        pieces = () if talks.contents is None else list(zip(*talks.contents.of(place), strict=True))
        text = talks.texts[place] if talks.texts else ""
        lengths = int(talks.isl[place]), int(talks.osl[place])
        exchange = self._make(
            place, *lengths, text=text, pieces=pieces, before=talk.tokens, history=talk.history
        )
        talk.open += 1
        heapq.heappush(self._due, (due_ns, next(self._order), talk, place, exchange))

    def _ring(self) -> None:
        """Ask what is due."""
        while self._due and self._due[0][0] <= time.monotonic_ns() and not self._closing:
            due_ns, _, talk, place, exchange = heapq.heappop(self._due)
            turn = place - int(self._talks.starts[talk.number])
            exchange.due_ns, exchange.number, exchange.failures = due_ns, self.sent, talk.failures
            self._who.append(talk.number)
            self._turn.append(turn)
            self.sent += 1
            self._asked[exchange] = (talk, place)
            if self._client is not None:
                self._client.start(exchange)
            if turn == 0:
                self._next_arrival()
        self._set()
        self._check()

    def _set(self) -> None:
        if self._due and not self._closing:
            self._alarm.set(self._due[0][0])

    def _time_over(self) -> None:
        """Send nothing more; wait for requests in flight."""
        self._closing = True
        self._due.clear()
        self._check()

    def _end_late(self) -> None:
        self._time_over()
        super()._end_late()

    def _check(self) -> None:
        """End where nothing is in flight and nothing will be asked."""
        if (
            self.over >= self.sent
            and not self._due
            and (self._closing or self._begun >= len(self._talks))
        ):
            self._ended.set()

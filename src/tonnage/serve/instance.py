"""One simulated engine on a clock on the wall: requests come when they come, and tokens leave when the engine says so."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tonnage.results.requests import UNFINISHED
from tonnage.simulator.request import Request

if TYPE_CHECKING:
    from tonnage.serve.clock import WallClock
    from tonnage.simulator.engine import Engine

Deliver = Callable[[int, int], None]
"""Takes output tokens and the status of the request after them, when its client has them."""


class Alarm(Protocol):
    """What wakes an instance: ``bench.alarm.Alarm``, or a test's own."""

    def set(self, moment_ns: int) -> None:
        """Ring once at that moment of the monotonic clock."""


@dataclass(slots=True, eq=False, kw_only=True)
class Live:
    """A request that has not ended: who takes its tokens, and how many tokens a router in front knows to be still to come."""

    deliver: Deliver
    prompt: int
    output: int


class Instance:
    """A resumable engine, advanced to the present whenever something is due or somebody submits.

    Attributes:
        name: its number, as text, in metrics.
        live: requests that have not ended, by number.
    """

    def __init__(self, name: str, engine: Engine, clock: WallClock) -> None:
        """Start idle; without ``wakes_by``, whoever holds it calls ``wake`` when something is due.

        Args:
            name: of the instance.
            engine: at its time 0, which is the clock's.
            clock: what time it is.
        """
        self.name = name
        self.engine = engine
        self.live: dict[int, Live] = {}
        self.tokens_to_come = 0
        self._clock = clock
        self._coming: list[tuple[int, int, int, int, int]] = []
        self._entries = 0
        self._alarm: Alarm | None = None
        self._late: Callable[[float], None] | None = None

    def wakes_by(self, alarm: Alarm, late: Callable[[float], None]) -> None:
        """Take an alarm whose ring calls ``wake``, and whom to tell how late each batch of deliveries was, in seconds on the wall."""
        self._alarm, self._late = alarm, late

    def submit(self, number: int, *, isl: int, osl: int, deliver: Deliver) -> None:
        """Take a request now.

        Args:
            number: of the request; no two of an instance have the same.
            isl, osl: prompt and output tokens.
            deliver: called for every piece of the answer; not from inside this call.
        """
        self.engine.submit(Request(id=number, isl=isl, osl=osl, at=max(self._clock.now(), self.engine.now)))
        self.live[number] = Live(deliver=deliver, prompt=isl, output=osl)
        self.tokens_to_come += isl + osl
        self.wake()

    def cancel(self, number: int) -> bool:
        """Let go of a request whose client has left; False if it had ended."""
        live = self.live.pop(number, None)
        if live is None:
            return False
        self.tokens_to_come -= live.prompt + live.output
        self.engine.cancel(number)
        self.wake()
        return True

    def wake(self) -> None:
        """Bring the engine to the present, hand out what is due, and set the alarm for what comes next."""
        while True:
            until = max(self._clock.now(), self.engine.now)
            self._advance(until)
            moment = self._next()
            if moment is None:
                return
            if moment > self._clock.now():
                break
        if self._alarm is not None:
            self._alarm.set(self._clock.moment_ns(moment))

    def _advance(self, until: int) -> None:
        happened = self.engine.advance(until)
        if len(happened):
            columns = (happened.at.tolist(), happened.ids.tolist(), happened.tokens.tolist(), happened.status.tolist())
            for at, number, tokens, status in zip(*columns, strict=True):
                self._entries += 1
                heapq.heappush(self._coming, (at, self._entries, number, tokens, status))
        due = self._coming[0][0] if self._coming else until + 1
        if due <= until and self._late is not None:
            self._late(max(self._clock.late_s(due), 0.0))
        while self._coming and self._coming[0][0] <= until:
            _, _, number, tokens, status = heapq.heappop(self._coming)
            self._hand_out(number, tokens, status)

    def _hand_out(self, number: int, tokens: int, status: int) -> None:
        live = self.live.get(number)
        if live is None:
            return
        self.tokens_to_come -= live.prompt + tokens
        live.prompt, live.output = 0, live.output - tokens
        if status != UNFINISHED:
            self.tokens_to_come -= live.output
            del self.live[number]
        live.deliver(tokens, status)

    def _next(self) -> int | None:
        """The simulated instant of the next step or delivery; None where nothing is under way."""
        instants = [at for at in (self.engine.next_event(), self._coming[0][0] if self._coming else None) if at is not None]
        return min(instants, default=None)

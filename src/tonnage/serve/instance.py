"""One simulated engine on a clock on the wall: requests come when they come, and tokens leave when the engine says so."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from tonnage.results.requests import UNFINISHED
from tonnage.serve.prefix import Content
from tonnage.simulator.member import Delivery, Member
from tonnage.units import NS_PER_S

if TYPE_CHECKING:
    from tonnage.serve.clock import WallClock
    from tonnage.serve.prefix import CachedEngine

KEPT = 4_096
"""Requests after which ended ones are forgotten."""

Deliver = Callable[[int, int], None]
"""Takes output tokens and the status of the request after them, when its client has them."""


class Alarm(Protocol):
    """What wakes an instance: ``bench.alarm.Alarm``, or a test's own."""

    def set(self, moment_ns: int) -> None:
        """Ring once at that moment of the monotonic clock."""


class Instance:
    """A member of a fleet that is advanced to the present whenever something is due or somebody submits.

    Attributes:
        name: its number, as text, in metrics.
        engine: which the member advances.
        member: of a fleet: the engine, and what is outstanding there.
        slot_at: when each request that is not forgotten had a slot first, in seconds of ``time.monotonic``.
        handing_at: when the engine made what is being handed out, in picoseconds of its time.
    """

    def __init__(self, name: str, engine: CachedEngine, clock: WallClock) -> None:
        """Start idle; without ``wakes_by``, anyone who holds it calls ``wake`` when something is due. The engine's 0 is the clock's."""
        self.name = name
        self.engine = engine
        self.member = Member(engine)  # type: ignore[arg-type] # the plain engine has the same methods
        self._clock = clock
        self._deliver: dict[int, Deliver] = {}
        self._alarm: Alarm | None = None
        self._late: Callable[[float], None] | None = None
        self.slot_at: dict[int, float] = {}
        self.handing_at = 0
        self._without: set[int] = set()
        self._begun: set[int] = set()
        self._taken = 0

    def wakes_by(self, alarm: Alarm, late: Callable[[float], None]) -> None:
        """Take an alarm whose ring calls ``wake``, and whom to tell how late each batch of deliveries was, in seconds on the wall."""
        self._alarm, self._late = alarm, late

    @property
    def now(self) -> int:
        """Its time, in picoseconds."""
        return max(self._clock.now(), self.engine.now)

    def wall_s(self, at: int) -> float:
        """Seconds on the wall until its time is ``at``; below 0 where that is past."""
        return -self._clock.late_s(at)

    def release(self, blocks: int) -> None:
        """Give back KV blocks that were held for another instance."""
        self.wake()
        self.engine.release(blocks)
        self.wake()

    def submit(
        self,
        number: int,
        *,
        isl: int,
        osl: int,
        deliver: Deliver,
        content: Content | None = None,
        came_at: float | None = None,
        received: bool = False,
    ) -> None:
        """Take a request.

        Its time counts from when it came: what this machine takes to read it is no time of the engine's, whose own front end is simulated.

        Args:
            deliver: called for every piece of the answer.
            content: its tokens, for an engine with a prefix cache; None for some that it shares with nobody.
            came_at: when it came, in seconds of ``time.monotonic``; None for now.
            received: whether its KV cache and first token come from another engine, at ``came_at``.
        """
        self._taken += 1
        if self._taken % KEPT == 0:
            self.engine.forget()
        if self.engine.watched is not None:
            unshared = Content(ids=[0] * isl, salt=f"of request {number} alone", later=lambda place: 0)
            self.engine.live.add(number, unshared if content is None else content)
        self._deliver[number] = deliver
        self._without.add(number)
        at = self.now if came_at is None else max(self._clock.at(round(came_at * NS_PER_S)), self.engine.now)
        self.member.submit(number, isl=isl, osl=osl, at=at, received=received)
        self.wake()

    def cancel(self, number: int) -> bool:
        """Let go of a request whose client has left; False if it had ended."""
        self._deliver.pop(number, None)
        self._without.discard(number)
        self._begun.discard(number)
        live = self.member.cancel(number)
        if live:
            self.wake()
        return live

    def wake(self) -> None:
        """Bring the engine to the present, hand out what is due, and set the alarm for what comes next.

        Handing out the tokens of a step takes this machine some milliseconds where there are many. First tokens leave first, so that this
        is not added to the TTFT; between the tokens of one request it is the same at every step.
        """
        while True:
            due = self.member.advance(self.now)
            self._note_slots()
            if due and self._late is not None:
                self._late(max(self._clock.late_s(due[0].at), 0.0))
            for delivery in sorted(due, key=lambda one: one.number in self._begun):
                self._hand_out(delivery)
            moment = self.member.next_event()
            if moment is None:
                return
            if moment > self._clock.now():
                break
        if self._alarm is not None:
            self._alarm.set(self._clock.moment_ns(moment))

    def _note_slots(self) -> None:
        """See who has got a slot; looked at only where fewer wait than did."""
        engine = self.engine
        if not self._without or len(self._without) == engine.queued:
            return
        now, waiting = time.monotonic(), {*engine.queue.tolist()}
        for number in self._without - waiting:
            self.slot_at[number] = now
        self._without &= waiting

    def _hand_out(self, delivery: Delivery) -> None:
        number, ends, self.handing_at = delivery.number, delivery.status != UNFINISHED, delivery.at
        deliver = self._deliver.pop(number, None) if ends else self._deliver.get(number)
        (self._begun.discard if ends else self._begun.add)(number)
        if deliver is not None:
            deliver(delivery.tokens, delivery.status)

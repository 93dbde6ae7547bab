"""Simulated engines on the wall clock: requests come when they come, and tokens leave when the
engine says so.
"""

from __future__ import annotations

import bisect
import itertools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from tonnage.results.requests import UNFINISHED
from tonnage.serve.prefix import CachedEngine, Content, names_of
from tonnage.simulator.member import Delivery, Member, view_of_groups
from tonnage.simulator.router import ROUTERS, Request, memory_of
from tonnage.units import NS_PER_S, PS_PER_NS, PS_PER_S


class WallClock:
    """Simulated picoseconds since the start of a server; ``speed`` of them pass in one picosecond
    of wall-clock time.
    """

    def __init__(self, speed: float = 1.0, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        # how many times as fast as the wall's the simulated time runs, where no change slows it
        self.speed = speed
        self._now_ns = now_ns
        self._from_ns, self._from_ps, self._pace = [now_ns()], [0], [PS_PER_NS * speed]

    def change(self, changes: Sequence[tuple[float, float]]) -> None:
        """Change the pace from now on, in place of changes to come: (seconds from now, factor by
        which time is slower), in order.
        """
        start = self._now_ns()
        part = bisect.bisect_right(self._from_ns, start)
        del self._from_ns[part:], self._from_ps[part:], self._pace[part:]
        for seconds, factor in changes:
            moment = start + round(seconds * NS_PER_S)
            self._from_ps.append(self.at(moment))
            self._from_ns.append(moment)
            self._pace.append(0.0 if math.isinf(factor) else PS_PER_NS * self.speed / factor)

    def now(self) -> int:
        """Simulated picoseconds."""
        return self.at(self._now_ns())

    def at(self, moment_ns: int) -> int:
        """The simulated picoseconds of a moment of the monotonic clock."""
        part = max(bisect.bisect_right(self._from_ns, moment_ns) - 1, 0)
        return self._from_ps[part] + int((moment_ns - self._from_ns[part]) * self._pace[part])

    def moment_ns(self, at: int) -> int:
        """The first nanosecond of the monotonic clock with simulated time at ``at``; a year away
        where the clock never advances.
        """
        part = max(bisect.bisect_left(self._from_ps, at) - 1, 0)
        if not self._pace[part]:
            return self._from_ns[part] + 366 * 86_400 * NS_PER_S
        moment = self._from_ns[part] + int((at - self._from_ps[part]) / self._pace[part])
        while self.at(moment) < at:
            moment += 1
        return moment

    def late_s(self, at: int) -> float:
        """Wall-clock seconds since simulated time was ``at``."""
        return (self._now_ns() - self.moment_ns(at)) / NS_PER_S


# Takes output tokens and the status of the request after them, when its client has them
Deliver = Callable[[int, int], None]


class Instance:
    """A member of a fleet that is advanced to the present whenever something is due or a request is
    submitted.
    """

    def __init__(self, name: str, engine: CachedEngine, clock: WallClock) -> None:
        """Start idle; without ``wakes_by``, anyone who holds it calls ``wake`` when something is
        due. The engine's 0 is the clock's.
        """
        self.name = name  # its number, as text, in metrics
        self.engine = engine  # which the member advances
        # of a fleet: the engine, and what is outstanding there
        self.member = Member(engine)  # type: ignore[arg-type] # the plain engine has the same methods
        self._clock = clock
        # of each request, on the wall's clock
        self.front_end_s = engine.frontend_ps / PS_PER_S / clock.speed
        self._deliver: dict[int, Deliver] = {}
        self._ring_at: Callable[[int], None] | None = None
        self._late: Callable[[float], None] | None = None
        # when each request that has not ended had a slot first, in seconds of ``time.monotonic``
        self.slot_at: dict[int, float] = {}
        # when the engine made what is being handed out, in picoseconds of its time
        self.handing_at = 0
        self._without: set[int] = set()
        self._begun: set[int] = set()

    def wakes_by(self, ring_at: Callable[[int], None], late: Callable[[float], None]) -> None:
        """Let ``ring_at`` set an alarm, whose ring calls ``wake``; ``late`` takes the wall-clock
        seconds by which deliveries were late.
        """
        self._ring_at, self._late = ring_at, late

    @property
    def now(self) -> int:
        """Its time, in picoseconds."""
        return max(self._clock.now(), self.engine.now)

    def wall_s(self, at: int) -> float:
        """Wall-clock seconds until its time is ``at``; below 0 where that is past."""
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

        Its time counts from when it came (``came_at``, in seconds of ``time.monotonic``): what this
        machine takes to read it is no time of the engine's, whose own front end is simulated.
        ``content`` are its tokens, None for some that it shares with nobody; where it is
        ``received``, its KV cache and first token come from another engine then.
        """
        if self.engine.watched is not None:
            unshared = Content(
                ids=[0] * isl, salt=f"of request {number} alone", later=lambda place: 0
            )
            self.engine.live.add(number, unshared if content is None else content)
        self._deliver[number] = deliver
        self._without.add(number)
        at = (
            self.now
            if came_at is None
            else max(self._clock.at(round(came_at * NS_PER_S)), self.engine.now)
        )
        self.member.submit(number, isl=isl, osl=osl, at=at, received=received)
        self.wake()

    def cancel(self, number: int) -> bool:
        """Let go of a request that has ended, or whose client has left, and forget it; False if it
        had ended.
        """
        self._deliver.pop(number, None)
        self._without.discard(number)
        self._begun.discard(number)
        live = self.member.cancel(number)
        self.engine.forget(number)
        if live:
            self.wake()
        return live

    def wake(self) -> None:
        """Bring the engine to the present, hand out what is due, and set the alarm for what comes
        next.

        Handing out the tokens of a step takes this machine some milliseconds where there are many.
        First tokens leave first, so that this is not added to the TTFT; between the tokens of one
        request it is the same at every step.
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
        if self._ring_at is not None:
            self._ring_at(self._clock.moment_ns(moment))

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


class Fleet:
    """Sends each request to one of its instances, by the simulator's own router."""

    def __init__(
        self,
        instances: Sequence[Instance],
        router: str = "least-outstanding",
        seed: int = 0,
        ranks: int = 1,
    ) -> None:
        """Start with idle instances, whose attention ranks are side by side and get requests in
        turn, as in ``simulator.spec``.
        """
        self.instances = tuple(instances)
        self._groups = [
            [instance.member for instance in self.instances[at : at + ranks]]
            for at in range(0, len(self.instances), ranks)
        ]
        self._turns = [
            itertools.cycle(range(at, at + ranks)) for at in range(0, len(self.instances), ranks)
        ]
        self._members = [instance.member for instance in self.instances]
        self._choose, self._by_prefix = ROUTERS[router], router == "prefix-aware"
        self._memory = memory_of(len(self._groups), seed)
        self._numbers = itertools.count()
        self._where: dict[int, Instance] = {}

    @property
    def waiting(self) -> int:
        """Requests in the engines' queues."""
        return sum(len(member.engine.waiting) for member in self._members)

    def submit(
        self,
        *,
        isl: int,
        osl: int,
        deliver: Deliver,
        session: int = -1,
        content: Content | None = None,
        came_at: float | None = None,
        received: bool = False,
        rank: int | None = None,
        sent: Callable[[int, Instance], None] | None = None,
    ) -> int:
        """Send a request to an instance, or to the ``rank`` that the client chose; its number.

        Arguments are those of ``Instance.submit``, the client's ``session`` for session affinity
        (-1 for none), and ``sent``, which is called with number and instance before anything is
        delivered: on a slow machine before this returns.
        """
        number = next(self._numbers)
        if rank is None:
            rank = self._chosen(number, isl, session, content)
        instance = self.instances[rank]
        self._where[number] = instance
        if sent is not None:
            sent(number, instance)
        instance.submit(
            number,
            isl=isl,
            osl=osl,
            deliver=deliver,
            content=content,
            came_at=came_at,
            received=received,
        )
        return number

    def _chosen(self, number: int, isl: int, session: int, content: Content | None) -> int:
        """The engine that the router chooses."""
        view = view_of_groups(self._groups)
        if self._by_prefix and content is not None:
            view = view._replace(matched=[self._matched(group, content) for group in self._groups])
        chosen = self._choose(view, Request(number=number, session=session, isl=isl), self._memory)
        return next(self._turns[chosen])

    def _matched(self, group: Sequence[Member], content: Content) -> int:
        """Tokens of a prompt that the cache of an instance has, or that of one of its ranks."""
        engines: list[Any] = [member.engine for member in group]
        return max(
            int(engine.matched(names_of(content.ids, engine.tokens_per_block, content.salt)))
            for engine in engines
        )

    def ended(self, number: int) -> Instance:
        """Forget a request; the instance that had it."""
        return self._where.pop(number)

    def cancel(self, number: int) -> None:
        """Let go of a request whose client has left."""
        instance = self._where.get(number)
        if instance is not None:
            instance.cancel(number)

"""Several engines behind one router, under an open loop: the specification, in plain Python over
resumable engines.

At the instant of each arrival every engine is advanced to that instant, the router looks at what it
can see, and the request is sent to the instance that it chose. So a router never knows more than
what has come back to clients by then, and where two requests arrive at one instant the second is
routed with the first one outstanding. Failures (``failures.py``) and the looks of a controller
(``autoscaler.py``) come before the requests of their instant. An engine that fails or is released
is thrown away, and another one is in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnage.results.requests import FAILED, ROW_COLUMNS, UNFINISHED
from tonnage.simulator.autoscaler import NO_LOOK, look, next_look, place_fails, scaler_of
from tonnage.simulator.changes import DRAINS, NO_CHANGES, Changes, Routed
from tonnage.simulator.engine import Engine
from tonnage.simulator.kernel.driven import drive_fleet, is_compiled
from tonnage.simulator.kernel.fleet import compile_for, run_fleet
from tonnage.simulator.member import Member, view_of
from tonnage.simulator.router import (
    DEFAULT_ROUTER,
    NO_INSTANCE,
    ROUTERS,
    Request,
    check_fleet,
    memory_of,
)
from tonnage.units import PS_PER_NS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.spec.workload import Trace


NEVER = 1 << 62


def simulate_fleet(
    trace: Trace,
    engines: Sequence[Engine],
    router: str = DEFAULT_ROUTER,
    *,
    seed: int = 0,
    weight: Sequence[float] | None = None,
    sessions: NDArray[np.int64] | None = None,
    changes: Changes = NO_CHANGES,
    fresh: Callable[[int], Engine] | None = None,
) -> Routed:
    """Simulate the requests of an open loop on several engines.

    Args:
        trace: an open loop; ``due_ps`` in order.
        engines: idle engines at time 0; they may differ.
        router: a name of ``simulator.router.ROUTERS``.
        seed: of the router's random choices.
        weight: relative capacities of the engines for routers that heed them; 1 for all if not
            given.
        sessions: the session of each request, for session affinity; none if not given.
        changes: failures, or autoscaling.
        fresh: makes another engine like that of an instance; needed where anything changes.

    Raises:
        InputError: a closed loop, no engine, an unknown router, due times out of order, or more
            instances in ``changes`` than there are.
    """
    check_fleet(trace, engines, router)
    changes.check(len(engines))
    fleet = _Fleet(
        trace,
        engines,
        router,
        seed=seed,
        weight=weight,
        sessions=sessions,
        changes=changes,
        fresh=fresh,
    )
    for number, at in enumerate(trace.due_ps.tolist()):
        fleet.happen(at)
        fleet.came()
        fleet.route(number, at)
    for member in fleet.members:
        member.engine.advance()
    return fleet.routed()


class _Fleet:
    """A fleet under way.

    ``served`` are all engines that there have been, each with the numbers of the requests that were
    sent there, in that order; ``place`` says which of them each instance is now, and ``owner``
    which one had each request last (-1 for none).
    """

    def __init__(
        self,
        trace: Trace,
        engines: Sequence[Engine],
        router: str,
        *,
        seed: int,
        weight: Sequence[float] | None,
        sessions: NDArray[np.int64] | None,
        changes: Changes,
        fresh: Callable[[int], Engine] | None,
    ) -> None:
        self.trace, self.choose, self.weight, self.sessions = (
            trace,
            ROUTERS[router],
            weight,
            sessions,
        )
        self.changes, self.fresh, self.memory = changes, fresh, memory_of(len(engines), seed)
        self.members = [Member(engine) for engine in engines]
        self.served: list[tuple[Engine, list[int]]] = [(engine, []) for engine in engines]
        self.place = list(range(len(engines)))
        self.owner = np.full(len(trace), -1)
        self.chosen = np.full(len(trace), NO_INSTANCE)
        self.lost = np.zeros(len(trace), bool)
        self.sent = trace.due_ps.copy()
        self.available = changes.available(len(engines))
        self.last = changes.last(trace)
        self.scaler, self.outage, self.retried, self.failed = (
            scaler_of(changes.autoscale, self.last),
            0,
            0,
            0,
        )

    def route(self, number: int, at: int) -> None:
        """Send a request, for the first time or again, to an instance that the router chooses; it
        is lost where none is available.
        """
        trace = self.trace
        self.advance(at)
        session = -1 if self.sessions is None else int(self.sessions[number])
        isl, osl = int(trace.isl[number]), int(trace.osl[number])
        view = view_of(self.members, self.weight)._replace(available=self.available)
        place = self.choose(view, Request(number=number, session=session, isl=isl), self.memory)
        self.chosen[number] = place
        if place == NO_INSTANCE:
            self.owner[number], self.lost[number] = -1, True
            return
        priority = 0 if trace.priority is None else int(trace.priority[number])
        self.members[place].submit(number, isl=isl, osl=osl, at=at, priority=priority)
        self.owner[number], self.sent[number] = self.place[place], at
        self.served[self.place[place]][1].append(number)

    def advance(self, at: int) -> None:
        """Advance every engine to an instant."""
        for member in self.members:
            member.advance(at)

    def came(self) -> None:
        """Tell the controller of a request."""
        if len(self.scaler.counts):
            self.scaler.counts[1] += 1

    def happen(self, until: int) -> None:
        """Failures, returns and looks of the controller up to an instant, in the order of time."""
        outages = self.changes.outages
        while True:
            outage = (
                NEVER
                if outages is None or self.outage == len(outages.at)
                else int(outages.at[self.outage])
            )
            looks = next_look(self.scaler)
            if looks == NO_LOOK or outage <= looks:
                if outage > until:
                    break
                self.fail_or_return(outage)
            elif looks > until:
                break
            else:
                self.look(int(looks))

    def fail_or_return(self, at: int) -> None:
        """Let the next instance fail, and settle its requests in flight, or let the next one
        return.
        """
        outages, retry = self.changes.outages, self.changes.retry
        if outages is None:
            return
        instance, back = int(outages.instance[self.outage]), int(outages.back[self.outage])
        self.outage += 1
        scaled = len(self.scaler.counts) > 0
        if back == DRAINS:
            self.available[instance] = 0
            return
        if back:
            if scaled:
                self.scaler.broken[instance] = 0
            else:
                self.available[instance] = 1
            return
        self.failed += place_fails(self.scaler, instance) if scaled else 1
        self.available[instance] = 0
        self.advance(at)
        for number, tokens in self.taken_away(instance):
            if retry == "all" or (retry == "unanswered" and tokens == 0):
                self.retried += 1
                self.route(number, at)
            else:
                self.lost[number] = True

    def look(self, at: int) -> None:
        """Let the controller decide."""
        self.advance(at)
        look(self.scaler, [member.requests for member in self.members], self.available, at)
        for instance in np.flatnonzero(self.scaler.released).tolist():
            self.scaler.released[instance] = 0
            self.taken_away(instance)

    def taken_away(self, instance: int) -> list[tuple[int, int]]:
        """Put another engine in an instance's place; the requests that the old one had in flight,
        each with its tokens.

        First come running requests, in the order in which they entered, then the queue, then those
        on their way.
        """
        engine, numbers = self.served[self.place[instance]]
        record = engine.requests()
        tokens = {
            number: int(osl)
            for number, osl, status in zip(
                numbers, record.osl.tolist(), record.status.tolist(), strict=True
            )
            if status == UNFINISHED
        }
        inside = [int(number) for number in (*engine.running, *engine.waiting)]
        order = [*inside, *(number for number in tokens if number not in set(inside))]
        if self.fresh is None:
            raise ValueError(
                "a fleet in which something changes needs engines to put in the place of others"
            )
        self.members[instance] = Member(self.fresh(instance))
        self.place[instance] = len(self.served)
        self.served.append((self.members[instance].engine, []))
        return [(number, tokens[number]) for number in order]

    def routed(self) -> Routed:
        """The records of all engines as one, in the order of the requests' numbers: of each request
        the last engine that had it.
        """
        parts = [engine.requests() for engine, _ in self.served]
        numbers = [np.array(sent, np.int64) for _, sent in self.served]
        last = [self.owner[sent] == i for i, sent in enumerate(numbers)]
        whole: dict[str, Any] = _nowhere(self.trace)
        for name in (*ROW_COLUMNS, "admitted_ns"):
            for part, sent, mine in zip(parts, numbers, last, strict=True):
                whole[name][sent[mine]] = getattr(part, name)[mine]
        whole["status"][self.lost] = FAILED
        whole["due_ns"], whole["sent_ns"] = self.trace.due_ps // PS_PER_NS, self.sent // PS_PER_NS
        whole["instance"] = np.where(whole["instance"] < 0, -1, self.chosen).astype(np.int32)
        record = replace(parts[0], **whole, gaps=np.sum([part.gaps for part in parts], axis=0))
        return Routed(
            requests=record,
            chosen=self.chosen,
            changed=self.changes.changed(
                len(self.members), self.last, self.retried, self.failed, self.scaler
            ),
        )


def _nowhere(trace: Trace) -> dict[str, Any]:
    """The columns of requests that no instance has had."""
    count, none = len(trace), np.full(len(trace), -1)
    return {
        "due_ns": none.copy(),
        "sent_ns": none.copy(),
        "admitted_ns": none.copy(),
        "first_token_ns": none.copy(),
        "last_token_ns": none.copy(),
        "isl": trace.isl.copy(),
        "osl": np.zeros(count, np.int64),
        "cached_tokens": np.zeros(count, np.int64),
        "instance": np.full(count, -1, np.int32),
        "status": np.full(count, UNFINISHED, np.int8),
        "preemptions": np.zeros(count, np.int32),
    }


# A deployment's instances behind a router: the compiled fleet, or the plain one where that answers
# sooner.


SOON = 60_000
"""Products of requests and instances up to which the plain fleet is done, in 2 to 6 seconds, before
the compiler would be."""


def simulate_routed(
    trace: Trace,
    engines: Sequence[Engine],
    router: str = DEFAULT_ROUTER,
    *,
    seed: int = 0,
    weight: Sequence[float] | None = None,
    changes: Changes = NO_CHANGES,
) -> Routed:
    """As ``simulate_fleet``, in far less time: compiled, unless the compiler would take longer than
    the few requests of the question.

    Raises InputError: as there, or engines of which only some take their step times from a table.
    """
    small = len(trace) * len(engines) <= SOON
    if small and not changes.some and not is_compiled(drive_fleet):
        return simulate_fleet(trace, engines, router, seed=seed, weight=weight)
    machines = [engine.machine for engine in engines]
    return run_fleet(trace, machines, router, seed=seed, weight=weight, changes=changes)


def compile_fleet(*, ranks: bool = False, grouped: bool = False) -> None:
    """Compile the loop of fleets without that of one engine, for another process to find, by one
    request and an engine that takes it; nothing runs. Arguments as in ``kernel.warm_up``.
    """
    import numpy as np

    from tonnage.perf.step import StepModel
    from tonnage.perf.step_terms import COEFFICIENTS
    from tonnage.spec.deployment import EngineKnobs
    from tonnage.spec.workload import Trace

    ones = np.ones(1, np.int64)
    knobs = EngineKnobs(
        scheduler="vllm",
        max_batch_size=1,
        max_num_tokens=1,
        chunked_prefill=True,
        tokens_per_block=1,
        kv_rule="gpu_memory_utilization",
        kv_fraction=0.9,
    )
    engine = Engine(StepModel(coefficients=np.ones(COEFFICIENTS), frontend_s=0.0), knobs, 2)
    trace = Trace(due_ps=np.zeros(1, np.int64), isl=ones, osl=ones, concurrency=0, turnaround_ps=0)
    count = 2 if grouped else 1
    if ranks:
        knobs = replace(knobs, queue_order="priority")
    compile_for(trace, [engine.machine] * count, count, knobs)

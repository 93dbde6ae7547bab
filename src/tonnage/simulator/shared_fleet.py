"""Several engines with prefix caches behind one router, under an open loop of requests that share
prompts or follow one another.

Time goes from event to event: a step that ends, a token that reaches its client, a request that is
sent. So a further turn is sent when its pause after the end of the one before is over, to whichever
instance the router then chooses. This is the plain simulator; there is no compiled one of such
fleets.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnage.errors import InputError
from tonnage.results.requests import ROW_COLUMNS, UNFINISHED
from tonnage.simulator.member import Member, PrefixIndex, view_of
from tonnage.simulator.reference import Engine, Waiting
from tonnage.simulator.router import NO_INSTANCE, ROUTERS, Request, check_fleet, memory_of
from tonnage.spec.workload import Trace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.results.requests import Requests

NEVER = 1 << 62

MOST_TOKENS = 20_000_000
"""Output tokens of a run; the plain simulator makes 100,000 to 200,000 a second."""


def simulate_shared_fleet(
    trace: Trace,
    engines: Sequence[Engine],
    router: str = "least-outstanding",
    *,
    seed: int = 0,
    weight: Sequence[float] | None = None,
) -> tuple[Requests, NDArray[np.int64]]:
    """Simulate requests that have something in common on several engines.

    Args:
        trace: an open loop with ``contents``.
        engines: idle engines of the plain simulator at time 0, with the contents of the trace.
        router: a name of ``simulator.router.ROUTERS``; a conversation is a session to it.
        seed, weight: as in ``simulate_fleet``.

    Returns:
        The record in the order in which requests were sent, and of each row of the trace the
        instance that the router chose.

    Raises:
        InputError: a closed loop, no engine, an unknown router, due times out of order, or more
            tokens than the plain simulator is for.
    """
    firsts = trace.firsts()
    check_fleet(replace(trace, due_ps=trace.due_ps[firsts]), engines, router)
    if trace.contents is None or int(trace.osl.sum()) > MOST_TOKENS:
        raise InputError(
            f"instances with prefix caches: simulated up to {MOST_TOKENS:,} output tokens in all;"
            " ask for fewer requests"
        )
    clients = _Clients(trace, engines, router, seed, weight)
    for row in firsts.tolist():
        heapq.heappush(clients.pending, (int(trace.due_ps[row]), row))
    while clients.turn():
        pass
    return _joined(engines), clients.chosen


class _Clients:
    """The senders of a trace's requests to the engines, through a router."""

    def __init__(
        self,
        trace: Trace,
        engines: Sequence[Engine],
        router: str,
        seed: int,
        weight: Sequence[float] | None,
    ) -> None:
        members: Any = [Member(engine) for engine in engines]  # type: ignore[arg-type] # the plain engine has the same methods
        self.trace, self.members, self.weight = trace, members, weight
        self.choose, self.memory = ROUTERS[router], memory_of(len(engines), seed)
        self.index = (
            PrefixIndex(trace.contents, len(engines))
            if router == "prefix-aware" and trace.contents is not None
            else None
        )
        self.session = trace.session() if trace.pause_ps is not None else np.full(len(trace), -1)
        self.waiting = Waiting(trace)
        self.pending: list[tuple[int, int]] = []
        self.events = [NEVER] * len(engines)
        self.chosen = np.full(len(trace), -1, np.int64)
        self.number = 0

    def turn(self) -> bool:
        """Whatever happens next: in one engine, else a request that is sent; False where nothing is
        left.
        """
        soonest = min(self.events)
        if self.pending and self.pending[0][0] < soonest:
            self.send(*heapq.heappop(self.pending))
            return True
        if soonest == NEVER:
            return False
        self.go_on(self.events.index(soonest), soonest)
        return True

    def go_on(self, i: int, until: int) -> None:
        """Advance one engine; whose request has ended sends the next turn after its pause."""
        for delivery in self.members[i].advance(until):
            if delivery.status != UNFINISHED:
                for row, at in self.waiting.ended(delivery.number, delivery.at):
                    heapq.heappush(self.pending, (max(at, until), row))
        event = self.members[i].next_event()
        self.events[i] = NEVER if event is None else event

    def send(self, at: int, row: int) -> None:
        """Let the router choose an instance, and send it the request."""
        for i in range(len(self.members)):
            self.go_on(i, at)
        isl, osl = int(self.trace.isl[row]), int(self.trace.osl[row])
        view = view_of(self.members, self.weight)
        if self.index is not None:
            view = view._replace(matched=self.index.matched(row, isl))
        place = self.choose(
            view, Request(number=self.number, session=int(self.session[row]), isl=isl), self.memory
        )
        if place == NO_INSTANCE:
            raise InputError("a fleet: no instance was available")
        if self.index is not None:
            self.index.sent(row, isl, place)
        self.members[place].submit(row, isl=isl, osl=osl, at=at)
        event = self.members[place].next_event()
        self.events[place] = NEVER if event is None else event
        self.chosen[row] = place
        self.number += 1


def _joined(engines: Sequence[Engine]) -> Any:
    """The records of all engines as one, in the order in which requests were sent."""
    parts = [engine.requests() for engine in engines]
    numbers = np.concatenate(
        [
            [job.id for job in sorted(engine.jobs.values(), key=lambda job: job.due)]
            for engine in engines
        ]
    )
    due = np.concatenate([part.due_ns for part in parts])
    order = np.lexsort((numbers, due))
    names = [name for name in (*ROW_COLUMNS, "admitted_ns") if name != "instance"]
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts])[order] for name in names
    }
    served = np.concatenate([np.where(part.instance < 0, -1, i) for i, part in enumerate(parts)])[
        order
    ].astype(np.int32)
    return replace(
        parts[0],
        **columns,
        instance=served,
        row=numbers[order],
        gaps=np.sum([part.gaps for part in parts], axis=0),
    )

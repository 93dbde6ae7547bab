"""Several engines behind one router, under an open loop: the specification, in plain Python over resumable engines.

At the instant of each arrival every engine is advanced to that instant, the router looks at what it can see, and the request is sent
to the instance that it chose. So a router never knows more than what has come back to clients by then, and where two requests arrive at
one instant the second is routed with the first one outstanding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnage.errors import InputError
from tonnage.simulator.member import Member, view_of
from tonnage.simulator.router import NO_INSTANCE, ROUTERS, Request, check_fleet, memory_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.results.requests import Requests
    from tonnage.simulator.engine import Engine
    from tonnage.spec.workload import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """What a fleet's run leaves behind.

    Attributes:
        requests: the record in the order of the trace; ``instance`` says who served each.
        chosen: int64, the instance that the router chose for each request.
    """

    requests: Requests
    chosen: NDArray[np.int64]


def simulate_fleet(
    trace: Trace,
    engines: Sequence[Engine],
    router: str = "least-outstanding",
    *,
    seed: int = 0,
    weight: Sequence[float] | None = None,
    sessions: NDArray[np.int64] | None = None,
) -> Routed:
    """Simulate the requests of an open loop on several engines.

    Args:
        trace: an open loop; ``due_ps`` in order.
        engines: idle engines at time 0; they may differ.
        router: a name of ``simulator.router.ROUTERS``.
        seed: of the router's random choices.
        weight: relative capacities of the engines for routers that heed them; 1 for all if not given.
        sessions: the session of each request, for session affinity; none if not given.

    Raises:
        InputError: a closed loop, no engine, an unknown router, or due times out of order.
    """
    check_fleet(trace, engines, router)
    choose, memory = ROUTERS[router], memory_of(len(engines), seed)
    members = [Member(engine) for engine in engines]
    chosen = np.empty(len(trace), np.int64)
    columns = (trace.due_ps.tolist(), trace.isl.tolist(), trace.osl.tolist())
    for number, (at, isl, osl) in enumerate(zip(*columns, strict=True)):
        for member in members:
            member.advance(at)
        session = -1 if sessions is None else int(sessions[number])
        place = choose(view_of(members, weight), Request(number=number, session=session, isl=isl), memory)
        if place == NO_INSTANCE:
            raise InputError("a fleet: no instance was available")
        members[place].submit(number, isl=isl, osl=osl, at=at)
        chosen[number] = place
    for member in members:
        member.engine.advance()
    return Routed(requests=_joined(members, chosen), chosen=chosen)


def _joined(members: Sequence[Member], chosen: NDArray[np.int64]) -> Requests:
    """The records of all engines as one, in the order of the requests' numbers."""
    parts = [member.engine.requests() for member in members]
    order = np.argsort(np.concatenate([np.flatnonzero(chosen == i) for i in range(len(parts))]), kind="stable")
    names = [f.name for f in fields(parts[0]) if f.name not in ("gaps", "window_ns", "instance")]
    columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts])[order] for name in names}
    served = np.concatenate([np.where(part.instance < 0, -1, i) for i, part in enumerate(parts)])[order].astype(np.int32)
    return replace(parts[0], **columns, instance=served, gaps=np.sum([part.gaps for part in parts], axis=0))

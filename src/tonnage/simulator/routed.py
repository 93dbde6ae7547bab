"""A deployment's instances behind a router: the compiled fleet, or the plain one where that answers sooner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tonnage.simulator.engine import Engine
from tonnage.simulator.fleet import Routed, simulate_fleet
from tonnage.simulator.kernel.compiled import drive_fleet, is_compiled
from tonnage.simulator.kernel.fleet import run_fleet

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.spec.workload import Trace

SOON = 60_000
"""Products of requests and instances up to which the plain fleet is done, in 2 to 6 seconds, before the compiler would be."""


def simulate_routed(
    trace: Trace,
    engines: Sequence[Engine],
    router: str = "least-outstanding",
    *,
    seed: int = 0,
    weight: Sequence[float] | None = None,
    sessions: NDArray[np.int64] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Routed:
    """As ``simulate_fleet``, in far less time: compiled, unless the compiler would take longer than the few requests of the question.

    Args:
        trace, engines, router, seed, weight, sessions: as there.
        progress: called with the requests that were sent and their number, now and then.

    Raises:
        InputError: as there; or engines of which some take their step times from a table.
    """
    small = len(trace) * len(engines) <= SOON
    if small and not is_compiled(drive_fleet):
        return simulate_fleet(trace, engines, router, seed=seed, weight=weight, sessions=sessions)
    record, chosen = run_fleet(
        trace, [one.machine for one in engines], router, seed=seed, weight=weight, sessions=sessions, progress=progress
    )
    return Routed(requests=record, chosen=chosen)

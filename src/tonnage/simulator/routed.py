"""A deployment's instances behind a router: the compiled fleet, or the plain one where that answers sooner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tonnage.simulator.changes import NO_CHANGES, Changes, Routed
from tonnage.simulator.engine import Engine
from tonnage.simulator.fleet import simulate_fleet
from tonnage.simulator.kernel.compiled import drive_fleet, is_compiled
from tonnage.simulator.kernel.fleet import compile_for, run_fleet
from tonnage.simulator.router import DEFAULT_ROUTER

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.simulator.kernel.memory import Machine
    from tonnage.spec.workload import Trace

SOON = 60_000
"""Products of requests and instances up to which the plain fleet is done, in 2 to 6 seconds, before the compiler would be."""


def simulate_routed(
    trace: Trace,
    engines: Sequence[Engine],
    router: str = DEFAULT_ROUTER,
    *,
    seed: int = 0,
    weight: Sequence[float] | None = None,
    sessions: NDArray[np.int64] | None = None,
    changes: Changes = NO_CHANGES,
    progress: Callable[[int, int], None] | None = None,
) -> Routed:
    """As ``simulate_fleet``, in far less time: compiled, unless the compiler would take longer than the few requests of the question.

    ``progress`` is called with the requests that were sent and their number. Raises InputError: as there, or engines of which only some
    take their step times from a table.
    """
    small = len(trace) * len(engines) <= SOON
    if small and not changes.some and not is_compiled(drive_fleet):
        return simulate_fleet(trace, engines, router, seed=seed, weight=weight, sessions=sessions)
    machines = [one.machine for one in engines]
    return run_fleet(trace, machines, router, seed=seed, weight=weight, sessions=sessions, changes=changes, progress=progress)


def warm_up_fleet() -> None:
    """Compile the loop of fleets, or load it from numba's cache, by a run of one request."""
    trace, machine = _one_request()
    run_fleet(trace, [machine], "round-robin")


def compile_fleet() -> None:
    """As ``warm_up_fleet``, but without the loop of one engine, for another process to find: nothing runs."""
    trace, machine = _one_request()
    compile_for(trace, [machine])


def _one_request() -> tuple[Trace, Machine]:
    """A request, and an engine that takes it."""
    import numpy as np

    from tonnage.perf.step import StepModel
    from tonnage.perf.step_terms import COEFFICIENTS
    from tonnage.spec.deployment import EngineKnobs
    from tonnage.spec.workload import Trace

    one = np.ones(1, np.int64)
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
    return Trace(due_ps=np.zeros(1, np.int64), isl=one, osl=one, concurrency=0, turnaround_ps=0), engine.machine

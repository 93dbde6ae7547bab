"""Runs each load on two pools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tonnage.api.asked.simulation import Simulation
    from tonnage.api.simulated_run import SimulatedRun
    from tonnage.simulator.disaggregated import Disaggregated
    from tonnage.sizing.planner import Progress


def pooled_runs(asks: Simulation, pools: Disaggregated, progress: Progress | None) -> Iterator[SimulatedRun]:
    """Each load on both pools."""
    from tonnage.api.simulated_run import SimulatedRun
    from tonnage.results.metrics import summarize
    from tonnage.simulator.disaggregated import simulate_disaggregated
    from tonnage.simulator.kernel import is_compiled
    from tonnage.simulator.simulate import answers_soon

    plain = not is_compiled() and answers_soon([(asks.deployment, workload) for workload in asks.workloads])
    for number, workload in enumerate(asks.workloads, 1):
        record = simulate_disaggregated(pools, workload.trace(asks.seed), plain=plain)
        if progress is not None:
            progress(number, len(asks.workloads), "two pools")
        yield SimulatedRun(
            deployment=asks.deployment,
            workload=workload,
            seed=asks.seed,
            requests=record,
            summary=summarize(record),
            instances=pools.prefill_instances + pools.decode_instances,
            router=f"{pools.prefill_instances}:{pools.decode_instances} disaggregated",
        )

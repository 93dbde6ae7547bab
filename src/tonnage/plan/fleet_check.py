"""The whole fleet simulated at its peak."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.plan.limit import Breach
from tonnage.results.latencies import Latencies
from tonnage.spec.typed_values import FORBID


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRun:
    """All instances at once under one router.

    Attributes:
        systems, instances: that served; spare systems are left out.
        simulated_instances: how many of them were simulated, with their share of the load.
        router: what gave requests to the instances, a name of ``simulator.router``.
        requests: simulated over all instances.
        holds: whether every limit holds over the pooled requests.
        worst: the limit exceeded most; None where all hold.
        ttft_ms, itl_ms, tpot_ms, e2e_ms: over the pooled requests, in milliseconds.
    """

    __pydantic_config__ = FORBID

    systems: int
    instances: int
    simulated_instances: int
    router: str
    requests: int
    holds: bool
    worst: Breach | None
    ttft_ms: Latencies
    itl_ms: Latencies
    tpot_ms: Latencies
    e2e_ms: Latencies


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetCheck:
    """The final check of the chosen number of systems.

    Attributes:
        by_division: systems from load over capacity, rounded up, without spare.
        systems: systems after the check, without spare.
        runs: what was simulated, in order.
    """

    __pydantic_config__ = FORBID

    by_division: int
    systems: int
    runs: tuple[FleetRun, ...]

    @property
    def holds(self) -> bool:
        """Whether some number of systems that was tried holds every limit."""
        return any(run.holds for run in self.runs)

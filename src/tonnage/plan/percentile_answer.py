"""The course's percentile way of sizing for a mean, beside the simulated answer."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.spec.typed_values import FORBID
from tonnage.spec.workload import Process


@dataclass(frozen=True, slots=True, kw_only=True)
class PercentileAnswer:
    """A percentile of the arrivals in one second over the throughput of a benchmark, and what the simulation says instead.

    Attributes:
        percentile: of the arrivals in one second.
        mean_requests_per_second, peak_requests_per_second: the mean of the time that is sized for, such as the working hours, which is
            the rate that is simulated; and that percentile of its arrivals.
        requests_per_second_per_instance, concurrency_per_instance: of a closed loop inside the limits.
        systems_exact, systems: by the percentile way.
        simulated_systems_exact, simulated_systems: by the simulation, which decides.
        process, cv: of the simulated arrivals; cv is None where they are not gamma.
    """

    __pydantic_config__ = FORBID

    percentile: float
    mean_requests_per_second: float
    peak_requests_per_second: float
    requests_per_second_per_instance: float
    concurrency_per_instance: float
    systems_exact: float
    systems: int
    simulated_systems_exact: float
    simulated_systems: int
    process: Process
    cv: float | None = None

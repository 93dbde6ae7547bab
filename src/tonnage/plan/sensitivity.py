"""What would change the answer: the systems at other inputs, and the cheapest limit to relax."""

from __future__ import annotations

from typing import Literal

from tonnage.plan.limit import Limit
from tonnage.plan.pool import Identity
from tonnage.plan.reason import Reason
from tonnage.spec.typed_values import strict
from tonnage.spec.workload import Process

Input = Literal["isl", "osl", "rate", "step_time"]
"""Input length, output length, requests per second, and the time of a step (an error of the model)."""


@strict
class Changed:
    """The answer with one input changed.

    Attributes:
        change: relative, such as −0.2.
        systems: bought then; None where nothing meets the limits.
        systems_exact: without rounding and spare; None as above.
        deployment: what is chosen then; None as above.
        gpus: of these systems; 0 as above.
        reason: why nothing meets the limits; otherwise None.
    """

    change: float
    systems: int | None
    systems_exact: float | None
    deployment: Identity | None
    gpus: int = 0
    reason: Reason | None


@strict
class Swing:
    """One input, and the answers where it is lower and higher."""

    input: Input
    low: Changed
    high: Changed


@strict
class Relaxed:
    """The cheapest limit to relax: by the smallest factor that saves a system.

    Attributes:
        limit: as asked.
        to_ms: the limit as relaxed, in milliseconds.
        systems: needed then.
        saved: systems fewer.
        gpus: of these systems.
    """

    limit: Limit
    to_ms: float
    systems: int
    saved: int
    gpus: int = 0


@strict
class Sensitivity:
    """What would change the answer.

    Attributes:
        systems, systems_exact: of the plan itself.
        swings: one per input.
        relaxed: the cheapest relaxed limit that saves a system; None where none does.
    """

    systems: int
    systems_exact: float
    swings: tuple[Swing, ...]
    relaxed: Relaxed | None


# The course's percentile way of sizing for a mean, next to the simulated answer.


@strict
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


# What a prefix cache finds of the prompts of a plan, and what the answer would be without it.


@strict
class PrefixCache:
    """The choice with its prefix caches, at the asked peak.

    Attributes:
        shares: what prompts share, in words.
        hit_rate: share of the prompt tokens that come from the caches of the fleet, behind the router of the plan.
        router: that router, a name of ``simulator.router``.
        shared_out_as: the router by whose rule requests were shared out in the simulation: it finds as much of the prompts, or less.
        instances: how many serve.
        simulated_instances: how many of them were simulated for the hit rate, with their share of the load.
        one_instance: the share of one instance by itself, at the highest load inside the limits.
        other_router: one that treats conversations and prompts the other way; "" where there is one instance, or it makes no difference.
        other_hit_rate: the hit rate behind it; None where there is none.
        without_systems: systems, spare ones included, that the same deployment would take without a prefix cache; None where no number
            would do.
        without_requests_per_second_per_instance: what an instance would carry without it; None where no load is inside the limits.
    """

    shares: str
    hit_rate: float
    router: str
    shared_out_as: str
    instances: int
    simulated_instances: int
    one_instance: float
    other_router: str = ""
    other_hit_rate: float | None = None
    without_systems: int | None = None
    without_requests_per_second_per_instance: float | None = None

"""What would change the answer: the systems at other inputs, and the cheapest limit to relax."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Literal

from tonnage.plan.candidate import Candidate, mean_latency
from tonnage.plan.limit import Limit
from tonnage.plan.pool import Identity
from tonnage.plan.reason import Reason
from tonnage.spec.typed_values import strict
from tonnage.spec.workload import Process

Input = Literal["isl", "osl", "rate", "step_time"]
"""Input length, output length, requests per second, and the time of a step (an error of the model)."""


@strict
class Changed:
    """The answer with one input changed."""

    change: float  # relative, such as −0.2
    systems: int | None  # bought then; None where nothing meets the limits
    systems_exact: float | None  # without rounding and spare; None as above
    deployment: Identity | None  # what is chosen then; None as above
    gpus: int = 0  # of these systems; 0 as above
    reason: Reason | None  # why nothing meets the limits; otherwise None


@strict
class Swing:
    """One input, and the answers where it is lower and higher."""

    input: Input
    low: Changed
    high: Changed


@strict
class Relaxed:
    """The cheapest limit to relax: by the smallest factor that saves a system."""

    limit: Limit
    to_ms: float  # the limit as relaxed, in milliseconds
    systems: int  # needed then
    saved: int  # systems fewer
    gpus: int = 0  # of these systems


@strict
class Sensitivity:
    """What would change the answer."""

    # systems, systems_exact: of the plan itself
    systems: int
    systems_exact: float
    swings: tuple[Swing, ...]  # one per input
    relaxed: Relaxed | None  # the cheapest relaxed limit that saves a system; None where none does


# The course's percentile way of sizing for a mean, next to the simulated answer.


@strict
class PercentileAnswer:
    """A percentile of the arrivals in one second over the throughput of a benchmark, and what the simulation says instead."""

    percentile: float  # of the arrivals in one second
    # mean_requests_per_second, peak_requests_per_second: the mean of the time that is sized for, such as the working hours, which is the
    # rate that is simulated; and that percentile of its arrivals
    mean_requests_per_second: float
    peak_requests_per_second: float
    # requests_per_second_per_instance, concurrency_per_instance: of a closed loop inside the limits
    requests_per_second_per_instance: float
    concurrency_per_instance: float
    # systems_exact, systems: by the percentile way
    systems_exact: float
    systems: int
    # simulated_systems_exact, simulated_systems: by the simulation, which decides
    simulated_systems_exact: float
    simulated_systems: int
    # process, cv: of the simulated arrivals; cv is None where they are not gamma
    process: Process
    cv: float | None = None


# What a prefix cache finds of the prompts of a plan, and what the answer would be without it.


@strict
class PrefixCache:
    """The choice with its prefix caches, at the asked peak."""

    shares: str  # what prompts share, in words
    hit_rate: float  # share of the prompt tokens that come from the caches of the fleet, behind the router of the plan
    router: str  # that router, a name of ``simulator.router``
    shared_out_as: str  # the router by whose rule requests were shared out in the simulation: it finds as much of the prompts, or less
    instances: int
    simulated_instances: int  # how many of them were simulated for the hit rate, with their share of the load
    one_instance: float  # the share of one instance by itself, at the highest load inside the limits
    # one that treats conversations and prompts the other way; "" where there is one instance, or it makes no difference
    other_router: str = ""
    other_hit_rate: float | None = None  # the hit rate behind it; None where there is none
    # systems, spare ones included, that the same deployment would take without a prefix cache; None where no number would do
    without_systems: int | None = None
    # what an instance would carry without it; None where no load is inside the limits
    without_requests_per_second_per_instance: float | None = None


# GPUs, and cost where it is known, against latency: which candidates nobody can beat on both.


@strict
class ParetoPoint(Identity):
    """One candidate, in the order of ``Plan.candidates``."""

    # systems, gpus: bought for the peak
    systems: int
    gpus: int
    cost_per_year: float | None  # in USD; None where it is not known
    # ttft_ms, e2e_ms: means in milliseconds at the asked peak, or at the highest load of the candidate inside the limits where no peak is
    # known; None where not measured
    ttft_ms: float | None
    e2e_ms: float | None
    front_gpus: bool  # no other candidate has at most as many GPUs and a lower mean E2E (TTFT where E2E was not measured)
    front_cost: bool  # the same with cost per year in place of GPUs; False where cost is not known
    chosen: bool  # whether it is the plan's choice


def pareto(candidates: Sequence[Candidate], costs: Mapping[int, float] | None = None) -> tuple[ParetoPoint, ...]:
    """Every candidate with its place on the two fronts."""
    known = costs or {}
    latency = [mean_latency(c) for c in candidates]
    by_gpus = _front([(float(c.gpus), late) for c, late in zip(candidates, latency, strict=True)])
    by_cost = _front([(known.get(i, math.inf), late) for i, late in enumerate(latency)])
    return tuple(
        ParetoPoint(
            **{part.name: getattr(c, part.name) for part in fields(Identity)},
            systems=c.systems,
            gpus=c.gpus,
            cost_per_year=known.get(i),
            ttft_ms=(c.at_peak or c).ttft_ms.mean,
            e2e_ms=(c.at_peak or c).e2e_ms.mean,
            front_gpus=i in by_gpus,
            front_cost=i in by_cost and i in known,
            chosen=i == 0,
        )
        for i, c in enumerate(candidates)
    )


def _front(points: Sequence[tuple[float, float]]) -> set[int]:
    """Places of the points that no other beats on one number without losing on the other; of equals, the first."""
    front: set[int] = set()
    best = math.inf
    for index in sorted(range(len(points)), key=lambda i: (*points[i], i)):
        if math.isfinite(points[index][0]) and points[index][1] < best:
            best = points[index][1]
            front.add(index)
    return front

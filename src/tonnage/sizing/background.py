"""Work in the background of a pool: what the hours below the peak leave free for it.

A job of the lowest priority is sent at such a rate in each hour that every limit of the others
still holds; that rate is the highest of a bisection over simulated fleets. Of a profile only the
quietest hour, the busiest one and some between them are simulated, and a line joins them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tonnage.plan.demand import Demand, DemandSource
from tonnage.plan.use_cases import Background
from tonnage.sizing.loads.trial import STABLE
from tonnage.sizing.mixture import Case, Mixture
from tonnage.sizing.question import Question

LEVELS = 5
"""Hours of a profile that are simulated at most."""

HALVINGS = 4
"""Halvings of the way to saturation, to a sixteenth of it."""

MOST_TRIED = 6
"""Numbers of instances that are tried at most."""

DAY_HOURS, HOUR_S = 24, 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Requests that are to be done within a time, and what one instance does with them."""

    case: Case  # at the rate that it would have if it were sent evenly over its time
    requests: float
    seconds: float


def as_stream(question: Question) -> Question:
    """The question of a job as that of a stream without limits, evenly over its time."""
    demand = question.demand
    rate = (demand.offline_requests or 0) / (demand.offline_seconds or math.inf)
    source = DemandSource(kind="peak", requests_per_second=rate)
    even = Demand(peak_requests_per_second=rate, sizing_requests_per_second=rate, source=source)
    return replace(question, mode="sequential", slo=(), demand=even)


def hourly(cases: Sequence[Case]) -> list[tuple[float, ...]]:
    """Requests per second of each case in each hour: of a day, of a week where one has a week."""
    profiles = [case.sized.contender.question.demand.profile or (1.0,) for case in cases]
    hours = max(DAY_HOURS, *map(len, profiles))
    scales = [case.rate / max(profile) for case, profile in zip(cases, profiles, strict=True)]
    return [
        tuple(
            scale * profile[hour % len(profile)]
            for scale, profile in zip(scales, profiles, strict=True)
        )
        for hour in range(hours)
    ]


def free_rate(cases: Sequence[Case], job: Job, instances: int) -> float:
    """Requests per second of a job that so many instances carry next to the cases, with every limit
    of these held.
    """
    present = [case for case in cases if case.rate > 0]
    parts = Mixture([*present, job.case]).parts
    busy = math.fsum(
        case.rate / part.saturation for case, part in zip(present, parts, strict=False)
    )
    low, high = 0.0, (STABLE * instances - busy) * parts[-1].saturation

    def holds(rate: float) -> bool:
        mixture = Mixture([*present, replace(job.case, rate=rate)], by_priority=True)
        return mixture.run(instances).holds

    if high <= 0 or holds(high):
        return max(high, 0.0)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def free_rates(cases: Sequence[Case], job: Job, instances: int) -> tuple[float, ...]:
    """The same in each hour of the profiles."""
    import numpy as np

    rates = hourly(cases)
    used = [
        math.fsum(rate / case.sized.rate for rate, case in zip(hour, cases, strict=True))
        for hour in rates
    ]
    by_use = dict(zip(used, rates, strict=True))
    levels = sorted(by_use)
    if len(levels) > LEVELS:
        levels = [levels[round(place)] for place in np.linspace(0, len(levels) - 1, LEVELS)]
    simulated = [
        free_rate(
            [replace(case, rate=rate) for case, rate in zip(cases, by_use[level], strict=True)],
            job,
            instances,
        )
        for level in levels
    ]
    return tuple(float(rate) for rate in np.interp(used, levels, simulated))


def done_within(rates: Sequence[float], seconds: float) -> float:
    """Requests of a job that are done within its time at these rates by the hour, if it begins at
    the hour of each day that suits it best; of several days, on the one with the fewest.
    """
    if seconds >= DAY_HOURS * HOUR_S:
        return math.fsum(rates) / len(rates) * seconds
    hours = max(1, math.ceil(seconds / HOUR_S))
    share = seconds / (hours * HOUR_S)
    windows = [
        share * HOUR_S * math.fsum(rates[(begin + hour) % len(rates)] for hour in range(hours))
        for begin in range(len(rates))
    ]
    return min(max(windows[day : day + DAY_HOURS]) for day in range(0, len(rates), DAY_HOURS))


def filled(
    cases: Sequence[Case], job: Job, instances: int, most_instances: int
) -> Background | None:
    """The job in the background of the cases, on the instances that these take or on as many more
    as it needs; None where ``most_instances`` instances are too few.
    """
    alone, count = 0.0, instances
    for _ in range(MOST_TRIED):
        rates = free_rates(cases, job, count)
        done = done_within(rates, job.seconds)
        alone = done if count == instances else alone
        if done >= job.requests:
            return Background(
                name=job.case.name,
                requests=job.requests,
                within_seconds=job.seconds,
                free_requests=alone,
                more_instances=count - instances,
                instances_exact=job.case.instances_exact,
                requests_per_second=rates,
            )
        saturation = Mixture([job.case]).parts[0].saturation
        lacking = (job.requests - done) / (STABLE * saturation * job.seconds)
        count += max(1, math.floor(lacking))
        if count > most_instances:
            break
    return None

"""Traffic that was recorded, replayed over whole numbers of instances: its bursts come with it.

A Poisson peak of the same mean says too little where arrivals are bursty (Azure's code trace: CV 13). So the
recording is split at random over n instances, all of them are simulated, and n is the least at which every
limit holds over all requests.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from tonnage.plan.limit import SATURATION, bound_by
from tonnage.plan.reason import BrokenAtAnyLoad, BrokenOnManyInstances
from tonnage.sizing.loads.bounds import MARGIN
from tonnage.sizing.loads.capacity import STABLE, Capacity, no_capacity, saturation
from tonnage.sizing.loads.fleet_check import Replayed, fleet_summary
from tonnage.sizing.loads.instance import ALONE_REQUESTS, Instance
from tonnage.sizing.loads.limits import breach, strain, worst_limit

if TYPE_CHECKING:
    from tonnage.results.metrics import Summary
    from tonnage.sizing.loads.bounds import Carried
    from tonnage.sizing.question import Question
    from tonnage.spec.deployment import Limit
    from tonnage.spec.recording import Recording

MOST_INSTANCES = 4_096
"""Most instances that are tried."""

HALVINGS = 7
"""Halvings of the way to saturation for a recording that a single instance holds."""

HAIR = 1 - 1e-6
"""Share of the rate that one instance fewer would have to carry, which is not reached."""


def replay_capacity(instance: Instance, recording: Recording, lengths: bool = True) -> Capacity:
    """What one instance carries of the recording: its mean over the least number of instances that hold the limits.

    That number is a fraction: between the least whole one that holds and one fewer, by the strain on the limits. Where a single instance
    holds, the recording is sped up until it does not.

    Args:
        instance: the deployment.
        recording: the traffic.
        lengths: whether its lengths are replayed too.
    """
    slo = instance.asked.slo
    alone = instance.alone()
    broken = worst_limit(alone, slo)
    if broken is not None:
        return no_capacity(alone, BrokenAtAnyLoad(breach=breach(alone, broken)), ALONE_REQUESTS)
    mean, saturated = recording.mean_rps, saturation(instance)
    runs: dict[int, Summary] = {}

    def holds(count: int) -> bool:
        runs[count] = noted_replay(instance, recording, count, lengths)
        return worst_limit(runs[count], slo) is None

    fewest = max(1, math.ceil(mean / (STABLE * min(saturated, MARGIN * instance.saturation_estimate()))))
    low, high = fewest - 1, fewest
    while not holds(high):
        low, high = high, 2 * high
        if high > min(MOST_INSTANCES, 2 * len(recording)):
            last = worst_limit(runs[low], slo) or slo[0]
            return no_capacity(runs[low], BrokenOnManyInstances(breach=breach(runs[low], last), instances=low), len(recording))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    found, most = runs[high], STABLE * saturated
    binds = worst_limit(runs[low], slo) if low in runs else None
    if binds is not None:
        rate = _between(mean / high, mean / low, strain(found, slo), strain(runs[low], slo))
    elif low > 0:
        rate = min(max(most, mean / high), mean / low * HAIR)
    else:
        rate, binds = _sped_up(instance, recording, most, lengths)
    return Capacity(
        rate=rate,
        concurrency=rate * found.statistic_ms("e2e", "mean") / 1e3,
        saturation=max(saturated, rate),
        summary=found,
        binds=SATURATION if binds is None else bound_by(binds),
        reason=None,
        simulated_requests=len(recording),
    )


def _between(low: float, high: float, below: float, above: float) -> float:
    """The load of one instance at which the limits are just used up, between one that holds and one that breaks them.

    Linear in the logarithm of the strain on the limits (``below`` and ``above`` 1); so the systems need not be a whole number of
    instances before they are rounded up, and rounded up they are as many.
    """
    share = math.log(1 / below) / math.log(above / below) if below > 0 else 0.0
    return low + min(share, 0.999) * (high - low)


def _sped_up(instance: Instance, recording: Recording, most: float, lengths: bool) -> tuple[float, Limit | None]:
    """The highest mean of the recording that one instance holds, up to ``most``, and what breaks above it; in requests per second."""
    low, high, binds = recording.mean_rps, max(most, recording.mean_rps), None
    for half in range(HALVINGS + 1):
        rate = high if half == 0 else math.sqrt(low * high)
        broken = worst_limit(noted_replay(instance, recording.at_mean(rate), 1, lengths), instance.asked.slo)
        if broken is None:
            low = rate
        else:
            high, binds = rate, broken
        if low == high:
            break
    return low, binds


def noted_replay(instance: Instance, recording: Recording, count: int, lengths: bool = True) -> Summary:
    """The metrics of a recording over so many instances; the strain on the limits is noted at the rate of one of them."""
    summary = fleet_summary(instance, recording.mean_rps, count, replayed=Replayed(recording=recording, lengths=lengths))[0]
    instance.trail[recording.mean_rps / count] = strain(summary, instance.asked.slo)
    return summary


def replayed_at(question: Question, carried: Carried, instances: int) -> Callable[[float], Summary]:
    """The metrics of a fleet under the question's recording, stretched to any rate of one instance."""
    recording, lengths = question.recording, question.replays_lengths

    def at(rate: float) -> Summary:
        stretched = None if recording is None else Replayed(recording=recording.at_mean(rate * instances), lengths=lengths)
        return fleet_summary(carried.ready.instance, rate * instances, instances, replayed=stretched)[0]

    return at

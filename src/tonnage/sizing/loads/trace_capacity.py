"""Traffic that was recorded, replayed over whole numbers of instances: its bursts come with it.

A Poisson peak of the same mean says too little where arrivals are bursty (Azure's code trace: CV 13). So the recording comes to n
instances behind the router, all of them are simulated, and n is the least at which every limit holds over all requests.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tonnage.plan.limit import SATURATION, bound_by
from tonnage.plan.reason import BrokenAtAnyLoad, BrokenOnManyInstances
from tonnage.sizing.loads.bounds import MARGIN
from tonnage.sizing.loads.capacity import Capacity, no_capacity
from tonnage.sizing.loads.fleet_check import Replayed, fleet_seen
from tonnage.sizing.loads.instance import ALONE_REQUESTS, Instance
from tonnage.sizing.loads.limits import breach, strain, worst_limit
from tonnage.sizing.loads.load_scan import STABLE

if TYPE_CHECKING:
    from tonnage.results.metrics import Summary
    from tonnage.sizing.loads.runs import Runs
    from tonnage.spec.deployment import Limit, Slo

MOST_INSTANCES = 4_096
"""Most instances that are tried."""

HALVINGS = 7
"""Halvings of the way to saturation for a recording that a single instance holds."""

HAIR = 1 - 1e-6
"""Share of the rate that one instance fewer would have to carry, which is not reached."""


def replay_capacity(runs: Runs, instance: Instance, slo: Slo, replayed: Replayed) -> Capacity:
    """What one instance carries of the recording: its mean over the least number of instances that hold the limits.

    That number is a fraction: between the least whole one that holds and one fewer, by the strain on the limits. Where a single instance
    holds, the recording is sped up until it does not.

    Args:
        runs: the memory of the search.
        instance: the deployment.
        slo: limits; all must hold.
        replayed: the traffic, with its lengths or without.
    """
    alone = runs.alone(instance)
    broken = worst_limit(alone, slo)
    if broken is not None:
        return no_capacity(alone, BrokenAtAnyLoad(breach=breach(alone, broken)), ALONE_REQUESTS)
    recording = replayed.recording
    mean, saturated = recording.mean_rps, runs.saturation(instance)
    found: dict[int, Summary] = {}

    def holds(count: int) -> bool:
        found[count] = fleet_seen(runs, instance, mean, count, replayed=replayed).summary
        return worst_limit(found[count], slo) is None

    fewest = max(1, math.ceil(mean / (STABLE * min(saturated, MARGIN * instance.saturation_estimate()))))
    low, high = fewest - 1, fewest
    while not holds(high):
        low, high = high, 2 * high
        if high > min(MOST_INSTANCES, 2 * len(recording)):
            last = worst_limit(found[low], slo) or slo[0]
            return no_capacity(found[low], BrokenOnManyInstances(breach=breach(found[low], last), instances=low), len(recording))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    summary, most = found[high], STABLE * saturated
    binds = worst_limit(found[low], slo) if low in found else None
    if binds is not None:
        rate = _between(mean / high, mean / low, strain(summary, slo), strain(found[low], slo))
    elif low > 0:
        rate = min(max(most, mean / high), mean / low * HAIR)
    else:
        rate, binds = _sped_up(runs, instance, slo, replayed, most)
    return Capacity(
        rate=rate,
        concurrency=rate * summary.statistic_ms("e2e", "mean") / 1e3,
        summary=summary,
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


def _sped_up(runs: Runs, instance: Instance, slo: Slo, replayed: Replayed, most: float) -> tuple[float, Limit | None]:
    """The highest mean of the recording that one instance holds, up to ``most``, and what breaks above it; in requests per second."""
    recording = replayed.recording
    low, high, binds = recording.mean_rps, max(most, recording.mean_rps), None
    for half in range(HALVINGS + 1):
        rate = high if half == 0 else math.sqrt(low * high)
        faster = Replayed(recording=recording.at_mean(rate), lengths=replayed.lengths)
        broken = worst_limit(fleet_seen(runs, instance, rate, 1, replayed=faster).summary, slo)
        if broken is None:
            low = rate
        else:
            high, binds = rate, broken
        if low == high:
            break
    return low, binds

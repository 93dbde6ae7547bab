"""The latency–throughput curve of one deployment: what its requests see at every load up to saturation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tonnage.plan.curve import CurvePoint, Mark
from tonnage.results.metrics import summarize
from tonnage.sizing.loads.capacity import Capacity
from tonnage.sizing.loads.instance import Instance, middle
from tonnage.sizing.loads.limits import worst_limit

if TYPE_CHECKING:
    from tonnage.results.metrics import Summary

APART = 0.03
"""Least distance of a load from the load at the peak and from the highest inside the limits, as a share of these."""

BUSY = 0.5
"""Share of saturation from which a run is as long as the one that found the capacity: below it, queues settle at once."""

SHARES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.88, 0.94, 0.98)
"""Loads of the curve, as shares of saturation; the load at the peak and the highest inside the limits are added."""


def load_curve(
    instance: Instance, capacity: Capacity, peak_rate: float, measured: Callable[[float], Summary] | None = None
) -> tuple[CurvePoint, ...]:
    """The points in order of load.

    Args:
        instance: the chosen deployment under the question's lengths and limits.
        capacity: what it carries.
        peak_rate: requests per second of one instance at the plan's peak.
        measured: the metrics at a rate of one instance; those of drawn arrivals if not given, from runs as long as the one that found
            the capacity and with its random numbers, so that what is beyond the limit never looks better than the limit.
    """
    loads: dict[float, Mark] = {share * capacity.saturation: "" for share in SHARES}
    near = (capacity.rate, peak_rate)
    loads = {rate: mark for rate, mark in loads.items() if all(abs(rate / other - 1) > APART for other in near)}
    loads[capacity.rate] = "limit"
    loads[peak_rate] = "peak"
    found = measured or _steady(instance, capacity)
    return tuple(_point(instance, capacity, (rate, mark), found) for rate, mark in sorted(loads.items()))


def _steady(instance: Instance, capacity: Capacity) -> Callable[[float], Summary]:
    """The metrics at a rate, from a run that is long enough to be steady there."""

    def measured(rate: float) -> Summary:
        count = capacity.simulated_requests if rate >= BUSY * capacity.saturation else 0
        return summarize(middle(instance.open(rate, max(count, instance.count(rate)), instance.asked.seed)))

    return measured


def _point(instance: Instance, capacity: Capacity, load: tuple[float, Mark], measured: Callable[[float], Summary]) -> CurvePoint:
    rate, mark = load
    summary = capacity.summary if mark == "limit" and instance.asked.load == "open" else measured(rate)
    in_flight, per_8 = summary.e2e_ms.mean, rate * 8 / instance.deployment.parallelism.gpus
    return CurvePoint(
        mark=mark,
        requests_per_second_per_instance=rate,
        requests_per_second_per_8_gpus=per_8,
        output_tokens_per_second_per_8_gpus=per_8 * instance.asked.osl.mean,
        concurrency_per_instance=None if in_flight is None else rate * in_flight / 1e3,
        share_of_saturation=rate / capacity.saturation,
        inside_limits=rate <= capacity.rate and worst_limit(summary, instance.asked.slo) is None,
        ttft_ms=summary.ttft_ms,
        itl_ms=summary.itl_ms,
        tpot_ms=summary.tpot_ms,
        e2e_ms=summary.e2e_ms,
    )

"""The latency–throughput curve of one deployment: what its requests see at every load up to saturation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.plan.candidate import CurvePoint, Mark
from tonnage.sizing.loads.fleet_check import Replayed, fleet_seen
from tonnage.sizing.loads.instance import QUICK, SURE
from tonnage.sizing.loads.limits import worst_limit

if TYPE_CHECKING:
    from tonnage.results.metrics import Summary
    from tonnage.sizing.search.contender import Sized

APART = 0.03
"""Least distance of a load from the load at the peak and from the highest inside the limits, as a share of these."""

BUSY = 0.5
"""Share of saturation from which a run is as long as the one that found the capacity: below it, queues settle at once."""

SHARES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.88, 0.94, 0.98)
"""Loads of the curve, as shares of saturation; the load at the peak and the highest inside the limits are added."""


def load_curve(best: Sized) -> tuple[CurvePoint, ...]:
    """The points of the choice in order of load, each that of its fleet at such a load of every instance, by the prediction as it is."""
    capacity, peak = best.as_predicted, best.contender.load / best.instances
    saturation = max(best.contender.saturation(), capacity.rate)
    loads: dict[float, Mark] = {share * saturation: "" for share in SHARES}
    loads = {rate: mark for rate, mark in loads.items() if all(abs(rate / other - 1) > APART for other in (capacity.rate, peak))}
    loads |= {capacity.rate: "limit", peak: "peak"}
    return tuple(_point(best, rate, mark, saturation) for rate, mark in sorted(loads.items()))


def _seen(best: Sized, rate: float, mark: Mark, saturation: float) -> Summary:
    """The metrics at a load of one instance; those of the whole fleet at the peak."""
    contender, question = best.contender, best.contender.question
    if question.recording is not None:
        stretched = Replayed(recording=question.recording.at_mean(rate * best.instances), lengths=question.replays_lengths)
        return fleet_seen(contender.runs, contender.running, rate * best.instances, best.instances, replayed=stretched).summary
    if mark == "peak":
        return contender.at_peak().seen(best.systems).summary
    if mark == "limit":
        return best.as_predicted.summary
    return contender.seen(best.instances, rate, SURE if rate >= BUSY * saturation else QUICK).summary


def _point(best: Sized, rate: float, mark: Mark, saturation: float) -> CurvePoint:
    question, capacity = best.contender.question, best.as_predicted
    summary = _seen(best, rate, mark, saturation)
    in_flight, per_8 = summary.e2e_ms.mean, rate * 8 / best.ready.trial.deployment.parallelism.gpus
    return CurvePoint(
        mark=mark,
        requests_per_second_per_instance=rate,
        requests_per_second_per_8_gpus=per_8,
        output_tokens_per_second_per_8_gpus=per_8 * question.osl.mean,
        concurrency_per_instance=None if in_flight is None else rate * in_flight / 1e3,
        share_of_saturation=rate / saturation,
        inside_limits=rate <= capacity.rate and (mark == "limit" or worst_limit(summary, question.limits) is None),
        ttft_ms=summary.ttft_ms,
        itl_ms=summary.itl_ms,
        tpot_ms=summary.tpot_ms,
        e2e_ms=summary.e2e_ms,
    )

"""Why the chosen point is where it is: which term of the step binds, which limit binds, where the
memory goes.

The terms are the mean over the engine steps of a simulated run at the highest load inside the
limits, each step taken apart by the formula that estimated it (``perf/vectorised_step.py``), so
that the terms add up to the step. Of two pools they are the steps of the pool that ends the load.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tonnage.plan.candidate import CurvePoint, Mark
from tonnage.plan.limit import SATURATION, THROUGHPUT, LimitUse, limit_of
from tonnage.plan.plan import Explanation, StepTerm
from tonnage.results.metrics import Summary, TtftParts
from tonnage.simulator.first_token import ttft_parts
from tonnage.simulator.request import (
    ALL_TOKENS,
    CONTEXT_TOKENS,
    DECODE_SEQUENCES,
    DURATION,
    PAIRS_2,
    PREFILL_SEQUENCES,
    PREFILL_TOKENS,
)
from tonnage.sizing.loads.fleet_check import Replayed, fleet_record, fleet_seen
from tonnage.sizing.loads.instance import ALONE_REQUESTS, QUICK, SURE, middle
from tonnage.sizing.loads.load_scan import WIDTH, on_lattice, place_of, statistic_s, worst_limit
from tonnage.sizing.loads.runs import CLOSED_ROUNDS
from tonnage.units import PS_PER_S

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.perf.step import Drafting
    from tonnage.sizing.search.deployment_capacity import Sized


MOST_STEPS = 50_000
"""Most engine steps that the mean is taken over."""


def explained(best: Sized) -> Explanation:
    """The chosen deployment taken apart."""
    capacity = best.as_predicted
    instance, rate, steps = best.contender.recorded(capacity, MOST_STEPS)
    steps = steps[len(steps) // 5 :]
    mean = float(steps[:, DURATION].mean()) / PS_PER_S
    drafting, ranks = instance.step.drafting, instance.deployment.parallelism.dp
    terms = {
        name: float(value.mean())
        for name, value in step_terms(instance.step.coefficients, steps, drafting, ranks).items()
    }
    if drafting is not None:
        terms["drafter"] = mean - sum(terms.values())
    parts = tuple(
        StepTerm(term=name, seconds=seconds, share=seconds / mean)
        for name, seconds in sorted(terms.items(), key=lambda item: -item[1])
    )
    return Explanation(
        requests_per_second_per_instance=capacity.rate,
        step_seconds=mean,
        prefill_tokens=float(steps[:, PREFILL_TOKENS].mean()),
        decode_sequences=float(steps[:, DECODE_SEQUENCES].mean()),
        context_tokens=float(steps[:, CONTEXT_TOKENS].mean()),
        terms=parts,
        binds=parts[0].term,
        limits=_limits(best),
        binding_limit=capacity.binds or SATURATION,
        front_end_busy=0.0
        if capacity.binds == THROUGHPUT
        else instance.front_end_busy(rate, 1 / mean),
        ttft=() if capacity.binds == THROUGHPUT else _ttft_parts(best),
    )


def _ttft_parts(best: Sized) -> tuple[TtftParts, ...]:
    """Where a TTFT goes at the highest load inside the limits: in the run that ``as_predicted``
    shows, made once more.
    """
    contender, question, capacity = best.contender, best.contender.question, best.as_predicted
    instance, count, rate = contender.simulated(best.instances, capacity.rate)
    if question.recording is not None:
        load = capacity.rate * best.instances
        stretched = Replayed(
            recording=question.recording.at_mean(load), lengths=question.replays_lengths
        )
        record = fleet_record(instance, load, best.instances, replayed=stretched)[0]
    elif question.load == "closed":
        record = instance.closed(
            round(capacity.concurrency),
            max(ALONE_REQUESTS, CLOSED_ROUNDS * round(capacity.concurrency)),
        )
    else:
        rate = on_lattice(place_of(rate) // WIDTH[best.care] * WIDTH[best.care])
        requests, seed = instance.requests_of(rate, best.care, count), instance.traffic.seed
        record = middle(
            best.contender.runs.once(
                (instance, "record", rate, requests, count),
                lambda: instance.open(rate, requests, seed, count),
            )
        )
    return ttft_parts(record, instance.spec)


def step_terms(
    c: NDArray[np.float64],
    steps: NDArray[np.int64],
    drafting: Drafting | None = None,
    ranks: int = 1,
) -> dict[str, NDArray[np.float64]]:
    """Seconds per term of each step (``StepRecord.steps``); they sum to ``step_seconds``, with
    drafts to what is not the drafter's.

    Of ``ranks`` in lockstep the rows have the slowest.
    """
    from tonnage.perf.vectorised_step import Steps, parts

    columns = steps.T.astype(float)
    guesses = 0 if drafting is None else drafting.tokens
    rank_tokens = columns[PREFILL_TOKENS] + (guesses + 1) * columns[DECODE_SEQUENCES]
    contents = Steps(
        prefill_tokens=columns[PREFILL_TOKENS],
        prefill_sequences=columns[PREFILL_SEQUENCES],
        decode_sequences=columns[DECODE_SEQUENCES],
        attention_pairs_2=columns[PAIRS_2],
        context_tokens=columns[CONTEXT_TOKENS],
        share=columns[ALL_TOKENS] / (ranks * rank_tokens) if ranks > 1 else 1.0,
    )
    return parts(c, contents, drafting)


def _limits(best: Sized) -> tuple[LimitUse, ...]:
    summary = best.as_predicted.summary
    limit_uses = []
    for limit in best.contender.question.limits:
        value = statistic_s(summary, limit)
        defined = not math.isnan(value)
        limit_uses.append(
            LimitUse(
                limit=limit_of(limit),
                value_ms=1e3 * value if defined else None,
                used=value / limit.seconds if defined else None,
            )
        )
    return tuple(limit_uses)


# The latency–throughput curve of one deployment: what its requests see at every load up to
# saturation.


APART = 0.03
"""Least distance of a load from the load at the peak and from the highest inside the limits, as a
share of these."""

BUSY = 0.5
"""Share of saturation from which a run is as long as the one that found the capacity: below it, and
with sessions that are replaced when they end, queues settle at once."""

SHARES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.88, 0.94, 0.98)
"""Loads of the curve, as shares of saturation; the load at the peak and the highest inside the
limits are added."""


def load_curve(best: Sized) -> tuple[CurvePoint, ...]:
    """The points of the choice in order of load, each that of its fleet at such a load of every
    instance, by the prediction as it is.
    """
    capacity, peak = best.as_predicted, best.contender.load / best.instances
    saturation = max(best.contender.saturation(), capacity.rate)
    loads: dict[float, Mark] = {share * saturation: "" for share in SHARES}
    loads = {
        rate: mark
        for rate, mark in loads.items()
        if all(abs(rate / marked - 1) > APART for marked in (capacity.rate, peak))
    }
    loads |= {capacity.rate: "limit", peak: "peak"}
    return tuple(_point(best, rate, mark, saturation) for rate, mark in sorted(loads.items()))


def _metrics_at(best: Sized, rate: float, mark: Mark, saturation: float) -> Summary:
    """The metrics at a load of one instance; those of the whole fleet at the peak."""
    contender, question = best.contender, best.contender.question
    if question.recording is not None:
        stretched = Replayed(
            recording=question.recording.at_mean(rate * best.instances),
            lengths=question.replays_lengths,
        )
        return fleet_seen(
            contender.runs,
            contender.running,
            rate * best.instances,
            best.instances,
            replayed=stretched,
        ).summary
    if mark == "peak":
        return contender.at_peak().seen(best.systems).summary
    if mark == "limit":
        return best.as_predicted.summary
    queues = rate >= BUSY * saturation and contender.instance.recorded_sessions is None
    return contender.seen(best.instances, rate, SURE if queues else QUICK).summary


def _point(best: Sized, rate: float, mark: Mark, saturation: float) -> CurvePoint:
    question, capacity = best.contender.question, best.as_predicted
    summary = _metrics_at(best, rate, mark, saturation)
    in_flight, per_8 = summary.e2e_ms.mean, rate * 8 / best.ready.trial.deployment.parallelism.gpus
    return CurvePoint(
        mark=mark,
        requests_per_second_per_instance=rate,
        requests_per_second_per_8_gpus=per_8,
        output_tokens_per_second_per_8_gpus=per_8 * question.osl.mean,
        concurrency_per_instance=None if in_flight is None else rate * in_flight / 1e3,
        share_of_saturation=rate / saturation,
        inside_limits=rate <= capacity.rate
        and (mark == "limit" or worst_limit(summary, question.limits) is None),
        ttft_ms=summary.ttft_ms,
        itl_ms=summary.itl_ms,
        tpot_ms=summary.tpot_ms,
        e2e_ms=summary.e2e_ms,
    )

"""The course's rules of thumb as warnings, each with the number behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tonnage.perf.step import batch_seconds
from tonnage.perf.step_terms import places_of
from tonnage.plan.limit import limit_of
from tonnage.plan.warning import (
    BurstyTrace,
    LengthToShorten,
    LimitHalvesThroughput,
    PcieForLargeModel,
    SmallerModel,
    Warning,
    WideOverPcie,
)
from tonnage.sizing.loads.limits import binding_limit
from tonnage.spec.catalog import QualityScore, find_score, models

if TYPE_CHECKING:
    from tonnage.plan.sensitivity import Sensitivity
    from tonnage.sizing.loads.instance import Instance
    from tonnage.sizing.question import Question
    from tonnage.sizing.search.contender import Sized

LARGE = 13e9
"""Parameters from which the course prefers GPUs joined by NVLink."""

WIDE = 2
"""Tensor-parallel degree above which the course advises against PCIe."""

MORE_SAVED = 3.0
"""How many times as much one length must save as the other for the advice to shorten it."""

LEAST_SAVED = 0.05
"""Share of the systems that it must save."""

HALVES = 2.0
"""Throughput without a limit over that with it from which the limit is named."""

SMALLER = 2.0
"""Ratio of parameters from which a model is called smaller."""

FILLED = 64
"""Most decode sequences of the step whose link time is looked at."""

LENGTHS: tuple[Literal["isl", "osl"], ...] = ("isl", "osl")


def warnings(best: Sized, swings: Sensitivity | None) -> tuple[Warning, ...]:
    """Every rule of thumb that the chosen deployment runs against.

    Args:
        best: the choice.
        swings: its sensitivity, which advice is read off.
    """
    question = best.contender.question
    each = (
        _nvlink(best),
        _pcie(best),
        length_to_shorten(swings),
        _halved(best),
        _bursty(question),
        _smaller(question),
    )
    return tuple(warned for warned in each if warned is not None)


def link_share(instance: Instance) -> float:
    """Share of a full decode step that goes into all-reduces and hops; the KV cache is left out of the step."""
    batch = min(instance.batch, FILLED)
    c = instance.step.coefficients
    bare = c.copy()
    bare[list(places_of("link"))] = 0.0
    return 1.0 - batch_seconds(bare, batch, batch) / batch_seconds(c, batch, batch)


def _nvlink(chosen: Sized) -> PcieForLargeModel | None:
    d = chosen.ready.trial.deployment
    tp = d.parallelism.tp
    if d.step_source is not None or d.model.parameters <= LARGE or tp == 1 or d.gpu.tp_link(tp) != "pcie":
        return None
    share = link_share(chosen.ready.instance)
    return PcieForLargeModel(value=share, model=d.model.name, parameters=d.model.parameters, gpu=d.gpu.name)


def _pcie(chosen: Sized) -> WideOverPcie | None:
    d = chosen.ready.trial.deployment
    tp = d.parallelism.tp
    if d.step_source is not None or tp <= WIDE or d.gpu.tp_link(tp) != "pcie":
        return None
    return WideOverPcie(value=link_share(chosen.ready.instance), tp=tp, gpu=d.gpu.name)


def length_to_shorten(found: Sensitivity | None) -> LengthToShorten | None:
    """The length that is worth shortening, by what each of them saves in the plan's own sensitivity."""
    swings = {} if found is None else {one.input: one.low for one in found.swings}
    if found is None or not {"isl", "osl"} <= set(swings):
        return None
    saved = {name: found.systems_exact - (swings[name].systems_exact or found.systems_exact) for name in LENGTHS}
    which, other = sorted(LENGTHS, key=lambda name: -saved[name])
    if saved[which] <= 0 or saved[which] < LEAST_SAVED * found.systems_exact or saved[which] < MORE_SAVED * saved[other]:
        return None
    least = max(saved[other], 0.0)
    ratio = saved[which] / max(least, 0.01 * found.systems_exact)
    return LengthToShorten(value=ratio, which=which, change=swings[which].change, saved=saved[which], other_saved=least)


def _halved(best: Sized) -> LimitHalvesThroughput | None:
    """What the instance would carry without the limit that ends its load, where a looser one could save a system."""
    question, capacity = best.contender.question, best.as_predicted
    binding = binding_limit(question.limits, capacity.binds)
    if binding is None or question.recording is not None or question.offline or best.systems == best.contender.layout.systems_per_instance:
        return None
    without = best.contender.without(binding, best.instances).rate
    ratio = without / capacity.rate
    if ratio < HALVES:
        return None
    return LimitHalvesThroughput(
        value=ratio, limit=limit_of(binding), requests_per_second=capacity.rate, requests_per_second_without=without
    )


def _bursty(question: Question) -> BurstyTrace | None:
    demand = question.demand
    poisson, peak = demand.poisson_peak_requests_per_second, demand.peak_second
    if not demand.bursty or demand.cv is None or poisson is None or peak is None:
        return None
    return BurstyTrace(value=demand.cv, poisson_peak=poisson, peak_second=peak)


def _smaller(question: Question) -> SmallerModel | None:
    """The smallest model that publishes at least the same score, asked the same way, and has room for such requests."""
    model, own = question.model, find_score(question.model.name)
    if own is None:
        return None
    longest = question.isl.mean + question.osl.mean
    found = [
        (other, score)
        for other in models()
        if (score := find_score(other.name)) is not None
        and score.score >= own.score
        and _asked_alike(score, own)
        and other.parameters * SMALLER <= model.parameters
        and other.active_parameters <= model.active_parameters
        and longest <= other.max_context
    ]
    if not found:
        return None
    other, score = min(found, key=lambda pair: pair[0].parameters)
    return SmallerModel(
        value=model.parameters / other.parameters,
        model=model.name,
        parameters=model.parameters,
        score=own.score,
        other=other.name,
        other_parameters=other.parameters,
        other_score=score.score,
        benchmark=score.benchmark,
        setting=score.setting,
    )


def _asked_alike(one: QualityScore, other: QualityScore) -> bool:
    """Whether two scores may stand beside each other: one setting, or base models, which are all asked with 5 examples."""
    kinds = {score.setting.partition(";")[0] for score in (one, other)}
    return one.setting == other.setting or kinds == {"base model"}

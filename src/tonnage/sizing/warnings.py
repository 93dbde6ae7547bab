"""The course's rules of thumb as warnings, each with the number behind it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tonnage.perf.step import batch_seconds, step_seconds
from tonnage.perf.step_terms import places_of
from tonnage.sizing.capacity import STABLE, Instance, find_capacity
from tonnage.spec.catalog import QualityScore, find_score, models

if TYPE_CHECKING:
    from tonnage.sizing.bounds import Carried
    from tonnage.sizing.question import Question
    from tonnage.sizing.search import Answer

LARGE = 13e9
"""Parameters from which the course prefers GPUs joined by NVLink."""

WIDE = 2
"""Tensor-parallel degree above which the course advises against PCIe."""

CHEAP = 5.0
"""Ratio of the engine time of an output token to that of an input token from which it is said."""

HALVES = 2.0
"""Throughput without a limit over that with it from which the limit is named."""

SMALLER = 2.0
"""Ratio of parameters from which a model is called smaller."""

FILLED = 64
"""Decode sequences that share a step at most in the comparison of input and output tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """One warning.

    Attributes:
        rule: which rule spoke, such as "nvlink" or "limit-halves-throughput".
        text: one sentence with its numbers.
        value: the number behind it, in ``unit``.
    """

    rule: str
    text: str
    value: float
    unit: str


def warnings(question: Question, found: Answer) -> tuple[Warned, ...]:
    """Every rule of thumb that the chosen deployment runs against; none where nothing was chosen."""
    if not found.carried:
        return ()
    chosen = found.carried[0]
    each = (_nvlink(chosen), _pcie(chosen), _input_tokens(chosen), _halved(question, chosen), _bursty(question), _smaller(question))
    return tuple(warned for warned in each if warned is not None)


def link_share(instance: Instance) -> float:
    """Share of a full decode step that goes into all-reduces and hops; the KV cache is left out of the step."""
    batch = min(instance.batch, FILLED)
    c = instance.step.coefficients
    bare = c.copy()
    bare[list(places_of("link"))] = 0.0
    return 1.0 - batch_seconds(bare, batch, batch) / batch_seconds(c, batch, batch)


def _nvlink(chosen: Carried) -> Warned | None:
    d = chosen.ready.trial.deployment
    tp = d.parallelism.tp
    if d.step_source is not None or d.model.parameters <= LARGE or tp == 1 or d.gpu.tp_link(tp) != "pcie":
        return None
    share = link_share(chosen.ready.instance)
    return Warned(
        rule="nvlink",
        text=(
            f"{d.model.name} has {d.model.parameters / 1e9:.0f} billion parameters and {d.gpu.name} joins its GPUs by PCIe: "
            f"all-reduces take {share:.0%} of a decode step; above 13 billion prefer NVLink"
        ),
        value=share,
        unit="share of a decode step",
    )


def _pcie(chosen: Carried) -> Warned | None:
    d = chosen.ready.trial.deployment
    tp = d.parallelism.tp
    if d.step_source is not None or tp <= WIDE or d.gpu.tp_link(tp) != "pcie":
        return None
    share = link_share(chosen.ready.instance)
    return Warned(
        rule="tp-over-pcie",
        text=f"TP {tp} over PCIe on {d.gpu.name}: all-reduces take {share:.0%} of a decode step; the course advises TP 2 at most",
        value=share,
        unit="share of a decode step",
    )


def _input_tokens(chosen: Carried) -> Warned | None:
    """Engine time of an output token over that of an input token, both at full batches."""
    instance = chosen.ready.instance
    c, isl = instance.step.coefficients, round(instance.asked.isl.mean)
    batch = max(1, min(instance.batch, round(chosen.capacity.concurrency / instance.deployment.parallelism.dp)))
    context = round(batch * (isl + instance.asked.osl.mean / 2))
    output = instance.step.seconds(0, 0, batch, 0, context) / (batch * instance.step.tokens_per_step)
    prompt = step_seconds(c, isl, 1, 0, isl * isl, 0) / isl
    ratio = output / prompt
    if ratio < CHEAP:
        return None
    return Warned(
        rule="input-tokens-cheaper",
        text=(
            f"an output token takes {ratio:.1f} times the engine time of an input token ({1e6 * output:.0f} and {1e6 * prompt:.0f} µs at "
            f"{batch} request{'' if batch == 1 else 's'} at once): longer prompts cost little, shorter answers save most"
        ),
        value=ratio,
        unit="output token over input token",
    )


def _halved(question: Question, chosen: Carried) -> Warned | None:
    """The limit that ends the load, taken away."""
    instance, capacity = chosen.ready.instance, chosen.capacity
    binding = next((limit for limit in instance.asked.slo if str(limit) == capacity.binds), None)
    if binding is None or question.recording is not None or question.offline:
        return None
    rest = tuple(limit for limit in instance.asked.slo if limit != binding)
    without = STABLE * capacity.saturation
    if rest:
        free = find_capacity(Instance(instance.deployment, replace(instance.asked, slo=rest)))
        without = free.rate
    ratio = without / capacity.rate
    if ratio < HALVES:
        return None
    return Warned(
        rule="limit-halves-throughput",
        text=(
            f"{binding} holds an instance to {capacity.rate:.3g} requests/s; without it, it carries {without:.3g}, "
            f"{ratio:.1f} times as many"
        ),
        value=ratio,
        unit="requests/s without the limit over with it",
    )


def _bursty(question: Question) -> Warned | None:
    demand = question.demand
    if not demand.bursty or demand.cv is None:
        return None
    return Warned(
        rule="bursty",
        text=(
            f"the trace's gaps have a coefficient of variation of {demand.cv:.3g}: a Poisson peak of its mean, "
            f"{demand.poisson_peak_requests_per_second:g} requests in a second, is too low where {demand.peak_second} came"
        ),
        value=demand.cv,
        unit="coefficient of variation",
    )


def _smaller(question: Question) -> Warned | None:
    """The smallest model that publishes at least the same score, asked the same way, and takes such requests."""
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
    ratio = model.parameters / other.parameters
    return Warned(
        rule="smaller-model",
        text=(
            f"{other.name}, with {other.parameters / 1e9:.3g} billion parameters to {model.parameters / 1e9:.3g}, publishes "
            f"{score.score:g} in {score.benchmark} ({score.setting}) to the {own.score:g} of {model.name}: see whether it does"
        ),
        value=ratio,
        unit="parameters over those of the smaller model",
    )


def _asked_alike(one: QualityScore, other: QualityScore) -> bool:
    """Whether two scores may stand beside each other: one setting, or base models, which are all asked with 5 examples."""
    kinds = {score.setting.partition(";")[0] for score in (one, other)}
    return one.setting == other.setting or kinds == {"base model"}

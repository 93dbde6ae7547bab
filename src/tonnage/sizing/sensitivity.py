"""What would change the answer: the systems at other inputs, and the cheapest limit to relax.

Every figure is what the question would be answered if it were asked with the changed input: the
same search, fleet check and all, on the same runs where it asks for the same.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tonnage.errors import InputError
from tonnage.perf.memory import memory_plan
from tonnage.plan.candidate import MOST_TIMES
from tonnage.plan.limit import limit_of
from tonnage.plan.notes import LengthsVary
from tonnage.plan.reason import NothingMeetsLimits, NotSure
from tonnage.plan.sensitivity import (
    CacheLoss,
    Changed,
    Input,
    NarrowCache,
    OtherSpread,
    OtherSystems,
    Relaxed,
    RelaxedLimit,
    Sensitivity,
    Swing,
    Unreached,
)
from tonnage.sizing.loads.confidence import levels
from tonnage.sizing.loads.instance import QUICK, SURE, Care
from tonnage.sizing.progress import Steps, parallel
from tonnage.sizing.search.deployment_capacity import DOUBT, Sized
from tonnage.sizing.search.search_space import traffic
from tonnage.sizing.search.warm_start import Learned
from tonnage.spec.catalog import find_engine
from tonnage.spec.catalog.accuracy import cache_losses
from tonnage.spec.catalog.entries import recorded_lengths
from tonnage.spec.lengths import Lengths, Spread, with_spread

if TYPE_CHECKING:
    from tonnage.sizing.loads.trial import Ready
    from tonnage.sizing.question import Question
    from tonnage.sizing.search.search import Answer, Search


CHANGE = 0.2
"""How far every input is moved, down and up."""

ROUNDED = (1.02, 1.06, 1.12)
"""A relaxed limit over the value that the fleet needs, before it is rounded up; the first of these
that saves a system is taken."""

STEEP = 1.3
"""Beyond this factor a change of 20 % is steep: a limit nearly breaks at any load, and short runs
are off by more than a tenth there."""


def sensitivity(search: Search, best: Sized) -> Sensitivity:
    """The swings of every input and the cheapest relaxed limit, around an answer."""
    question = search.question
    inputs: list[Input] = (
        ["isl", "osl", "rate", "step_time"] if question.recording is None else ["rate", "step_time"]
    )
    moves = [(name, sign * CHANGE) for name in inputs for sign in (-1, 1)]
    questions = {
        f"{name} {change:+.0%}": (changed_question(question, name, change), change)
        for name, change in moves
    }
    spreads = other_spreads(question)
    questions |= {name: (spread_question, 0.0) for name, spread_question in spreads.items()}
    search.steps.expect(len(questions))
    changed, care = {}, _care(best)
    for name, answer in parallel(
        lambda name: _changed(search, best, *questions[name], SURE if name in spreads else care),
        list(questions),
        search.workers,
    ):
        changed[name] = answer
        search.steps.done(name)
    swings = [
        Swing(
            input=name, low=changed[f"{name} {-CHANGE:+.0%}"], high=changed[f"{name} {CHANGE:+.0%}"]
        )
        for name in inputs
    ]
    spare, size = question.spare, best.ready.trial.system.gpus
    return Sensitivity(
        systems=best.systems + spare,
        systems_exact=best.gpus_exact / size,
        swings=tuple(swings),
        relaxed=cheapest_relaxed(search, best),
        spreads=tuple(
            OtherSpread(
                spread=name,
                isl=str(spread_question.isl),
                osl=str(spread_question.osl),
                answer=changed[name],
            )
            for name, spread_question in spreads.items()
        ),
    )


def other_spreads(question: Question) -> dict[str, Question]:
    """The question with other spreads of its single lengths, by name: equal, within ``CHANGE``, and
    as recorded traffic of the kind.

    The kind is that of the use case, else the one whose mean lengths are nearest. None where the
    lengths are not an assumption.
    """
    note = next((remark for remark in question.remarks if isinstance(remark, LengthsVary)), None)
    if note is None or question.sharing is not None:
        return {}
    nearest = min(
        recorded_lengths().values(), key=lambda row: row.apart(question.isl.mean, question.osl.mean)
    )
    spreads: dict[str, Spread] = {"exact": 0.0, f"{CHANGE:.0%}": CHANGE, nearest.name: nearest}
    spreads = {
        name: spread
        for name, spread in spreads.items()
        if name not in (note.recorded, f"{note.share:.0%}")
    }
    spreads = {
        name: spread
        for name, spread in spreads.items()
        if not note.recorded or isinstance(spread, float)
    }
    return {
        name: variant
        for name, spread in spreads.items()
        if (variant := _with_spread(question, note, spread)) is not None
    }


def _with_spread(question: Question, note: LengthsVary, spread: Spread) -> Question | None:
    """The question with that spread; None where its longest request is beyond the context."""
    changes: dict[str, Any] = {}
    for which in note.which:
        lengths: Lengths = getattr(question, which)
        changes[which] = with_spread(lengths.at_mean(), which, spread, lengths.plus)
    variant = replace(question, **changes)
    longest = variant.isl.longest + variant.osl.longest
    return variant if longest <= question.model.max_context else None


def changed_question(question: Question, name: Input, change: float) -> Question:
    """The question with one input times 1 + ``change``."""
    factor = 1 + change
    if name == "rate":
        demand = question.demand
        scaled = replace(
            demand,
            peak_requests_per_second=demand.peak_requests_per_second * factor,
            sizing_requests_per_second=demand.sizing_requests_per_second * factor,
            offline_requests=None
            if demand.offline_requests is None
            else round(demand.offline_requests * factor),
        )
        recording = question.recording
        stretched = None if recording is None else recording.at_mean(recording.mean_rps * factor)
        return replace(question, demand=scaled, recording=stretched)
    if name == "step_time":
        return replace(question, step_factor=question.step_factor * factor)
    if question.sharing is not None:
        sharing = question.sharing.scaled(factor) if name == "isl" else question.sharing
        osl = question.osl.scaled(factor) if name == "osl" else question.osl
        return replace(question, isl=sharing.best(osl).isl, osl=osl, sharing=sharing)
    lengths: Lengths = getattr(question, name)
    pairs = None if question.pairs is None else question.pairs.scaled(**{name: factor})
    return replace(question, **{name: lengths.scaled(factor)}, pairs=pairs)  # type: ignore[arg-type]


def again(
    search: Search, question: Question, best: Sized | None = None, *, care: Care = SURE
) -> Answer:
    """The answer to another question, without the parts about the best, which ``best`` is likely to
    be.

    With ``care`` QUICK short runs choose the deployment and its knobs; where rounding up to systems
    leaves a doubt about their number, or it differs much from that of ``best``, the longest count
    them, and search again where that deployment does not hold.
    """
    plain_question, first = (
        replace(question, have=(), growth_per_month=None),
        None if best is None else best.ready.trial.identity,
    )
    before = search.question
    kinds = (question.isl.kind, question.osl.kind) == (before.isl.kind, before.osl.kind)
    near = question.confidence == before.confidence and question.pools == before.pools and kinds
    learned = search.learned if near else Learned(shares=search.learned.shares)
    seeds = (
        ()
        if best is None or question.pools != search.question.pools
        else _with_its_knobs(search, plain_question, best)
    )
    another = replace(
        search,
        question=plain_question,
        steps=Steps(),
        workers=1,
        rows=False,
        seeds=seeds,
        care=care,
        first=first,
        learned=learned,
    )
    answer = another.answer()
    if (
        care == QUICK
        and answer.best is not None
        and (answer.best.in_doubt or _steep(answer.best, best))
    ):
        counted = replace(
            another,
            question=replace(plain_question, tune=False),
            care=SURE,
            seeds=(answer.best.ready,),
            only=True,
        ).answer()
        return (
            counted
            if counted.best is not None and counted.best.level == answer.best.level
            else replace(another, care=SURE).answer()
        )
    return answer


def _with_its_knobs(search: Search, question: Question, best: Sized) -> tuple[Ready, ...]:
    """The choice with the knobs that it has, under the load of another question; none where these
    are the engine's own or do not fit.
    """
    trial = best.ready.trial
    if trial == best.ready.first:
        return ()
    try:
        instance = search.runs.instance(trial.deployment, traffic(question, trial.system))
    except InputError:
        return ()
    return (replace(best.ready, instance=instance),)


def _steep(sized: Sized, best: Sized | None) -> bool:
    """Whether an answer differs so much from the one before that short runs do not count it."""
    return best is not None and not 1 / STEEP < sized.gpus_exact / best.gpus_exact < STEEP


def _care(best: Sized) -> Care:
    """How long the runs are that a changed question is first answered by: the longest where short
    ones find another load for the choice.
    """
    if best.contender.question.objective == "latency":
        return SURE  # a system more or less makes another answer the shortest
    short = best.contender.capacity(best.instances, best.slowdown, care=QUICK)
    return (
        QUICK
        if short.reason is None and abs(short.rate / best.capacity.rate - 1) <= 2 * DOUBT
        else SURE
    )


def _changed(search: Search, best: Sized, question: Question, change: float, care: Care) -> Changed:
    """The answer to a question with one input changed; none where nothing is as sure as the answer
    is.
    """
    answer = again(search, question, best, care=care)
    new_best = answer.best
    if new_best is None:
        reason = answer.rejected[0].reason if answer.rejected else NothingMeetsLimits()
        return Changed(
            change=change, systems=None, systems_exact=None, deployment=None, reason=reason
        )
    if best.level is not None and (new_best.level or 0.0) < best.level:
        contender, slowdown = new_best.contender, new_best.contender.slowdown(best.level)
        unsure = NotSure(
            breach=contender.alone_at(slowdown),
            step_factor=slowdown.steps / contender.as_asked.steps,
        )
        return Changed(
            change=change, systems=None, systems_exact=None, deployment=None, reason=unsure
        )
    return Changed(
        change=change,
        systems=new_best.systems + search.question.spare,
        systems_exact=new_best.gpus_exact / new_best.ready.trial.system.gpus,
        deployment=new_best.ready.trial.identity,
        gpus=new_best.gpus,
        reason=None,
    )


def cheapest_relaxed(search: Search, best: Sized) -> Relaxed | None:
    """The one limit that breaks with a system fewer, relaxed to what it would have to be; a search
    again shows that it saves one.
    """
    question, contender = search.question, best.contender
    if question.load != "open" or question.offline or not question.limits:
        return None
    fleet = contender.at_peak(best.slowdown)
    fewer = best.systems - fleet.layout.systems_per_instance
    if fewer < fleet.layout.systems_per_instance or not fleet.could_carry(fewer):
        return None
    broken = [
        (limit, seconds)
        for limit, seconds in fleet.latencies_s(fleet.seen(fewer).summary)
        if seconds > limit.seconds
    ]
    if len(broken) != 1:
        return None
    limit, value = broken[0]
    for factor in ROUNDED:
        seconds = rounded_up(factor * value)
        looser = replace(limit, seconds=seconds)
        relaxed = again(
            search,
            replace(
                question,
                slo=tuple(looser if original == limit else original for original in question.slo),
            ),
            best,
        ).best
        if relaxed is not None and relaxed.gpus < best.gpus:
            systems = relaxed.systems + question.spare
            saved = best.systems + question.spare - systems
            return Relaxed(
                limit=limit_of(limit),
                to_ms=1e3 * seconds,
                systems=systems,
                saved=saved,
                gpus=relaxed.gpus,
            )
    return None


def rounded_up(seconds: float) -> float:
    """Rounded up to two digits, or to three where the first is 1 or 2."""
    exponent = math.floor(math.log10(seconds))
    digits = 2 if seconds / 10**exponent < 3 else 1
    unit = 10.0 ** (exponent - digits)
    return float(f"{math.ceil(seconds / unit - 1e-9) * unit:.12g}")


# The KV cache in FP8 as a knob, where the choice has it in 16 bits because nobody said its format.


LEAST_FILLED = 0.25
"""Share of the cache that the requests at the highest load fill at least, for a smaller one to be
tried."""

LEAST_SAVED = 0.05
"""Share of the systems, without rounding, that it has to save."""


def narrowable(best: Sized) -> bool:
    """Whether the choice fills its KV cache of 16 bits, and its GPU and engine can keep it in FP8.

    Latent caches are left out: other kernels read them, and no loss is published of those
    (``trade_offs.yaml``).
    """
    question, d = best.contender.question, best.ready.trial.deployment
    launch = find_engine(d.engine).launch
    flag = launch is not None and (
        launch.switch("kv_8bit") is not None or "kv_format" in dict(launch.file_keys)
    )
    if (
        not flag
        or d.precision.kv != "fp16"
        or d.gpu.fp8_tflops is None
        or d.model.has_latent_cache
        or question.pools is not None
    ):
        return False
    if question.step_source is not None or any(
        precision.names_kv for precision in question.precisions
    ):
        return False
    capacity = (
        best.ready.instance.memory.concurrent_requests(
            math.ceil(question.isl.mean), math.ceil(question.osl.mean)
        )
        * d.parallelism.dp
    )
    return best.capacity.concurrency >= LEAST_FILLED * capacity


def narrow_cache(search: Search, best: Sized) -> NarrowCache | None:
    """The answer with the KV cache in FP8, where that saves systems at the same confidence; None
    where it does not.
    """
    question, ready = search.question, best.ready
    narrow = ready.trial.deployment.precision.with_kv("fp8")
    answer = again(search, replace(question, precisions=(narrow,)), best, care=_care(best)).best
    if answer is None or (answer.level or 0.0) < (best.level or 0.0):
        return None
    trial, systems = answer.ready.trial, answer.systems + question.spare
    if answer.gpus_exact > (1 - LEAST_SAVED) * best.gpus_exact and answer.gpus >= best.gpus:
        return None
    wide, same = (
        ready.instance.memory,
        memory_plan(replace(ready.trial.deployment, precision=narrow)),
    )
    losses = cache_losses()
    return NarrowCache(
        deployment=trial.identity,
        system=trial.system.name,
        times=same.tokens / wide.tokens,
        systems=systems,
        systems_exact=answer.gpus_exact / trial.system.gpus,
        gpus=answer.gpus,
        losses=tuple(
            CacheLoss(
                benchmark=loss.benchmark,
                least=min(loss.percent.values()),
                most=max(loss.percent.values()),
            )
            for loss in losses
        ),
        source=losses[0].source,
    )


# What it would take to be surer than asked, where no number of the chosen systems that anybody
# would buy does.


def unreached(search: Search, best: Sized) -> Unreached | None:
    """The lowest confidence that a plan names and that the choice does not reach; None where it
    reaches all of them.
    """
    contender, question = best.contender, search.question
    for level in (
        level for level in levels(question.confidence) if best.level is None or level > best.level
    ):
        settled = contender.settled(contender.slowdown(level))
        if settled is not None and settled <= MOST_TIMES * best.systems:
            continue
        slowdown = contender.slowdown(level)
        alone = contender.alone_at(slowdown) if question.limits else None
        return Unreached(
            confidence=level,
            step_factor=slowdown.steps / contender.as_asked.steps,
            alone=alone,
            other=_other_at_level(search, best, level),
            relaxed=None if alone is None else _relaxed(search, best, level),
        )
    return None


def _other_at_level(search: Search, best: Sized, level: float) -> OtherSystems | None:
    """The deployment that carries the load with that confidence instead."""
    alternative = again(
        search, replace(search.question, confidence=level), best, care=_care(best)
    ).best
    if (
        alternative is None
        or alternative.level != level
        or alternative.ready.trial.deployment == best.ready.trial.deployment
    ):
        return None
    trial, systems = alternative.ready.trial, alternative.systems + search.question.spare
    return OtherSystems(
        deployment=trial.identity, system=trial.system.name, systems=systems, gpus=alternative.gpus
    )


def _relaxed(search: Search, best: Sized, level: float) -> RelaxedLimit | None:
    """The limit that ends the load, as much longer as the confidence asks latencies to be: it then
    leaves what the asked one leaves.
    """
    contender, question = best.contender, search.question
    binds = contender.alone_at(contender.slowdown(level)).limit
    limit = next(candidate for candidate in question.limits if limit_of(candidate) == binds)
    looser = replace(
        limit,
        seconds=rounded_up(
            limit.seconds * contender.slowdown(level).of(limit) / best.slowdown.of(limit)
        ),
    )
    relaxed_question = replace(
        question,
        confidence=level,
        slo=tuple(looser if candidate == limit else candidate for candidate in question.slo),
    )
    alternative = again(search, relaxed_question, best, care=_care(best)).best
    if alternative is None or alternative.level != level:
        return None
    system, systems = alternative.ready.trial.system.name, alternative.systems + question.spare
    return RelaxedLimit(
        limit=limit_of(limit),
        to_ms=1e3 * looser.seconds,
        system=system,
        systems=systems,
        gpus=alternative.gpus,
    )

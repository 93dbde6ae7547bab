"""What a plan holds beside its numbers: the question as it was understood, provenance, and what a reader must know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tonnage.perf.ranges import coefficient_source
from tonnage.plan.candidate import Candidate
from tonnage.plan.limit import limit_of
from tonnage.plan.note import FrontEnds, KnobsChanged, LimitsDoNotCount, NoLimit, Note, QueuedFromStart, RestsOn, Routed
from tonnage.plan.plan import Understood
from tonnage.plan.provenance import Provenance
from tonnage.sizing.fleet.prefix_cache import shared_in_words
from tonnage.sizing.search.tuning import changes
from tonnage.spec.catalog import find_engine
from tonnage.spec.engine import default_knobs
from tonnage.spec.step_times import FITTED
from tonnage.version import VERSION

if TYPE_CHECKING:
    from tonnage.sizing.question import Question
    from tonnage.sizing.search.contender import Sized


FRONT_END_ENDS = 0.85
"""Share of its time from which a single front end is said to end the load of an instance."""


def understood(question: Question) -> Understood:
    """The question as the plan states it."""
    return Understood(
        model=question.model.name,
        gpus=tuple(g.name for g in question.gpus),
        precisions=tuple(p.name for p in question.precisions),
        tps=question.tps,
        pps=question.pps,
        dps=question.dps,
        eps=question.eps,
        engines=question.engines,
        isl=str(question.isl if question.sharing is None or question.sharing.new is None else question.sharing.new),
        osl=str(question.osl),
        mean_isl=question.isl.mean,
        mean_osl=question.osl.mean,
        limits=tuple(map(limit_of, question.slo)),
        limits_that_count=tuple(map(limit_of, question.limits)),
        mode=question.mode,
        step_factor=question.step_factor,
        step_model=FITTED if question.step_source is None else question.step_source.name,
        load=question.load,
        arrivals=question.process if question.recording is None else "trace",
        cv=question.cv if question.demand.cv is None else question.demand.cv,
        spare_systems=question.spare,
        confidence=question.confidence,
        seed=question.seed,
        speculation="" if question.speculation is None else str(question.speculation),
        router=question.router,
        shares=shared_in_words(question),
    )


def provenance(question: Question, candidates: Sequence[Candidate]) -> Provenance:
    """Version, coefficients and seed."""
    engines = sorted({c.engine_preset for c in candidates}) or list(question.engines)
    return Provenance(
        tonnage=VERSION,
        coefficients={engine: coefficient_source(engine) for engine in engines},
        seed=question.seed,
        calibration=question.calibration,
        step_model="" if question.step_source is None else question.step_source.name,
    )


def notes(question: Question, best: Sized | None, candidates: Sequence[Candidate]) -> tuple[Note, ...]:
    """What a reader must know about the numbers.

    Args:
        question: what was asked.
        best: the choice; None where there is none.
        candidates: the choice first, as the plan states them.
    """
    return (*question.remarks, *_notes(question, best, candidates))


def _notes(question: Question, best: Sized | None, candidates: Sequence[Candidate]) -> Iterator[Note]:
    if question.load == "open" and not question.offline:
        yield Routed(router=question.router, together=1 if best is None else best.contender.standing_for(best.instances))
    if candidates and candidates[0].marks:
        yield RestsOn(marks=candidates[0].marks)
    dropped = tuple(limit_of(limit) for limit in question.slo if limit not in question.limits)
    if dropped:
        yield LimitsDoNotCount(mode=question.mode, limits=dropped)
    if best is not None:
        deployment = best.ready.trial.deployment
        changed = changes(best.ready, default_knobs(find_engine(deployment.engine), deployment.gpu))
        if changed:
            yield KnobsChanged(changes=changed)
        yield from _front_ends(best)
    if question.offline:
        yield QueuedFromStart()
    elif not question.slo:
        yield NoLimit()


def _front_ends(best: Sized) -> Iterator[FrontEnds]:
    """What the front ends of an instance can stream, where there are several or one is all but busy; nothing of a job."""
    question, instance, knobs = best.contender.question, best.ready.instance, best.ready.trial.deployment.knobs
    alone_s = instance.step.stream_s * knobs.front_ends / instance.deployment.parallelism.dp
    if question.offline or alone_s <= 0:
        return
    most, rate = instance.step.tokens_per_step / (question.osl.mean * alone_s), best.as_predicted.rate
    if knobs.front_ends > 1 or rate > FRONT_END_ENDS * most:
        launch = find_engine(instance.deployment.engine).launch
        setting = "" if launch is None else launch.flag("front_ends") or ""
        yield FrontEnds(front_ends=knobs.front_ends, setting=setting, requests_per_second_of_one=most, requests_per_second=rate)

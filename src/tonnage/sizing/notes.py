"""What a plan holds next to its numbers: the question as it was understood, provenance, and what a
reader must know.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

from tonnage.perf.links import over_pcie, staged
from tonnage.perf.ranges import coefficient_source
from tonnage.perf.step import batch_seconds
from tonnage.perf.step_terms import places_of
from tonnage.plan.candidate import Candidate
from tonnage.plan.fleet import fleet
from tonnage.plan.limit import limit_of
from tonnage.plan.notes import (
    BurstyTrace,
    CacheOfCheckpoint,
    FrontEnds,
    KnobsChanged,
    LengthToShorten,
    LimitHalvesThroughput,
    LimitsDoNotCount,
    ModelRead,
    NoLimit,
    Note,
    PcieForLargeModel,
    QueuedFromStart,
    RestsOn,
    Routed,
    SmallerModel,
    TiersNotStarted,
    Warning,
    WideOverPcie,
)
from tonnage.plan.plan import Understood
from tonnage.plan.sensitivity import Changed, PercentileAnswer, Provenance, Sensitivity
from tonnage.sizing.fleet.routers import shared_in_words
from tonnage.sizing.loads.capacity import broken_alone, find_capacity
from tonnage.sizing.loads.instance import Instance
from tonnage.sizing.loads.load_scan import binding_limit
from tonnage.sizing.question import Question
from tonnage.sizing.search.deployment_capacity import Sized
from tonnage.sizing.search.search_space import traffic
from tonnage.sizing.search.tuning import changes
from tonnage.spec.catalog import find_engine, models
from tonnage.spec.catalog import gpus as all_gpus
from tonnage.spec.catalog.accuracy import QualityScore, find_score
from tonnage.spec.catalog.checkpoints import loaded, narrows_kv
from tonnage.spec.catalog.interfaces import starts_offloading
from tonnage.spec.engine import default_knobs
from tonnage.spec.step_times import FITTED
from tonnage.version import VERSION

FRONT_END_ENDS = 0.85
"""Share of its time from which the notes say that a single front end limits the load of an
instance."""


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
        isl=str(
            question.isl
            if question.sharing is None or question.sharing.new is None
            else question.sharing.new
        ),
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


def notes(
    question: Question, best: Sized | None, candidates: Sequence[Candidate]
) -> tuple[Note, ...]:
    """What a reader must know about the numbers; the choice is first among the candidates."""
    return (*question.remarks, *_notes(question, best, candidates))


def _notes(
    question: Question, best: Sized | None, candidates: Sequence[Candidate]
) -> Iterator[Note]:
    if question.model.reading:
        yield ModelRead(model=question.model)
    if question.load == "open" and not question.offline:
        yield Routed(
            router=question.router,
            together=1 if best is None else best.contender.standing_for(best.instances),
        )
    if candidates and candidates[0].marks:
        yield RestsOn(marks=candidates[0].marks)
    dropped = tuple(limit_of(limit) for limit in question.slo if limit not in question.limits)
    if dropped:
        yield LimitsDoNotCount(mode=question.mode, limits=dropped)
    if best is not None:
        deployment = best.ready.trial.deployment
        changed = changes(
            best.ready,
            default_knobs(
                find_engine(deployment.engine), deployment.gpu, deployment.parallelism.dp
            ),
        )
        if changed:
            yield KnobsChanged(changes=changed)
        yield from _front_ends(best)
        rules, tiers = best.ready.instance.below
        started = (
            ("host",) if tiers and starts_offloading(rules, find_engine(deployment.engine)) else ()
        )
        if unstarted := tuple(tier.name for tier in tiers if tier.name not in started):
            yield TiersNotStarted(offloader=rules.name, tiers=unstarted)
    if question.offline:
        yield QueuedFromStart()
    elif not question.slo:
        yield NoLimit()


def _front_ends(best: Sized) -> Iterator[FrontEnds]:
    """What the front ends of an instance can serve, where there are several or one is all but busy;
    nothing of a job.
    """
    instance, knobs, capacity = (
        best.ready.instance,
        best.ready.trial.deployment.knobs,
        best.as_predicted,
    )
    tpot_ms, rate = capacity.summary.tpot_ms.mean, capacity.rate
    steps_per_s = 1e3 / (tpot_ms * instance.step.tokens_per_step) if tpot_ms else 0.0
    of_request = instance.front_end_busy(1.0)
    if best.contender.question.offline or of_request <= 0:
        return
    max_rate = 1.0 / (of_request * knobs.front_ends)
    if knobs.front_ends > 1 or instance.front_end_busy(rate, steps_per_s) > FRONT_END_ENDS:
        launch = find_engine(instance.deployment.engine).launch
        setting = "" if launch is None else launch.flag("front_ends") or ""
        yield FrontEnds(
            front_ends=knobs.front_ends,
            setting=setting,
            requests_per_second_of_one=max_rate,
            requests_per_second=rate,
        )


# The course's way next to the simulated one: the percentile of the arrivals in one second over a
# benchmark's throughput.


def percentile_answer(chosen: Sized, best: Candidate) -> PercentileAnswer | None:
    """The systems by the percentile way; None where no percentile was requested, or nothing meets
    the limits.
    """
    question, trial = chosen.contender.question, chosen.ready.trial
    demand = question.demand
    if demand.percentile is None:
        return None
    instance = chosen.contender.runs.instance(
        trial.deployment, traffic(question, trial.system, "closed")
    )
    if broken_alone(instance.single_client(), question.limits) is not None:
        return None
    capacity = find_capacity(chosen.contender.runs, instance, question.limits)
    if capacity.reason is not None:
        return None
    need = fleet(best.parallelism.gpus, best.gpus_per_system).carrying(
        demand.peak_requests_per_second, capacity.rate
    )
    return PercentileAnswer(
        percentile=demand.percentile,
        mean_requests_per_second=demand.sizing_requests_per_second,
        peak_requests_per_second=demand.peak_requests_per_second,
        requests_per_second_per_instance=capacity.rate,
        concurrency_per_instance=capacity.concurrency,
        systems_exact=need.exactly(demand.peak_requests_per_second, capacity.rate),
        systems=need.systems + question.spare,
        simulated_systems_exact=best.systems_exact,
        simulated_systems=best.systems,
        process=question.process,
        cv=question.cv if question.process == "gamma" else None,
    )


# The course's rules of thumb as warnings, each with the number behind it.


LARGE = 13e9
"""Parameters from which the course prefers GPUs joined by NVLink."""

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
    """Every rule of thumb that the chosen deployment runs against; its sensitivity gives the advice
    on lengths.
    """
    question = best.contender.question
    checks = (
        _nvlink(best),
        _pcie(best),
        _cache(best),
        length_to_shorten(swings, best.gpus),
        _halved(best),
        _bursty(question),
        _smaller(question),
    )
    return tuple(warned for warned in checks if warned is not None)


def link_share(instance: Instance) -> float:
    """Share of a full decode step that goes into all-reduces and hops; the KV cache is left out of
    the step.
    """
    batch = min(instance.batch, FILLED)
    c = instance.step.coefficients
    bare = c.copy()
    bare[list(places_of("link"))] = 0.0
    return 1.0 - batch_seconds(bare, batch, batch) / batch_seconds(c, batch, batch)


def _nvlink(chosen: Sized) -> PcieForLargeModel | None:
    d = chosen.ready.trial.deployment
    tp = d.parallelism.tp
    if (
        d.step_source is not None
        or d.model.parameters <= LARGE
        or tp == 1
        or d.gpu.tp_link(tp) != "pcie"
    ):
        return None
    share = link_share(chosen.ready.instance)
    return PcieForLargeModel(
        value=share, model=d.model.name, parameters=d.model.parameters, gpu=d.gpu.name
    )


def _pcie(chosen: Sized) -> WideOverPcie | None:
    d = chosen.ready.trial.deployment
    tp = d.parallelism.tp
    if d.step_source is not None or not over_pcie(d.gpu, tp) or d.calibration is not None:
        return None
    alike = (
        gpu
        for gpu in all_gpus()
        if gpu.vendor == d.gpu.vendor and gpu.memory_bandwidth_gb_s >= d.gpu.memory_bandwidth_gb_s
    )
    larger = [gpu for gpu in alike if gpu.memory_gb >= tp * d.gpu.memory_gb]
    card = min(larger, key=lambda gpu: (gpu.memory_gb, gpu.tdp_w or math.inf), default=None)
    share, name = link_share(chosen.ready.instance), "" if card is None else card.name
    return WideOverPcie(
        value=share,
        tp=tp,
        gpu=d.gpu.name,
        staged=staged(d.gpu, tp),
        link_gb_s=d.gpu.pcie_gb_s / 2,
        larger=name,
    )


def _cache(chosen: Sized) -> CacheOfCheckpoint | None:
    d = chosen.ready.trial.deployment
    engine = find_engine(d.engine)
    checkpoint, _ = loaded(d.model, d.precision, engine, d.gpu.vendor)
    flag = engine.launch is None or engine.launch.switch("kv_16bit") is not None
    if (
        flag
        or d.precision.kv != "fp16"
        or checkpoint == d.model.name
        or not narrows_kv(d.precision, d.model, engine, d.gpu)
    ):
        return None
    return CacheOfCheckpoint(value=2.0, engine=engine.family, checkpoint=checkpoint)


def length_to_shorten(sensitivity: Sensitivity | None, gpus: int) -> LengthToShorten | None:
    """The length that is worth shortening, by what each of them saves of the ``gpus`` in the plan's
    own sensitivity.
    """
    swings = {} if sensitivity is None else {swing.input: swing.low for swing in sensitivity.swings}
    if sensitivity is None or not {"isl", "osl"} <= set(swings):
        return None
    saved = {
        name: sensitivity.systems_exact - _exactly(swings[name], sensitivity, gpus)
        for name in LENGTHS
    }
    which, second = sorted(LENGTHS, key=lambda name: -saved[name])
    fewer = gpus - swings[which].gpus
    if (
        fewer <= 0
        or saved[which] < LEAST_SAVED * sensitivity.systems_exact
        or saved[which] < MORE_SAVED * saved[second]
    ):
        return None
    least = max(saved[second], 0.0)
    ratio = saved[which] / max(least, 0.01 * sensitivity.systems_exact)
    return LengthToShorten(
        value=ratio,
        which=which,
        change=swings[which].change,
        saved=saved[which],
        other_saved=least,
        gpus=fewer,
    )


def _exactly(changed: Changed, sensitivity: Sensitivity, gpus: int) -> float:
    """The systems of a changed answer before rounding, in systems as large as those of the plan;
    the plan's own where there is none.
    """
    if changed.systems is None or changed.systems_exact is None:
        return sensitivity.systems_exact
    return changed.systems_exact * changed.gpus / changed.systems * sensitivity.systems / gpus


def _halved(best: Sized) -> LimitHalvesThroughput | None:
    """What the instance would carry without the limit that ends its load, where a looser one could
    save a system.
    """
    question, capacity = best.contender.question, best.as_predicted
    binding = binding_limit(question.limits, capacity.binds)
    if (
        binding is None
        or question.recording is not None
        or question.offline
        or best.systems == best.contender.layout.systems_per_instance
    ):
        return None
    without = best.contender.without(binding, best.instances).rate
    ratio = without / capacity.rate
    if ratio < HALVES:
        return None
    return LimitHalvesThroughput(
        value=ratio,
        limit=limit_of(binding),
        requests_per_second=capacity.rate,
        requests_per_second_without=without,
    )


def _bursty(question: Question) -> BurstyTrace | None:
    demand = question.demand
    poisson, peak = demand.poisson_peak_requests_per_second, demand.peak_second
    if not demand.bursty or demand.cv is None or poisson is None or peak is None:
        return None
    return BurstyTrace(value=demand.cv, poisson_peak=poisson, peak_second=peak)


def _smaller(question: Question) -> SmallerModel | None:
    """The smallest model that publishes at least the same score, asked the same way, and has room
    for such requests.
    """
    model, quality_score = question.model, find_score(question.model.name)
    if quality_score is None:
        return None
    longest = question.isl.mean + question.osl.mean
    alternatives = [
        (candidate, score)
        for candidate in models()
        if (score := find_score(candidate.name)) is not None
        and score.score >= quality_score.score
        and _asked_alike(score, quality_score)
        and candidate.parameters * SMALLER <= model.parameters
        and candidate.active_parameters <= model.active_parameters
        and longest <= candidate.max_context
    ]
    if not alternatives:
        return None
    smaller, score = min(alternatives, key=lambda pair: pair[0].parameters)
    return SmallerModel(
        value=model.parameters / smaller.parameters,
        model=model.name,
        parameters=model.parameters,
        score=quality_score.score,
        other=smaller.name,
        other_parameters=smaller.parameters,
        other_score=score.score,
        benchmark=score.benchmark,
        setting=score.setting,
    )


def _asked_alike(first: QualityScore, second: QualityScore) -> bool:
    """Whether two scores may is next to each other: one setting, or base models, which are all
    asked with 5 examples.
    """
    kinds = {score.setting.partition(";")[0] for score in (first, second)}
    return first.setting == second.setting or kinds == {"base model"}

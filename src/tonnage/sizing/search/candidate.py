"""A deployment that meets the limits, as the plan's candidate: its fleet, its metrics, its memory,
how sure its number of systems is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from tonnage.perf.pipeline import MARK
from tonnage.perf.power import Draw, clock, draw, steady_load
from tonnage.perf.ranges import marks
from tonnage.plan.candidate import (
    MOST_TIMES,
    Candidate,
    Confidence,
    GpuLimit,
    MemoryPart,
    MemoryUse,
    Pool,
    Power,
    percent_key,
)
from tonnage.plan.fleet import AtPeak
from tonnage.plan.launch import Command, command
from tonnage.plan.limit import SATURATION, Load, limit_of
from tonnage.plan.reason import Reachable, Reached, Rejected, TooSlowForJob, nearest_of
from tonnage.results.metrics import Latencies, Summary, attained_of
from tonnage.sizing.loads.capacity import Capacity
from tonnage.sizing.loads.confidence import levels, metric_of
from tonnage.sizing.loads.instance import QUICK, Instance
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.loads.trial import Ready
from tonnage.sizing.question import Question
from tonnage.sizing.search.deployment_capacity import Sized
from tonnage.sizing.search.disaggregated import contenders_of
from tonnage.spec.catalog import find_engine
from tonnage.spec.catalog.accuracy import accuracy_and_calibration
from tonnage.spec.catalog.checkpoints import loaded, narrows_kv
from tonnage.spec.catalog.interfaces import starts_offloading
from tonnage.spec.hardware import Gpu
from tonnage.spec.precision import WIDE

LOWEST, HIGHEST = 1, 999
"""No chance is named beyond these, in per mille."""

SURELY = 0.99
"""The confidence at which the load is looked at where a number of systems is as sure as the highest
that a plan names."""

SLACK = 1e-6
"""A number of systems that was found for a level meets the limits with that chance, whatever the
rounding of its rate."""


def candidate(sized: Sized, *, chosen: bool = False) -> Candidate:
    """What the plan says of a deployment that meets the limits; of the ``chosen`` one, how sure
    other numbers of systems are as well.
    """
    question, d, capacity = (
        sized.contender.question,
        sized.ready.trial.deployment,
        sized.as_predicted,
    )
    gpus, load, layout = d.parallelism.gpus, sized.contender.load, sized.contender.layout
    need, summary = layout.of(sized.systems + question.spare), capacity.summary
    impact, calibration = accuracy_and_calibration(d.precision, d.model.released)
    saturation = max(sized.contender.saturation(), capacity.rate)
    return Candidate(
        pools=_pools(sized),
        systems_exact=layout.exactly(load, sized.rate),
        sized_requests_per_second_per_instance=sized.rate,
        requests_per_second_per_instance=capacity.rate,
        requests_per_second_per_gpu=capacity.rate / gpus,
        requests_per_second_per_8_gpus=capacity.rate / gpus * 8,
        output_tokens_per_second_per_8_gpus=capacity.rate / gpus * 8 * question.osl.mean,
        saturation_requests_per_second_per_instance=saturation,
        concurrency_per_instance=capacity.concurrency,
        utilisation=layout.of(sized.systems).utilisation(load, capacity.rate),
        headroom_to_saturation=saturation * need.instances / load - 1.0,
        ttft_ms=Latencies() if question.offline else summary.ttft_ms,
        itl_ms=summary.itl_ms,
        tpot_ms=summary.tpot_ms,
        e2e_ms=Latencies() if question.offline else summary.e2e_ms,
        binds=capacity.binds or SATURATION,
        load=_load(question, capacity),
        marks=(*marks(d), *((MARK,) if d.parallelism.pp > 1 else ())),
        accuracy_impact=impact,
        calibration=calibration,
        confidence=_confidence(sized, chosen=chosen),
        at_peak=_at_peak(sized, chosen=chosen),
        checked=sized.checked,
        power=_power(sized),
        gpu_limit=_limit(d.gpu),
    )


def _limit(gpu: Gpu) -> GpuLimit | None:
    rate = clock(gpu)
    return (
        None
        if rate == 1.0
        else GpuLimit(cap_watts=gpu.power_cap_w, board_watts=gpu.tdp_w, clock=rate)
    )


LOADS = (0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0)
"""Loads of one instance at which its power is predicted, as shares of the load that the plan counts
on."""


def _power(sized: Sized) -> Power | None:
    """Watts of the GPUs at the peak and over the load of an instance, by the closed form of its
    steady state.
    """
    question, instance = sized.contender.question, sized.contender.instance
    tdp = instance.deployment.gpu.tdp_w
    if (
        question.offline
        or question.pools is not None
        or tdp is None
        or instance.step.drafting is not None
    ):
        return None
    share = sized.contender.load / sized.instances

    def at(rate: float) -> Draw | None:
        c, lengths = (
            instance.step.coefficients,
            {"isl": question.isl.mean, "osl": question.osl.mean, "computed": instance.computed},
        )
        load, busy = steady_load(instance.deployment, c, requests_per_second=rate, **lengths)
        return draw(instance.deployment, c, load, busy=busy)

    peak = at(share)
    rates = sorted({*(sized.rate * factor for factor in LOADS), share})
    points = [(rate, drawn.watts) for rate in rates if (drawn := at(rate)) is not None]
    if peak is None:
        return None
    return Power(
        watts=peak.watts,
        low=peak.watts * peak.low,
        high=min(peak.watts * peak.high, instance.deployment.gpu.power_cap_w or tdp),
        idle_watts=peak.idle_watts,
        tdp_watts=tdp,
        joules_per_output_token=peak.watts
        * instance.deployment.parallelism.gpus
        / (share * question.osl.mean),
        by_load=((0.0, peak.idle_watts), *points),
    )


def _at_peak(sized: Sized, *, chosen: bool) -> AtPeak | None:
    """What requests see at the asked peak: of the choice on its whole fleet, of others on as many
    instances as stand for theirs.
    """
    contender, question = sized.contender, sized.contender.question
    if question.offline or question.load != "open":
        return None
    together, share = contender.standing_for(sized.instances), contender.load / sized.instances
    if chosen or question.recording is not None:
        peak = contender.at_peak()
        together, summary = peak.simulated(sized.systems), peak.seen(sized.systems).summary
    else:
        summary = contender.seen(sized.instances, share, QUICK).summary
    return AtPeak(
        requests_per_second_per_instance=share,
        ttft_ms=summary.ttft_ms,
        itl_ms=summary.itl_ms,
        tpot_ms=summary.tpot_ms,
        e2e_ms=summary.e2e_ms,
        utilisation=share / sized.as_predicted.rate,
        instances=together,
        **_attained(sized, summary),
    )


def _attained(sized: Sized, summary: Summary) -> dict[str, Any]:
    """Joint attainment at the peak, as predicted and with times as long as the confidence allows
    for; nothing without such a limit.
    """
    joint = tuple(limit for limit in sized.contender.question.limits if limit.share is not None)
    values = summary.by_request
    if not joint or values is None:
        return {}
    slower = sized.contender.slowdown(sized.contender.question.confidence).tightened(joint)
    sure = [float((values.ratios(limit.parts) <= limit.seconds).mean()) for limit in slower]
    # of a peak that lasts: the run's own window counts its emptying as well
    seconds = values.ttft.size / sized.contender.load
    return {"attained": attained_of(values, seconds, joint), "sure": tuple(sure)}


def _confidence(sized: Sized, *, chosen: bool) -> Confidence:
    """How sure the number of systems is: of the choice at every level that a plan names, of others
    at the one that decided.
    """
    contender, question = sized.contender, sized.contender.question
    confidence, spare = question.confidence, question.spare
    binding = contender.errors[metric_of(sized.as_predicted.binds)]
    if not chosen:
        reached = {} if sized.level is None else {percent_key(sized.level): sized.systems + spare}
        return Confidence(
            asked=confidence,
            meets=None,
            systems={percent_key(confidence): None, **reached},
            step_factors={percent_key(confidence): round(binding.factor(confidence), 4)},
            metric=binding.metric,
        )
    systems_at = {level: _systems_at(sized, level) for level in levels(confidence)}
    return Confidence(
        asked=confidence,
        meets=_chance(sized, systems_at),
        systems={
            percent_key(level): None if count is None else count + spare
            for level, count in systems_at.items()
        },
        step_factors={percent_key(level): round(binding.factor(level), 4) for level in systems_at},
        metric=binding.metric,
    )


def _systems_at(sized: Sized, level: float) -> int | None:
    """Systems that do with a confidence; None where no number that anybody would buy does."""
    decided = sized.level
    if decided is None or level == decided:
        return sized.systems if level == decided else None
    settled = sized.contender.settled(sized.contender.slowdown(level))
    if settled is None or (level > decided and settled > MOST_TIMES * sized.systems):
        return None
    return max(settled, sized.systems) if level > decided else min(settled, sized.systems)


def _chance(sized: Sized, systems_by_level: Mapping[float, int | None]) -> float:
    """The chance that the systems meet the limits, in whole per mille: that of the highest
    percentile of the errors at which they do.

    Between the confidences that are simulated, the load that an instance carries is taken to fall
    evenly, in logarithms, with the time of a step.
    """
    contender, needed = sized.contender, sized.contender.load / sized.instances
    named = {level: contender.slowdown(level) for level in (*systems_by_level, SURELY)}
    rates: dict[float, float] = {}
    for level in sorted(named):
        enough = (
            systems_by_level.get(level) is not None
            and (systems_by_level[level] or 0) <= sized.systems
        )
        rates[level] = contender.capacity(sized.instances, named[level], care=QUICK).rate
        rates[level] = max(rates[level], needed) if enough else rates[level]
        if rates[level] < needed:
            break
    rate_by_steps = {named[level].steps: rate for level, rate in rates.items()}
    low, high = LOWEST, HIGHEST + 1
    while high - low > 1:
        middle = (low + high) // 2
        rate = _between(rate_by_steps, contender.slowdown(middle / 1e3 - SLACK).steps)
        low, high = (middle, high) if rate >= needed * (1 - 1e-9) else (low, middle)
    return low / 1e3


def _between(rates: Mapping[float, float], factor: float) -> float:
    """The rate at a factor, linear in logarithms between known ones, made to fall with it; beyond
    them in proportion to 1/factor.
    """
    points: list[tuple[float, float]] = []
    for at, rate in sorted(rates.items()):
        points.append((at, min(rate, points[-1][1]) if points else rate))
    if factor <= points[0][0]:
        return points[0][1] * points[0][0] / factor
    for (low, more), (high, fewer) in pairwise(points):
        if factor <= high:
            if fewer <= 0.0:
                return more if factor == low else 0.0
            share = math.log(factor / low) / math.log(high / low)
            return float(more * (fewer / more) ** share)
    return points[-1][1] * points[-1][0] / factor


def _pools(sized: Sized) -> tuple[Pool, ...]:
    """The instances of the deployment on their systems, by what they do; both of two pools are in
    the same systems.
    """
    trial, instance, started = sized.ready.trial, sized.ready.instance, _command(sized)
    need = sized.contender.layout.of(sized.systems + sized.contender.question.spare)
    names = trial.identity.names
    return tuple(
        Pool(
            **names,
            role=role,
            model=trial.deployment.model.name,
            system=trial.system.name,
            gpus_per_system=trial.system.gpus,
            knobs=trial.deployment.knobs,
            instances=count,
            systems=need.systems,
            memory=memory_parts(instance),
            kv_tokens=instance.memory.tokens,
            launch=started.argv,
            launch_file=started.file,
        )
        for role, count in sized.contender.roles(need.instances)
    )


SURE_ROOM = 0.8
"""Share of a predicted pool that one request may take: vLLM does not start with a context that its
real pool has no room for."""


def longest_accepted(instance: Instance) -> int:
    """Tokens of the longest prompt with its output that an instance is started for: the model's
    context, where ``SURE_ROOM`` holds it.

    A question's lengths are a guess at the traffic; an engine that refused longer requests would
    refuse the tail that it left out.
    """
    deployment, knobs = instance.deployment, instance.deployment.knobs
    if knobs.scheduler == "static":
        return 0
    whole_prompts = knobs.scheduler == "vllm" and not knobs.chunked_prefill
    limits = [deployment.model.max_context, math.floor(SURE_ROOM * instance.memory.room)]
    return min(limits + [knobs.max_num_tokens] * whole_prompts)


def _command(sized: Sized) -> Command:
    """How an instance is started."""
    d, traffic = sized.ready.trial.deployment, sized.ready.instance.traffic
    longest = (
        traffic.pairs.longest
        if traffic.pairs is not None
        else traffic.isl.longest + traffic.osl.longest
    )
    longest = min(longest, d.model.max_context)
    engine, (rules, tiers) = find_engine(d.engine), sized.ready.instance.below
    checkpoint, words = loaded(d.model, d.precision, engine, d.gpu.vendor)
    started = command(
        None if d.precision.weight_format in WIDE else engine.launch,
        checkpoint=checkpoint,
        parallelism=d.parallelism,
        knobs=d.knobs,
        max_context=sized.contender.question.max_model_len
        or max(longest_accepted(sized.ready.instance), longest),
        kv_8bit=d.precision.kv == "fp8",
        kv_16bit=d.precision.kv == "fp16" and narrows_kv(d.precision, d.model, engine, d.gpu),
        speculation=d.speculation,
        offloading=rules,
        tiers=tiers if tiers and starts_offloading(rules, engine) else (),
    )
    return replace(started, argv=(*started.argv, *words)) if started.argv else started


def _load(question: Question, capacity: Capacity) -> Load:
    """How requests reach an instance at its highest load."""
    if question.offline:
        return Load(kind="queued")
    if question.recording is not None:
        return Load(kind="trace", requests_per_second=capacity.rate)
    if question.load == "closed":
        return Load(kind="closed", clients=capacity.concurrency)
    cv = question.cv if question.process == "gamma" else None
    return Load(kind="open", requests_per_second=capacity.rate, process=question.process, cv=cv)


def memory_parts(instance: Instance) -> tuple[MemoryPart, ...]:
    """Weights, activations, reserve, KV cache, and what the engine leaves unused; they add up to
    the GPU's memory.
    """
    m, whole = instance.memory, instance.deployment.gpu.memory_bytes
    sizes: dict[MemoryUse, int] = {
        "weights": m.weight_bytes,
        **({"drafter": m.drafter_bytes} if m.drafter_bytes else {}),
        **({"adapters": m.adapter_bytes} if m.adapter_bytes else {}),
        **({"encoder": m.encoder_bytes} if m.encoder_bytes else {}),
        "activations": m.activation_bytes,
        "reserve": m.reserve_bytes,
        "kv_cache": m.kv_budget_bytes,
    }
    sizes["unused"] = max(0, whole - sum(sizes.values()))
    return tuple(
        MemoryPart(part=part, bytes_per_gpu=size, share=size / whole)
        for part, size in sizes.items()
    )


# How near deployments come to limits that none meets: each of them serving one request at a time,
# which no load can beat.


def reachable(
    question: Question,
    runs: Runs,
    prepared: Sequence[Ready | Rejected],
    refused: Sequence[Rejected],
) -> Reachable | None:
    """What the deployments of a question without an answer reach, with one request at a time; None
    where none of them fits.
    """
    if question.offline:
        return nearest_of(_of_job(rejected) for rejected in refused)
    return nearest_of(
        _alone(question, runs, ready) for ready in prepared if isinstance(ready, Ready)
    )


def _alone(question: Question, runs: Runs, ready: Ready) -> tuple[Reached, ...]:
    """Every limited statistic that is defined, with one request at a time."""
    summary, who = contenders_of(question, [ready], runs)[0].alone(), ready.trial.identity
    values = [(limit, 1e3 * summary.limit_s(limit)) for limit in question.limits]
    return tuple(
        Reached(limit=limit_of(limit), asked_ms=1e3 * limit.seconds, value_ms=value, deployment=who)
        for limit, value in values
        if not math.isnan(value)
    )


def _of_job(refused: Rejected) -> tuple[Reached, ...]:
    why = refused.reason
    if not isinstance(why, TooSlowForJob):
        return ()
    return (
        Reached(
            limit=None,
            asked_ms=1e3 * why.allowed,
            value_ms=1e3 * why.seconds,
            deployment=refused.identity,
        ),
    )

"""The search space: every deployment that a question allows, and what can be said of it before any
simulation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from itertools import product
from typing import TYPE_CHECKING

from tonnage.errors import DoesNotFit, InputError, in_python, option
from tonnage.perf.fitting import holds, instead
from tonnage.perf.memory import startable
from tonnage.plan.reason import (
    CannotRun,
    PrecisionUnsupported,
    Rejected,
    TargetLacks,
    TooManyStages,
    VendorUnsupported,
    WiderThanSystem,
)
from tonnage.sizing.loads.instance import Traffic
from tonnage.sizing.loads.trial import Ready, Trial, runs_on
from tonnage.sizing.question import PP_DEGREES, Question
from tonnage.sizing.search.tuning import fitted
from tonnage.spec.catalog import find_engine, system_of
from tonnage.spec.catalog.checkpoints import as_run, loadable
from tonnage.spec.deployment import Deployment, EngineKnobs, Parallelism
from tonnage.spec.engine import default_knobs
from tonnage.spec.precision import find_precision
from tonnage.spec.targets import target_lacks

if TYPE_CHECKING:
    from tonnage.plan.candidate import Candidate
    from tonnage.sizing.loads.runs import Runs
    from tonnage.spec.hardware import Gpu, System

MOST_SYSTEMS_PER_INSTANCE = 4
"""Most systems that an instance spans where pipeline degrees are tried that nobody asked for."""

DEGREES = (("tp",), ("dp",), ("ep",))
"""What a rejected candidate shows anyway, so that its reason need not name it."""


def trials(question: Question) -> Iterator[Trial]:
    """Every combination that the question allows; pipelines only where they are requested."""
    splits = tuple(splits_of(question))
    combinations = product(question.gpus, question.engines, question.precisions)
    runs = {
        (gpu.name, name, number_format.name): as_run(
            number_format, question.model, find_engine(name), gpu
        )
        for gpu, name, number_format in combinations
    }
    guesses = (None,) if question.speculation is None else (None, question.speculation)
    for gpu, engine, asked_format, parallelism, speculation in product(
        question.gpus, question.engines, question.precisions, splits, guesses
    ):
        system, precision = system_for(question, gpu), runs[gpu.name, engine, asked_format.name]
        for knobs in _knobs(question, default_knobs(find_engine(engine), gpu, parallelism.dp)):
            deployment = Deployment(
                model=question.model,
                gpu=gpu,
                precision=precision,
                parallelism=parallelism,
                engine=engine,
                knobs=knobs,
                calibration=question.calibration,
                speculation=speculation,
                step_source=question.step_source,
                adapters=question.adapters,
                images=question.images,
            )
            yield Trial(deployment=deployment, system=system)


def system_for(question: Question, gpu: Gpu) -> System:
    """The system in which a GPU would be bought, or exists."""
    owned = {system.gpu: system for system in question.systems} | {
        group.system.gpu: group.system for group in question.have
    }
    return owned.get(gpu.name) or system_of(gpu)


def splits_of(question: Question) -> Iterator[Parallelism]:
    """The ways in which an instance may be split over GPUs.

    Where neither degree was requested, a mixture of experts is also tried with whole experts on
    every GPU, its attention in tensor parallel, and with latent attention, whose cache tensor
    parallelism cannot split, in ranks of one GPU.
    """
    model, chosen = question.model, question.dps or question.eps
    for pp, tp in product(question.pps or (1,), question.tps):
        for dp, ep in product(question.dps or (1,), question.eps or (1,)):
            yield Parallelism(tp=tp, pp=pp, dp=dp, ep=ep)
        if model.is_moe and not chosen and tp > 1 and pp == 1 and model.experts % tp == 0:
            yield Parallelism(tp=tp, ep=tp)
            if model.has_latent_cache:
                yield Parallelism(dp=tp, ep=tp)


def _knobs(question: Question, default: EngineKnobs) -> Iterator[EngineKnobs]:
    """The engine's own knobs, overridden by the asker's."""
    chunked = (
        default.chunked_prefill if question.chunked_prefill is None else question.chunked_prefill
    )
    default = replace(default, stream_interval=question.stream_interval or default.stream_interval)
    default = replace(default, front_ends=question.front_ends or default.front_ends)
    caches = default.prefix_caching if question.prefix_caching is None else question.prefix_caching
    share = dict(question.shares).get(default.kv_rule, default.kv_fraction)
    default = replace(default, prefix_caching=caches, kv_fraction=share)
    for batch in question.max_batch_sizes or (default.max_batch_size,):
        for tokens in question.max_num_tokens or (default.max_num_tokens,):
            yield replace(
                default, max_batch_size=batch, max_num_tokens=tokens, chunked_prefill=chunked
            )


def traffic(question: Question, system: System, load: str | None = None) -> Traffic:
    """The traffic of one instance."""
    return Traffic(
        isl=question.isl,
        osl=question.osl,
        load=load or question.load,
        process=question.process,
        cv=question.cv,
        seed=question.seed,
        pairs=question.pairs,
        gpus_per_system=system.gpus,
        memories=system.kv_tiers,
        router=question.router,
        sharing=question.sharing_behind(question.router),
    )


LOAD = frozenset({"demand", "step_factor", "confidence", "objective", "remarks"})
"""Settings of a question that change nothing about its deployments by themselves."""


def prepare(question: Question, runs: Runs) -> Sequence[Ready | Rejected]:
    """Every trial with its step model, or why it cannot be; with pipelines where nothing else fits
    and none were requested. Questions that differ in ``LOAD`` alone share it.
    """
    settings = (
        getattr(question, field.name) for field in fields(question) if field.name not in LOAD
    )
    key = ("prepared", *settings, question.sharing_behind(question.router))
    return runs.once(key, lambda: _prepared(question, runs))


def _prepared(question: Question, runs: Runs) -> list[Ready | Rejected]:
    """Make what ``prepare`` returns."""
    tried = list(trials(question))
    outcomes = [prepared_trial(question, runs, trial, place) for place, trial in enumerate(tried)]
    kinds = {} if question.pps else {_kind(trial): trial for trial in tried}
    fitting = {_kind(outcome.trial) for outcome in outcomes if isinstance(outcome, Ready)}
    for kind, trial in kinds.items():
        if kind not in fitting:
            longer = _pipelined(question, runs, trial, len(outcomes))
            outcomes += [longer] if longer is not None else []
    if any(isinstance(outcome, Ready) for outcome in outcomes):
        return outcomes
    return [
        _with_what_fits(question, trial, found)
        for trial, found in zip(tried, outcomes, strict=True)
    ]


def _with_what_fits(question: Question, trial: Trial, ready: Ready | Rejected) -> Ready | Rejected:
    """A deployment without room for the longest request, and what has room in its place."""
    isl, osl = (
        (question.pairs.longest, 0)
        if question.pairs is not None
        else (question.isl.longest, question.osl.longest)
    )
    if (
        isinstance(ready, Ready)
        or not isinstance(ready.reason, CannotRun)
        or holds(trial.deployment, isl, osl)
    ):
        return ready
    return replace(
        ready,
        reason=replace(
            ready.reason, error=ready.reason.error + in_python(instead(trial.deployment, isl, osl))
        ),
    )


def _kind(trial: Trial) -> tuple[str, str, str]:
    d = trial.deployment
    return d.gpu.name, d.precision.name, runs_on(d)


def prepared_trial(question: Question, runs: Runs, trial: Trial, place: int) -> Ready | Rejected:
    """Prepare a trial with its step model, or say why it cannot run."""
    d = trial.deployment
    if (lacking := _lacking(d)) is not None:
        return trial.rejected(lacking)
    if question.deploy_on and (reason := _not_deployed(question, trial)):
        return trial.rejected(TargetLacks(lacks=reason))
    if d.parallelism.stage_gpus > trial.system.gpus:
        p, system = d.parallelism, trial.system
        return trial.rejected(
            WiderThanSystem(tp=p.tp, dp=p.dp, system=system.name, system_gpus=system.gpus)
        )
    if d.parallelism.pp > d.model.layers:
        return trial.rejected(
            TooManyStages(pp=d.parallelism.pp, model=d.model.name, layers=d.model.layers)
        )
    try:
        if "-mig-" in d.gpu.name and d.parallelism.gpus > 1:
            raise DoesNotFit(f"{option('tp')}: MIG slices share no link; an instance takes one")
        instance = runs.instance(d, traffic(question, trial.system))
        knobs = (
            fitted(instance, question.limits)
            if question.tune and "tokens" in question.free_moves
            else d.knobs
        )
        knobs = startable(instance.memory, knobs)
        changed = trial if knobs == d.knobs else replace(trial, deployment=replace(d, knobs=knobs))
        if changed is not trial:
            instance = runs.instance(changed.deployment, instance.traffic)
        if question.max_model_len is not None and question.max_model_len > instance.memory.room:
            fits = f"the KV cache of {instance.memory.room:,} tokens"
            raise DoesNotFit(
                f"{option('max_model_len')}: {question.max_model_len:,} tokens do not fit {fits}"
            )
    except InputError as error:
        return trial.rejected(
            CannotRun(error=error.reason if error.path in DEGREES else str(error))
        )
    return Ready(trial=changed, instance=instance, place=place, first=trial)


def _not_deployed(question: Question, trial: Trial) -> str:
    """Why the target of the question does not run a deployment, as a clause; empty if it does."""
    d = trial.deployment
    engine = find_engine(d.engine)
    lacks = target_lacks(
        question.deploy_on,
        engine=engine,
        gpu=d.gpu,
        split=d.parallelism,
        gpus_per_system=trial.system.gpus,
        precision=d.precision.name,
    )
    if lacks or loadable(d.model.name, d.precision, engine, d.gpu.vendor):
        return lacks
    return (
        f"no checkpoint of {d.model.name} in {d.precision.weights} is known that {engine.name}"
        " reads or makes at start"
    )


def _lacking(d: Deployment) -> VendorUnsupported | PrecisionUnsupported | None:
    """The reason why hardware or engine cannot run a deployment; None where both can."""
    engine = find_engine(d.engine)
    if excluded := engine.excluded(d.gpu):
        generation = "" if excluded == d.gpu.vendor else excluded
        return VendorUnsupported(engine=d.engine, vendor=d.gpu.vendor, generation=generation)
    lacks = d.gpu.lacks(d.precision)
    if lacks:
        return PrecisionUnsupported(subject=d.gpu.arch, lacks=lacks)
    return (
        PrecisionUnsupported(subject=engine.name, lacks=f"no {d.precision.weight_format}")
        if engine.lacks(d.precision)
        else None
    )


def _pipelined(question: Question, runs: Runs, trial: Trial, place: int) -> Ready | None:
    """The shortest pipeline of the widest tensor-parallel groups that fits; None where none
    does.
    """
    for pp in PP_DEGREES[1:]:
        for tp in sorted((tp for tp in question.tps if tp <= trial.system.gpus), reverse=True):
            if tp * pp > MOST_SYSTEMS_PER_INSTANCE * trial.system.gpus:
                continue
            knobs = replace(trial.deployment.knobs, front_ends=question.front_ends or 1)
            deployment = replace(
                trial.deployment, parallelism=Parallelism(tp=tp, pp=pp), knobs=knobs
            )
            prepared = prepared_trial(question, runs, replace(trial, deployment=deployment), place)
            if isinstance(prepared, Ready):
                return prepared
    return None


# A question for one deployment alone: the same traffic and limits, and nothing left to search.


def narrowed(question: Question, candidate: Candidate) -> Question:
    """The question for the deployment of a candidate, with its knobs as they are.

    A candidate with speculative decoding keeps the plain one next to it.
    """
    split, knobs = candidate.parallelism, candidate.knobs
    plainly = candidate.engine == candidate.engine_preset
    alone = replace(
        question,
        gpus=tuple(gpu for gpu in question.gpus if gpu.name == candidate.gpu),
        precisions=(find_precision(candidate.precision),),
        tps=(split.tp,),
        pps=(split.pp,),
        dps=(split.dp,),
        eps=(split.ep,),
        engines=(candidate.engine_preset,),
        speculation=None if plainly else question.speculation,
        tune=False,
        have=(),
        growth_per_month=None,
    )
    if knobs is None:
        return alone
    return replace(
        alone,
        max_batch_sizes=(knobs.max_batch_size,),
        max_num_tokens=(knobs.max_num_tokens,),
        chunked_prefill=knobs.chunked_prefill,
        stream_interval=knobs.stream_interval,
        front_ends=knobs.front_ends,
    )

"""Several use cases on one fleet, of one model or of several: one pool for all of a model, or one
for each use case, whichever takes fewer GPUs, and which system holds which instances.

For each use case alone the search has been made. The separate pools are deployments of these
searches, which together take the fewest GPUs (``fleet.joint_choice``), each on as few instances as
``size`` finds in systems of one instance; they share systems of one kind (``fleet.placement``).
For the shared pool the deployments that meet the limits of every use case are tried, those
first that would take the fewest GPUs if the shares of an instance's time added up; the number of
instances is then the fewest that are seen to hold every limit of each (``mixture``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tonnage.errors import DoesNotFit
from tonnage.plan.candidate import Candidate, Identity
from tonnage.plan.fleet import Standby
from tonnage.plan.launch import priority_words
from tonnage.plan.limit import Breach, LimitUse, limit_of
from tonnage.plan.plan import Plan
from tonnage.plan.reason import Behind, NeedsMoreGpus, Outdone, Rejected
from tonnage.plan.use_cases import (
    Arrangement,
    Background,
    CaseAtPeak,
    Chosen,
    NotShared,
    Placed,
    PoolSystems,
    SystemLost,
    UseCasePool,
    UseCases,
)
from tonnage.results.metrics import Latencies
from tonnage.sizing.background import Job, as_stream, filled
from tonnage.sizing.fleet.joint_choice import Option, chosen_together, instances_of
from tonnage.sizing.fleet.placement import Instances, fewest_systems, placed
from tonnage.sizing.fleet.standby import Reserve, standing_by
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.mixture import Case, Mixture, MixtureRun
from tonnage.sizing.question import Question
from tonnage.sizing.search.candidate import candidate as candidate_of
from tonnage.sizing.search.search import Search, alone
from tonnage.sizing.search.search_space import system_for
from tonnage.spec.catalog import find_engine
from tonnage.spec.catalog.checkpoints import as_run
from tonnage.spec.deployment import EngineKnobs
from tonnage.spec.precision import find_precision

TRIED = 4
"""Most deployments of which a shared pool is simulated."""

Told = Callable[[str], None]
"""Called with what is looked at next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One use case: its name, its question, its answer by itself, and its priority."""

    name: str
    question: Question
    plan: Plan
    priority: int = 0  # of its requests in one pool for all; the lowest goes first


def use_cases(
    asked_cases: Sequence[Asked], announce: Told = lambda text: None, reserve: Reserve | None = None
) -> UseCases:
    """The use cases together and apart, and which is chosen, with ``reserve`` for failures. Raises
    InputError: repairers cannot keep up.
    """
    names, plans = (
        tuple(use_case.name for use_case in asked_cases),
        tuple(use_case.plan for use_case in asked_cases),
    )
    if any(plan.choice is None for plan in plans):
        case = next(use_case.name for use_case in asked_cases if use_case.plan.choice is None)
        why = NotShared(code="no-deployment", case=case)
        return UseCases(
            names=names, plans=plans, separate=None, shared=None, not_shared=why, chosen=None
        )
    announce("separate pools")
    spare = max(use_case.question.spare for use_case in asked_cases)
    pools = _pools_apart(asked_cases, spare)
    separate = _arranged(pools, spare, reserve)
    more = max(
        spared.systems - bare.systems
        for spared, bare in zip(separate.systems, _arranged(pools, 0).systems, strict=True)
    )
    bounds, priorities = (separate.gpus, more), tuple(case.priority for case in asked_cases)
    by_priority = len(set(priorities)) > 1
    job = next((case for case in asked_cases if by_priority and case.question.offline), None)
    tried = Tried(asked=[case for case in asked_cases if case is not job], job=job)
    compared, first_come = dict[str, Any](), None
    if by_priority:
        not_first_come: NotShared | None = NotShared(
            code="demand", case="" if job is None else job.name
        )
        if job is None:
            first_come, not_first_come = _shared(tried, *bounds, announce, by_priority=False)
            first_come = _with_standby(first_come, spare, reserve)
        compared = {"priorities": priorities, "first_come": first_come}
        compared |= {"not_first_come": not_first_come}
    if by_priority:
        shared, why_not = _shared(tried, *bounds, announce, by_priority=True)
    else:
        shared, why_not = _shared_by_model(asked_cases, pools, more, announce)
    if shared is not None and job is not None:
        compared["background"] = tried.filled[shared.pools[0].identity]
    shared = _with_standby(shared, spare, reserve)
    # where several take as many, the first of them
    kinds: dict[Chosen, Arrangement | None] = {
        "shared": shared,
        "first-come": first_come,
        "separate": separate,
    }
    gpu_counts = {name: (kind.gpus, kind.gpus_in_use) for name, kind in kinds.items() if kind}
    chosen: Chosen = min(gpu_counts, key=lambda name: gpu_counts[name])
    if chosen == "shared":
        why_not = None
    elif shared is not None:
        pairs = list(zip(gpu_counts["shared"], gpu_counts[chosen], strict=True))
        gpus, fewer = next(pair for pair in pairs if pair[0] != pair[1])
        why_not = NotShared(code="more-gpus", gpus=gpus, separate_gpus=fewer)
    return UseCases(
        names=names,
        plans=plans,
        separate=separate,
        shared=shared,
        not_shared=why_not,
        chosen=chosen,
        alone=_fleets(plans),
        **compared,
    )


def _fleets(plans: Sequence[Plan]) -> Arrangement:
    """A fleet for each use case, as its plan has it."""
    choices = [plan.candidates[0] for plan in plans]
    kinds = {choice.system: choice.gpus_per_system for choice in choices}
    counts = {
        system: sum(choice.systems for choice in choices if choice.system == system)
        for system in kinds
    }
    return Arrangement(
        pools=tuple(
            _pool(choice, choice.knobs, choice.instances, choice.systems_exact, ())
            for choice in choices
        ),
        systems=tuple(
            PoolSystems(system=system, systems=count, gpus=count * kinds[system])
            for system, count in counts.items()
        ),
    )


def _shared_by_model(
    asked_cases: Sequence[Asked], apart: Sequence[UseCasePool], spare: int, announce: Told
) -> tuple[Arrangement | None, NotShared | None]:
    """One pool for the use cases of each model, or why there is none: of several models each shares
    where that takes no more GPUs in use than its pools apart, ``apart``.
    """
    models: dict[str, list[int]] = {}
    for place, use_case in enumerate(asked_cases):
        models.setdefault(use_case.question.model.name, []).append(place)
    why = together(asked_cases)
    if why is not None and (why.code == "demand" or len(models) == len(asked_cases)):
        return None, why
    pools: list[UseCasePool] = []
    for places in models.values():
        members = [apart[place] for place in places]
        most_gpus = _arranged(members, spare).gpus
        shared: Arrangement | None = None
        if len(places) > 1:
            tried = Tried(asked=[asked_cases[place] for place in places])
            shared, why = _shared(tried, most_gpus, spare, announce, by_priority=False)
        better = shared is not None and (
            len(models) == 1 or shared.gpus_in_use <= sum(member.gpus for member in members)
        )
        pools += shared.pools if shared is not None and better else members
    if len(pools) == len(asked_cases):
        return None, why
    return _arranged(pools, spare), None


def _with_standby(
    arrangement: Arrangement | None, spare: int, reserve: Reserve | None
) -> Arrangement | None:
    """The arrangement with systems on standby for failures, where the question wants some."""
    if arrangement is None or reserve is None:
        return arrangement
    return _arranged(arrangement.pools, spare, reserve)


def together(asked_cases: Sequence[Asked]) -> NotShared | None:
    """Why the use cases cannot be simulated in one pool; None where they can."""
    apart = next((use_case.name for use_case in asked_cases if not use_case.question.drawn), None)
    if apart is not None:
        return NotShared(code="demand", case=apart)
    first = asked_cases[0].question.model
    different = next(
        (use_case.name for use_case in asked_cases if use_case.question.model != first), None
    )
    return None if different is None else NotShared(code="models", case=different)


def _pools_apart(asked_cases: Sequence[Asked], spare: int) -> list[UseCasePool]:
    """A pool for each use case, all together on the fewest GPUs of whole systems."""
    options = [_options(use_case) for use_case in asked_cases]
    runs = [Runs() for _ in asked_cases]

    def size(place: int, option: Option) -> Option | None:
        pool = _in_groups(asked_cases[place], option.pool, runs[place])
        return None if pool is None else replace(option, pool=pool, sized=True)

    return [option.pool for option in chosen_together(options, size, spare)]


def _options(use_case: Asked) -> list[Option]:
    """The deployments of a use case: the ones in its plan, with as many instances as its division
    asks for, and the ones that it left out, with the fewest that they may take.

    Where requests are no drawn stream, every pool is as the plan has it.
    """
    options = [
        Option(pool=_by_division(use_case, candidate), rank=rank, sized=not use_case.question.drawn)
        for rank, candidate in enumerate(use_case.plan.candidates)
    ]
    rejected = use_case.plan.rejected if use_case.question.drawn else ()
    pools = filter(None, (_at_least(use_case, deployment) for deployment in rejected))
    by_gpus = sorted(pools, key=lambda pool: pool.instances_exact * pool.parallelism.gpus)
    options += [
        Option(pool=pool, rank=rank, left_out=True)
        for rank, pool in enumerate(by_gpus, len(options))
    ]
    return options


def _by_division(use_case: Asked, candidate: Candidate) -> UseCasePool:
    """The pool of a candidate by what one instance carries; as its plan has it where requests are
    no drawn stream.
    """
    fleet = candidate.pool.fleet
    per_system = max(fleet.of(1).instances, 1 / fleet.systems_per_instance)
    exactly = candidate.systems_exact * per_system
    instances = max(1, math.ceil(round(exactly, 9)))
    if not use_case.question.drawn:
        extra = 0 if candidate.standby is None else candidate.standby.extra_systems
        spare = use_case.question.spare + extra
        instances = max(1, min(fleet.of(candidate.systems - spare).instances, instances))
    cases = () if use_case.question.drawn else (_at_no_peak(use_case, exactly),)
    return _pool(candidate, candidate.knobs, instances, exactly, cases)


def _at_no_peak(use_case: Asked, instances_exact: float) -> CaseAtPeak:
    """A use case whose pool is not simulated at a peak: without limits and latencies."""
    nothing = Latencies()
    return CaseAtPeak(
        name=use_case.name,
        requests_per_second=_load(use_case),
        limits=(),
        ttft_ms=nothing,
        tpot_ms=nothing,
        e2e_ms=nothing,
        instances_exact=instances_exact,
    )


def _at_least(use_case: Asked, rejected: Rejected) -> UseCasePool | None:
    """The fewest instances of a deployment that a plan left out as it would take more GPUs; None
    where something else is in its way.
    """
    question, width = use_case.question, rejected.parallelism.gpus
    gpu = next((gpu for gpu in question.gpus if gpu.name == rejected.gpu), None)
    if gpu is None or rejected.engine != rejected.engine_preset:
        return None
    system = system_for(question, gpu)
    match rejected.reason:
        case Outdone(at_most_per_gpu=per_gpu) | Behind(per_gpu=per_gpu) if per_gpu > 0.0:
            exactly = _load(use_case) / (per_gpu * width)
        case NeedsMoreGpus(systems_exact=systems):
            exactly = systems * system.gpus / width
        case _:
            return None
    return UseCasePool(
        **rejected.identity.names,
        system=system.name,
        gpus_per_system=system.gpus,
        knobs=None,
        instances=max(1, math.ceil(round(exactly, 9))),
        instances_exact=float(exactly),
        cases=(),
    )


def _in_groups(use_case: Asked, pool: UseCasePool, runs: Runs) -> UseCasePool | None:
    """The pool of a deployment as ``size`` finds it in systems of one instance, the system of its
    GPU group; None where it does not meet the limits.
    """
    split, gpus = pool.parallelism, [gpu for gpu in use_case.question.gpus if gpu.name == pool.gpu]
    question = replace(
        use_case.question,
        deepen=False,
        spare=0,
        remarks=(),
        gpus=tuple(gpus),
        precisions=(find_precision(pool.precision),),
        engines=(pool.engine_preset,),
        tps=(split.tp,),
        pps=(split.pp,),
        dps=(split.dp,),
        eps=(split.ep,),
        speculation=None if pool.engine == pool.engine_preset else use_case.question.speculation,
        growth_per_month=None,
    )
    if split.gpus < pool.gpus_per_system:
        system = system_for(question, gpus[0])
        group = replace(system, name=f"{split.gpus}x{system.gpu}", gpus=split.gpus)
        question = replace(question, systems=(group,))
    sized = Search(question=question, runs=runs, rows=False).answer().best
    if sized is None or sized.level is None or sized.level < question.confidence:
        return None
    alone_there = candidate_of(sized, chosen=True)
    load, rate = _load(use_case), sized.rate
    peak, predicted = sized.contender.at_peak(sized.slowdown), sized.contender.at_peak()
    summary = predicted.seen(sized.systems).summary
    uses = tuple(
        LimitUse(
            limit=limit_of(limit),
            value_ms=None if math.isnan(seconds) else 1e3 * seconds,
            used=None if math.isnan(seconds) else seconds / limit.seconds,
        )
        for limit, seconds in peak.latencies_s(peak.seen(sized.systems).summary)
    )
    at_peak = CaseAtPeak(
        name=use_case.name,
        requests_per_second=load,
        limits=uses,
        ttft_ms=summary.ttft_ms,
        tpot_ms=summary.tpot_ms,
        e2e_ms=summary.e2e_ms,
        instances_exact=load / rate,
    )
    return replace(
        pool,
        **sized.ready.trial.identity.names,
        knobs=alone_there.knobs,
        instances=sized.instances,
        instances_exact=load / rate,
        cases=(at_peak,),
        alone=alone_there,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """The use cases, and what one instance of each deployment that was tried does with each."""

    asked: Sequence[Asked]
    job: Asked | None = None  # of the lowest priority, in the background of the others
    cases: dict[Identity, tuple[Case, ...] | NotShared] = field(default_factory=dict)
    filled: dict[Identity, Background] = field(default_factory=dict)

    def in_background(
        self, candidate: Candidate, mixture: Mixture, count: int, most_instances: int
    ) -> int | None:
        """The instances with which the job is done too; None where these are more than
        ``most_instances``.
        """
        if self.job is None:
            return count
        question = self.job.question
        case = _case(replace(self.job, question=as_stream(question)), candidate)
        requests, seconds = question.demand.offline_requests, question.demand.offline_seconds
        if case is None or requests is None or seconds is None:
            return None
        job = Job(case=case, requests=requests, seconds=seconds)
        done = filled(mixture.cases, job, count, most_instances)
        if done is None:
            return None
        self.filled[candidate.identity] = done
        return count + done.more_instances

    def of(self, candidate: Candidate) -> tuple[Case, ...] | NotShared:
        """The use cases on a deployment, or the one whose limits it does not meet."""
        if candidate.identity not in self.cases:
            cases = []
            for use_case in self.asked:
                case = _case(use_case, candidate)
                if case is None:
                    self.cases[candidate.identity] = NotShared(
                        code="no-deployment", case=use_case.name
                    )
                    break
                cases.append(case)
            else:
                self.cases[candidate.identity] = tuple(cases)
        return self.cases[candidate.identity]


def has_priorities(engine: str) -> bool:
    """Whether an engine preset is started with requests served by priority, as is simulated."""
    return bool(priority_words(find_engine(engine).launch))


def _shared(
    tried: Tried, most_gpus: int, spare: int, announce: Told, *, by_priority: bool
) -> tuple[Arrangement | None, NotShared | None]:
    """The shared pool on the fewest GPUs, or why there is none on as many as the separate pools
    take.
    """
    apart = together(tried.asked)
    if apart is not None:
        return None, apart
    best: Arrangement | None = None
    deployments = [
        candidate
        for candidate in _deployments(tried.asked)
        if not by_priority or has_priorities(candidate.engine_preset)
    ]
    why = NotShared(code="no-deployment" if deployments else "no-priority")
    for candidate in deployments[:TRIED]:
        announce(
            f"shared pool of {candidate.gpu} {candidate.precision} {candidate.parallelism}"
            f" {candidate.engine}"
        )
        gpus = most_gpus if best is None else best.gpus
        pool = _one_pool(tried, candidate, gpus, spare, by_priority=by_priority)
        if isinstance(pool, NotShared):
            why = pool if pool.breach is not None or why.code == "no-deployment" else why
        elif best is None or (pool.gpus, pool.gpus_in_use) < (best.gpus, best.gpus_in_use):
            best = pool
    return best, None if best is not None else why


def _deployments(asked_cases: Sequence[Asked]) -> list[Candidate]:
    """Candidates of every use case's plan, those first that would take the fewest GPUs for all;
    others, of which less is known, last.
    """
    rates: dict[Identity, dict[str, float]] = {}
    candidates: dict[Identity, Candidate] = {}
    for use_case in asked_cases:
        for candidate in use_case.plan.candidates:
            if candidate.engine == candidate.engine_preset:
                rates.setdefault(candidate.identity, {})[use_case.name] = (
                    _load(use_case) / candidate.sized_rate
                )
                candidates.setdefault(candidate.identity, candidate)
    whole = {
        identity: math.fsum(parts.values()) * candidates[identity].parallelism.gpus
        for identity, parts in rates.items()
    }
    return [
        candidates[identity]
        for identity in sorted(
            whole, key=lambda identity: (len(rates[identity]) < len(asked_cases), whole[identity])
        )
    ]


def _one_pool(
    tried: Tried,
    candidate: Candidate,
    most_gpus: int,
    spare: int,
    *,
    by_priority: bool,
) -> Arrangement | NotShared:
    """A pool of one deployment for all use cases, on at most so many GPUs of whole systems."""
    cases = tried.of(candidate)
    if isinstance(cases, NotShared):
        return cases
    mixture = Mixture(cases, by_priority=by_priority)
    fleet = candidate.pool.fleet
    max_instances = fleet.of(most_gpus // candidate.gpus_per_system - spare).instances
    least = max(1, math.ceil(round(mixture.instances_exact, 9)))
    try:
        count, run = _fewest(mixture, min(least, max_instances), max_instances)
    except DoesNotFit:
        return NotShared(code="no-deployment")
    if isinstance(run, MixtureRun):
        filled_count = tried.in_background(candidate, mixture, count, max_instances)
        if filled_count is None:
            return NotShared(code="limit", case=tried.job.name if tried.job else "", gpus=most_gpus)
        if filled_count > count:
            count, run = filled_count, mixture.run(filled_count)
        return _arranged([_simulated(candidate, mixture, count, run)], spare)
    return NotShared(
        code="limit",
        case="" if run is None else run[0],
        gpus=most_gpus,
        breach=None if run is None else run[1],
    )


def _fewest(
    mixture: Mixture, start: int, most_instances: int
) -> tuple[int, MixtureRun | tuple[str, Breach] | None]:
    """Find the fewest instances, ``start`` or more, that hold every limit, and return them with
    their run; else the last breach, or None.
    """
    broken: tuple[str, Breach] | None = None
    count, step = start, 1
    while 0 < count <= most_instances:
        run = mixture.run(count)
        if run.holds:
            break
        broken = run.worst or broken
        count, step = count + step, max(1, count // 16)
    else:
        return most_instances, broken
    while count > 1:
        fewer = mixture.run(count - 1)
        if not fewer.holds:
            break
        count, run = count - 1, fewer
    return count, run


def _case(use_case: Asked, candidate: Candidate) -> Case | None:
    """Size one instance of a deployment for one use case alone; None where it may not be used or
    does not meet the limits.
    """
    question = replace(use_case.question, deepen=False, spare=0, remarks=())
    engine, gpu = (
        find_engine(candidate.engine_preset),
        next((gpu for gpu in question.gpus if gpu.name == candidate.gpu), None),
    )
    if gpu is None or candidate.precision not in {
        as_run(p, question.model, engine, gpu).name for p in question.precisions
    }:
        return None
    sized = alone(question, candidate, Runs())
    if sized is None or sized.ready.trial.identity != candidate.identity:
        return None
    return Case(name=use_case.name, rate=_load(use_case), sized=sized, priority=use_case.priority)


def _load(use_case: Asked) -> float:
    return use_case.question.demand.sizing_requests_per_second


def _simulated(candidate: Candidate, mixture: Mixture, count: int, run: MixtureRun) -> UseCasePool:
    """A pool that was seen to hold, with what its use cases see by the prediction as it is."""
    by_priority = mixture.by_priority
    predicted = Mixture(mixture.cases, as_predicted=True, by_priority=by_priority).run(count)
    knobs = candidate.knobs
    if knobs is not None and by_priority:
        knobs = replace(knobs, queue_order="priority")
    return _pool(candidate, knobs, count, mixture.instances_exact, run.at_peak(predicted))


def _pool(
    candidate: Candidate,
    knobs: EngineKnobs | None,
    instances: int,
    exactly: float,
    cases: tuple[CaseAtPeak, ...],
) -> UseCasePool:
    return UseCasePool(
        **candidate.identity.names,
        system=candidate.system,
        gpus_per_system=candidate.gpus_per_system,
        knobs=knobs,
        instances=instances,
        instances_exact=exactly,
        cases=cases,
    )


def _arranged(
    pools: Sequence[UseCasePool], spare: int, reserve: Reserve | None = None
) -> Arrangement:
    """The pools on whole systems: those on one kind share its systems, and ``spare`` systems of it
    are on standby, or more for failures.

    The asked availability is that of all kinds of systems together, or where single instances fail
    of all pools: each has its root.
    """
    kinds: dict[str, list[UseCasePool]] = {}
    for pool in pools:
        kinds.setdefault(pool.system, []).append(pool)
    by_instance = reserve is not None and (
        reserve.unit == "instance"
        or any(pool.gpus_per_system < pool.parallelism.gpus for pool in pools)
    )
    parts = len(pools) if by_instance else len(kinds)
    part_availability = (
        None if reserve is None or reserve.asked is None else reserve.asked ** (1 / parts)
    )
    systems, standby, placement = [], list[Standby](), list[Placed]()
    lost_instances = without = (0,) * len(pools)
    for system, members in kinds.items():
        gpus_per_system, counts = members[0].gpus_per_system, [pool.instances for pool in members]
        needed = _holding(members, counts)
        count = needed + spare
        if reserve is not None:
            extra = reserve.spare_instances
            count = max(count, _holding(members, [number + extra for number in counts]))
            if by_instance:
                standbies = [
                    standing_by(number, "instance", reserve, part_availability, extra)
                    for number in counts
                ]
                counts = [standing.standing for standing in standbies]
                count = max(count, _holding(members, counts))
            else:
                standbies = [
                    standing_by(needed, "system", reserve, part_availability, count - needed)
                ]
                count = standbies[0].standing
            standby += standbies
        systems.append(PoolSystems(system=system, systems=count, gpus=count * gpus_per_system))
        standing = iter(counts)
        there = [next(standing) if pool.system == system else 0 for pool in pools]
        placed_there, lost_there = placed(_instances(pools, there), system, gpus_per_system, count)
        placement += placed_there
        lost_instances = tuple(map(sum, zip(lost_instances, lost_there.instances, strict=True)))
        without = tuple(map(sum, zip(without, lost_there.without_gpus, strict=True)))
    return Arrangement(
        pools=tuple(pools),
        systems=tuple(systems),
        standby=tuple(standby),
        placement=tuple(placement),
        lost=SystemLost(instances=lost_instances, without_gpus=without),
    )


def _instances(pools: Sequence[UseCasePool], counts: Sequence[int]) -> list[Instances]:
    """So many instances of each pool."""
    return [
        replace(instances_of(pool), count=count) for pool, count in zip(pools, counts, strict=True)
    ]


def _holding(pools: Sequence[UseCasePool], counts: Sequence[int]) -> int:
    """The systems of one kind that hold so many instances of each of these pools."""
    return fewest_systems(_instances(pools, counts), pools[0].gpus_per_system)

"""Several use cases on one fleet: one pool for all of them, or one for each, whichever takes fewer
GPUs.

For each use case alone the search has been made. The separate pools are these choices, each on as
few instances as are seen to hold its limits, on systems that they share where they are in the same
kind. For the shared pool the deployments that meet the limits of every use case are tried, those
first that would take the fewest GPUs if the shares of an instance's time added up; the number of
instances is then the fewest that are seen to hold every limit of each (``mixture``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tonnage.errors import DoesNotFit
from tonnage.plan.candidate import Candidate, Identity
from tonnage.plan.fleet import Standby
from tonnage.plan.launch import priority_words
from tonnage.plan.limit import Breach
from tonnage.plan.use_cases import (
    Arrangement,
    Background,
    CaseAtPeak,
    Chosen,
    NotShared,
    PoolSystems,
    UseCasePool,
    UseCases,
)
from tonnage.sizing.background import Job, as_stream, filled
from tonnage.sizing.fleet.standby import Reserve, standing_by
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.mixture import Case, Mixture, MixtureRun
from tonnage.sizing.search.search import alone
from tonnage.spec.catalog import find_engine
from tonnage.spec.catalog.checkpoints import as_run

if TYPE_CHECKING:
    from tonnage.plan.plan import Plan
    from tonnage.sizing.question import Question

TRIED = 4
"""Most deployments of which a shared pool is simulated."""

MOST_TIMES = 2
"""Separate pools are tried up to this many times the instances that the division asks for, and one
more."""

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
    asked: Sequence[Asked], told: Told = lambda text: None, reserve: Reserve | None = None
) -> UseCases:
    """The use cases together and apart, and which is chosen, with ``reserve`` for failures. Raises
    InputError: repairers cannot keep up.
    """
    names, plans = (
        tuple(use_case.name for use_case in asked),
        tuple(use_case.plan for use_case in asked),
    )
    if any(plan.choice is None for plan in plans):
        case = next(use_case.name for use_case in asked if use_case.plan.choice is None)
        why = NotShared(code="no-deployment", case=case)
        return UseCases(
            names=names, plans=plans, separate=None, shared=None, not_shared=why, chosen=None
        )
    told("separate pools")
    spare = max(use_case.question.spare for use_case in asked)
    pools = [_alone(use_case) for use_case in asked]
    separate = _arranged(pools, spare, reserve)
    more = max(
        spared.systems - bare.systems
        for spared, bare in zip(separate.systems, _arranged(pools, 0).systems, strict=True)
    )
    bounds, priorities = (separate.gpus, more), tuple(case.priority for case in asked)
    by_priority = len(set(priorities)) > 1
    job = next((case for case in asked if by_priority and case.question.offline), None)
    tried = Tried(asked=[case for case in asked if case is not job], job=job)
    compared, first_come = dict[str, Any](), None
    if by_priority:
        not_first_come: NotShared | None = NotShared(
            code="demand", case="" if job is None else job.name
        )
        if job is None:
            first_come, not_first_come = _shared(tried, *bounds, told, by_priority=False)
            first_come = _with_standby(first_come, spare, reserve)
        compared = {"priorities": priorities, "first_come": first_come}
        compared |= {"not_first_come": not_first_come}
    shared, why_not = _shared(tried, *bounds, told, by_priority=by_priority)
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
        **compared,
    )


def _with_standby(
    arrangement: Arrangement | None, spare: int, reserve: Reserve | None
) -> Arrangement | None:
    """The arrangement with systems on standby for failures, where the question wants some."""
    if arrangement is None or reserve is None:
        return arrangement
    return _arranged(arrangement.pools, spare, reserve)


def together(asked: Sequence[Asked]) -> NotShared | None:
    """Why the use cases cannot be simulated in one pool; None where they can."""
    first = asked[0].question.model
    different = next(
        (use_case.name for use_case in asked if use_case.question.model != first), None
    )
    if different is not None:
        return NotShared(code="models", case=different)
    apart = next((use_case.name for use_case in asked if not use_case.question.drawn), None)
    return None if apart is None else NotShared(code="demand", case=apart)


def _alone(one: Asked) -> UseCasePool:
    """The pool of one use case on its own choice; as its plan has it where it is no drawn
    stream.
    """
    best = one.plan.candidates[0]
    case = _case(one, best) if one.question.drawn else None
    if case is None:
        spare = one.question.spare + (0 if best.standby is None else best.standby.extra_systems)
        fleet = best.pool.fleet
        exactly = best.systems_exact * max(fleet.of(1).instances, 1 / fleet.systems_per_instance)
        instances = min(fleet.of(best.systems - spare).instances, math.ceil(round(exactly, 9)))
        return _pool(best, max(1, instances), exactly, ())
    mixture = Mixture((case,))
    least = max(1, math.ceil(round(mixture.instances_exact, 9)))
    count, run = _fewest(mixture, least, MOST_TIMES * least + 1, down=False)
    return (
        _simulated(best, mixture, count, run)
        if isinstance(run, MixtureRun)
        else _pool(best, least, mixture.instances_exact, ())
    )


@dataclass(frozen=True, kw_only=True)
class Tried:
    """The use cases, and what one instance of each deployment that was tried does with each."""

    asked: Sequence[Asked]
    job: Asked | None = None  # of the lowest priority, in the background of the others
    cases: dict[Identity, tuple[Case, ...] | NotShared] = field(default_factory=dict)
    filled: dict[Identity, Background] = field(default_factory=dict)

    def in_background(
        self, candidate: Candidate, mixture: Mixture, count: int, most: int
    ) -> int | None:
        """The instances with which the job is done too; None where these are more than ``most``."""
        if self.job is None:
            return count
        question = self.job.question
        case = _case(replace(self.job, question=as_stream(question)), candidate)
        requests, seconds = question.demand.offline_requests, question.demand.offline_seconds
        if case is None or requests is None or seconds is None:
            return None
        job = Job(case=case, requests=requests, seconds=seconds)
        done = filled(mixture.cases, job, count, most)
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
    tried: Tried, most_gpus: int, spare: int, told: Told, *, by_priority: bool
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
        told(
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


def _deployments(asked: Sequence[Asked]) -> list[Candidate]:
    """Candidates of every use case's plan, those first that would take the fewest GPUs for all;
    others, of which less is known, last.
    """
    rates: dict[Identity, dict[str, float]] = {}
    candidates: dict[Identity, Candidate] = {}
    for use_case in asked:
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
            whole, key=lambda identity: (len(rates[identity]) < len(asked), whole[identity])
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
        count, run = _fewest(mixture, min(least, max_instances), max_instances, down=True)
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
    mixture: Mixture, start: int, most: int, *, down: bool
) -> tuple[int, MixtureRun | tuple[str, Breach] | None]:
    """The fewest instances from ``start`` (or below it, ``down``) that hold every limit, and their
    run; else the last breach, or None.
    """
    broken: tuple[str, Breach] | None = None
    count, step = start, 1
    while 0 < count <= most:
        run = mixture.run(count)
        if run.holds:
            break
        broken = run.worst or broken
        count, step = count + step, max(1, count // 16)
    else:
        return most, broken
    while down and count > 1:
        fewer = mixture.run(count - 1)
        if not fewer.holds:
            break
        count, run = count - 1, fewer
    return count, run


def _case(one: Asked, candidate: Candidate) -> Case | None:
    """What one instance of a deployment does with one use case alone; None where it may not be used
    or does not meet the limits.
    """
    question = replace(one.question, deepen=False, spare=0, remarks=())
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
    return Case(name=one.name, rate=_load(one), sized=sized, priority=one.priority)


def _load(one: Asked) -> float:
    return one.question.demand.sizing_requests_per_second


def _simulated(candidate: Candidate, mixture: Mixture, count: int, run: MixtureRun) -> UseCasePool:
    """A pool that was seen to hold, with what its use cases see by the prediction as it is."""
    by_priority = mixture.by_priority
    predicted = Mixture(mixture.cases, as_predicted=True, by_priority=by_priority).run(count)
    pool = _pool(candidate, count, mixture.instances_exact, run.at_peak(predicted))
    if pool.knobs is None or not by_priority:
        return pool
    return replace(pool, knobs=replace(pool.knobs, queue_order="priority"))


def _pool(
    candidate: Candidate, instances: int, exactly: float, cases: tuple[CaseAtPeak, ...]
) -> UseCasePool:
    names = candidate.identity.names
    return UseCasePool(
        **names,
        system=candidate.system,
        gpus_per_system=candidate.gpus_per_system,
        knobs=candidate.knobs,
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
    systems, standby = [], list[Standby]()
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
                count = max(count, _holding(members, [standing.standing for standing in standbies]))
            else:
                standbies = [
                    standing_by(needed, "system", reserve, part_availability, count - needed)
                ]
                count = standbies[0].standing
            standby += standbies
        systems.append(PoolSystems(system=system, systems=count, gpus=count * gpus_per_system))
    return Arrangement(pools=tuple(pools), systems=tuple(systems), standby=tuple(standby))


def _holding(pools: Sequence[UseCasePool], counts: Sequence[int]) -> int:
    """The systems of one kind that hold so many instances of each of these pools."""
    widths = (
        pool.parallelism.gpus
        for pool, count in zip(pools, counts, strict=True)
        for _ in range(count)
    )
    return _systems(sorted(widths, reverse=True), pools[0].gpus_per_system)


def _systems(widths: Sequence[int], each: int) -> int:
    """The systems of ``each`` GPUs that hold instances of these widths, the widest first into the
    first system with room.
    """
    free: list[int] = []
    count = 0
    for width in widths:
        if width >= each:
            count += math.ceil(width / each)
            continue
        place = next((i for i, room in enumerate(free) if room >= width), None)
        if place is None:
            free.append(each - width)
        else:
            free[place] -= width
    return count + len(free)

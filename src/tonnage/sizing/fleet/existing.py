"""Systems that exist: the highest load that they carry inside the limits, and how long that lasts.

It is found by the search that sizes systems to buy, among the same deployments and at the same
confidence: what carries most on so many systems in place of what needs the fewest. So as many
systems are never too few for what they are said to carry.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tonnage.plan.candidate import Candidate
from tonnage.plan.demand import Existing, OwnedGroup
from tonnage.plan.fleet import fleet
from tonnage.plan.limit import SATURATION
from tonnage.plan.mixed import WhyNotAdded
from tonnage.plan.plan import Plan
from tonnage.sizing.demand import carried_by_existing
from tonnage.sizing.loads.fleet_check import FleetAtPeak
from tonnage.sizing.loads.load_scan import PER_OCTAVE
from tonnage.sizing.loads.mixed_check import at_peak
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.loads.trial import Ready
from tonnage.sizing.progress import Steps
from tonnage.sizing.question import Owned, Question
from tonnage.sizing.search.deployment_capacity import Sized
from tonnage.sizing.search.objectives import MostLoad
from tonnage.sizing.search.search import Search

MOST_MONTHS = 600
"""Beyond fifty years no month is named."""

POOLED = 1.1
"""How many times as much all systems may carry together as the sum of what their instances do."""

HAIR = 1 - 1e-9
"""Share of a load that is carried up to rounding."""


def existing(
    question: Question, runs: Runs, steps: Steps, workers: int | None = None
) -> tuple[Existing, Question, tuple[Ready, ...]]:
    """What the systems of ``question.have`` carry, the question for that load where none was
    requested, and what runs on them.
    """
    spare = question.spare if len(question.have) == 1 else 0
    search = Search(question=question, runs=runs, steps=steps, workers=workers, rows=False)
    pairs = [(owned, strongest(search, owned, spare)) for owned in question.have]
    groups = [_group(owned, best) for owned, best in pairs]
    kinds = [(best, owned.count - spare) for owned, best in pairs if best is not None]
    total = _together(question, kinds, math.fsum(group.requests_per_second for group in groups))
    largest = max(groups, key=lambda group: group.requests_per_second)
    if question.demand.of_existing and total > 0:
        question = replace(question, demand=carried_by_existing(total * HAIR))
    today = None if question.demand.of_existing else question.demand.sizing_requests_per_second
    existing = Existing(
        groups=tuple(groups),
        requests_per_second=total,
        asked_requests_per_second=today,
        headroom=None if today is None else total / today - 1.0,
        breaks_first=largest.binds,
        growth_per_month=question.growth_per_month,
        months_left=None if today is None else months_left(today, total, question.growth_per_month),
    )
    return existing, question, tuple(best.ready for _, best in pairs if best is not None)


def strongest(search: Search, owned: Owned, spare: int = 0) -> Sized | None:
    """The deployment that carries most on the systems; None where none meets the limits."""
    if owned.count <= spare:
        return None
    gpus = tuple(gpu for gpu in search.question.gpus if gpu.name == owned.system.gpu)
    question = replace(search.question, gpus=gpus, systems=(owned.system,), have=(), spare=0)
    return replace(search, question=question, aim=MostLoad(owned.count - spare)).answer().best


def not_mixed(question: Question, kinds: Sequence[Sized]) -> WhyNotAdded | None:
    """Why fleets of these deployments are not simulated; None where they are."""
    if question.pools is not None:
        return "pools"
    if not question.drawn or question.sharing is not None:
        return "traffic"
    ranks = any(sized.ready.trial.deployment.parallelism.dp > 1 for sized in kinds)
    return "ranks" if ranks and len(kinds) > 1 else None


def whole_fleet(
    kinds: Sequence[tuple[Sized, int]], load: float, *, as_predicted: bool = False
) -> FleetAtPeak:
    """So many systems of each kind behind one router at a load, as slow as the confidence allows
    for, or ``as_predicted``. Raises InputError: attention ranks among unlike instances.
    """
    peaks = []
    for sized, systems in kinds:
        slowdown = sized.contender.as_asked if as_predicted else sized.slowdown
        peaks.append((replace(sized.contender.at_peak(slowdown), rate=load), systems))
    return at_peak(peaks, [sized.capacity.rate for sized, _ in kinds])


def _together(question: Question, kinds: Sequence[tuple[Sized, int]], most_rps: float) -> float:
    """Requests per second that all the systems carry behind one router: what they do alone, as
    little less as their simulation asks for, or the requested load where that is seen to hold.
    """
    if len(kinds) < 2 or not_mixed(question, [sized for sized, _ in kinds]) is not None:
        return most_rps
    systems = sum(count for _, count in kinds)
    today = question.demand.sizing_requests_per_second

    def holds(load: float) -> bool:
        return whole_fleet(kinds, load).run(systems).holds

    loads = [most_rps * math.exp2(-step / PER_OCTAVE) for step in range(PER_OCTAVE)]
    most_rps = next((load for load in loads if holds(load)), loads[-1])
    nearly = not question.demand.of_existing and most_rps < today <= POOLED * most_rps
    return today if nearly and holds(today) else most_rps


def _group(owned: Owned, best: Sized | None) -> OwnedGroup:
    if best is None:
        return OwnedGroup(
            count=owned.count,
            system=owned.system.name,
            deployment=None,
            instances=0,
            requests_per_second=0.0,
            binds=None,
        )
    return OwnedGroup(
        count=owned.count,
        system=owned.system.name,
        deployment=best.ready.trial.identity,
        instances=best.instances,
        requests_per_second=_carried_rps(best),
        binds=best.capacity.binds or SATURATION,
    )


def _carried_rps(best: Sized) -> float:
    """Requests per second that the systems carry: what their instances do, or as little less as the
    check of a whole fleet asks for.
    """
    question, full_rate = best.contender.question, best.capacity.rate * best.instances
    if not question.drawn:
        return full_rate
    peak = best.contender.at_peak(best.slowdown)
    loads = [full_rate * math.exp2(-step / PER_OCTAVE) for step in range(PER_OCTAVE)]
    return next(
        (load for load in loads if replace(peak, rate=load).run(best.systems).holds), loads[-1]
    )


def measured_existing(plan: Plan, have: Sequence[Owned]) -> Existing:
    """What systems carry by the candidates of a plan of measured points: on each the one with most
    requests/s, all its GPUs in use.
    """
    groups = [_measured_group(owned, plan.candidates) for owned in have]
    total = sum(g.requests_per_second for g in groups)
    today = None if plan.demand.of_existing else plan.demand.sizing_requests_per_second
    return Existing(
        groups=tuple(groups),
        requests_per_second=total,
        asked_requests_per_second=today,
        headroom=None if today is None else total / today - 1.0,
        breaks_first=max(groups, key=lambda g: g.requests_per_second).binds,
        growth_per_month=None,
        months_left=None if today is None else months_left(today, total, None),
    )


def _measured_group(owned: Owned, candidates: Sequence[Candidate]) -> OwnedGroup:
    def carries(candidate: Candidate) -> float:
        placement = fleet(candidate.parallelism.gpus, owned.system.gpus, owned.count)
        return placement.instances * candidate.requests_per_second_per_instance

    best = max(
        (candidate for candidate in candidates if candidate.gpu == owned.system.gpu),
        key=carries,
        default=None,
    )
    rate = 0.0 if best is None else carries(best)
    if best is None or not rate:
        return OwnedGroup(
            count=owned.count,
            system=owned.system.name,
            deployment=None,
            instances=0,
            requests_per_second=0.0,
            binds=None,
        )
    return OwnedGroup(
        count=owned.count,
        system=owned.system.name,
        deployment=best.identity,
        instances=fleet(best.parallelism.gpus, owned.system.gpus, owned.count).instances,
        requests_per_second=rate,
        binds=best.binds,
    )


def months_left(today: float, capacity_rps: float, growth: float | None) -> int | None:
    """Whole months m for which today · (1 + growth)^m ≤ most still holds; −1 where today's load is
    too high already.
    """
    if today > capacity_rps:
        return -1
    if growth is None or growth <= 0:
        return None
    months = math.floor(math.log(capacity_rps / today) / math.log1p(growth) + 1e-9)
    return months if months <= MOST_MONTHS else None

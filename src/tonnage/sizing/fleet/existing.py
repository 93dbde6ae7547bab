"""Systems that exist: the highest load that they carry inside the limits, and how long that lasts.

Every kind of system runs the deployment that carries most on it, all its GPUs in use, and gets a share of
the load in proportion. The sum is then simulated fleet by fleet, and lowered or raised in steps of ``STEP``
to the highest load at which every limit holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tonnage.plan.existing import Existing, OwnedGroup
from tonnage.plan.fleet import fleet
from tonnage.plan.limit import SATURATION, Bound, bound_by
from tonnage.sizing.loads.bounds import Carried
from tonnage.sizing.loads.capacity import STABLE
from tonnage.sizing.loads.fleet_check import Replayed, fleet_summary
from tonnage.sizing.loads.limits import worst_limit

if TYPE_CHECKING:
    from tonnage.plan.candidate import Candidate
    from tonnage.plan.plan import Plan
    from tonnage.sizing.question import Owned, Question
    from tonnage.sizing.search.search import Answer

STEP = 1.02
"""Factor between two loads that are tried."""

TRIES = 15
"""Most loads that are tried in each direction; a router that looks lets a fleet carry more than its instances by themselves."""

HALVINGS = 9
"""Halvings of the bracket of a recording's mean: within 0.5 % of what saturates."""

MOST_MONTHS = 600
"""Beyond fifty years no month is named."""


def existing(question: Question, found: Answer) -> Existing:
    """What the systems of ``question.have`` carry, from the deployments of an answer."""
    groups = [_group(question, owned, found.carried) for owned in question.have]
    total = sum(g.requests_per_second for g in groups)
    today = None if question.demand.of_existing else question.demand.sizing_requests_per_second
    largest = max(groups, key=lambda g: g.requests_per_second)
    left = None if today is None else months_left(today, total, question.growth_per_month)
    return Existing(
        groups=tuple(groups),
        requests_per_second=total,
        asked_requests_per_second=today,
        headroom=None if today is None else total / today - 1.0,
        breaks_first=largest.binds,
        growth_per_month=question.growth_per_month,
        months_left=left,
    )


def measured_existing(plan: Plan, have: Sequence[Owned]) -> Existing:
    """What systems carry by the candidates of a plan of measured points: on each the one with most requests/s, all its GPUs in use."""
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
        held = fleet(candidate.parallelism.gpus, owned.system.gpus, owned.count)
        return held.instances * candidate.requests_per_second_per_instance

    best = max((each for each in candidates if each.gpu == owned.system.gpu), key=carries, default=None)
    rate = 0.0 if best is None else carries(best)
    if best is None or not rate:
        return OwnedGroup(count=owned.count, system=owned.system.name, deployment=None, instances=0, requests_per_second=0.0, binds=None)
    return OwnedGroup(
        count=owned.count,
        system=owned.system.name,
        deployment=best.identity,
        instances=fleet(best.parallelism.gpus, owned.system.gpus, owned.count).instances,
        requests_per_second=rate,
        binds=best.binds,
    )


def months_left(today: float, most: float, growth: float | None) -> int | None:
    """Whole months m for which today · (1 + growth)^m ≤ most still holds; −1 where today's load is too high already."""
    if today > most:
        return -1
    if growth is None or growth <= 0:
        return None
    months = math.floor(math.log(most / today) / math.log1p(growth) + 1e-9)
    return months if months <= MOST_MONTHS else None


def _group(question: Question, owned: Owned, carried: Sequence[Carried]) -> OwnedGroup:
    """The deployment that carries most on the systems, its fleet simulated."""
    best, most, instances = None, 0.0, 0
    for each in carried:
        d = each.ready.trial.deployment
        if d.gpu.name != owned.system.gpu:
            continue
        count = fleet(d.parallelism.gpus, owned.system.gpus, owned.count).instances
        if count * each.capacity.rate > most:
            best, most, instances = each, count * each.capacity.rate, count
    if best is None:
        return OwnedGroup(count=owned.count, system=owned.system.name, deployment=None, instances=0, requests_per_second=0.0, binds=None)
    rate, binds = _highest(question, best, instances)
    return OwnedGroup(
        count=owned.count,
        system=owned.system.name,
        deployment=best.ready.trial.identity,
        instances=instances,
        requests_per_second=rate,
        binds=binds,
    )


def _highest(question: Question, carried: Carried, instances: int) -> tuple[float, Bound]:
    """The highest load of a fleet of so many instances at which every limit holds, and what breaks above it."""
    expected, stated = carried.capacity.rate * instances, carried.capacity.binds or SATURATION
    if question.offline or question.load == "closed":
        return expected, stated
    limit_of = _LimitAt(question, carried, instances)
    if question.recording is not None:
        return limit_of.bisected()
    rate, broken = expected, limit_of(expected)
    binds = broken or stated
    for _ in range(TRIES):
        if not broken:
            break
        rate, binds = rate / STEP, broken
        broken = limit_of(rate)
    for _ in range(TRIES):
        above = limit_of(rate * STEP)
        if above:
            return rate, above
        rate *= STEP
    return rate, binds


class _LimitAt:
    """What a fleet breaks at a load; None where it breaks nothing."""

    def __init__(self, question: Question, carried: Carried, instances: int) -> None:
        self.question, self.carried, self.instances = question, carried, instances
        self.most = STABLE * carried.capacity.saturation * instances

    def __call__(self, rate: float) -> Bound | None:
        """The limit, or saturation."""
        if rate > self.most:
            return SATURATION
        recording, instance = self.question.recording, self.carried.ready.instance
        replayed = None
        if recording is not None:
            replayed = Replayed(recording=recording.at_mean(rate), lengths=self.question.replays_lengths)
        summary = fleet_summary(instance, rate, self.instances, replayed=replayed)[0]
        broken = worst_limit(summary, instance.asked.slo)
        return None if broken is None else bound_by(self.question.limits[instance.asked.slo.index(broken)])

    def bisected(self) -> tuple[float, Bound]:
        """The highest mean of a recording, stretched or shortened, that holds."""
        low, high, binds = 0.0, self.most, SATURATION
        if not self(high):
            return high, binds
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            broken = self(middle)
            if broken:
                high, binds = middle, broken
            else:
                low = middle
        return low, binds

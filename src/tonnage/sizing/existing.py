"""Systems that exist: the highest load that they carry inside the limits, and how long that lasts.

Every kind of system runs the deployment that carries most on it, all its GPUs in use, and gets a share of
the load in proportion. The sum is then simulated fleet by fleet, and lowered or raised in steps of ``STEP``
to the highest load at which every limit holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tonnage.sizing.bounds import Carried
from tonnage.sizing.capacity import STABLE, worst_limit
from tonnage.sizing.fleet_check import Replayed, fleet_summary
from tonnage.sizing.systems import instances_per_system

if TYPE_CHECKING:
    from tonnage.sizing.question import Owned, Question
    from tonnage.sizing.search import Answer

STEP = 1.02
"""Factor between two loads that are tried."""

TRIES = 15
"""Loads that are tried downwards at most, and a third of them upwards."""

HALVINGS = 9
"""Halvings of the bracket of a recording's mean: within 0.5 % of what saturates."""

MOST_MONTHS = 600
"""Beyond fifty years nothing is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedGroup:
    """One kind of system that exists.

    Attributes:
        count, system: how many, and what.
        deployment: what runs on them, such as "h100-sxm-80gb fp8 TP 1 tensorrt-llm"; empty where nothing meets the limits.
        instances: on all of them.
        requests_per_second: of them together, inside the limits.
        binds: the limit that breaks first there, or saturation; why nothing runs where nothing does.
    """

    count: int
    system: str
    deployment: str
    instances: int
    requests_per_second: float
    binds: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Existing:
    """What systems that exist can carry.

    Attributes:
        groups: one per kind of system.
        requests_per_second: the highest load of all together inside the limits.
        asked_requests_per_second: the load today, as the plan sizes for it.
        headroom: how much more than today's load they carry, as a share; negative where they are too few.
        breaks_first: the limit that breaks first when the load grows, or saturation.
        growth_per_month: of the load; None where it was not said.
        months_left: whole months after which the load still fits; None without growth, or where it never ends.
        text: all of this in words.
    """

    groups: tuple[OwnedGroup, ...]
    requests_per_second: float
    asked_requests_per_second: float
    headroom: float
    breaks_first: str
    growth_per_month: float | None
    months_left: int | None
    text: str


def existing(question: Question, found: Answer) -> Existing:
    """What the systems of ``question.have`` carry, from the deployments of an answer."""
    groups = [_group(question, owned, found.carried) for owned in question.have]
    total, today = sum(g.requests_per_second for g in groups), question.demand.sizing_requests_per_second
    largest = max(groups, key=lambda g: g.requests_per_second)
    left = months_left(today, total, question.growth_per_month)
    return Existing(
        groups=tuple(groups),
        requests_per_second=total,
        asked_requests_per_second=today,
        headroom=total / today - 1.0,
        breaks_first=largest.binds,
        growth_per_month=question.growth_per_month,
        months_left=left,
        text=_in_words(groups, total, today, question.growth_per_month, left),
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
        per_system, span = instances_per_system(d.parallelism.gpus, owned.system.gpus)
        count = owned.count // span * per_system
        if count * each.capacity.rate > most:
            best, most, instances = each, count * each.capacity.rate, count
    if best is None:
        why = "no deployment on these systems meets the limits"
        return OwnedGroup(count=owned.count, system=owned.system.name, deployment="", instances=0, requests_per_second=0.0, binds=why)
    rate, binds = _highest(question, best, instances)
    return OwnedGroup(
        count=owned.count,
        system=owned.system.name,
        deployment=best.ready.trial.name,
        instances=instances,
        requests_per_second=rate,
        binds=binds,
    )


def _highest(question: Question, carried: Carried, instances: int) -> tuple[float, str]:
    """The highest load of a fleet of so many instances at which every limit holds, and what breaks above it."""
    expected = carried.capacity.rate * instances
    if question.offline or question.load == "closed":
        return expected, carried.capacity.binds
    limit_of = _LimitAt(question, carried, instances)
    if question.recording is not None:
        return limit_of.bisected()
    rate, broken = expected, limit_of(expected)
    binds = broken or carried.capacity.binds
    for _ in range(TRIES):
        if not broken:
            break
        rate, binds = rate / STEP, broken
        broken = limit_of(rate)
    for _ in range(TRIES // 3):
        above = limit_of(rate * STEP)
        if above:
            return rate, above
        rate *= STEP
    return rate, binds


class _LimitAt:
    """The limit that a fleet breaks at a load; empty where it breaks none."""

    def __init__(self, question: Question, carried: Carried, instances: int) -> None:
        self.question, self.carried, self.instances = question, carried, instances
        self.most = STABLE * carried.capacity.saturation * instances

    def __call__(self, rate: float) -> str:
        """The limit, or "saturation"."""
        if rate > self.most:
            return "saturation"
        recording, instance = self.question.recording, self.carried.ready.instance
        replayed = None
        if recording is not None:
            replayed = Replayed(recording=recording.at_mean(rate), lengths=self.question.replays_lengths)
        summary = fleet_summary(instance, rate, self.instances, replayed=replayed)[0]
        broken = worst_limit(summary, instance.asked.slo)
        return "" if broken is None else str(broken)

    def bisected(self) -> tuple[float, str]:
        """The highest mean of a recording, stretched or shortened, that holds."""
        low, high, binds = 0.0, self.most, "saturation"
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


def _in_words(groups: Sequence[OwnedGroup], total: float, today: float, growth: float | None, left: int | None) -> str:
    systems = " + ".join(f"{g.count} × {g.system}" for g in groups)
    largest = max(groups, key=lambda g: g.requests_per_second)
    if total == 0:
        return f"{systems}: {largest.binds}"
    change = total / today - 1.0
    room = f"{change:.0%} more than today's {today:.3g}" if change >= 0 else f"{-change:.0%} less than today's {today:.3g}"
    text = f"{systems} carry {total:.3g} requests/s inside the limits, {room}; first to break is {largest.binds}"
    if growth is None or left == -1:
        return text
    if left is None:
        return f"{text}; at {growth:.1%} growth a month that lasts beyond fifty years" if growth > 0 else text
    return f"{text}; at {growth:.1%} growth a month it is enough for {left} months and runs out in month {left + 1}"

"""Months of buying and renting: how a question asks for them, and the plan with their costs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tonnage.api.question.arguments import Faults
from tonnage.api.question.objectives import later
from tonnage.cost.cost import serving_of, traffic_of
from tonnage.cost.horizon import (
    Decay,
    Month,
    beyond_existing,
    compared,
    fewer_hours,
    systems_by_division,
)
from tonnage.errors import InputError, InputErrors, option
from tonnage.plan.candidate import Candidate
from tonnage.plan.cost import Serving, Traffic, Where
from tonnage.plan.demand import AHEAD
from tonnage.plan.horizon import Horizon, HorizonMonth
from tonnage.plan.plan import Plan
from tonnage.sizing.fleet.mixed import EXACT, MONTHS
from tonnage.sizing.question import Question
from tonnage.spec.prices import Prices
from tonnage.spec.scenario import BuyingAsked, Scenario
from tonnage.spec.written_numbers import Bounds

MOST_MONTHS = 120
_TIME = re.compile(
    r"(\d+(?:\.\d*)?|\.\d+)\s*(days?|d|weeks?|w|months?|mo|m|years?|yrs?|y)?\.?", re.IGNORECASE
)
_IN_MONTHS = {"d": 12 / 365, "w": 7 * 12 / 365, "m": 1.0, "y": 12.0}
_DECAY = re.compile(
    r"([+-]?\d+(?:\.\d*)?|[+-]?\.\d+)\s*%\s*(?:(?:/|per|a|p\.?)\s*(years?|yr|y|a|annum|months?|mo|m)\.?)?",
    re.IGNORECASE,
)
_PART = re.compile(r"(\w+)\s*=\s*([^=]+?)(?=[\s,;]+\w+\s*=|[\s,;]*$)")
_KINDS = {"systems": "systems", "hardware": "systems", "rents": "rents", "rent": "rents"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Buying:
    """The months of a question.

    Attributes:
        months: over which ways are compared.
        decay: of the prices.
        lead_months: from the order of a system to its delivery.
    """

    months: int = MONTHS
    decay: Decay
    lead_months: int = 0


def buying_of(buying: BuyingAsked) -> Buying | None:
    """The months that a scenario asks for; None where it does not. Raises InputError."""
    if buying == BuyingAsked():
        return None
    faults = Faults()
    times = {"horizon": buying.horizon or str(MONTHS), "lead_time": buying.lead_time or "0"}
    months, lead = (faults.of(months_of, text, name) for name, text in times.items())
    decay = Decay() if buying.price_decay is None else faults.of(decay_of, buying.price_decay)
    InputErrors.raise_if(faults.messages)
    return Buying(months=months or 1, decay=decay or Decay(), lead_months=lead or 0)


TIMES = {
    "horizon": (Bounds("a number of months that are compared", 1, MOST_MONTHS), "3 years"),
    "lead_time": (Bounds("a number of months until a delivery", 0, MOST_MONTHS), "12 weeks"),
}


def months_of(written: float | str, name: str) -> int:
    """Read "36", "3 years" or "12 weeks" as months, rounded up; ``name`` is that of the leaf.
    Raises InputError.
    """
    text = str(written).strip()
    match = _TIME.fullmatch(text)
    bounds, example = TIMES[name]
    if match is None:
        raise InputError(
            f"{option(name)}: '{text[:40]}' is not a time in months; write for example 6 or"
            f" {example}"
        )
    unit = (match[2] or "m")[0].lower()
    months = math.ceil(min(round(float(match[1]) * _IN_MONTHS[unit], 6), 10**9))
    if fault := bounds.fault(months):
        raise InputError(f"{option(name)}: {fault}")
    return months


def decay_of(written: float | str) -> Decay:
    """Read "20%", "2%/month" or "systems=25% rents=10%" as the shares by which prices fall in a
    year. Raises InputError.
    """
    text = str(written).strip()
    parts = _PART.findall(text)
    if not parts:
        share = _share(text, text)
        return Decay(systems=share, rents=share)
    shares: dict[str, float] = {}
    for name, value in parts:
        kind = _KINDS.get(name.lower())
        if kind is None or kind in shares:
            raise _no_decay(text)
        shares[kind] = _share(value, text)
    if "=" in _PART.sub("", text):
        raise _no_decay(text)
    return Decay(systems=shares.get("systems"), rents=shares.get("rents"))


def _share(value: str, text: str) -> float:
    match = _DECAY.fullmatch(value.strip())
    share = math.nan if match is None else float(match[1]) / 100
    if match is not None and (match[2] or "y").lower().startswith("m"):
        share = 1 - (1 - share) ** 12
    if not -1 <= share < 1:
        raise _no_decay(text)
    return share


def _no_decay(text: str) -> InputError:
    return InputError(
        f"{option('price_decay')}: '{text[:40]}' is not a share by which prices fall in a year;"
        ' write for example 20% or "systems=25% rents=10%"'
    )


def check_buying(scenario: Scenario, *, of_existing: bool, offline: bool) -> None:
    """Refuse months of what has none. Raises InputError: that, or what ``buying_of`` refuses."""
    if buying_of(scenario.buying) is None:
        return
    names = ("horizon", "price_decay", "lead_time")
    name = next(name for name in names if getattr(scenario.buying, name) is not None)
    if offline:
        raise InputError(
            f"{option(name)}: a job is done once, and has no months to compare; leave it out, or"
            f" give a load such as {option('peak_rps')} 20"
        )
    if of_existing:
        raise InputError(
            f"{option(name)}: needs today's load; add for example {option('peak_rps')} 20"
        )


def with_horizon(
    plan: Plan,
    question: Question,
    scenario: Scenario,
    *,
    prices: Prices,
    where: tuple[Where, ...],
    answered: Callable[[Question], Plan],
) -> Plan:
    """The plan with what its months cost by several ways; as it is where none are requested,
    or nothing was chosen.
    """
    buying = buying_of(scenario.buying)
    if buying is None or (plan.choice is None and not question.have):
        return plan
    growth = question.growth_per_month
    traffic = fewer_hours(traffic_of(plan))
    traffics = [traffic.times((1 + (growth or 0.0)) ** month) for month in range(buying.months)]
    if question.have:
        needs = _added(plan, traffics)
        carried = 0.0 if plan.existing is None else plan.existing.requests_per_second
        least = 0
    else:
        needs = _needed(traffics, _servings(plan, question, answered))
        carried, least = 0.0, 1 if plan.choice is None else len(plan.choice.pools)
    if len(needs) < buying.months:
        unknown = question.have and (plan.mixed is None or plan.mixed.reason is not None)
        horizon = Horizon(
            months=buying.months,
            growth_per_month=growth,
            systems_decay=buying.decay.systems,
            rents_decay=buying.decay.rents,
            lead_months=buying.lead_months,
            system="",
            gpus_per_system=0,
            reason="fleet" if unknown else "many",
        )
        return replace(plan, horizon=horizon)
    months = [
        Month(
            need=need,
            traffic=beyond_existing(load, carried) if carried else load,
            serving=serving,
            prices=prices,
            least=least,
            decay=buying.decay,
        )
        for (need, serving), load in zip(needs, traffics, strict=True)
    ]
    horizon = compared(
        months,
        lead_months=buying.lead_months,
        growth=growth,
        where=where,
        existing=bool(question.have),
    )
    return replace(plan, horizon=horizon)


Needs = list[tuple[HorizonMonth, "Serving"]]


def _servings(
    plan: Plan, question: Question, answered: Callable[[Question], Plan]
) -> Callable[[int], Serving | None]:
    """The choice's deployment on the systems that the load of a month needs; None where no number
    of them is enough.
    """
    candidate_after = later(plan, question, answered)

    def serving(month: int) -> Serving | None:
        candidate: Candidate | None = candidate_after(month)
        return None if candidate is None else serving_of(candidate, question.spare)

    return serving


def _needed(traffics: Sequence[Traffic], serving_after: Callable[[int], Serving | None]) -> Needs:
    """The systems of each month, from the highest load down; fewer months where one has no answer.

    Less load never needs more systems, and never fewer than division says: where this says as many
    as the next higher load needs, no fleet is simulated. Of fleets of more than ``EXACT`` instances
    only some months are simulated, and division counts the systems of the others.
    """
    needs: dict[int, tuple[HorizonMonth, Serving]] = {}
    last: Serving | None = None
    places = range(len(traffics))
    for month in sorted(places, key=lambda place: -traffics[place].peak_requests_per_second):
        traffic, simulated = traffics[month], True
        if last is not None and last.systems is not None:
            count = systems_by_division(traffic, last)
            large = last.fleet.of(count).instances > EXACT and month not in (0, *AHEAD)
            simulated = count >= last.systems or not large
        if last is None or (simulated and count < (last.systems or 0)):
            last = serving_after(month)
            if last is None or last.systems is None:
                return []
            count = last.systems
        need = HorizonMonth(
            month=month,
            requests_per_second=traffic.peak_requests_per_second,
            systems=min(count, last.systems or count),
            simulated=simulated,
        )
        needs[month] = need, replace(last, systems=need.systems)
    return [needs[month] for month in places]


def _added(plan: Plan, traffics: Sequence[Traffic]) -> Needs:
    """The systems to add to what exists by each month; fewer months where they are not known."""
    mixed = plan.mixed
    if mixed is None or mixed.reason is not None:
        return []
    bought = next((group.candidate for group in mixed.groups if group.system == mixed.buys), None)
    bought = bought or mixed.next_bought or mixed.groups[0].candidate
    steps = {purchase.month: purchase for purchase in mixed.purchases}
    needs: Needs = []
    systems = 0 if mixed.purchases else sum(mixed.added.values())
    covered = len(traffics) if not mixed.months else mixed.months + 1
    for month, traffic in enumerate(traffics[:covered]):
        systems += steps[month].systems if month in steps else 0
        need = HorizonMonth(
            month=month,
            requests_per_second=traffic.peak_requests_per_second,
            systems=systems,
            simulated=mixed.run is not None
            and bought.fleet.of(systems).instances + mixed.run.instances <= EXACT,
        )
        needs.append((need, replace(serving_of(bought), systems=systems)))
    return needs

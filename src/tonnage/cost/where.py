"""The same load on systems of one's own, in the cloud by the hour, at an API, or on mixtures: what each costs a year.

- On-prem: whole systems for the peak, owned all year.
- Cloud: in every hour of the profile as many instances as it needs, at least ``min_instances``, each hour paid in full.
- Hybrid: some systems owned, the number that costs least of all; what an hour needs beyond them is rented.
- API: tokens.
- Hybrid with an API: some systems owned, the number that costs least of all; the requests beyond them go to an API.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date
from typing import Literal

from tonnage.cost.break_even import break_evens
from tonnage.cost.cost import api_cost, hosting_is_missing
from tonnage.cost.options import as_planned, cloud, hybrid, on_prem, overflow
from tonnage.errors import InputError, option
from tonnage.plan.cost import SECONDS_PER_YEAR, WAYS, YEARS, Outlook, PaysOff, Serving, Traffic, WayCost, WayOutlook, Where, YearlyCost
from tonnage.plan.fleet import Footprint, footprint
from tonnage.plan.limit import RACK_KW
from tonnage.plan.note import (
    CostNote,
    CourseWay,
    EstimatedPrice,
    HostingLeftOut,
    NoProfile,
    NotComparable,
    OnlyPeakKnown,
    OwnedElectricity,
    SameAs,
    TokenPriceRatio,
)
from tonnage.plan.plan import Plan
from tonnage.spec.prices import Prices, stale


def compare(
    traffic: Traffic,
    serving: Serving,
    prices: Prices,
    *,
    today: date | None = None,
    min_instances: int = 1,
    model: str | None = None,
    where: tuple[Where, ...] = WAYS,
) -> YearlyCost:
    """The costs of a load.

    Args:
        today: the day on which prices older than a year are warned about; none are if not given.
        min_instances: cloud instances kept in the quietest hour; 0 lets the fleet go to nothing.
        model: whose API price counts (catalog id); without one only a price that the user gave.

    Raises InputError: a negative number of instances.
    """
    if min_instances < 0:
        raise InputError(f"{option('min_instances')}: {min_instances} is negative; write how many instances stay on, 0 or more")
    serving = as_planned(serving, traffic)
    owned = on_prem(traffic, serving, prices, min_instances)
    rented = cloud(traffic, serving, prices, min_instances)
    both = hybrid(traffic, serving, prices, min_instances)
    tokens = api_cost(traffic, prices, model)
    sent_on = overflow(traffic, serving, prices, model)
    asked = [option for option in (owned, rented, both, tokens, sent_on) if option.where in where]
    alone = tuple(_alone(asked))
    shown = [option for option in asked if not any(option.where == each.way for each in alone)]
    known = [(option.total_usd_per_year, option.where) for option in shown if option.total_usd_per_year is not None]
    figures = dict.fromkeys(figure for way in shown for figure in way.figures)
    return YearlyCost(
        traffic=traffic,
        serving=serving,
        ways=tuple(shown),
        cheapest=min(known, key=lambda pair: pair[0])[1] if len(known) > 1 else None,
        break_evens=tuple(each for each in break_evens(traffic, serving, prices, min_instances, model) if set(each.between) <= set(where)),
        notes=(*_comparable(shown), *alone, *_notes(traffic, serving, owned, prices, where)),
        stale_prices=stale(figures, today) if today else (),
    )


def _alone(asked: Sequence[WayCost]) -> Iterator[SameAs]:
    """The mixtures that own nothing, or rent and send on nothing, where the way that they come to is shown."""
    known = {way.where for way in asked if way.total_usd_per_year is not None}
    for way in asked:
        if way.total_usd_per_year is None or way.where not in ("hybrid", "hybrid-api"):
            continue
        other: Literal["cloud", "api"] = "cloud" if way.where == "hybrid" else "api"
        same = other if not way.systems else "on-prem" if not way.cloud_gpu_hours_per_year and not way.api_requests_per_year else None
        if same in known and same is not None:
            yield SameAs(way=way.where, same=same)


def _comparable(shown: Sequence[WayCost]) -> Iterator[CostNote]:
    """Says so where several ways were requested and only one of them has a price."""
    known = [way.where for way in shown if way.total_usd_per_year is not None]
    if len(known) == 1 and len(shown) > 1:
        yield NotComparable(way=known[0])


def _notes(traffic: Traffic, serving: Serving, owned: WayCost, prices: Prices, where: tuple[Where, ...]) -> Iterator[CostNote]:
    """What a reader must know about the ways that are shown."""
    yield TokenPriceRatio(ratio=prices.output_to_input_price_ratio)
    if not traffic.profile and {"cloud", "hybrid", "hybrid-api"} & set(where):
        yield NoProfile()
    if traffic.requests_per_year is None:
        yield OnlyPeakKnown()
    if not {"on-prem", "hybrid", "hybrid-api"} & set(where):
        return
    price = prices.system_usd(serving.system)
    if price is not None and price.estimate:
        yield EstimatedPrice(system=serving.system, price=price)
    if price is not None and hosting_is_missing(serving, prices):
        yield HostingLeftOut(system=serving.system)
    if "on-prem" in where:
        yield from _owned_notes(serving, owned)


def _owned_notes(serving: Serving, owned: WayCost) -> Iterator[CostNote]:
    exact, usd, each = owned.systems_exact, owned.usd_per_year_exact, owned.usd_per_1000_requests_exact
    if exact is not None and exact >= 1 and usd is not None and each is not None:
        yield _course_way(serving, exact, usd, each)
    energy = owned.energy
    if energy is not None:
        hosting = next((part.usd_per_year for part in owned.parts if part.name == "hosting"), 0.0)
        exceeds = not energy.added and (energy.usd_per_year or 0.0) > hosting
        yield OwnedElectricity(
            kwh_per_year=energy.kwh_per_year,
            usd_per_year=energy.usd_per_year,
            added=energy.added,
            hosting_usd_per_year=hosting if exceeds else None,
        )


def _course_way(serving: Serving, exact: float, usd: float, ours: float) -> CourseWay:
    each, span = serving.fleet.instances_per_system, serving.fleet.systems_per_instance
    one_system = each / span * serving.requests_per_second_per_instance * SECONDS_PER_YEAR
    return CourseWay(
        systems_exact=exact,
        usd_per_1000_requests=ours,
        course_usd_per_1000_requests=usd / one_system * 1_000,
        one_system_requests_per_year=one_system,
    )


# What the yearly cost of a plan comes to over years, for each user, and in a building.


MONTHS = 12
MOST_MONTHS = 120  # beyond ten years, twice what systems serve, no month is named


def with_outlook(cost: YearlyCost, plan: Plan, prices: Prices, today: date | None) -> YearlyCost:
    """The cost with what it comes to."""
    day = None if plan.existing is None else plan.existing.a_day
    users = plan.demand.source.users or (None if day is None else day.users)
    found = Outlook(
        ways=tuple(_ways(cost, users)),
        pays_off=_pays_off(cost, today),
        users=users,
        footprint=_footprint(cost, plan, prices),
    )
    return replace(cost, outlook=found)


def _ways(cost: YearlyCost, users: float | None) -> Iterator[WayOutlook]:
    for way in cost.ways:
        total = way.total_usd_per_year
        if total is not None:
            each = None if users is None else total / MONTHS / users
            yield WayOutlook(where=way.where, usd={str(years): spent(way, years) for years in YEARS}, usd_per_user_month=each)


def spent(way: WayCost, years: float) -> float:
    """USD that a way costs in so many years: the purchase, and what is paid in each of them."""
    return (way.purchase_usd or 0.0) + years * way.opex_usd_per_year


def _pays_off(cost: YearlyCost, today: date | None) -> PaysOff | None:
    owned, rented = cost.way("on-prem"), cost.way("cloud")
    if owned is None or rented is None or owned.total_usd_per_year is None or rented.total_usd_per_year is None:
        return None
    saved = (rented.opex_usd_per_year - owned.opex_usd_per_year) / MONTHS
    months = (owned.purchase_usd or 0.0) / saved if saved > 0 else math.inf
    if months > MOST_MONTHS:
        return PaysOff(months=None, date="", saved_usd_per_month=saved)
    return PaysOff(months=months, date="" if today is None else _month(today, math.ceil(months)), saved_usd_per_month=saved)


def _month(day: date, months: int) -> str:
    """The month so many months later, as YYYY-MM."""
    years, month = divmod(day.month - 1 + months, MONTHS)
    return f"{day.year + years:04d}-{month + 1:02d}"


def _footprint(cost: YearlyCost, plan: Plan, prices: Prices) -> Footprint | None:
    watts = cost.serving.system_watts
    if plan.choice is None or watts is None:
        return None
    rack = RACK_KW if plan.aim is None else plan.aim.rack_kw
    return footprint(plan.choice.systems, watts, cost.serving.watts_from, rack_kw=rack, pue=prices.pue.value)

"""What the yearly cost of a plan comes to over years, for each user, and in a building."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING

from tonnage.plan.cost import YEARS, Outlook, PaysOff, WayOutlook
from tonnage.plan.fleet import Footprint, footprint
from tonnage.plan.limit import RACK_KW

if TYPE_CHECKING:
    from tonnage.plan.cost import WayCost, YearlyCost
    from tonnage.plan.plan import Plan
    from tonnage.spec.prices import Prices

MONTHS = 12
MOST_MONTHS = 120
"""Beyond ten years, twice what systems serve, no month is named."""


def with_outlook(cost: YearlyCost, plan: Plan, prices: Prices, today: date | None) -> YearlyCost:
    """The cost with what it comes to.

    Args:
        cost: of the plan's choice.
        plan: whose users, systems and racks these are.
        prices: the price list.
        today: the day of a purchase; None to name no date.
    """
    users = _users(plan)
    found = Outlook(
        ways=tuple(_ways(cost, users)),
        pays_off=_pays_off(cost, today),
        users=users,
        footprint=_footprint(cost, plan, prices),
    )
    return replace(cost, outlook=found)


def _users(plan: Plan) -> float | None:
    """The people whose load it is, as asked or as existing systems carry."""
    day = None if plan.existing is None else plan.existing.a_day
    return plan.demand.source.users or (None if day is None else day.users)


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

"""The cost of a plan: the ways of running it, and which of them a reader sees first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.plan.cost import YearlyCost
from tonnage.report.numbers import counted, number

if TYPE_CHECKING:
    from tonnage.plan.cost import WayCost, Where
    from tonnage.plan.plan import Plan

NAMES: dict[Where, str] = {"on-prem": "on-prem", "cloud": "cloud GPUs", "hybrid": "hybrid", "api": "API", "hybrid-api": "hybrid with API"}
SAID: dict[Where, str] = {
    "on-prem": "Owned,",
    "cloud": "On cloud GPUs",
    "hybrid": "Owned for the base load, with cloud GPUs for the rest,",
    "api": "Through an API",
    "hybrid-api": "Owned for the base load, with an API for the rest,",
}
"""How a sentence on a way begins."""
TITLES: dict[Where, str] = {
    "on-prem": "On-prem, owned for the peak",
    "cloud": "Cloud GPUs by the hour",
    "hybrid": "Owned base, cloud burst",
    "api": "API by tokens",
    "hybrid-api": "Owned base, API overflow",
}
"""What the ways are called where there is room."""


def yearly(plan: Plan) -> YearlyCost | None:
    """What the plan costs a year; None of a job, and where nothing was chosen."""
    return plan.cost if isinstance(plan.cost, YearlyCost) else None


def ways(cost: YearlyCost | None) -> tuple[WayCost, ...]:
    """Every way that was asked for, those with a cost first."""
    return () if cost is None else tuple(sorted(cost.ways, key=lambda way: way.total_usd_per_year is None))


def priced(cost: YearlyCost | None) -> tuple[WayCost, ...]:
    """The ways whose cost is known."""
    return tuple(way for way in ways(cost) if way.total_usd_per_year is not None)


def owned(cost: YearlyCost | None) -> WayCost | None:
    """Systems of one's own for the peak, where their cost is known."""
    return next((way for way in priced(cost) if way.where == "on-prem"), None)


def cheapest(cost: YearlyCost | None) -> WayCost | None:
    """The cheapest of the ways whose cost is known; None where fewer than two are."""
    return next((way for way in priced(cost) if cost is not None and way.where == cost.cheapest), None)


def owned_and_cheapest(cost: YearlyCost | None) -> tuple[WayCost, ...]:
    """The owned systems of the plan, and the cheapest way where that is another; the only way with a cost where there is but one."""
    known = priced(cost)
    return known if len(known) < 2 else tuple(dict.fromkeys(way for way in (owned(cost), cheapest(cost)) if way is not None))


def takes(way: WayCost) -> str:
    """What is owned, what is rented and what goes to an API, such as "3 systems + 42,000 GPU hours, up to 16 GPUs"."""
    own = counted(way.systems, "system") if way.systems else ""
    most = f", up to {counted(way.cloud_gpus_at_peak, 'GPU')}" if way.cloud_gpus_at_peak else ""
    rented = f"{number(way.cloud_gpu_hours_per_year)} GPU hours{most}" if way.cloud_gpu_hours_per_year else ""
    sent = f"{number(way.api_requests_per_year)} requests to the API" if way.api_requests_per_year else ""
    return " + ".join(filter(None, (own, rented, sent)))


def spread(way: WayCost) -> tuple[float, float] | None:
    """The cost at both ends of a range of prices; None where there is none."""
    low, high = way.usd_per_year_low, way.usd_per_year_high
    return None if low is None or high is None or low >= high else (low, high)

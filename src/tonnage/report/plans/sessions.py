"""Recorded sessions in words: how many a system holds, and what a session takes and costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.report.numbers import number, percent, plain, span, usd
from tonnage.report.plans.cost import NAMES, owned_and_cheapest, yearly

if TYPE_CHECKING:
    from tonnage.plan.cost import WayCost
    from tonnage.plan.demand import Demand, HeldSessions
    from tonnage.plan.plan import Plan

WEEKS = 365 / 7
MONTHS = 12


def sessions_text(plan: Plan) -> str:
    """Such as "17.1 at once on a system; 63 requests each, 7.9 million tokens in of which 96% come from caches, 27,700 out; …"."""
    held = plan.sessions
    if held is None:
        return ""
    tokens = f"{number(held.input_tokens / 1e6)} million tokens in ({percent(held.hit_rate)} from caches)"
    parts = [
        f"{number(held.per_system)} at once on a system",
        f"each {number(held.requests)} requests, {tokens} and {number(held.output_tokens)} out, over {span(held.seconds)}",
    ]
    if held.slowdown_p90 is not None:
        parts.append(f"p90 of them {held.slowdown_p90:.2f}× as slow as alone")
    if held.left_out > 0:
        parts.append(f"{percent(held.left_out)} of the recorded requests exceed the context and are left out")
    return "; ".join([*parts, *(_cost(held, plan.demand, way) for way in owned_and_cheapest(yearly(plan)))])


def _cost(held: HeldSessions, demand: Demand, way: WayCost) -> str:
    engineers, hours = demand.source.engineers, demand.source.working_hours or 8.0
    days = sum(1 for hour in range(0, 168, 24) if demand.profile is None or any(demand.profile[hour : hour + 24]))
    sessions = held.at_once * WEEKS * days * hours * 3600 / held.seconds
    each = (way.total_usd_per_year or 0.0) / sessions
    month = "" if engineers is None else f" and {usd((way.total_usd_per_year or 0.0) / engineers / MONTHS)} an engineer and month"
    return f"{NAMES[way.where]} {usd(each)} USD a session{month}, at {plain(days)} days of {plain(hours)} h a week"

"""Recorded sessions in words: how many a system holds, and what a session takes and costs."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from tonnage.report.numbers import number, percent, plain, span, usd
from tonnage.report.plans.cost import NAMES, owned_and_cheapest, yearly

if TYPE_CHECKING:
    from tonnage.plan.cost import WayCost
    from tonnage.plan.demand import Demand, HeldSessions
    from tonnage.plan.plan import Plan

MEMORIES = {"host": "host memory", "disk": "local NVMe", "store": "the shared store"}

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
    parts += _tiers(plan, held)
    return "; ".join([*parts, *(_cost(held, plan.demand, way) for way in owned_and_cheapest(yearly(plan)))])


def _tiers(plan: Plan, held: HeldSessions) -> list[str]:
    """What each memory below the KV cache buys, such as "host memory (vllm: 1,600 GB at 445 GB/s) raises 12.7 a system to 21.3 and …"."""
    said = []
    for before, tier in pairwise(held.tiers):
        size = f"{number(tier.bytes_per_instance / 1e9)} GB at {number((tier.bytes_per_second or 0.0) / 1e9)} GB/s an instance"
        where = f"{MEMORIES.get(tier.name, tier.name)} ({held.offloader or 'write-back'}, {size})"
        if before.per_system is None or before.systems is None or tier.per_system is None or tier.systems is None:
            said.append(f"no load holds the limits without {where}")
            continue
        gain = f"{where} raises {number(before.per_system)} a system to {number(tier.per_system)}"
        fewer, choice = before.systems - tier.systems, plan.choice
        if fewer > 0 and choice is not None:
            owned = [way.total_usd_per_year or 0.0 for way in owned_and_cheapest(yearly(plan)) if way.where == "on-prem"]
            money = "".join(f", {usd(fewer * year / choice.systems)} USD a year on-prem" for year in owned)
            gain += f" and saves {fewer} of {before.systems} systems{money}"
        said.append(gain)
    return said


def _cost(held: HeldSessions, demand: Demand, way: WayCost) -> str:
    engineers, hours = demand.source.engineers, demand.source.working_hours or 8.0
    days = sum(1 for hour in range(0, 168, 24) if demand.profile is None or any(demand.profile[hour : hour + 24]))
    sessions = held.at_once * WEEKS * days * hours * 3600 / held.seconds
    each = (way.total_usd_per_year or 0.0) / sessions
    month = "" if engineers is None else f" and {usd((way.total_usd_per_year or 0.0) / engineers / MONTHS)} an engineer and month"
    return f"{NAMES[way.where]} {usd(each)} USD a session{month}, at {plain(days)} days of {plain(hours)} h a week"

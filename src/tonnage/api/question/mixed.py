"""Fleets of several kinds: what exists with what is added to it, or a purchase of two kinds; which
systems may be bought, and what is to be least.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tonnage.api.question.horizon import buying_of
from tonnage.api.question.objectives import reserve_of
from tonnage.cost.cost import system_watts, traffic_of
from tonnage.cost.mixed import owned_usd, with_usd, year_usd
from tonnage.cost.plan_cost import cost_of
from tonnage.plan.candidate import Candidate
from tonnage.plan.cost import Cost, Where, YearlyCost
from tonnage.plan.mixed import Cheaper, Mixed, Named
from tonnage.plan.plan import Plan
from tonnage.sizing.fleet.mixed import MONTHS, Kind, with_added
from tonnage.sizing.fleet.purchase import Price, cheapest_purchase
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.question import Pools, Question
from tonnage.sizing.search.search_space import system_for
from tonnage.spec.hardware import System
from tonnage.spec.precision import find_precision
from tonnage.spec.prices import Prices
from tonnage.spec.scenario import Scenario


def with_mixed(
    question: Question,
    plan: Plan,
    scenario: Scenario,
    *,
    prices: Prices,
    where: tuple[Where, ...],
    runs: Runs,
    search: Callable[[Question], Plan],
) -> Plan:
    """The plan with the systems to add to what exists, or with a purchase of two kinds; as it is
    where none exist, no load is requested, or two kinds are not wanted. ``search`` answers another
    question on the same runs.
    """
    if not (question.have or scenario.mix) or plan.demand.of_existing:
        return plan
    if reserve_of(scenario.standby) is not None:
        return replace(plan, mixed=Mixed(reason="standby"))
    if scenario.mix:
        traffic = traffic_of(plan)

        def usd(candidate: Candidate, share: float, spare: int) -> float | None:
            return year_usd(candidate, traffic.times(share), prices, spare)

        mixed = cheapest_purchase(question, runs, usd)
        if mixed.compared is None or not mixed.groups:
            return replace(plan, mixed=mixed)
        rivals = [
            *_priced_instead(question, plan, usd, search),
            *_rented(cost_of(plan, prices, where=where)),
        ]
        at_most = mixed.compared.mix.usd_per_year
        cheaper = min(
            (rival for rival in rivals if rival.usd_per_year < at_most),
            key=lambda rival: rival.usd_per_year,
            default=None,
        )
        compared = replace(mixed.compared, cheaper=cheaper)
        return replace(plan, mixed=replace(mixed, compared=compared))
    kinds: dict[str, Kind] = {}
    for owned in question.have:
        before = kinds.get(owned.system.name, Kind(system=owned.system))
        kinds[owned.system.name] = replace(before, owned=before.owned + owned.count)
    addable = [system_for(question, gpu) for gpu in question.gpus if gpu.name in question.addable]
    price = _prices(addable, scenario.choice.objective, prices)
    for system in addable:
        kinds[system.name] = replace(
            kinds.get(system.name, Kind(system=system)), price=price[system.name]
        )
    buying = buying_of(scenario.buying)
    months = MONTHS if buying is None else buying.months
    mixed = with_added(question, runs, tuple(kinds.values()), months=months)
    return replace(plan, mixed=with_usd(mixed, plan, prices))


def _priced_instead(
    question: Question, plan: Plan, usd: Price, search: Callable[[Question], Plan]
) -> list[Cheaper]:
    """The owned systems of the plan's lines about prefill and decode apart and about a KV cache in
    FP8, each asked directly for what it costs.
    """
    plain = replace(question, deepen=False, growth_per_month=None, regions=())
    asked_directly: dict[Named, Question] = {}
    if plan.pools_instead is not None:
        gpu = plan.pools_instead.deployment.gpu
        asked_directly["pools_instead"] = replace(
            plain, pools=Pools(), gpus=tuple(kind for kind in question.gpus if kind.name == gpu)
        )
    if plan.narrow_cache is not None:
        narrow = find_precision(plan.narrow_cache.deployment.precision)
        asked_directly["narrow_cache"] = replace(plain, precisions=(narrow,))
    priced = []
    for name, instead in asked_directly.items():
        choice = search(instead).choice
        total = None if choice is None else usd(choice, 1.0, question.spare)
        if choice is not None and total is not None:
            systems = {choice.system: choice.systems}
            priced.append(Cheaper(named=name, systems=systems, usd_per_year=total))
    return priced


def _rented(cost: Cost | None) -> list[Cheaper]:
    """The ways of a plan's cost that rent, or own and rent."""
    ways = cost.ways if isinstance(cost, YearlyCost) else ()
    return [
        Cheaper(named=way.where, systems={}, usd_per_year=way.total_usd_per_year)
        for way in ways
        if way.where != "on-prem" and way.total_usd_per_year is not None
    ]


def _prices(systems: list[System], objective: str | None, prices: Prices) -> dict[str, float]:
    """What one more system of each kind costs: money where it is known of all, unless something
    else is to be least; else its GPUs.
    """
    usd = {system.name: owned_usd(system, prices) for system in systems}
    watts = {system.name: system_watts(system.gpu, system.name)[0] for system in systems}
    least = watts if objective == "power" else usd
    if objective == "gpus" or None in least.values():
        return {system.name: float(system.gpus) for system in systems}
    return {name: value or 0.0 for name, value in least.items()}

"""Fleets of several kinds: what exists with what is added to it, or a purchase of two kinds; which
systems may be bought, and what is to be least.
"""

from __future__ import annotations

from dataclasses import replace

from tonnage.api.question.horizon import buying_of
from tonnage.api.question.objectives import reserve_of
from tonnage.cost.cost import system_watts, traffic_of
from tonnage.cost.mixed import owned_usd, with_usd, year_usd
from tonnage.plan.candidate import Candidate
from tonnage.plan.mixed import Mixed
from tonnage.plan.plan import Plan
from tonnage.sizing.fleet.mixed import MONTHS, Kind, with_added
from tonnage.sizing.fleet.purchase import cheapest_purchase
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.question import Question
from tonnage.sizing.search.search_space import system_for
from tonnage.spec.hardware import System
from tonnage.spec.prices import Prices
from tonnage.spec.scenario import Scenario


def with_mixed(
    question: Question, plan: Plan, scenario: Scenario, *, prices: Prices, runs: Runs
) -> Plan:
    """The plan with the systems to add to what exists, or with a purchase of two kinds; as it is
    where none exist, no load is requested, or two kinds are not wanted.
    """
    if not (question.have or scenario.mix) or plan.demand.of_existing:
        return plan
    if reserve_of(scenario.standby) is not None:
        return replace(plan, mixed=Mixed(reason="standby"))
    if scenario.mix:
        traffic = traffic_of(plan)

        def usd(candidate: Candidate, share: float, spare: int) -> float | None:
            return year_usd(candidate, traffic.times(share), prices, spare)

        return replace(plan, mixed=cheapest_purchase(question, runs, usd))
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

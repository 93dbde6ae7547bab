"""The cost of a plan: of its choice, by every way that was asked for, and of each candidate that can be owned."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

from tonnage.cost.autoscaled import with_rent
from tonnage.cost.cost import serving_of, traffic_of
from tonnage.cost.job import in_proportion, job_cost
from tonnage.cost.options import yearly_owned
from tonnage.cost.outlook import with_outlook
from tonnage.cost.where import compare
from tonnage.errors import InputError
from tonnage.plan.cost import HOURS_PER_YEAR, WAYS, Cost, Where, YearlyCost
from tonnage.plan.pareto import pareto
from tonnage.plan.plan import Plan
from tonnage.plan.provenance import Measurement
from tonnage.spec.catalog import find_model
from tonnage.spec.prices import Prices


def with_cost(plan: Plan, prices: Prices, *, today: date | None = None, where: tuple[Where, ...] = WAYS) -> Plan:
    """The plan with the cost of its choice, and with the yearly cost of every candidate that has a price.

    Args:
        plan: the answer.
        prices: the price list.
        today: the day on which prices older than a year are named; none are if not given.
        where: the ways to show, and to choose the cheapest from.
    """
    cost = cost_of(plan, prices, today=today, where=where)
    plan = replace(plan, cost=cost, autoscaling=with_rent(plan, prices), measurement=_worth(plan, cost))
    if not plan.pareto or plan.demand.offline:
        return plan
    owned = yearly_owned(plan.candidates, traffic_of(plan), prices, plan.scenario.spare_systems)
    return replace(plan, pareto=pareto(plan.candidates, owned))


def cost_of(plan: Plan, prices: Prices, *, today: date | None = None, where: tuple[Where, ...] = WAYS) -> Cost | None:
    """What the choice costs: a job once, other traffic for a year; None where nothing was chosen.

    Args:
        plan, prices, today, where: as in ``with_cost``; a job has no ways to choose from.
    """
    if plan.choice is None:
        return None
    traffic, serving = traffic_of(plan), serving_of(plan.choice, plan.scenario.spare_systems)
    requests, seconds = plan.demand.offline_requests, plan.demand.offline_seconds
    model = catalog_id(plan.scenario.model)
    if requests is None or seconds is None:
        least = len(plan.choice.pools)  # one instance of each: prefill alone answers nothing
        found = compare(traffic, serving, prices, min_instances=least, today=today, model=model, where=where)
        return with_outlook(found, plan, prices, today)
    job = plan.job or in_proportion(requests, seconds, serving)
    return job_cost(job, (traffic.input_tokens, traffic.output_tokens), serving, prices, model=model, today=today)


def _worth(plan: Plan, cost: Cost | None) -> Measurement | None:
    """What measuring the choice would save a year, by the cheaper of owning and renting it; its price is that of a share of the systems.

    A year of one system fewer saves the same share of the cost, whatever part of it is owned, hosted or powered.
    """
    found, choice = plan.measurement, plan.choice
    if found is None or choice is None or not isinstance(cost, YearlyCost):
        return found
    known = [way.total_usd_per_year for way in cost.ways if way.where in ("on-prem", "cloud") and way.total_usd_per_year is not None]
    if not known:
        return found
    of_system = min(known) / choice.systems
    usd = of_system * found.seconds / 3_600 / HOURS_PER_YEAR
    return replace(found, usd=usd, saved_usd_per_year=found.saved_systems * of_system - usd)


def catalog_id(model: str) -> str:
    """The model's name in the catalog and in its prices; what the catalog does not have, such as a file, keeps its own."""
    try:
        return model if model.endswith(".json") else find_model(model).name
    except InputError:
        return model

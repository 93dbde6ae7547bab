"""What a plan costs: its choice owned, in the cloud, in both, or the same tokens from an API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tonnage.api.arguments import listed
from tonnage.errors import InputError, option

if TYPE_CHECKING:
    from datetime import date

    from tonnage.cost.job import JobCost
    from tonnage.cost.where import CostComparison
    from tonnage.plan.former_plan import Plan
    from tonnage.sizing.question import Question
    from tonnage.spec.prices import Prices
    from tonnage.spec.scenario import Scenario


def overrides_of(scenario: Scenario) -> tuple[dict[str, Any], str]:
    """The asker's own prices, and where they stand.

    Raises:
        InputError: a prices file that cannot be read.
    """
    from tonnage.spec.catalog.price_list import read_overrides

    if isinstance(scenario.prices, str):
        return read_overrides(scenario.prices), scenario.prices
    return dict(scenario.prices or {}), "prices"


def prices_of(scenario: Scenario) -> Prices:
    """The catalog's prices with the asker's own in their place.

    Raises:
        InputError: prices that cannot be.
    """
    from tonnage.spec.catalog.price_list import catalog_prices

    overrides, where = overrides_of(scenario)
    return catalog_prices().with_overrides(overrides, where)


def costs(plan: Plan, question: Question, scenario: Scenario, *, today: date | None = None) -> CostComparison | None:
    """The cost of a plan's choice; None where it has none, or where a job has no year.

    Args:
        plan: the answer.
        question: what it answers: the mean lengths.
        scenario: the asker's prices.
        today: the day on which prices older than a year are warned about; none are if not given.
    """
    from tonnage.cost.cost import serving_of, traffic_of
    from tonnage.cost.where import WAYS, compare

    if plan.choice is None or question.demand.offline_requests is not None:
        return None
    traffic = traffic_of(plan.demand, question.isl.mean, question.osl.mean)
    asked = WAYS if scenario.where is None else tuple(way for way in WAYS if way in listed(scenario.where, option("where")))
    return compare(traffic, serving_of(plan.choice, question.spare), prices_of(scenario), today=today, where=asked)


def cost_of_job(plan: Plan, question: Question, scenario: Scenario, *, today: date | None = None) -> JobCost | None:
    """The cost of a job that a plan's choice does; None where it has none, or where the question is of a year's traffic.

    Args:
        plan, question, scenario, today: as in ``costs``.
    """
    from tonnage.cost.cost import serving_of
    from tonnage.cost.job import job_cost

    requests, seconds = question.demand.offline_requests, question.demand.offline_seconds
    if plan.choice is None or requests is None or seconds is None:
        return None
    tokens = (question.isl.mean, question.osl.mean)
    return job_cost(requests, seconds, tokens, serving_of(plan.choice, question.spare), prices_of(scenario), today=today)


def priced(plan: Plan, question: Question, scenario: Scenario) -> Plan:
    """The plan with the yearly cost of every candidate on its front; unchanged for a job."""
    from tonnage.cost.cost import traffic_of
    from tonnage.cost.options import yearly_owned
    from tonnage.sizing.pareto import pareto

    if not plan.pareto or question.demand.offline_requests is not None:
        return plan
    traffic = traffic_of(plan.demand, question.isl.mean, question.osl.mean)
    return replace(plan, pareto=pareto(plan.candidates, yearly_owned(plan.candidates, traffic, prices_of(scenario), question.spare)))


def with_prices(prices: object, flags: list[str]) -> dict[str, Any]:
    """The prices of a file or of nested values, with single ones such as "systems.dgx-h100=250000" in their place.

    Raises:
        InputError: a flag that is none, or prices that cannot be read.
    """
    from tonnage.spec.catalog.price_list import parse_price_flags, read_overrides

    base = read_overrides(prices) if isinstance(prices, str) else prices or {}
    if not isinstance(base, Mapping):
        raise InputError(f"{option('prices')}: {prices!r} is not a list of prices; name a file, or write keys with values")
    return _over(dict(base), parse_price_flags(flags))


def _over(base: dict[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values with others in their place."""
    found = dict(base)
    for key, value in change.items():
        inner = found.get(key)
        found[key] = _over(inner, value) if isinstance(inner, dict) and isinstance(value, Mapping) else value
    return found

"""The cost of a plan is read off the plan and the prices alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from tests.cost.cost_cases import COURSE_PEAK, COURSE_PRICES, candidate
from tests.plan.candidates import plan_of
from tonnage.cost.cost import serving_of, traffic_of
from tonnage.cost.planned import cost_of, with_cost
from tonnage.cost.where import compare
from tonnage.plan.cost import JobCost, YearlyCost
from tonnage.plan.plan import Plan
from tonnage.plan.sensitivity import pareto
from tonnage.sizing.demand import demand_of
from tonnage.spec.catalog.price_list import catalog_prices

PRICES = COURSE_PRICES
YEAR = demand_of(mean_rps=COURSE_PEAK / 7, factor=7)
JOB = demand_of(requests=100_000, within_s=3_600)


def test_a_year_of_the_choice_costs_what_its_traffic_and_its_systems_do() -> None:
    plan = plan_of(YEAR, candidate(), candidate(system="8xl4", gpu="l4"))
    cost = cost_of(plan, PRICES, where=("on-prem", "api"))
    assert isinstance(cost, YearlyCost)
    assert plan.choice is not None
    assert replace(cost, outlook=None) == compare(
        traffic_of(plan), serving_of(plan.choice), PRICES, model="llama-3-8b", where=("on-prem", "api")
    )
    owned = cost.way("on-prem")
    assert owned is not None
    assert owned.total_usd_per_year == pytest.approx(595_000)
    assert cost.way("cloud") is None


def test_the_cloud_keeps_an_instance_of_each_pool() -> None:
    """One GPU was rented for prefill and decode pools, of which neither answers alone."""
    quiet, both = demand_of(mean_rps=0.1, factor=2), candidate(systems=1)
    apart = replace(both, pools=tuple(replace(both.pool, role=role) for role in ("prefill", "decode")))
    prices = [cost_of(plan_of(quiet, one), catalog_prices(), where=("cloud",)) for one in (both, apart)]
    one, two = (cost.way("cloud").total_usd_per_year for cost in prices)  # type: ignore[union-attr]
    assert two > 1.5 * one > 0  # the machines of two GPUs may have another price


def test_every_candidate_with_a_price_has_its_place_on_the_front_of_cost() -> None:
    candidates = (candidate(), candidate(system="8xl4", gpu="l4"))
    plan = with_cost(plan_of(YEAR, *candidates, pareto=pareto(candidates)), PRICES)
    assert [point.cost_per_year for point in plan.pareto] == [pytest.approx(595_000), None]
    assert [point.front_cost for point in plan.pareto] == [True, False]


def test_a_job_is_paid_once_and_has_no_front_of_cost() -> None:
    plan = with_cost(plan_of(JOB, candidate(), pareto=pareto([candidate()])), PRICES, today=date(2026, 11, 21))
    assert isinstance(plan.cost, JobCost)
    assert (plan.cost.requests, plan.cost.hours) == (100_000, 1.0)
    assert plan.pareto[0].cost_per_year is None
    assert plan.cost.stale_prices


def test_without_a_choice_there_is_nothing_to_pay() -> None:
    assert cost_of(plan_of(YEAR), PRICES) is None


def test_a_plan_with_its_cost_reads_back() -> None:
    for demand in (YEAR, JOB):
        plan = with_cost(plan_of(demand, candidate()), PRICES, today=date(2026, 11, 21))
        assert Plan.from_json(plan.to_json()) == plan

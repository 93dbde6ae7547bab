"""The growth of a load without systems that exist: until when the choice is enough, and how many of
it are needed later."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

import tonnage
from tests.plan.candidates import candidate, plan_of
from tests.questions import plans_with, question
from tonnage import api
from tonnage.api.question.objectives import growth_of, with_growth
from tonnage.errors import InputError
from tonnage.plan.plan import Plan
from tonnage.sizing.demand import demand_of
from tonnage.sizing.planner import size

few_parts = plans_with()

ASKED: dict[str, Any] = {
    "model": "llama-3-8b",
    "gpu": "h100",
    "engine": "vllm",
    "precision": "fp8",
    "tp": 1,
    "isl": 2000,
    "osl": 50,
    "ttft": "p95<=1s",
}


def test_forms_of_growth() -> None:
    for text, per_month in [
        ("5%/month", 0.05),
        ("5 % per month", 0.05),
        ("5% monthly", 0.05),
        ("60%/year", 1.6 ** (1 / 12) - 1),
        ("2x/year", 2 ** (1 / 12) - 1),
        ("-5%/month", -0.05),
    ]:
        assert growth_of(text) == pytest.approx(per_month)
    for text, says in [
        ("5%", "growth: '5%' says no time; write for example 5%/month or 5%/year"),
        (
            "0.05/month",
            "growth: '0.05/month' is not a growth; write for example 5%/month or 5%/year",
        ),
        ("1e9%/month", "is not a growth"),
    ]:
        with pytest.raises(InputError, match=says):
            growth_of(text)


@cache
def grown() -> Plan:
    return tonnage.size(**ASKED, peak_rps=97, growth="5%/month")


def systems_at(rate: float) -> int:
    """The systems that the same search gives for a load that is asked for by itself."""
    asked = replace(api.ask(None, **ASKED, peak_rps=rate).questions[0], deepen=False)
    best = size(asked).choice
    return best.systems


def test_later_systems_are_those_that_the_search_gives_for_the_later_load() -> None:
    found = grown().growth
    assert [one.months for one in found.ahead] == [12, 24, 36]
    for one in found.ahead:
        assert one.requests_per_second == pytest.approx(97 * 1.05**one.months)
        assert one.systems == systems_at(one.requests_per_second)
    plan, found = grown(), grown().growth
    assert found.months_left > 0
    rates = [97 * 1.05 ** (found.months_left + more) for more in (0, 1)]
    assert systems_at(rates[0]) == plan.choice.systems
    assert systems_at(rates[1]) > plan.choice.systems


def test_spare_systems_and_those_that_stand_by_are_counted_later_too() -> None:
    plain, spare = grown(), tonnage.size(**ASKED, peak_rps=97, growth="5%/month", spare=1)
    standing = tonnage.size(
        **ASKED,
        peak_rps=97,
        growth="5%/month",
        availability="99.9%",
        mtbf="8000h",
        repair_time="24h",
    )
    assert spare.growth.months_left == plain.growth.months_left
    assert [one.systems for one in spare.growth.ahead] == [
        (one.systems or 0) + 1 for one in plain.growth.ahead
    ]
    more = [
        (one.systems or 0) - (other.systems or 0)
        for one, other in zip(standing.growth.ahead, plain.growth.ahead, strict=True)
    ]
    assert min(more) >= 1


def test_a_check_of_the_fleet_that_asks_for_more_brings_the_next_system_forward() -> None:
    asked = replace(question(peak_rps=10), growth_per_month=0.1)
    today = candidate(systems=4, systems_exact=2.0, requests_per_second_per_instance=10 / 16)
    plan = plan_of(demand_of(peak_rps=10), today)

    def answered(one: Any) -> Plan:
        rate = one.demand.sizing_requests_per_second
        return plan_of(
            demand_of(peak_rps=rate), today.on(systems=4 if rate <= 12.2 else 5, instances=40)
        )

    found = with_growth(plan, asked, answered).growth
    assert found.months_left == 2


def test_systems_that_exist_and_plans_without_a_choice_are_left_as_they_are() -> None:
    plan = plan_of(demand_of(peak_rps=10))
    assert (
        with_growth(plan, replace(question(peak_rps=10), growth_per_month=0.1), lambda one: plan)
        is plan
    )
    have = tonnage.size(**ASKED, peak_rps=97, growth="5%/month", have="2xdgx-h100")
    assert have.growth is None
    assert have.existing.months_left is not None


def test_two_pools_grow_as_any_other_deployment() -> None:
    plan = tonnage.size(**ASKED, peak_rps=10, growth="5%/month", disaggregated=True)
    found = [one.systems for one in plan.growth.ahead]
    assert None not in found
    assert [plan.choice.systems, *found] == sorted([plan.choice.systems, *found])

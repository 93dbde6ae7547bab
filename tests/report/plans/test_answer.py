"""The answer of a plan, and what stands in the way of one."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from tests.api.question.choice_cases import PRICES, simulated
from tests.questions import plans_with, question
from tonnage.api.question.choice import chosen
from tonnage.cost.cost import traffic_of
from tonnage.cost.plan_cost import outlay
from tonnage.plan.candidate import Candidate
from tonnage.plan.cost import WAYS
from tonnage.plan.plan import Plan
from tonnage.plan.reason import Most, OverBudget
from tonnage.report.numbers import dollars
from tonnage.report.plans.answer import answer_text
from tonnage.report.plans.screen import answer_rows, brief_lines, quiet_lines
from tonnage.sizing.planner import size
from tonnage.spec.scenario import ChoiceAsked, Scenario

few_parts = plans_with()


def test_what_nothing_meets_says_what_the_budget_buys() -> None:
    asked, plan = simulated()
    found = chosen(
        asked,
        plan,
        Scenario(choice=ChoiceAsked(budget="5k USD")),
        prices=PRICES,
        where=WAYS,
        search=size,
    )
    assert found.choice is None
    reasons = [each.reason for each in found.rejected if isinstance(each.reason, OverBudget)]
    assert len(reasons) == len(plan.candidates)
    assert {reason.most_systems for reason in reasons} == {0}
    least = min(reason.usd for reason in reasons if reason.usd is not None)
    assert (
        answer_text(found)
        == "nothing within what is allowed: 5,000 USD buy no system; all of it takes"
        f" {dollars(least)} USD to buy"
    )


@cache
def too_little() -> tuple[Any, Plan]:
    first = question(gpu="h100", tp="1", peak_rps=700)
    return first, size(replace(first, deepen=False))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (ChoiceAsked(budget="350k USD"), "350,000 USD buy 1 × dgx-h100, which carries"),
        (ChoiceAsked(budget="100k USD/year"), "100,000 USD a year pay for"),
        (ChoiceAsked(max_kw=11), "11 kW feed 1 × dgx-h100, which carries"),
        (ChoiceAsked(max_racks=1, rack_kw=11), "1 rack of 11 kW holds 1 × dgx-h100, which carries"),
    ],
)
def test_where_the_most_that_is_allowed_is_too_little_the_answer_says_what_it_carries(
    asked: ChoiceAsked, said: str
) -> None:
    first, plan = too_little()
    found = chosen(
        first, plan, Scenario(choice=asked), prices=PRICES, where=("on-prem", "cloud"), search=size
    )
    assert found.choice is None
    best = max(
        (
            each.reason.most_requests_per_second
            for each in found.rejected
            if isinstance(each.reason, Most)
        ),
        key=lambda rate: rate or 0,
    )
    assert 0 < best < 700
    answer = answer_text(found)
    assert said in answer
    assert f"{math.floor(best / 7)}% of the 700 asked for" in answer
    for text in (
        quiet_lines([found])[0],
        dict(answer_rows(found))["Answer"],
        "\n".join(brief_lines([found])),
    ):
        assert said in text
    (each,) = [
        one
        for one in plan.candidates
        if one.engine_preset.startswith("tensorrt") and one.precision == "fp8"
    ]
    (reason,) = [one.reason for one in found.rejected if one.identity == each.identity]
    assert isinstance(reason, Most)
    if asked.budget is None or "year" not in asked.budget:
        assert reason.most_systems == 1
        assert reason.most_requests_per_second == pytest.approx(
            each.pool.fleet.instances_per_system * each.sized_rate
        )
    else:
        instances = round((reason.most_requests_per_second or 0) / each.sized_rate)
        usd = [_year_of(plan, each, count) for count in (instances, instances + 1)]
        assert usd[0] <= 100_000 < usd[1]


def _year_of(plan: Plan, each: Candidate, instances: int) -> float:
    held = each.pool.fleet.holding(instances)
    traffic = traffic_of(plan).times(instances * each.sized_rate / 700)
    usd = outlay(
        each.on(systems=held.systems, instances=held.instances),
        traffic,
        PRICES,
        where=("on-prem", "cloud"),
    ).own_usd_per_year
    assert usd is not None
    return usd

"""Several models side by side."""

from __future__ import annotations

from dataclasses import replace

from tests.cost.cost_cases import COURSE_PRICES, COURSE_SERVING, COURSE_TRAFFIC
from tests.report.example_plan import full
from tonnage.cost.plan_cost import compare
from tonnage.plan.plan import Plan
from tonnage.report.numbers import ABSENT
from tonnage.report.plans.comparison import compared_table
from tonnage.spec.prices import Prices


def priced_with(prices: Prices) -> Plan:
    return replace(full(), cost=compare(COURSE_TRAFFIC, COURSE_SERVING, prices))


def rows_of(*plans: Plan) -> list[dict[str, str]]:
    table = compared_table(plans)
    return [dict(zip(table.header, row, strict=True)) for row in table.rows]


NOTHING_OWNED = COURSE_PRICES.with_overrides(
    {"systems": {"dgx-h100": None}, "cloud": {"h100": None}}
)


def test_a_price_of_an_api_stands_under_api_and_never_under_owned() -> None:
    known, unknown = rows_of(priced_with(COURSE_PRICES), priced_with(NOTHING_OWNED))
    assert (known["USD a year, owned"], known["USD a year, API"]) == ("595,000", "2,340,000")
    assert (unknown["USD a year, owned"], unknown["USD a year, API"]) == (ABSENT, "2,340,000")
    assert (known["cheapest way"], unknown["cheapest way"]) == ("on-prem", ABSENT)
    assert "USD a year, cloud GPUs" in known
    assert "USD a year, hybrid" not in known, "it owns everything"

"""Several models side by side: each way of serving has a column of its own."""

from __future__ import annotations

from dataclasses import replace

from tests.cost.cost_cases import COURSE_PRICES, COURSE_SERVING, COURSE_TRAFFIC
from tests.report.example_plan import full, without_answer
from tonnage.cost.where import compare
from tonnage.plan.plan import Plan
from tonnage.report.numbers import ABSENT
from tonnage.report.plans.comparison import SHORT, compared_table
from tonnage.report.plans.screen import in_one
from tonnage.spec.prices import Prices


def priced_with(prices: Prices) -> Plan:
    return replace(full(), cost=compare(COURSE_TRAFFIC, COURSE_SERVING, prices))


def rows_of(*plans: Plan) -> list[dict[str, str]]:
    table = compared_table(plans)
    return [dict(zip(table.header, row, strict=True)) for row in table.rows]


NOTHING_OWNED = COURSE_PRICES.with_overrides({"systems": {"dgx-h100": None}, "cloud": {"h100": None}})


def test_a_price_of_an_api_stands_under_api_and_never_under_owned() -> None:
    known, unknown = rows_of(priced_with(COURSE_PRICES), priced_with(NOTHING_OWNED))
    assert (known["USD a year, owned"], known["USD a year, API"]) == ("595,000", "2,340,000")
    assert (unknown["USD a year, owned"], unknown["USD a year, API"]) == (ABSENT, "2,340,000")
    assert (known["cheapest way"], unknown["cheapest way"]) == ("on-prem", ABSENT)
    assert "USD a year, cloud GPUs" in known
    assert "USD a year, hybrid" not in known, "it owns everything"


def test_ways_without_any_price_have_no_column_and_one_way_alone_is_not_the_cheapest() -> None:
    (row,) = rows_of(priced_with(NOTHING_OWNED))
    assert [title for title in row if title.startswith("USD a year")] == ["USD a year, API"]
    assert "cheapest way" not in row


def test_a_model_without_an_answer_has_a_row_as_wide() -> None:
    answered, none = rows_of(priced_with(COURSE_PRICES), without_answer())
    assert list(answered) == list(none)
    assert set(list(none.values())[3:]) == {ABSENT}


def test_a_first_screen_leaves_deployment_and_costs_to_its_lines() -> None:
    table = compared_table((priced_with(COURSE_PRICES), without_answer()), short=True)
    assert table.header == tuple(name for name in compared_table((full(),)).header if name in SHORT)
    assert len({len(row) for row in (table.header, *table.rows)}) == 1


def test_the_line_of_a_model_names_the_only_way_with_a_price() -> None:
    assert "API 2,340,000 USD a year, the only way with a price" in in_one(priced_with(NOTHING_OWNED))
    assert "cheapest of 3 priced ways" in in_one(priced_with(COURSE_PRICES))

"""Several models side by side: each way of serving has a column of its own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.cost.cost_cases import COURSE_PRICES, COURSE_SERVING, COURSE_TRAFFIC
from tests.plan.candidates import candidate, plan_of
from tests.plan.plans import any_of
from tests.report.example_plan import full, without_answer
from tonnage.cost.planned import compare
from tonnage.errors import InputError
from tonnage.plan.note import CostNote, NoCost, Note, Warning
from tonnage.plan.plan import Plan
from tonnage.plan.reason import Reason
from tonnage.report.numbers import ABSENT
from tonnage.report.plans.candidates import reason_text
from tonnage.report.plans.comparison import SHORT, compared_table
from tonnage.report.plans.cost import cost_note_texts, no_cost_text
from tonnage.report.plans.diff import differences
from tonnage.report.plans.notes import note_text, warning_text
from tonnage.report.plans.plan_document import full_text, read_plans, report, to_json
from tonnage.report.plans.question import demand_text
from tonnage.report.plans.screen import in_one, screen
from tonnage.report.writers.html import html
from tonnage.report.writers.terminal import markdown, terminal
from tonnage.sizing.demand import demand_of
from tonnage.spec.prices import Prices
from tonnage.spec.scenario import Leaf, Scenario, leaves, takes
from tonnage.spec.scenario_file import scenario_of


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


# What two plans were asked differently: every leaf of a scenario is found, whatever is added to it.


LEAVES = tuple(leaves())


def values_of(leaf: Leaf) -> tuple[Any, Any]:
    """Two values that may stand at a leaf."""
    choices = next((get_args(part) for part in get_args(leaf.kind) if get_origin(part) is Literal), None)
    if choices is not None:
        return choices[0], choices[-1]
    if takes(leaf.kind, bool):
        return True, False
    return ("one", "other") if takes(leaf.kind, str) else (2, 3)


def asking(leaf: Leaf | None = None, value: Any = None) -> Plan:
    asked = Scenario() if leaf is None else scenario_of({}, {leaf.name: value})
    return plan_of(demand_of(peak_rps=3), candidate(), asked=asked)


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.key)
def test_every_leaf_that_differs_is_named_with_both_values(leaf: Leaf) -> None:
    one, other = values_of(leaf)
    shown = {True: "yes", False: "no"} if isinstance(one, bool) else {}
    texts = [shown.get(each, str(each)) for each in (one, other)]
    for first, second, said in (
        (asking(leaf, one), asking(leaf, other), texts),
        (asking(), asking(leaf, other), ["–", texts[1]]),
        (asking(leaf, one), asking(), [texts[0], "–"]),
    ):
        (found,) = differences(first, second)
        assert (found.part, found.what, found.first, found.second) == ("asked", leaf.key, *said)


def test_a_number_has_a_change_and_a_price_is_named_by_itself() -> None:
    prices = [{"systems": {"dgx-h100": usd, "dgx-a100": 1}, "pue": 1.5} for usd in (200_000, 250_000)]
    first, second = (scenario_of({}, {"prices": each, "max_kw": kw}) for each, kw in zip(prices, (10.0, 12.5), strict=True))
    plans = [plan_of(demand_of(peak_rps=3), candidate(), asked=asked) for asked in (first, second)]
    found = {one.what: (one.first, one.second, one.change) for one in differences(plans[0], plans[1])}
    assert found == {"choice.max_kw": ("10", "12.5", "+25%"), "prices.systems.dgx-h100": ("200000", "250000", "+25%")}


def test_what_a_key_says_already_is_not_said_again_as_understood() -> None:
    demands = [demand_of(peak_rps=rate) for rate in (3, 6)]
    plans = [plan_of(demand, candidate(), asked=scenario_of({}, {"peak_rps": rate})) for demand, rate in zip(demands, (3, 6), strict=True)]
    found = [(one.part, one.what, one.first, one.second) for one in differences(plans[0], plans[1]) if one.part in ("asked", "question")]
    assert found == [("asked", "demand.peak_rps", "3", "6"), ("question", "demand", *map(demand_text, demands))]


def test_a_plan_of_measured_points_alone_has_no_keys() -> None:
    measured = plan_of(demand_of(peak_rps=3), candidate())
    assert differences(measured, asking(LEAVES[0], "one")) == ()


# Plans from files: the same report from a saved plan as from the plan itself, and one clear line for anything else.


def saved(folder: Path, document: object) -> Path:
    path = folder / "plan.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return path


@pytest.mark.parametrize("plans", [(full(),), (full(), without_answer())], ids=["one", "several"])
def test_a_saved_plan_says_what_the_plan_says(plans: tuple[Plan, ...], tmp_path: Path) -> None:
    read = read_plans(saved(tmp_path, to_json(plans)))
    assert read == plans
    assert html(report(*read)) == html(report(*plans))
    assert markdown(report(*read)) == markdown(report(*plans))
    assert terminal(full_text(read)) == terminal(full_text(plans))
    assert terminal(screen(read)) == terminal(screen(plans))


@pytest.mark.parametrize(
    ("content", "said"),
    [("{", "is no JSON"), ({"schema": "tonnage-plan/1"}, "written by another version"), ({}, "no plan"), ([1], "no plan")],
)
def test_what_is_no_plan_is_refused_in_one_line(content: object, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        read_plans(saved(tmp_path, content))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read_plans(tmp_path / "nowhere.json")


# Every reason, note and warning that a plan can hold has its sentence, whatever its numbers are.


QUICK = settings(max_examples=8, deadline=None, phases=(Phase.reuse, Phase.generate))


def kinds(union: Any) -> list[type]:
    """The classes of an annotated union."""
    return list(get_args(get_args(union)[0]))


@pytest.mark.parametrize("kind", kinds(Reason), ids=lambda kind: kind.__name__)
@QUICK
@given(data=st.data())
def test_a_reason_is_one_clause(kind: type, data: st.DataObject) -> None:
    reason = data.draw(any_of(kind))
    if not all(getattr(reason, name, "x").strip() for name in ("error", "lacks")):
        return
    text = reason_text(reason)
    assert text.strip()
    assert not text.endswith(".") or kind.__name__ == "CannotRun"


@pytest.mark.parametrize("kind", kinds(Note), ids=lambda kind: kind.__name__)
@QUICK
@given(data=st.data())
def test_a_note_is_a_sentence(kind: type, data: st.DataObject) -> None:
    assert note_text(data.draw(any_of(kind))).endswith(".")


@pytest.mark.parametrize("kind", kinds(Warning), ids=lambda kind: kind.__name__)
@QUICK
@given(data=st.data())
def test_a_warning_has_its_text(kind: type, data: st.DataObject) -> None:
    assert warning_text(data.draw(any_of(kind)))


@pytest.mark.parametrize("kind", kinds(CostNote), ids=lambda kind: kind.__name__)
@QUICK
@given(data=st.data())
def test_a_note_on_cost_is_a_sentence_or_two(kind: type, data: st.DataObject) -> None:
    assert all(text.endswith(".") for text in cost_note_texts(data.draw(any_of(kind))))


@QUICK
@given(reason=any_of(NoCost))
def test_a_cost_that_is_missing_says_what_would_give_it(reason: NoCost) -> None:
    assert "give" in no_cost_text(reason)

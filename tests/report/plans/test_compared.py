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
from tests.report.plans.test_screen import SURE, UNSURE, sized
from tonnage.cost.plan_cost import compare
from tonnage.errors import InputError
from tonnage.plan.candidate import Confidence
from tonnage.plan.limit import Limit, LimitUse
from tonnage.plan.notes import CostNote, NoCost, Note, Warning
from tonnage.plan.plan import Plan
from tonnage.plan.reason import Reason
from tonnage.plan.use_cases import (
    Arrangement,
    CaseAtPeak,
    NotShared,
    PoolSystems,
    UseCasePool,
    UseCases,
)
from tonnage.report.numbers import ABSENT
from tonnage.report.plans.candidates import reason_text
from tonnage.report.plans.comparison import compared_table
from tonnage.report.plans.cost import cost_note_texts, no_cost_text
from tonnage.report.plans.diff import differences
from tonnage.report.plans.notes import note_text, warning_text
from tonnage.report.plans.plan_document import full_text, read_plans, report, to_json
from tonnage.report.plans.question import demand_text
from tonnage.report.plans.screen import BRIEF, MOST, screen
from tonnage.report.plans.use_cases import brief_lines, use_cases_screen
from tonnage.report.writers.html import html
from tonnage.report.writers.terminal import WIDEST, markdown, terminal
from tonnage.results.metrics import Latencies
from tonnage.sizing.demand import demand_of
from tonnage.spec.prices import Prices
from tonnage.spec.scenario import Leaf, Scenario, leaves, takes
from tonnage.spec.scenario_file import scenario_of


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


# What two plans were asked differently: every leaf of a scenario is found, whatever is added to it.


def values_of(leaf: Leaf) -> tuple[Any, Any]:
    """Two values that may stand at a leaf."""
    choices = next(
        (get_args(part) for part in get_args(leaf.kind) if get_origin(part) is Literal), None
    )
    if choices is not None:
        return choices[0], choices[-1]
    if takes(leaf.kind, bool):
        return True, False
    return ("one", "other") if takes(leaf.kind, str) else (2, 3)


def asking(leaf: Leaf | None = None, value: Any = None) -> Plan:
    asked = Scenario() if leaf is None else scenario_of({}, {leaf.name: value})
    return plan_of(demand_of(peak_rps=3), candidate(), asked=asked)


def test_every_leaf_that_differs_is_named_with_both_values() -> None:
    for leaf in leaves():
        one, other = values_of(leaf)
        shown = {True: "yes", False: "no"} if isinstance(one, bool) else {}
        texts = [shown.get(each, str(each)) for each in (one, other)]
        for first, second, said in (
            (asking(leaf, one), asking(leaf, other), texts),
            (asking(leaf, one), asking(), [texts[0], "–"]),
        ):
            (found,) = differences(first, second)
            assert (found.part, found.what, found.first, found.second) == ("asked", leaf.key, *said)


def test_two_plans_differ_in_what_was_asked_and_say_it_once() -> None:
    prices = [
        {"systems": {"dgx-h100": usd, "dgx-a100": 1}, "pue": 1.5} for usd in (200_000, 250_000)
    ]
    first, second = (
        scenario_of({}, {"prices": each, "max_kw": kw})
        for each, kw in zip(prices, (10.0, 12.5), strict=True)
    )
    plans = [plan_of(demand_of(peak_rps=3), candidate(), asked=asked) for asked in (first, second)]
    found = {
        one.what: (one.first, one.second, one.change) for one in differences(plans[0], plans[1])
    }
    assert found == {
        "choice.max_kw": ("10", "12.5", "+25%"),
        "prices.systems.dgx-h100": ("200000", "250000", "+25%"),
    }
    demands = [demand_of(peak_rps=rate) for rate in (3, 6)]
    plans = [
        plan_of(demand, candidate(), asked=scenario_of({}, {"peak_rps": rate}))
        for demand, rate in zip(demands, (3, 6), strict=True)
    ]
    found = [
        (one.part, one.what, one.first, one.second)
        for one in differences(plans[0], plans[1])
        if one.part in ("asked", "question")
    ]
    assert found == [
        ("asked", "demand.peak_rps", "3", "6"),
        ("question", "demand", *map(demand_text, demands)),
    ]


# Plans from files: the same report from a saved plan as from the plan itself, and one clear line
# for anything else.


def saved(folder: Path, document: object) -> Path:
    path = folder / "plan.json"
    path.write_text(
        document if isinstance(document, str) else json.dumps(document), encoding="utf-8"
    )
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
    [
        ("{", "is no JSON"),
        ({"schema": "tonnage-plan/1"}, "written by another version"),
        ({}, "no plan"),
        ([1], "no plan"),
    ],
)
def test_what_is_no_plan_is_refused_in_one_line(content: object, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        read_plans(saved(tmp_path, content))


# Every reason, note and warning that a plan can hold has its sentence, whatever its numbers are.


QUICK = settings(max_examples=5, deadline=None, phases=(Phase.reuse, Phase.generate))


def kinds(union: Any) -> list[type]:
    """The classes of an annotated union."""
    return list(get_args(get_args(union)[0]))


def whole(reason: Any) -> bool:
    return all(getattr(reason, name, "x").strip() for name in ("error", "lacks"))


SAID: tuple[tuple[type, Any], ...] = (
    *((kind, lambda one: reason_text(one).strip() or not whole(one)) for kind in kinds(Reason)),
    *((kind, lambda one: note_text(one).endswith(".")) for kind in kinds(Note)),
    *((kind, warning_text) for kind in kinds(Warning)),
    *(
        (kind, lambda one: all(text.endswith(".") for text in cost_note_texts(one)))
        for kind in kinds(CostNote)
    ),
    (NoCost, lambda one: "give" in no_cost_text(one)),
)


@pytest.mark.parametrize(("kind", "holds"), SAID, ids=lambda part: getattr(part, "__name__", ""))
@QUICK
@given(data=st.data())
def test_it_has_a_sentence(kind: type, holds: Any, data: st.DataObject) -> None:
    assert holds(data.draw(any_of(kind)))


# The first screen of several use cases: forty lines at most however many there are, and the answer
# in it; --full holds each of them.

LIMITS = (
    Limit(metric="ttft", statistic="p95", milliseconds=500.0),
    Limit(metric="itl", statistic="p99", milliseconds=62.5),
)
SEEN = Latencies(mean=101.0, p95=201.0)


def case(name: str, value_ms: float = 250.0) -> CaseAtPeak:
    uses = tuple(
        LimitUse(limit=limit, value_ms=value_ms, used=value_ms / limit.milliseconds)
        for limit in LIMITS
    )
    return CaseAtPeak(
        name=name, requests_per_second=12.5, limits=uses, ttft_ms=SEEN, tpot_ms=SEEN, e2e_ms=SEEN
    )


def pool(*cases: CaseAtPeak) -> UseCasePool:
    first = full().candidates[0].pool
    return UseCasePool(
        gpu=first.gpu,
        precision=first.precision,
        tp=first.tp,
        engine=first.engine,
        system="dgx-h100",
        gpus_per_system=8,
        knobs=None,
        instances=3,
        instances_exact=2.4,
        cases=cases,
    )


def alone(sure: Confidence = SURE) -> Plan:
    """One use case by itself, asked for with that confidence."""
    plan = sized(sure)
    return replace(plan, scenario=replace(plan.scenario, confidence=sure.asked))


def several(count: int, *, apart: bool = False, value_ms: float = 50.0) -> UseCases:
    """So many use cases, in one pool or with a pool for each; every second one is not sure by
    itself."""
    names = tuple(f"use case {place}" for place in range(count))
    cases = tuple(case(name, value_ms) for name in names)
    systems = (PoolSystems(system="dgx-h100", systems=count, gpus=8 * count),)
    separate, shared = (
        Arrangement(pools=tuple(map(pool, cases)), systems=systems),
        Arrangement(pools=(pool(*cases),), systems=systems),
    )
    return UseCases(
        names=names,
        plans=tuple(alone(UNSURE if place % 2 else SURE) for place in range(count)),
        separate=separate,
        shared=None if apart else shared,
        not_shared=NotShared(code="more-gpus", gpus=99, separate_gpus=80) if apart else None,
        chosen="separate" if apart else "shared",
    )


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("count", [2, 5, 9, 30])
@pytest.mark.parametrize("apart", [False, True])
def test_it_has_forty_lines_at_most_and_the_answer(
    count: int, columns: int, apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    found = several(count, apart=apart)
    lines = terminal(use_cases_screen(found)).splitlines()
    assert len(lines) <= MOST
    assert max(map(len, lines)) <= min(columns, WIDEST)
    words = " ".join(" ".join(lines).split())
    assert f"Answer {count} × dgx-h100 (" in words
    assert "every limit of each use case holds at the 80% asked" in words
    assert "Use case 1, by itself: Nothing that was asked for reaches 80%" in words
    assert "full\ue001 prints each use case by itself" in words
    assert len(brief_lines(found)) <= BRIEF


def test_no_arrangement_is_an_answer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    why = NotShared(code="no-deployment", case="use case 1")
    plans = (sized(), without_answer())
    found = replace(
        several(2), plans=plans, shared=None, separate=None, not_shared=why, chosen=None
    )
    text = terminal(use_cases_screen(found))
    assert "Answer       no arrangement is possible: use case 1 has no deployment inside" in text
    assert len(text.splitlines()) <= MOST

"""Two plans side by side: inputs that differ, and how the answers do."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

from tests.plan.candidates import candidate, plan_of
from tonnage.plan.plan import Plan
from tonnage.report.plans.diff import differences
from tonnage.report.plans.question import demand_text
from tonnage.sizing.demand import demand_of
from tonnage.spec.scenario import Leaf, Scenario, leaves, takes
from tonnage.spec.scenario_file import scenario_of


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

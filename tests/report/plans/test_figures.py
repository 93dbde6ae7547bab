"""Each figure as values: what is drawn, on which axes, with which units, and what the pointer shows."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, replace

import pytest

from tests.report.example_plan import GOLDEN, bare, full, without_answer
from tonnage.plan.cost import YearlyCost
from tonnage.plan.fleet import AtPeak
from tonnage.plan.plan import Plan
from tonnage.report.drawing.figure import Bars, Figure, Plot, Tornado
from tonnage.report.plans import figures
from tonnage.results.metrics import Latencies

FIGURES: dict[str, Callable[[Plan], Figure | None]] = {
    "curve": figures.curve,
    "pareto": figures.pareto,
    "cost": figures.cost,
    "sensitivity": figures.tornado,
    "profile": figures.profile,
    "memory": figures.memory,
    "step": figures.step,
}


@pytest.mark.parametrize("name", FIGURES)
def test_figure_is_the_golden_one(name: str) -> None:
    figure = FIGURES[name](full())
    assert figure is not None
    path = GOLDEN / "report-figures.json"
    golden = json.loads(path.read_text(encoding="utf-8"))
    drawn = json.loads(json.dumps(asdict(figure)))
    if os.environ.get("TONNAGE_GOLDEN") == "write":
        golden[name] = drawn
        path.write_text(json.dumps(golden, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert drawn == golden[name]


@pytest.mark.parametrize("name", FIGURES)
def test_every_axis_says_its_unit(name: str) -> None:
    figure = FIGURES[name](full())
    assert figure is not None
    assert isinstance(figure, Plot | Bars | Tornado)
    titles = [figure.x.title, figure.y.title] if isinstance(figure, Plot) else [figure.axis.title]
    units = ("ms", "per second", "USD", "GB", "GPUs", "systems", "hour")
    assert all(any(unit in title for unit in units) for title in titles), titles


@pytest.mark.parametrize("name", FIGURES)
def test_nothing_to_draw_is_no_figure(name: str) -> None:
    assert FIGURES[name](without_answer()) is None
    assert (FIGURES[name](bare()) is None) == (name != "pareto")


def test_candidates_without_a_price_are_drawn_by_their_gpus() -> None:
    pareto = figures.pareto(bare())
    assert pareto.y.title.startswith("GPUs bought")


def test_curve_has_a_logarithmic_latency_the_limits_and_the_chosen_load() -> None:
    curve = figures.curve(full())
    assert curve.y.log
    assert not curve.x.log
    limits = {rule.label: rule.value for rule in curve.rules if rule.along == "y"}
    assert limits == {"TTFT p95 ≤ 500 ms": 500.0, "TPOT mean ≤ 40 ms": 40.0}
    loads = [rule.value for rule in curve.rules if rule.along == "x"]
    choice = full().choice
    assert loads == pytest.approx([choice.requests_per_second_per_8_gpus, 826.8 * 8 / 40])
    marked = {round(point.x, 3) for series in curve.series for point in series.points if point.chosen}
    assert marked == {172.044}
    for series in curve.series:
        assert [p.x for p in series.points] == sorted(p.x for p in series.points)


def test_candidates_without_a_price_are_counted_in_the_title() -> None:
    plan = full()
    pareto = figures.pareto(plan)
    assert pareto.title == "Cost against latency of every candidate"
    cheap = tuple(replace(point, cost_per_year=None) if place == 1 else point for place, point in enumerate(plan.pareto))
    some = figures.pareto(replace(plan, pareto=cheap))
    count = len(plan.candidates)
    assert some.title == f"Cost against latency of the {count - 1} of {count} candidates with a price"
    assert sum(len(series.points) for series in some.series if series.marks) == count - 1


def test_candidates_are_drawn_at_the_asked_load_where_it_is_known() -> None:
    plan = full()
    peak = AtPeak(
        requests_per_second_per_instance=1.0,
        ttft_ms=Latencies(),
        itl_ms=Latencies(),
        tpot_ms=Latencies(),
        e2e_ms=Latencies(mean=777.0),
        utilisation=0.5,
        instances=1,
    )
    at_peak = figures.pareto(replace(plan, candidates=tuple(replace(c, at_peak=peak) for c in plan.candidates)))
    before = figures.pareto(plan)
    assert "at the asked load" in at_peak.x.title
    assert "at the highest load inside the limits" in before.x.title
    assert {point.x for series in at_peak.series for point in series.points} == {777.0}


def test_the_lowest_latency_is_no_deployment_on_many_times_the_gpus() -> None:
    plan = full()
    choice = plan.choice
    fast = replace(choice.on(systems=30 * choice.systems, instances=choice.instances), e2e_ms=Latencies(mean=1.0))
    near = replace(choice.on(systems=2 * choice.systems, instances=choice.instances), e2e_ms=Latencies(mean=2.0))
    assert replace(plan, candidates=(choice, fast)).latency_optimal == choice
    assert replace(plan, candidates=(choice, fast, near)).latency_optimal == near


def test_a_day_goes_from_0_to_24() -> None:
    profile = figures.profile(full())
    assert profile.x.ticks[0] == 0
    assert profile.x.ticks[-1] == 24
    points = profile.series[0].points
    assert [point.x for point in points] == [hour + 0.5 for hour in range(24)]
    assert points[23].tip.startswith("23:00 to 24:00: ")


def test_limits_that_do_not_count_are_not_drawn() -> None:
    asked = full().scenario
    curve = figures.curve(replace(full(), scenario=replace(asked, limits_that_count=asked.limits[:1])))
    assert [rule.label for rule in curve.rules if rule.along == "y"] == ["TTFT p95 ≤ 500 ms"]


def test_nobody_on_the_front_is_beaten() -> None:
    plot = figures.pareto(full())
    front, *groups = plot.series
    everyone = [p for group in groups for p in group.points]
    for point in front.points:
        assert not [p for p in everyone if (p.x < point.x and p.y <= point.y) or (p.x <= point.x and p.y < point.y)]
    for point in everyone:
        assert any(p.x <= point.x and p.y <= point.y for p in front.points)
    assert sum(p.chosen for p in everyone) == 1
    assert all("requests/s an instance" in p.tip and "max batch" in p.tip for p in everyone)


def test_bars_are_the_sums_of_their_parts() -> None:
    bars = figures.cost(full())
    assert isinstance(bars, Bars)
    cost = full().cost
    assert isinstance(cost, YearlyCost)
    costs = {way.total_usd_per_year for way in cost.ways}
    assert {sum(s.size for s in bar.segments) for bar in bars.bars} == costs
    assert [bar.name for bar in bars.bars if bar.chosen] == ["hybrid"]


def test_input_without_an_answer_reaches_beyond_every_other() -> None:
    tornado = figures.tornado(full())
    assert isinstance(tornado, Tornado)
    widest = tornado.swings[0]
    assert widest.high_label == "none"
    assert widest.high > max(s.high for s in tornado.swings[1:])
    assert "TPOT mean 41 ms" in widest.tip

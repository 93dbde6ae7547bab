"""Each figure as values: what is drawn, on which axes, with which units, and what the pointer
shows."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, replace

import pytest

from tests.report.example_plan import GOLDEN, bare, full, without_answer
from tonnage.plan.candidate import Candidate, Identity
from tonnage.plan.demand import Existing, OwnedGroup
from tonnage.plan.limit import Bound, Limit, Load
from tonnage.plan.plan import Measured, Plan
from tonnage.report.drawing.figure import Figure
from tonnage.report.plans import figures
from tonnage.report.plans.plan_document import full_text, report
from tonnage.report.writers.terminal import markdown, terminal
from tonnage.results.metrics import Latencies
from tonnage.sizing.demand import carried_by_existing

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
def test_nothing_to_draw_is_no_figure(name: str) -> None:
    assert FIGURES[name](without_answer()) is None
    assert (FIGURES[name](bare()) is None) == (name != "pareto")


def test_the_lowest_latency_is_no_deployment_on_many_times_the_gpus() -> None:
    plan = full()
    choice = plan.choice
    fast = replace(
        choice.on(systems=30 * choice.systems, instances=choice.instances),
        e2e_ms=Latencies(mean=1.0),
    )
    near = replace(
        choice.on(systems=2 * choice.systems, instances=choice.instances),
        e2e_ms=Latencies(mean=2.0),
    )
    assert replace(plan, candidates=(choice, fast)).latency_optimal == choice
    assert replace(plan, candidates=(choice, fast, near)).latency_optimal == near


# Systems that exist, jobs, and measured points beside the prediction: their sections and sentences.

TTFT = Bound(kind="limit", limit=Limit(metric="ttft", statistic="p95", milliseconds=2_000.0))
EXISTING = Existing(
    groups=(
        OwnedGroup(
            count=3,
            system="dgx-h100",
            deployment=Identity(gpu="h100-sxm-80gb", precision="fp8", tp=4, engine="vllm"),
            instances=6,
            requests_per_second=60.38,
            binds=TTFT,
        ),
    ),
    requests_per_second=60.38,
    asked_requests_per_second=30.0,
    headroom=1.0126,
    breaks_first=TTFT,
    growth_per_month=0.05,
    months_left=14,
)


def text_of(plan: Plan) -> str:
    """The report as Markdown."""
    return markdown(report(plan))


def chosen(plan: Plan) -> Candidate:
    """The choice of a plan that has one."""
    assert plan.choice is not None
    return plan.choice


def test_systems_that_exist_are_the_answer_with_and_without_a_load_of_their_own() -> None:
    text = text_of(replace(full(), existing=EXISTING))
    assert text.startswith("# 3 × dgx-h100 carry 60.4 requests/s of llama-3-8b\n")
    assert (
        "**3 × dgx-h100 carry 60.4 requests/s inside the limits, 101% more than today's 30" in text
    )
    assert "- Answer: 5 × dgx-h100 (40 GPUs; 4.81 systems exactly)" in text
    for line in (
        "- headroom now: 101%",
        "- months left: 14",
        "| 3 × dgx-h100 | h100-sxm-80gb fp8 TP 4 vllm | 6 | 60.4 | TTFT p95 ≤ 2 s |",
    ):
        assert line in text
    assert "grow by 5.0% a month" in text
    assert "Have         3 × dgx-h100 carry 60.4 requests/s" in terminal(
        full_text((replace(full(), existing=EXISTING),))
    )
    demand = carried_by_existing(60.38)
    alone = replace(
        EXISTING,
        asked_requests_per_second=None,
        headroom=None,
        growth_per_month=None,
        months_left=None,
    )
    plan = replace(full(), existing=alone, demand=demand)
    text = text_of(plan)
    assert (
        "**3 × dgx-h100 carry 60.4 requests/s inside the limits; what breaks first is TTFT p95 ≤ 2"
        " s.**" in text
    )
    assert "- Answer: 6 instances of FP8, TP 4, vllm on h100-sxm-80gb, on 3 × dgx-h100" in text
    assert "headroom now" not in text
    assert "requests/s today" not in text
    assert "none asked: the 60.4 requests/s that the systems carry" in text
    assert " exactly" not in next(
        line for line in terminal(full_text((plan,))).splitlines() if line.startswith("Answer")
    )


def measured(plan: Plan) -> Measured:
    """What the plan's benchmarks say."""
    assert plan.measured is not None
    return plan.measured


def test_measured_stands_beside_the_prediction_of_the_same_loop() -> None:
    plan, loop = full(), Load(kind="closed", clients=25.0)
    closed = replace(chosen(plan), requests_per_second_per_instance=8.0, load=loop)
    text = text_of(replace(plan, measured=replace(measured(plan), predicted=(closed,))))
    assert "|  | measured | predicted, same loop | predicted, decides |" in text
    assert (
        "| load | closed loop of 25 clients, measured | closed loop of 25 clients | open loop"
        in text
    )
    assert (
        "The prediction of the benchmark's closed loop carries 10% less per instance than was"
        " measured" in text
    )
    other = replace(plan.candidates[1], pools=(replace(plan.candidates[1].pool, gpu="l40s"),))
    assert "not among the predicted ones" in text_of(replace(plan, candidates=(other,)))

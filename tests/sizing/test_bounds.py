"""What closed forms leave out, held against the simulation that they save."""

import json
from dataclasses import replace

import pytest

from tests.in_turn import in_turn
from tests.questions import contenders, question
from tonnage.plan.plan import Plan
from tonnage.plan.reason import Behind, NeedsMoreGpus, Outdone
from tonnage.report.plans.candidates import reason_text
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.planner import size
from tonnage.sizing.search.search import Search


@pytest.mark.parametrize(
    ("limits", "engine"),
    in_turn(
        [
            {"tpot": "p95<=12ms"},
            {"tpot": "mean<=20ms"},
            {"e2e": "mean<=2s"},
            {"tpot": "p95<=30ms", "ttft": "p95<=1s"},
        ],
        ["tensorrt-llm-1.2", "vllm"],
    ),
)
def test_no_deployment_carries_more_inside_limits_on_its_pace_than_the_closed_form_allows(
    engine: str, limits: dict[str, str]
) -> None:
    asked = question(**{"engine": engine, "tp": "1,4", "gpu": "h100,l40s", "ttft": None, **limits})
    for one in contenders(asked):
        assert one.capacity(8).rate < one.bound(one.as_asked)


def test_a_deployment_is_left_out_where_it_needs_no_fewer_gpus_even_at_its_bound() -> None:
    """Sized after all, each of them needs no fewer GPUs than the choice."""
    found = Search(
        question=question(precision="fp16,fp8", tp="1,2,4", ttft="p95<=5s"), runs=Runs(), rows=False
    ).answer()
    assert found.best is not None
    reasons = [one.reason for one in found.rejected if isinstance(one.reason, Outdone)]
    assert reasons
    assert all(
        one.needed_per_gpu is not None and one.at_most_per_gpu <= one.needed_per_gpu
        for one in reasons
    )
    assert "by closed form; with fewer than" in reason_text(reasons[0])
    for one in contenders(question(precision="fp16,fp8", tp="1,2,4", ttft="p95<=5s")):
        needed = one.needed(one.slowdown(0.8))
        assert isinstance(needed, tuple)
        assert needed[0] * 8 >= found.best.gpus


def test_a_run_at_the_load_that_it_would_have_to_carry_leaves_a_deployment_out_with_the_limit_that_breaks() -> (
    None
):
    asked = question(tp="1,2", ttft="p95<=100ms", peak_rps=2000)
    found = Search(question=asked, runs=Runs(), rows=False).answer()
    behind = [one.reason for one in found.rejected if isinstance(one.reason, Behind)]
    more = [one.reason for one in found.rejected if isinstance(one.reason, NeedsMoreGpus)]
    assert behind or more
    for reason in behind:
        assert reason.breach.value_ms > reason.breach.limit.milliseconds == 100
        assert "TTFT p95" in reason_text(reason)


def test_a_search_that_must_exceed_a_load_ends_early_only_where_it_would_not() -> None:
    """The same deployment is searched whole, and with loads to exceed on either side of what it
    carries."""
    for one in contenders(
        question(tp="1,2", engine="tensorrt-llm,vllm", ttft="p95<=200ms", itl="p99<=40ms")
    ):
        whole = one.capacity(4)
        for share in (0.5, 0.9):
            assert one.capacity(4, above=share * whole.rate).rate == pytest.approx(
                whole.rate, rel=0.01
            )
        for share in (1.05, 1.3, 3.0):
            assert one.capacity(4, above=share * whole.rate).reason is not None


def test_a_plan_with_deployments_that_no_load_makes_better_is_read_again() -> None:
    asked = question(
        tp="1,2,4,8", precision="fp8,fp16", engine="tensorrt-llm-0.15,vllm", objective="latency"
    )
    plan = size(replace(asked, deepen=False))
    left_out = [one for one in plan.rejected if isinstance(one.reason, Outdone)]
    assert left_out
    assert all(
        one.reason.needed_per_gpu is None for one in left_out if isinstance(one.reason, Outdone)
    )
    assert "at no load better than" in reason_text(left_out[0].reason)
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))).rejected == plan.rejected

"""The latency–throughput curve: in order, ending near saturation, with the plan's two loads marked."""

from itertools import pairwise

import pytest

from tests.questions import question
from tonnage.plan.plan import Plan
from tonnage.sizing.planner import size


@pytest.fixture(scope="module")
def plan() -> Plan:
    return size(question(tp="1", ttft="p95<=100ms", peak_rps=900))


def test_the_curve_is_in_order_of_load_and_its_latency_rises(plan: Plan) -> None:
    loads = [p.requests_per_second_per_8_gpus for p in plan.curve]
    means = [p.ttft_ms.mean or 0.0 for p in plan.curve]
    assert loads == sorted(loads)
    assert len(plan.curve) >= 8
    assert all(b > 0.9 * a for a, b in pairwise(means))
    assert means[-1] > 2 * means[0]


def test_peak_and_limit_are_marked_at_the_plans_own_loads(plan: Plan) -> None:
    marked = {p.mark: p for p in plan.curve if p.mark}
    assert marked["limit"].requests_per_second_per_8_gpus == pytest.approx(plan.choice.requests_per_second_per_8_gpus)
    assert marked["peak"].requests_per_second_per_instance * plan.choice.instances == pytest.approx(900)
    assert marked["limit"].ttft_ms == plan.choice.ttft_ms
    assert marked["limit"].inside_limits


RISING = ("ttft_ms", "tpot_ms", "e2e_ms")


@pytest.mark.parametrize(
    ("model", "gpu", "limits", "peak"),
    [
        pytest.param("llama-3.1-8b", "h100-sxm-80gb", {"ttft": "p95<=500ms", "itl": "p99<=100ms"}, 1834, marks=pytest.mark.accuracy),
        pytest.param("llama-3.1-8b", "l40s", {"e2e": "p95<=20s"}, 60, marks=pytest.mark.accuracy),
        ("gpt-j-6b", "a100-sxm-80gb", {"ttft": "mean<=1s"}, 200),
    ],
)
def test_no_point_beyond_the_limit_is_inside_or_faster_than_the_limit(model: str, gpu: str, limits: dict[str, str], peak: float) -> None:
    plan = size(question(model=model, gpu=gpu, tp="1", precision="fp16", isl="600+-300", osl="250+-80", peak_rps=peak, **limits))
    limit = next(p for p in plan.curve if p.mark == "limit")
    beyond = [p for p in plan.curve if p.requests_per_second_per_instance > limit.requests_per_second_per_instance]
    assert not [p for p in beyond if p.inside_limits]
    for point in beyond:
        assert all(getattr(point, name).mean >= getattr(limit, name).mean for name in RISING), point
    own = [p for p in plan.curve if p.mark != "peak"]
    for lower, higher in pairwise(own):
        assert all(getattr(higher, name).mean > 0.98 * getattr(lower, name).mean for name in RISING)


def test_beyond_the_limit_the_curve_is_outside(plan: Plan) -> None:
    limit = next(p.requests_per_second_per_instance for p in plan.curve if p.mark == "limit")
    assert all(p.inside_limits for p in plan.curve if p.requests_per_second_per_instance < 0.9 * limit)
    assert not any(p.inside_limits for p in plan.curve if p.requests_per_second_per_instance > 1.1 * limit)

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
    assert plan.choice is not None
    assert marked["limit"].requests_per_second_per_8_gpus == pytest.approx(plan.choice.requests_per_second_per_8_gpus)
    assert marked["peak"].requests_per_second_per_instance * plan.choice.instances == pytest.approx(900)
    assert marked["limit"].ttft_ms == plan.choice.ttft_ms
    assert marked["limit"].inside_limits


def test_beyond_the_limit_the_curve_is_outside(plan: Plan) -> None:
    limit = next(p.requests_per_second_per_instance for p in plan.curve if p.mark == "limit")
    assert all(p.inside_limits for p in plan.curve if p.requests_per_second_per_instance < 0.9 * limit)
    assert not any(p.inside_limits for p in plan.curve if p.requests_per_second_per_instance > 1.1 * limit)

"""Limits that nothing meets: the best value that can be reached, held against a brute force, and what a job would take."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.questions import contenders, question
from tonnage.plan.plan import Plan
from tonnage.report.plans.candidates import reachable_text
from tonnage.sizing.planner import size
from tonnage.sizing.question import Question


def answered(asked: Question) -> Plan:
    return size(replace(asked, deepen=False))


def alone(asked: Question) -> dict[str, dict[str, float]]:
    """Limited values in milliseconds by deployment and metric, with one request at a time."""
    found = {}
    for one in contenders(asked):
        summary = one.runs.alone(one.instance)
        found[one.ready.trial.name] = {limit.metric: summary.statistic_ms(limit.metric, limit.statistic) for limit in asked.limits}
    return found


def test_the_best_value_of_each_limit_and_the_deployment_nearest_to_all() -> None:
    asked = question(ttft="p95<=1ms", itl="p99<=0.5ms")
    plan, values = answered(asked), alone(asked)
    assert plan.candidates == ()
    for one in plan.reachable.best:
        assert one.limit is not None
        assert one.value_ms == min(each[one.limit.metric] for each in values.values()) > one.asked_ms
    worst = {name: max(each["ttft"] / 1.0, each["itl"] / 0.5) for name, each in values.items()}
    assert max(one.value_ms / one.asked_ms for one in plan.reachable.nearest) == pytest.approx(min(worst.values()))
    assert len({one.deployment for one in plan.reachable.nearest}) == 1
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_a_limit_at_the_reachable_value_has_an_answer_or_says_that_it_holds_alone() -> None:
    tight = answered(question(ttft="p95<=1ms"))
    value = tight.reachable.best[0].value_ms
    loose = answered(question(ttft=f"p95<={1.5 * value}ms"))
    assert loose.candidates
    assert loose.reachable is None


def test_a_job_says_what_one_request_takes() -> None:
    plan = answered(question(peak_rps=None, ttft=None, requests=1_000, within="1ms", tp="1"))
    (one,) = plan.reachable.best
    assert (one.limit, one.asked_ms) == (None, 1.0)
    assert one.value_ms > 1
    assert reachable_text(plan.reachable).startswith("one request ")


def test_nothing_is_reachable_where_nothing_fits() -> None:
    plan = answered(question(model="llama-3.1-405b", tp="1", pp="1"))
    assert plan.candidates == ()
    assert plan.reachable is None

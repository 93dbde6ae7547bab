"""The contest itself: the same answer from any number of threads, everything accounted for, nothing
better left out."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.questions import contenders, question
from tonnage.plan.plan import Plan
from tonnage.report.plans.candidates import reachable_text, reason_text
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.planner import size
from tonnage.sizing.question import Question
from tonnage.sizing.search.search import Search

WIDE = {
    "gpu": "h100,l40s",
    "precision": "fp16,fp8",
    "tp": "1,4",
    "engine": "tensorrt-llm-0.15,vllm",
    "ttft": "p95<=200ms",
}


def test_the_answer_of_any_number_of_threads_accounts_for_every_deployment_with_numbers_and_progress_counts_them() -> (
    None
):
    asked = replace(question(**WIDE), deepen=False)
    told: list[tuple[int, int]] = []
    plan = size(asked, workers=1, progress=lambda done, total, name: told.append((done, total)))
    assert size(asked, workers=4).to_json() == plan.to_json()
    assert len(plan.candidates) + len(plan.rejected) == 2 * 2 * 2 * 2
    assert all(any(letter.isdigit() for letter in reason_text(r.reason)) for r in plan.rejected)
    assert told[-1][0] == told[-1][1] >= 12
    assert [done for done, _ in told] == list(range(1, len(told) + 1))
    assert [total for _, total in told] == sorted(total for _, total in told)


def test_what_closed_forms_leave_out_would_not_have_been_chosen() -> None:
    """Each deployment answered by itself, with nothing to be held against, needs no fewer GPUs than
    the choice."""
    asked = replace(question(**{**WIDE, "gpu": "h100"}), deepen=False, tune=False)
    runs = Runs()
    chosen = Search(question=asked, runs=runs, rows=False).answer().best
    assert chosen is not None
    for one in contenders(asked, runs):
        found = one.needed(one.slowdown(asked.confidence))
        assert not isinstance(found, tuple) or found[0] * one.ready.trial.system.gpus >= chosen.gpus


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(
            {"gpu": "h100,l40s", "tp": "1,2", "ttft": "p95<=200ms"}, marks=pytest.mark.accuracy
        ),
        {
            "isl": "lognormal:6000,3000",
            "osl": 50,
            "tp": "1",
            "engine": "vllm",
            "peak_rps": 40,
            "ttft": "p90<=2s",
            "tpot": "p95<=60ms",
        },
    ],
)
def test_pruning_changes_no_answer(changed: dict[str, object]) -> None:
    """Everything that bounds, limits of the search and rivals leave out, simulated in full;
    benchmarks/pruning.py asks many more."""
    asked = replace(question(**changed), deepen=False)
    pruned, whole = (size(asked, prune=prune).choice for prune in (True, False))
    assert (pruned.identity, pruned.systems) == (whole.identity, whole.systems)
    # knobs that save no system are not looked for
    assert pruned.systems_exact == pytest.approx(whole.systems_exact, rel=0.08)


@pytest.mark.parametrize("load", ["open", "closed"])
def test_every_load_gives_a_whole_plan(load: str) -> None:
    plan = size(question(tp="1", load=load))
    assert plan.choice is not None
    assert plan.explain is not None
    assert plan.sensitivity is not None
    assert (plan.fleet_check is not None) == (load == "open")
    assert bool(plan.curve) == (load == "open")
    json.dumps(plan.to_json())


def test_a_spare_system_is_bought_beside_what_the_check_finds() -> None:
    bare, spare = (size(replace(question(tp="1", spare=count), deepen=False)) for count in (0, 1))
    assert spare.choice.systems == bare.choice.systems + 1
    assert spare.fleet_check == bare.fleet_check


def answered(asked: Question) -> Plan:
    return size(replace(asked, deepen=False))


def alone(asked: Question) -> dict[str, dict[str, float]]:
    """Limited values in milliseconds by deployment and metric, with one request at a time."""
    found = {}
    for one in contenders(asked):
        summary = one.instance.single_client()
        found[one.ready.trial.name] = {
            limit.metric: summary.statistic_ms(limit.metric, limit.statistic)
            for limit in asked.limits
        }
    return found


def test_the_best_value_of_each_limit_and_the_deployment_nearest_to_all() -> None:
    asked = question(ttft="p95<=1ms", itl="p99<=0.5ms")
    plan, values = answered(asked), alone(asked)
    assert plan.candidates == ()
    for one in plan.reachable.best:
        assert one.limit is not None
        assert (
            one.value_ms == min(each[one.limit.metric] for each in values.values()) > one.asked_ms
        )
    worst = {name: max(each["ttft"] / 1.0, each["itl"] / 0.5) for name, each in values.items()}
    assert max(one.value_ms / one.asked_ms for one in plan.reachable.nearest) == pytest.approx(
        min(worst.values())
    )
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

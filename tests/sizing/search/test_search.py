"""The contest itself: the same answer from any number of threads, everything accounted for, nothing
better left out."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from tests.plan.candidates import candidate
from tests.questions import best, contenders, question
from tonnage.api.question.deployment import deployment_of
from tonnage.plan.limit import Breach, Limit
from tonnage.plan.plan import Plan
from tonnage.plan.reason import Behind, Rejected
from tonnage.report.plans.candidates import reachable_text, reason_text
from tonnage.sizing.loads.instance import QUICK
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.loads.trial import Ready
from tonnage.sizing.planner import size
from tonnage.sizing.question import Question
from tonnage.sizing.search.deployment_capacity import Contender
from tonnage.sizing.search.search import Search, _used
from tonnage.sizing.search.search_space import prepare, trials
from tonnage.sizing.search.tuning import _ways, changes, fitted
from tonnage.sizing.search.warm_start import _alike, expecting

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


# The search space: every combination once, pipelines where nothing else fits or where they are
# asked for.


def test_a_model_too_large_for_a_system_is_pipelined_over_several() -> None:
    found = prepare(
        question(model="llama-3.1-405b", precision="fp16", tp="1,2,4,8", ttft=None), Runs()
    )
    ready = [r.trial.deployment.parallelism for r in found if isinstance(r, Ready)]
    assert [(p.tp, p.pp) for p in ready] == [(8, 2)]
    assert len([r for r in found if isinstance(r, Rejected)]) == 4


def test_no_pipeline_where_a_system_is_enough() -> None:
    assert all(t.deployment.parallelism.pp == 1 for t in trials(question()))
    found = prepare(question(model="llama-3.1-405b", precision="fp8", tp="8", ttft=None), Runs())
    assert [r.trial.deployment.parallelism.pp for r in found if isinstance(r, Ready)] == [1]


def test_pipelines_that_are_asked_for_are_each_a_deployment() -> None:
    found = list(trials(question(pp="1,2,4")))
    assert sorted((t.deployment.parallelism.pp, t.deployment.parallelism.tp) for t in found) == [
        (p, t) for p in (1, 2, 4) for t in (1, 2)
    ]
    assert [t.name for t in found][-1] == "h100-sxm-80gb fp8 TP 2 PP 4 tensorrt-llm-0.15"


def test_speculation_is_tried_beside_none() -> None:
    found = list(trials(question(speculation="eagle k=3 acceptance=0.7")))
    assert [t.name for t in found] == [
        f"h100-sxm-80gb fp8 TP {tp} tensorrt-llm-0.15{guesses}"
        for tp in (1, 2)
        for guesses in ("", " + eagle k=3")
    ]


def test_speculation_over_a_pipeline_is_refused_by_name() -> None:
    found = prepare(question(speculation="eagle k=3 acceptance=0.7", tp="1", pp="2"), Runs())
    ready, rejected = ([r for r in found if isinstance(r, kind)] for kind in (Ready, Rejected))
    assert [r.trial.deployment.speculation for r in ready] == [None]
    assert [(r.engine, reason_text(r.reason)) for r in rejected] == [
        (
            "tensorrt-llm-0.15 + eagle k=3",
            "speculation: is not estimated together with PP 2; use pp 1, or leave it out",
        )
    ]


# Limits that nothing meets: the best value that can be reached, held against a brute force, and
# what a job would take.


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


# Knobs: set by closed form where gaps are limited, searched for the best, left alone where the
# asker set them.


GAPS: dict[str, Any] = {
    "isl": 6000,
    "osl": 200,
    "tp": "1",
    "peak_rps": 40,
    "ttft": "p95<=3s",
    "itl": "p99<=60ms",
}


def with_knobs(one: Contender, **knobs: Any) -> Contender:
    """The same deployment with other knobs."""
    deployment = replace(one.instance.deployment, knobs=replace(one.instance.knobs, **knobs))
    instance = one.runs.instance(deployment, one.instance.traffic)
    return replace(
        one,
        ready=replace(
            one.ready, trial=replace(one.ready.trial, deployment=deployment), instance=instance
        ),
    )


def test_a_limit_on_gaps_sets_the_token_budget_and_pays() -> None:
    """With the engine's own budget every long prompt is one long gap for all others."""
    asked = question(**GAPS)
    own = next(iter(trials(asked))).deployment.knobs.max_num_tokens
    one = contenders(asked)[0]
    assert one.instance.knobs.max_num_tokens < own
    assert one.capacity(4).rate > 2 * with_knobs(one, max_num_tokens=own).capacity(4).rate


@pytest.mark.parametrize("itl", ["p99<=2s", "mean 60ms"])
def test_the_engines_own_budget_stays_where_it_keeps_the_limit(itl: str) -> None:
    asked = question(**GAPS | {"itl": itl})
    one = contenders(asked)[0]
    assert fitted(one.instance, asked.limits) == one.ready.first.deployment.knobs


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({"ttft": "p95<=250ms"}, marks=pytest.mark.accuracy),
        {"ttft": None, "itl": "p99<=25ms"},
    ],
)
def test_tuning_finds_what_the_search_of_every_setting_does(limits: dict[str, Any]) -> None:
    """What the search of a setting leaves out early would not have saved a system."""
    asked = question(isl=3000, tp="1", peak_rps=60, **limits)
    pruned, whole = (
        Search(question=asked, runs=Runs(), prune=prune, rows=False).answer().best
        for prune in (True, False)
    )
    assert pruned.systems == whole.systems


def test_a_bad_knob_is_found_and_mended() -> None:
    """A budget of 512 tokens starves the prompts: the search must leave it."""
    asked = question(tp="1", ttft="p95<=1s")
    runs = Runs()
    good = contenders(asked, runs)[0]
    starved = with_knobs(good, max_num_tokens=512, max_batch_size=256)
    found = Search(question=asked, runs=runs, rows=False, seeds=(starved.ready,)).answer().best
    assert found.capacity.rate > 1.1 * starved.capacity(found.instances, care=QUICK).rate
    changed = changes(found.ready, starved.instance.knobs)[0]
    assert (changed.knob, changed.default) == ("max_num_tokens", 512)


def test_whole_prompts_are_tried_where_an_engine_divides_them() -> None:
    ready = contenders(question(engine="vllm", tp="1"))[0].ready
    own = ready.trial.deployment.knobs
    assert list(_ways(ready, ("chunk",), smaller=False, larger=True)) == [
        [replace(own, chunked_prefill=not own.chunked_prefill)]
    ]


@pytest.mark.parametrize(
    "given", [{"max_num_tokens": "2048"}, {"max_batch_size": "64"}, {"chunked_prefill": True}]
)
def test_knobs_that_the_asker_set_are_kept(given: dict[str, Any]) -> None:
    knobs = best(question(**GAPS | given)).ready.trial.deployment.knobs
    for name, value in given.items():
        assert getattr(knobs, name) == (value if isinstance(value, bool) else int(str(value)))


def test_how_much_a_limit_breaks_counts_at_a_load_that_is_needed() -> None:
    """A deployment whose limit breaks only above what it has to carry is as near as one that meets
    it."""
    breach = Breach(limit=Limit(metric="ttft", statistic="p95", milliseconds=300.0), value_ms=600.0)
    behind = Behind(
        breach=breach, requests_per_second=10.0, per_gpu=1.0, other=candidate().identity
    )
    assert [_used(behind, needed) for needed in (5.0, 10.0, 20.0)] == [1.0, 2.0, 2.0]
    assert _used(None, 10.0) == math.inf


def test_relatives_of_a_deployment_share_first_the_kind_of_parallelism_then_the_engine() -> None:
    one = deployment_of(model="llama-3.1-8b", gpu="h100", precision="fp8", tp=2, engine="vllm")
    others = {
        "itself": replace(one, engine="".join(one.engine)),
        "engine": replace(one, engine="sglang"),
        "tp": replace(one, parallelism=replace(one.parallelism, tp=4)),
        "stages": replace(one, parallelism=replace(one.parallelism, tp=1, pp=2)),
    }
    assert {name: _alike(one, other) for name, other in others.items()} == {
        "itself": (True, True, True, True, True),
        "engine": (True, False, True, True, True),
        "tp": (True, True, False, True, True),
        "stages": (False, True, False, True, True),
    }


def test_a_deployment_without_a_relative_expects_no_share() -> None:
    first = contenders(question(tp="1"))[0]
    d = first.ready.trial.deployment
    stages = replace(d, parallelism=replace(d.parallelism, pp=2))
    assert expecting(first, ((stages, 0.7),)).share == 0.0
    assert expecting(first, ((stages, 0.9), (d, 0.7))).share == 0.7

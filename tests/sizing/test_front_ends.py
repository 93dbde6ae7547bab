"""Front ends as a number of the deployment: one of each attention rank by default, more where one ends the load, and told in the plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.deployments import deployment
from tests.questions import question
from tonnage.api.question.simulation import simulation_of
from tonnage.perf.terms import step_model
from tonnage.plan.note import FrontEnds
from tonnage.plan.plan import Plan
from tonnage.report.plans.notes import note_text
from tonnage.sizing.loads.ready import Ready
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.planner import size
from tonnage.sizing.search.search_space import prepare, trials
from tonnage.spec.catalog import find_engine, find_gpu
from tonnage.spec.deployment import Parallelism
from tonnage.spec.engine import default_knobs

SMALL_MODEL: dict[str, object] = {
    "model": "llama-3.2-1b",
    "gpu": "b200",
    "tp": "1",
    "engine": "vllm",
    "isl": 100,
    "osl": 200,
    "ttft": None,
    "itl": "p99<=50ms",
}
WIDE = {"model": "deepseek-r1", "gpu": "h200", "engine": "vllm", "tp": "1", "dp": "8", "ep": "8"}


def front_ends(plan: Plan) -> FrontEnds | None:
    return next((note for note in plan.notes if isinstance(note, FrontEnds)), None)


def planned(**changed: object) -> Plan:
    return size(replace(question(**{**SMALL_MODEL, **changed}), deepen=False, tune=False))


@pytest.mark.parametrize("count", [1, 2, 8])
def test_front_ends_share_the_sequences_of_all_ranks(count: int) -> None:
    d = deployment(model="deepseek-r1", gpu="h200", precision="fp8", engine="vllm")
    wide = replace(d, parallelism=Parallelism(dp=8, ep=8), knobs=replace(d.knobs, front_ends=count))
    one = replace(wide, knobs=replace(d.knobs, front_ends=1))
    assert step_model(wide).stream_s == pytest.approx(step_model(one).stream_s / count)
    assert step_model(one).stream_s == pytest.approx(8 * step_model(d).stream_s)


@pytest.mark.parametrize(("engine", "front_ends"), [("vllm", 8), ("sglang", 8), ("tensorrt-llm", 8), ("tensorrt-llm-0.15", 1), ("nim", 1)])
def test_data_parallel_attention_has_a_front_end_for_each_rank_where_the_engine_can(engine: str, front_ends: int) -> None:
    assert default_knobs(find_engine(engine), find_gpu("h200"), 8).front_ends == front_ends
    assert default_knobs(find_engine(engine), find_gpu("h200")).front_ends == 1
    launch = find_engine(engine).launch
    assert front_ends == 1 or (launch is not None and launch.flag("front_ends"))


def test_a_search_tries_every_split_with_its_own_number() -> None:
    asked = question(model="deepseek-r1", gpu="h200", engine="vllm", tp="1,8")
    assert {(t.deployment.parallelism.dp, t.deployment.knobs.front_ends) for t in trials(asked)} == {(1, 1), (8, 8)}
    assert {t.deployment.knobs.front_ends for t in trials(replace(asked, front_ends=3))} == {3}
    piped = [
        found.trial.deployment
        for found in prepare(question(model="deepseek-r1", gpu="h100", engine="vllm"), Runs())
        if isinstance(found, Ready)
    ]
    assert {(d.parallelism.pp > 1, d.knobs.front_ends) for d in piped} == {(True, 1)}


def test_simulate_takes_the_same_numbers() -> None:
    asked = {"isl": 500, "osl": 50, "request_rate": 1, "requests": 10, "model": "deepseek-r1", "gpu": "h200", "engine": "vllm"}
    by_rank, given = (simulation_of(None, {**asked, "dp": 8, "ep": 8, **more}) for more in ({}, {"front_ends": 2}))
    assert (by_rank.deployment.knobs.front_ends, given.deployment.knobs.front_ends) == (8, 2)


def test_a_single_front_end_that_ends_the_load_is_told_and_more_of_them_carry_more() -> None:
    one, four = planned(), planned(front_ends=4)
    told, more = front_ends(one), front_ends(four)
    assert told.front_ends == 1
    assert more.front_ends == 4
    assert 0.85 * told.requests_per_second_of_one < one.choice.requests_per_second_per_instance <= 1.02 * told.requests_per_second_of_one
    assert four.choice.requests_per_second_per_instance > 1.5 * told.requests_per_second_of_one
    assert note_text(told).endswith("several of them (--api-server-count) would carry more.")
    assert note_text(more).startswith("Every instance is taken to run 4 API servers (--api-server-count 4): one can stream ")
    assert "--api-server-count" not in one.choice.launch
    assert four.choice.launch[four.choice.launch.index("--api-server-count") + 1] == "4"


def test_a_front_end_that_ends_nothing_is_not_spoken_of() -> None:
    plan = planned(model="llama-3.1-70b", tp="4", isl=2_000)
    assert plan.choice is not None
    assert front_ends(plan) is None


@pytest.mark.accuracy  # the loop of attention ranks is compiled for it
def test_wide_expert_parallelism_tells_how_many_it_takes() -> None:
    plan = size(replace(question(**WIDE, itl="p99<=300ms", ttft=None, peak_rps=20), deepen=False, tune=False))
    told = front_ends(plan)
    assert told.front_ends == 8

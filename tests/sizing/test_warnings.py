"""Every warning has its number, and appears only where the rule is broken."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.deployments import deployment
from tests.questions import best, question
from tonnage.perf.terms import step_model
from tonnage.plan.note import FrontEnds, LimitHalvesThroughput
from tonnage.plan.plan import Plan
from tonnage.plan.sensitivity import Changed, Sensitivity, Swing
from tonnage.report.plans.notes import note_text, warning_text
from tonnage.sizing.loads.ready import Ready
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.notes import length_to_shorten, link_share, warnings
from tonnage.sizing.planner import size
from tonnage.sizing.search.contender import Sized
from tonnage.sizing.search.search_space import prepare, trials
from tonnage.spec.catalog import find_engine, find_gpu, find_model
from tonnage.spec.catalog.accuracy import find_score
from tonnage.spec.deployment import Parallelism
from tonnage.spec.engine import default_knobs


def found(**changed: object) -> Sized:
    return best(replace(question(**changed), tune=False))


def rules(**changed: object) -> dict[str, float]:
    return {warned.rule: warned.value for warned in warnings(found(**changed), None)}


def test_large_models_and_wide_groups_over_pcie_are_warned_about_with_their_share_of_the_step() -> None:
    said = rules(model="llama-3.1-70b", gpu="l40s", tp="4", ttft=None, peak_rps=5)
    assert {"nvlink", "tp-over-pcie"} <= set(said)
    assert 0 < said["nvlink"] < 1
    assert said["nvlink"] == said["tp-over-pcie"]
    assert not {"nvlink", "tp-over-pcie"} & set(rules(model="llama-3.1-70b", gpu="h100", tp="4", ttft=None, peak_rps=5))


def test_small_models_and_pairs_over_pcie_are_not() -> None:
    assert not {"nvlink", "tp-over-pcie"} & set(rules(gpu="l40s", tp="2", ttft=None, peak_rps=5))
    assert link_share(found(gpu="l40s", tp="1", ttft=None).ready.instance) == 0


def test_a_limit_that_halves_throughput_is_shown_with_the_throughput_without_it() -> None:
    tight = found(tp="1", isl=2000, ttft="p95<=70ms", e2e="p95<=20s")
    warned = next(w for w in warnings(tight, None) if w.rule == "limit-halves-throughput")
    free = found(tp="1", isl=2000, ttft=None, e2e="p95<=20s")
    ratio = free.as_predicted.rate / tight.as_predicted.rate
    assert warned.value == pytest.approx(ratio, rel=0.05)  # of more systems each
    assert isinstance(warned, LimitHalvesThroughput)
    assert f"{warned.requests_per_second_without:.3g}" in warning_text(warned)
    assert "limit-halves-throughput" not in rules(tp="1", isl=2000, ttft="p95<=2s", e2e="p95<=20s")


def swings(isl: float | None, osl: float | None, size: int = 8) -> Sensitivity:
    """Of a plan of ten systems with 8 GPUs each: exactly so many with each length 20 % shorter, in systems of ``size`` GPUs."""
    base = Changed(change=0.2, systems=13, systems_exact=12.5, deployment=None, gpus=104, reason=None)

    def low(exact: float | None) -> Changed:
        systems = None if exact is None else math.ceil(exact)
        return replace(base, change=-0.2, systems=systems, systems_exact=exact, gpus=size * (systems or 0))

    rows = [Swing(input=name, low=low(exact), high=base) for name, exact in (("isl", isl), ("osl", osl))]
    return Sensitivity(systems=10, systems_exact=10.0, swings=tuple(rows), relaxed=None)


def test_advice_on_lengths_is_read_off_the_sensitivity() -> None:
    prompts, answers = length_to_shorten(swings(7.0, 9.5), 80), length_to_shorten(swings(10.0, 8.0), 80)
    assert (prompts.which, prompts.saved, prompts.other_saved, prompts.value) == ("isl", 3.0, 0.5, 6.0)
    assert (
        warning_text(prompts)
        == "shorten prompts first: 20% shorter prompts save 24 GPUs (3.00 systems before rounding), 20% shorter answers 0.500"
    )
    assert (answers.which, answers.saved, answers.other_saved) == ("osl", 2.0, 0.0)
    for none in (swings(9.0, 9.0), swings(9.1, 10.0), swings(None, None)):
        assert length_to_shorten(none, 80) is None
    assert length_to_shorten(None, 80) is None


def test_systems_of_another_size_are_counted_by_their_gpus() -> None:
    """Nine tenths of a rack of 72 GPUs is 8.1 systems of 8; a whole rack saves 8 of the 80 GPUs."""
    found = length_to_shorten(swings(0.9, 1.1, size=72), 80)
    assert (found.gpus, found.which) == (8, "isl")
    assert found.saved == pytest.approx(10 - 8.1)


def test_where_one_system_is_enough_no_limit_is_blamed() -> None:
    assert "limit-halves-throughput" not in rules(tp="1", isl=2000, ttft="p95<=85ms", e2e="p95<=20s", peak_rps=1)


def test_a_smaller_model_with_the_same_published_score_is_named() -> None:
    chosen = found(model="llama-2-70b", gpu="h100", tp="4", ttft=None, peak_rps=5)
    warned = next(w for w in warnings(chosen, None) if w.rule == "smaller-model")
    named = find_model(warned.other)
    assert warned.value == pytest.approx(chosen.contender.question.model.parameters / named.parameters)
    assert warned.value >= 2
    scores = [find_score(name) for name in (named.name, "llama-2-70b")]
    assert all(score is not None and f"{score.score:g}" in warning_text(warned) for score in scores)
    assert scores[0].score >= scores[1].score
    assert "smaller-model" not in rules(model="llama-3.1-8b", ttft=None)


def test_scores_asked_another_way_name_no_smaller_model() -> None:
    """Phi 4's 84.8 without examples is no answer to the 83.3 of a base model with five."""
    assert "smaller-model" not in rules(model="qwen2.5-32b", gpu="h100", tp="1,2", ttft=None)


# Front ends as a number of the deployment: one of each attention rank by default, more where one ends the load, and told in the plan.

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

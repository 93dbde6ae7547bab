"""Every figure of the sensitivity is that of the plan run again with the changed input, whose knobs
may then be searched anew."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

import tonnage
from tests.in_turn import in_turn
from tests.questions import SMALL, best, contender, plans_with, question
from tests.sizing.explained import ASKED
from tonnage.api.sizing import ask
from tonnage.plan.plan import Plan
from tonnage.plan.reason import BrokenAtAnyLoad, NotSure
from tonnage.report.numbers import counted
from tonnage.report.plans.candidates import reason_text
from tonnage.report.plans.explained import relaxed_text
from tonnage.sizing.loads.instance import QUICK, SURE, Care
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.planner import size
from tonnage.sizing.question import Question
from tonnage.sizing.search.search import Search
from tonnage.sizing.sensitivity import (
    CHANGE,
    again,
    changed_question,
    narrow_cache,
    narrowable,
    sensitivity,
)

few_parts = plans_with("sensitivity")


@pytest.fixture(scope="module")
def plan(asked: Question) -> Plan:
    return size(asked)


@pytest.mark.parametrize(("place", "sign"), in_turn(range(4), [-1, 1], one_of=4))
def test_a_swing_is_the_plan_run_again_with_the_same_knobs(
    plan: Plan, asked: Question, place: int, sign: int
) -> None:
    swing = plan.sensitivity.swings[place]
    again = size(replace(changed_question(asked, swing.input, sign * CHANGE), deepen=False)).choice
    found = swing.low if sign < 0 else swing.high
    assert abs(found.systems - again.systems) <= 1
    assert found.systems_exact == pytest.approx(again.systems_exact, rel=0.05)
    assert sign * (found.systems_exact - plan.sensitivity.systems_exact) >= 0
    # its fraction is of short runs, where no run could change the whole systems
    if swing.input == "rate":
        assert found.systems == again.systems


def test_a_changed_question_is_what_a_user_would_type(asked: Question) -> None:
    typed = {"isl": {"isl": 1200}, "osl": {"osl": 80}, "rate": {"peak_rps": 600}}
    for name, values in typed.items():
        change = -0.2 if name == "osl" else 0.2
        rerun, ours = question(**{**ASKED, **values}), changed_question(asked, name, change)
        assert replace(ours, demand=rerun.demand) == rerun
        assert ours.demand.peak_requests_per_second == rerun.demand.peak_requests_per_second
        assert ours.demand.sizing_requests_per_second == rerun.demand.sizing_requests_per_second


@pytest.mark.accuracy
def test_what_a_limit_between_tokens_left_out_is_tried_again_where_steps_are_faster() -> None:
    """FP8 breaks it by a little, and with steps a fifth faster takes the fewest systems."""
    asked = ask(
        model="qwen3-32b",
        gpu="gb200,mi355x",
        isl=1400,
        osl=150,
        ttft="p95<=2.8s",
        itl="p99<=60ms",
        peak_rps=3.0,
        engine="vllm",
    ).questions[0]
    search = Search(question=asked, runs=Runs(), rows=False)
    answer, changed = search.answer(), changed_question(asked, "step_time", -0.2)
    found = again(replace(search, learned=answer.learned), changed, answer.best, care=QUICK).best
    directly = replace(search, question=changed, runs=Runs()).answer().best
    assert found is not None
    assert directly is not None
    assert answer.best is not None
    assert (
        answer.best.ready.trial.deployment.precision.name
        != directly.ready.trial.deployment.precision.name
    )
    assert found.gpus_exact == pytest.approx(directly.gpus_exact, rel=0.1)


def test_more_of_anything_needs_no_fewer_systems(plan: Plan) -> None:
    for swing in plan.sensitivity.swings:
        assert swing.low.systems_exact <= plan.sensitivity.systems_exact
        assert swing.high.systems_exact >= plan.sensitivity.systems_exact
        assert {swing.low.change, swing.high.change} == {-0.2, 0.2}


@pytest.fixture(scope="module")
def tight() -> Plan:
    """A load that is just too much for one system."""
    return tonnage.size(
        **{
            **ASKED,
            "tp": 1,
            "precision": "fp8",
            "engine": "tensorrt-llm-0.15",
            "peak_rps": 600,
            "ttft": "p95<=70ms",
        }
    )


def test_the_relaxed_limit_saves_a_system_and_a_slightly_stricter_one_does_not(tight: Plan) -> None:
    relaxed = tight.sensitivity.relaxed
    assert (
        relaxed_text(relaxed)
        == f"TTFT p95 70 → {relaxed.to_ms:g} ms: one system fewer, {counted(relaxed.gpus, 'GPU')}"
        " in all"
    )
    assert relaxed.gpus == 8 * relaxed.systems
    systems = []
    for limit_ms in (relaxed.to_ms, 70 + 0.6 * (relaxed.to_ms - 70)):
        asked = {
            **ASKED,
            "tp": 1,
            "precision": "fp8",
            "engine": "tensorrt-llm-0.15",
            "peak_rps": 600,
            "ttft": f"p95<={limit_ms}ms",
        }
        choice = size(replace(question(**asked), deepen=False)).choice
        systems.append(choice.systems)
    assert systems == [relaxed.systems, tight.choice.systems]
    assert relaxed.systems == tight.choice.systems - 1


def test_an_input_that_no_deployment_survives_says_why() -> None:
    """The limit lies between the TTFT of an empty engine at the prompt that was asked for and at
    one a fifth longer."""
    asked = {"tp": "1", "isl": "exact:4000", "osl": 10, "peak_rps": 1}
    limit_ms = 1e3 * 1.1 * contender(**asked).instance.unloaded_ttft_s()
    plan = size(question(**asked, ttft=f"p95<={limit_ms}ms"))
    high = plan.sensitivity.swings[0].high
    assert high.systems is None
    assert isinstance(high.reason, BrokenAtAnyLoad)
    assert reason_text(high.reason).startswith("TTFT p95 ")
    assert reason_text(high.reason).endswith(" at any load")


def test_a_row_that_only_a_lower_confidence_reaches_names_no_number(asked: Question) -> None:
    search = Search(question=replace(asked, tune=False), runs=Runs(), rows=False)
    best = search.answer().best
    assert best is not None
    found = sensitivity(search, replace(best, level=0.99)).swings
    assert [row.systems for swing in found for row in (swing.low, swing.high)] == [None] * 8
    assert {type(row.reason) for swing in found for row in (swing.low, swing.high)} == {NotSure}


def test_short_runs_are_of_the_instances_that_they_ask_for() -> None:
    # two systems, where the closed form says one
    one = contender(**{**ASKED, "tp": "2", "peak_rps": 200, "ttft": "p95<=30ms"})
    systems, found = one.needed(care=QUICK)  # type: ignore[misc]
    assert found.rate == one.capacity(one.layout.of(systems).instances, care=QUICK).rate


def test_a_kv_cache_in_fp8_saves_what_the_same_question_with_it_needs() -> None:
    """And nothing is proposed where its format was said, where it is latent, where the GPU has no
    FP8, or where it is all but empty."""
    asked = {
        "model": "qwen3-32b",
        "tp": "2",
        "engine": "vllm",
        "isl": 8_000,
        "osl": 1_000,
        "peak_rps": 20,
        "ttft": "p95<=3s",
    }
    first, *others = (
        question(**asked | changed)
        for changed in (
            {"precision": "fp8"},
            {"precision": "fp8+kv-fp16"},
            {"precision": "fp8", "model": "deepseek-v3", "gpu": "h200", "tp": "8"},
            {"precision": "fp16", "gpu": "a100"},
            {"precision": "fp8", "isl": 500, "osl": 10},
        )
    )
    chosen = best(first)
    narrow = narrow_cache(Search(question=first, runs=Runs(first.slo), rows=False), chosen)
    direct = best(question(**asked | {"precision": "fp8+kv-fp8"}))
    assert narrow is not None
    assert narrowable(chosen)
    most = chosen.ready.instance.memory.concurrent_requests(8_000, 1_000)
    for share in (0.24, 0.26):
        carried = replace(chosen.capacity, concurrency=share * most)
        assert narrowable(replace(chosen, capacity=carried)) is (share > 0.25)
    assert (narrow.gpus, narrow.systems_exact) == (direct.gpus, direct.gpus_exact / 8)
    assert narrow.systems_exact < 0.95 * chosen.gpus_exact / 8
    assert narrow.times == pytest.approx(2.0, rel=0.01)
    assert [loss.benchmark for loss in narrow.losses] == ["reasoning", "long contexts"]
    assert [asked.precisions[0].name for asked in others if narrowable(best(asked))] == []


@pytest.mark.parametrize(
    ("care", "short", "made"),
    [
        (SURE, (True, True, 0.9), [(SURE, False, True)]),
        (QUICK, (False, False, 0.9), [(QUICK, False, True)]),
        (QUICK, (True, False, 0.9), [(QUICK, False, True), (SURE, True, False)]),
        (QUICK, (False, True, 0.9), [(QUICK, False, True), (SURE, True, False)]),
        (
            QUICK,
            (True, True, 0.8),
            [(QUICK, False, True), (SURE, True, False), (SURE, False, True)],
        ),
        (
            QUICK,
            (True, True, None),
            [(QUICK, False, True), (SURE, True, False), (SURE, False, True)],
        ),
    ],
)
def test_short_runs_are_counted_again_where_they_leave_a_doubt_and_searched_again_where_it_fails(
    care: Care,
    short: tuple[bool, bool, float | None],
    made: list[tuple[Care, bool, bool]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_doubt, steep, level = short
    answered: list[tuple[Care, bool, bool]] = []
    ready = contender().ready

    def answer(search: Search) -> SimpleNamespace:
        answered.append((search.care, search.only, search.question.tune))
        own = level if search.only else 0.9
        best = SimpleNamespace(in_doubt=in_doubt, level=own, ready=ready, number=len(answered))
        return SimpleNamespace(best=None if own is None else best)

    monkeypatch.setattr(Search, "answer", answer)
    monkeypatch.setattr("tonnage.sizing.sensitivity._steep", lambda found, best: steep)
    asked = question(**SMALL)
    found = again(Search(question=asked, runs=Runs(asked.slo)), asked, care=care)
    assert answered == made
    assert found.best.number == len(made)

"""Every figure of the sensitivity is that of the plan run again with the changed input, whose knobs may then be searched anew."""

from dataclasses import replace

import pytest

import tonnage
from tests.in_turn import in_turn
from tests.questions import SMALL, contender, question
from tonnage.plan.plan import Plan
from tonnage.plan.reason import BrokenAtAnyLoad, NotSure
from tonnage.report.numbers import counted
from tonnage.report.plans.candidates import reason_text
from tonnage.report.plans.explained import relaxed_text
from tonnage.sizing.loads.instance import QUICK
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.planner import size
from tonnage.sizing.question import Question
from tonnage.sizing.search.search import Search
from tonnage.sizing.sensitivity import CHANGE, changed_question, sensitivity

ASKED = {**SMALL, "tp": "1,2", "precision": "fp8", "engine": "tensorrt-llm-0.15", "peak_rps": 1000, "ttft": "p95<=100ms"}


@pytest.fixture(scope="module")
def asked() -> Question:
    return question(**ASKED)


@pytest.fixture(scope="module")
def plan(asked: Question) -> Plan:
    return size(asked)


@pytest.mark.parametrize(("place", "sign"), in_turn(range(4), [-1, 1]))
def test_a_swing_is_the_plan_run_again_with_the_same_knobs(plan: Plan, asked: Question, place: int, sign: int) -> None:
    swing = plan.sensitivity.swings[place]
    again = size(replace(changed_question(asked, swing.input, sign * CHANGE), deepen=False)).choice
    found = swing.low if sign < 0 else swing.high
    assert abs(found.systems - again.systems) <= 1
    assert found.systems_exact == pytest.approx(again.systems_exact, rel=0.05)
    assert sign * (found.systems_exact - plan.sensitivity.systems_exact) >= 0
    if swing.input == "rate":  # its fraction is of short runs, where no run could change the whole systems
        assert found.systems == again.systems


def test_a_changed_question_is_what_a_user_would_type(asked: Question) -> None:
    typed = {"isl": {"isl": 1200}, "osl": {"osl": 80}, "rate": {"peak_rps": 1200}}
    for name, values in typed.items():
        change = -0.2 if name == "osl" else 0.2
        rerun, ours = question(**{**ASKED, **values}), changed_question(asked, name, change)
        assert replace(ours, demand=rerun.demand) == rerun
        assert ours.demand.peak_requests_per_second == rerun.demand.peak_requests_per_second
        assert ours.demand.sizing_requests_per_second == rerun.demand.sizing_requests_per_second


def test_more_of_anything_needs_no_fewer_systems(plan: Plan) -> None:
    for swing in plan.sensitivity.swings:
        assert swing.low.systems_exact <= plan.sensitivity.systems_exact
        assert swing.high.systems_exact >= plan.sensitivity.systems_exact
        assert {swing.low.change, swing.high.change} == {-0.2, 0.2}


@pytest.fixture(scope="module")
def tight() -> Plan:
    """A load that is just too much for two systems."""
    return tonnage.size(**{**ASKED, "tp": 1, "precision": "fp8", "engine": "tensorrt-llm-0.15", "peak_rps": 1200, "ttft": "p95<=70ms"})


def test_the_relaxed_limit_saves_a_system_and_a_slightly_stricter_one_does_not(tight: Plan) -> None:
    relaxed = tight.sensitivity.relaxed
    assert relaxed_text(relaxed) == f"TTFT p95 70 → {relaxed.to_ms:g} ms: one system fewer, {counted(relaxed.gpus, 'GPU')} in all"
    assert relaxed.gpus == 8 * relaxed.systems
    systems = []
    for limit_ms in (relaxed.to_ms, 70 + 0.6 * (relaxed.to_ms - 70)):
        asked = {**ASKED, "tp": 1, "precision": "fp8", "engine": "tensorrt-llm-0.15", "peak_rps": 1200, "ttft": f"p95<={limit_ms}ms"}
        choice = size(replace(question(**asked), deepen=False)).choice
        systems.append(choice.systems)
    assert systems == [relaxed.systems, tight.choice.systems]
    assert relaxed.systems == tight.choice.systems - 1


def test_one_system_has_nothing_to_save() -> None:
    plan = size(question(tp="1", peak_rps=10))
    assert plan.sensitivity.relaxed is None


def test_without_limits_there_is_none_to_relax() -> None:
    plan = size(question(tp="1", ttft=None, peak_rps=1000))
    assert plan.sensitivity.relaxed is None


def test_an_input_that_no_deployment_survives_says_why() -> None:
    """The limit lies between the TTFT of an empty engine at the prompt that was asked for and at one a fifth longer."""
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
    one = contender(**{**ASKED, "tp": "2", "peak_rps": 200, "ttft": "p95<=30ms"})  # two systems, where the closed form says one
    systems, found = one.needed(care=QUICK)  # type: ignore[misc]
    assert found.rate == one.capacity(one.layout.of(systems).instances, care=QUICK).rate

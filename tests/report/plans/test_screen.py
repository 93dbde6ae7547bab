"""The first screen: at most 40 lines at any width, the answer in it, a warning first where it is
not sure; and its lines one by one."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.plan.plans import any_of, filled
from tests.report.example_plan import full, without_answer
from tests.report.plans.screens import SURE, UNSURE, many, sized
from tonnage.cli.main import run
from tonnage.plan.candidate import Candidate, Identity
from tonnage.plan.demand import Existing, Growth, OwnedGroup
from tonnage.plan.fleet import Autoscaling, BehindRouter, Standby
from tonnage.plan.horizon import Horizon
from tonnage.plan.limit import SATURATION, Bound, Limit
from tonnage.plan.notes import LengthToShorten, LimitHalvesThroughput, SmallerModel
from tonnage.plan.plan import Plan, RunnerUp
from tonnage.plan.reason import Reachable, Reached
from tonnage.plan.sensitivity import (
    PrefixCache,
    Unreached,
)
from tonnage.report.plans.confidence import not_sure_text
from tonnage.report.plans.plan_document import full_text
from tonnage.report.plans.screen import BRIEF, MOST, answer_rows, brief_lines, screen
from tonnage.report.writers.terminal import terminal


def chosen(plan: Plan) -> Candidate:
    assert plan.choice is not None
    return plan.choice


def written(plans: tuple[Plan, ...], columns: int, patch: pytest.MonkeyPatch) -> str:
    patch.setenv("COLUMNS", str(columns))
    return terminal(screen(plans))


def check(plans: tuple[Plan, ...], columns: int, patch: pytest.MonkeyPatch) -> None:
    """The first screen is short and narrow enough, and holds the answer of every plan that it has a
    line for."""
    lines = written(plans, columns, patch).splitlines()
    assert len(lines) <= MOST
    assert max(map(len, lines)) <= min(columns, 110)
    words = " ".join(" ".join(lines).split())
    for plan in plans[:1]:
        if plan.choice is None:
            assert "no deployment" in words
        elif not plan.demand.of_existing:
            assert f"{plan.choice.systems:,} × {plan.choice.pools[0].system}" in words
            assert f"{plan.choice.gpus:,} GPU" in words
        unsure = not_sure_text(plan)
        if unsure:
            before = words.partition("× " + chosen(plan).pools[0].system)[0]
            assert (
                "Nothing that was asked for reaches" in before
                or "No number of these systems reaches" in before
            )


LIMIT = filled(Limit, milliseconds=st.floats(min_value=0.01, max_value=1e6))


NAMED = st.sampled_from(["h100-sxm-80gb", "rtx-pro-6000-blackwell-se", "b300-sxm-270gb"])


LONG = {
    float: st.floats(min_value=0.01, max_value=1e6),
    int: st.integers(1, 9_999),
    str: NAMED,
    Limit: LIMIT,
    Bound: st.one_of(st.just(SATURATION), st.builds(Bound, kind=st.just("limit"), limit=LIMIT)),
    Identity: filled(
        Identity,
        gpu=NAMED,
        precision=st.just("int4-g32+experts"),
        tp=st.integers(1, 8),
        engine=st.just("tensorrt-llm-1.2"),
    ),
}
"""Numbers and names as long as plans have them."""


WARNING = st.one_of(
    filled(LengthToShorten, LONG, change=st.just(-0.2)),
    any_of(LimitHalvesThroughput, LONG),
    any_of(SmallerModel, LONG),
)


GROUPS = st.lists(any_of(OwnedGroup, LONG), min_size=1, max_size=6).map(tuple)


PARTS = st.fixed_dictionaries(
    {
        "warnings": st.lists(WARNING, max_size=6).map(tuple),
        "tail": st.none() | filled(Unreached, LONG, confidence=st.sampled_from([0.5, 0.8, 0.95])),
        "routers": st.lists(any_of(BehindRouter, LONG), max_size=3).map(tuple),
        "runner_up": any_of(RunnerUp | None, LONG),
        "growth": any_of(Growth | None, LONG),
        "horizon": any_of(Horizon | None, LONG),
        "existing": st.none() | filled(Existing, LONG, groups=GROUPS),
        "prefix_cache": any_of(PrefixCache | None, LONG),
        "autoscaling": st.none() | filled(Autoscaling, fixed=st.none(), reason=st.just("no-rule")),
    }
)


STANDBY = any_of(Standby | None, LONG)


NEAR = st.lists(any_of(Reached, LONG), min_size=1, max_size=4).map(tuple)


REACHABLE = st.none() | filled(Reachable, best=NEAR, nearest=NEAR)


@st.composite
def plausible(draw: st.DrawFn) -> Plan:
    """The example with as much or as little as a plan may hold of what a first screen says."""
    first, *rest = many(draw(st.integers(0, 14)), draw(st.integers(0, 40)))
    first = replace(
        first, confidence=draw(st.sampled_from([SURE, UNSURE, None])), standby=draw(STANDBY)
    )
    found = replace(full(), candidates=(first, *rest), pareto=(), **draw(PARTS))
    return (
        found if draw(st.booleans()) else replace(found, candidates=(), reachable=draw(REACHABLE))
    )


@settings(deadline=None)
@given(plan=plausible())
def test_any_first_screen_has_at_most_forty_lines_and_the_answer(plan: Plan) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for columns in (80, 120):
            check((plan,), columns, patch)


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("count", [2, 5, 20])
def test_of_several_models_each_has_a_line_as_far_as_there_is_room(
    count: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = tuple(
        replace(sized(), scenario=replace(sized().scenario, model=f"model-{i}"))
        for i in range(count)
    )
    text = written(plans, columns, monkeypatch)
    check(plans, columns, monkeypatch)
    shown = re.findall(r"^model-\d+ ", text, re.MULTILINE)
    assert "model-0 " in shown
    assert ("… and " in text) == (len(set(shown)) < count)


@pytest.mark.usefixtures("wide")
def test_every_form_has_the_same_lines() -> None:
    said = [" ".join(text.split()) for _, text in answer_rows(sized())]
    words = " ".join(terminal(full_text((sized(),))).split())
    assert [text for text in said if text not in words] == []
    first = " ".join(terminal(screen((sized(),))).split())
    assert [text for text in said if text not in first] == []
    brief = brief_lines((sized(),))
    assert [line[13:] for line in brief if line[:13].strip() in dict(answer_rows(sized()))] == [
        text
        for name, text in answer_rows(sized())
        if any(line.startswith(f"{name} ") for line in brief)
    ]


def test_brief_has_ten_lines_at_most_and_is_enough_to_act() -> None:
    lines = brief_lines((sized(),))
    assert len(lines) <= BRIEF
    text = "\n".join(lines)
    for word in (
        "Question",
        "Answer",
        "Confidence",
        "At the peak",
        "Cost",
        "Risk",
        "More",
        "FILE.html",
    ):
        assert word in text
    assert len(brief_lines((without_answer(),))) <= BRIEF
    assert "no deployment meets the limits" in "\n".join(brief_lines((without_answer(),)))


@pytest.mark.usefixtures("plans_of_this_run")
def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    asked = [
        "size",
        "--model",
        "llama-3.1-8b",
        "--isl",
        "500",
        "--osl",
        "50",
        "--peak-rps",
        "0.1",
        "--gpu",
        "h100",
        "--tp",
        "1",
    ]
    asked += ["--precision", "fp8", "--engine", "vllm", "--ttft", "p95<=1s"]
    assert run([*asked, "--brief"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= BRIEF
    assert run([*asked, "--json"]) == 0
    choice = json.loads(capsys.readouterr().out)["choice"]
    text = " ".join(lines)
    assert f"E2E mean {choice['at_peak']['e2e_ms']['mean']:.0f} ms" in text
    assert choice["launch"][:2] == ["vllm", "serve"]
    assert " ".join(choice["launch"]) in text
    assert run(asked) == 0
    first = capsys.readouterr().out
    assert len(first.splitlines()) <= MOST
    assert "--full prints every deployment" in first
    assert run([*asked, "--full", "--brief"]) == 2

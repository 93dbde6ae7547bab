"""Questions asked again with one thing changed, at a given GPU, engine and format: answers move the
right way, and by no noise where the runs are the same; other steps and lengths make other runs.

``./benchmark steadiness`` asks many more, drawn at random, and prints the figures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from tests.in_turn import in_turn
from tests.questions import plans_with, question
from tonnage.api.sizing import ask
from tonnage.plan.candidate import Candidate
from tonnage.sizing.loads.instance import QUICK, SURE
from tonnage.sizing.loads.load_scan import Highest, LoadScan, place_of
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.loads.trial import Ready
from tonnage.sizing.planner import size
from tonnage.sizing.question import Question
from tonnage.sizing.search.search_space import prepare
from tonnage.sizing.sensitivity import changed_question

few_parts = plans_with()

CASES: dict[str, dict[str, object]] = {
    "first token": {
        "isl": "lognormal:1000,800",
        "osl": 100,
        "ttft": "p95<=500ms",
        "engine": "vllm",
        "peak_rps": 3_000,
    },
    "gaps that do not rise with the load": {
        "gpu": "b200-sxm-180gb",
        "engine": "sglang",
        "isl": "50+-16",
        "osl": "50+-16",
        "ttft": None,
        "itl": "p99<=50ms",
        "peak_rps": 3_000,
    },
    "whole answer, bursty": {
        "isl": 1500,
        "osl": 60,
        "ttft": None,
        "e2e": "p95<=4s",
        "arrivals": "gamma",
        "cv": 2,
        "peak_rps": 2_000,
    },
}


def case(name: str, **changed: object) -> Question:
    return replace(question(**{"tp": "1", **CASES[name], **changed}), deepen=False, tune=False)


@cache
def first(name: str) -> Candidate:
    return chosen(case(name))


def chosen(asked: Question) -> Candidate:
    found = size(asked).choice
    assert found is not None
    return found


def looser(asked: Question, factor: float) -> Question:
    return replace(
        asked, slo=tuple(replace(limit, seconds=limit.seconds * factor) for limit in asked.slo)
    )


CHANGES: dict[str, Callable[[Question], Question]] = {
    "limits a little looser": lambda q: looser(q, 1.03),
    "limits looser": lambda q: looser(q, 1.3),
    "less load": lambda q: changed_question(q, "rate", -0.1),
    "less confidence": lambda q: replace(q, confidence=0.5),
    "faster steps": lambda q: changed_question(q, "step_time", -0.2),
    "shorter prompts": lambda q: changed_question(q, "isl", -0.2),
    "shorter outputs": lambda q: changed_question(q, "osl", -0.2),
}
OTHER_RUNS = ("faster steps", "shorter prompts", "shorter outputs")
NOISE = 1.05
"""By what another seed moves the exact number of systems at most."""


@pytest.mark.parametrize(("name", "change"), in_turn(list(CASES), list(CHANGES)))
def test_what_asks_for_less_needs_no_more(name: str, change: str) -> None:
    less, more = chosen(CHANGES[change](case(name))), first(name)
    noise = NOISE if change in OTHER_RUNS else 1.0
    assert less.systems <= more.systems
    assert less.systems_exact <= noise * more.systems_exact


@pytest.mark.parametrize(("seed", "name"), in_turn([1, 2], list(CASES)))
def test_another_seed_moves_the_answer_by_five_percent_at_most(name: str, seed: int) -> None:
    assert chosen(replace(case(name), seed=seed)).systems_exact == pytest.approx(
        first(name).systems_exact, rel=NOISE - 1
    )


FIRST = [
    *list(CASES)[:1],
    *(pytest.param(name, marks=pytest.mark.accuracy) for name in list(CASES)[1:]),
]


@pytest.mark.parametrize("name", FIRST)
def test_n_times_the_load_needs_about_n_times_the_systems(name: str) -> None:
    for factor in (0.25, 2.0):
        scaled = chosen(changed_question(case(name), "rate", factor - 1))
        assert scaled.systems_exact == pytest.approx(factor * first(name).systems_exact, rel=0.05)


@pytest.mark.parametrize("name", FIRST)
def test_the_number_was_seen_to_hold(name: str) -> None:
    plan = size(case(name, peak_rps=700))
    assert plan.fleet_check.holds
    assert plan.choice is not None
    assert any(run.holds and run.systems == plan.choice.systems for run in plan.fleet_check.runs)


def test_a_short_run_whose_first_tokens_scatter_leaves_out_no_load_that_a_long_run_carries() -> (
    None
):
    conversations: dict[str, Any] = {
        "isl": 500,
        "osl": 360,
        "peak_rps": 5,
        "turns": "6",
        "think_time": "20s",
        "shared_prefix": 1500,
    }
    asked = ask(
        model="qwen3-32b", gpu="b300", precision="fp8+kv-fp8", tp=1, engine="vllm", **conversations
    )
    runs = Runs()
    first = next(one for one in prepare(asked.questions[0], runs) if isinstance(one, Ready))
    assert LoadScan(runs, first.instance).seen(place_of(8.0), SURE).growth < 1
    assert isinstance(LoadScan(runs, first.instance).highest((), above=8.0, care=QUICK), Highest)


def test_looser_limits_never_need_more_where_knobs_are_searched() -> None:
    """Limits from tight to loose; each has its own token budget."""
    systems = []
    for milliseconds in (30, 60, 300):
        asked = question(
            tp="1",
            isl=3000,
            osl=100,
            engine="vllm",
            ttft="p95<=2s",
            itl=f"p99<={milliseconds}ms",
            peak_rps=300,
        )
        systems.append(chosen(replace(asked, deepen=False)).systems_exact)
    assert systems == sorted(systems, reverse=True)

"""The text of a plan: the golden text at the full width, and no line wider than the terminal at any."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.report.example_plan import GOLDEN, full, without_answer
from tonnage.plan.candidate import Candidate
from tonnage.plan.confidence import Confidence
from tonnage.plan.plan import Plan
from tonnage.report.plans.plan_text import plan_text
from tonnage.report.writers.terminal import terminal


def written(*plans: Plan, explain: bool = False) -> str:
    """The text of the plans."""
    return terminal(plan_text(plans, explain=explain))


def words(text: str) -> str:
    """The text on one line."""
    return " ".join(text.split())


@pytest.fixture
def full_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")


@pytest.mark.usefixtures("full_width")
def test_text_is_the_golden_one() -> None:
    text = written(full(), explain=True) + "\n"
    if os.environ.get("TONNAGE_GOLDEN") == "write":
        (GOLDEN / "plan.txt").write_text(text, encoding="utf-8")
    assert text == (GOLDEN / "plan.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("columns", [40, 60, 72, 80, 100, 110, 200])
def test_no_line_is_wider_than_the_terminal_and_identity_stays(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = written(full(), explain=True)
    assert max(map(len, text.splitlines())) <= min(columns, 110)
    assert "5 × dgx-h100" in text
    for candidate in full().candidates:
        for name in (candidate.gpu, candidate.precision, candidate.engine):
            assert name in text


@pytest.mark.usefixtures("full_width")
def test_every_deployment_can_be_told_from_the_others_at_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    body = written(full()).split("\nCandidates\n")[1].split("\n\n")[0].splitlines()
    rows = [line for line in body if line.startswith(("h100", "l40s", "a100"))]
    assert len({tuple(row.replace("←", "").split()[:4]) for row in rows}) == len(full().candidates)


def test_plan_without_an_answer_says_so_and_why() -> None:
    text = written(without_answer())
    assert "no deployment meets the limits" in text
    assert "Ampere has no FP8 matrix units" in text
    assert "What would change" not in text
    assert "Cost" not in text


def test_the_parts_stand_in_their_order() -> None:
    text = written(full(), explain=True)
    parts = (
        *(
            "Question",
            "Demand",
            "Limits",
            "Answer",
            "Cost",
            "Risk",
            "Capacity",
            "Latency",
            "Pace",
            "Load",
            "Memory",
            "Fleet check",
            "! TPOT",
        ),
        *("What would change the answer", "Where time and memory go", "Candidates", "Rejected, and why", "What it rests on"),
        *("Measured beside predicted", "Cost\n"),
    )
    places = [text.index(f"\n{part}") if part != "Question" else 0 for part in parts]
    assert places == sorted(places)
    assert "Where time and memory go" not in written(full())


@pytest.mark.parametrize(
    ("busy", "said"),
    [(0.1, ""), (0.43, "The front end streams tokens 43% of the time."), (0.93, "tokens 93% of the time, which limits: a larger stream")],
)
def test_a_busy_front_end_is_said(busy: float, said: str) -> None:
    explained = full().explain
    assert explained is not None
    text = words(written(replace(full(), explain=replace(explained, front_end_busy=busy)), explain=True))
    assert said in text
    assert ("front end" in text) == bool(said)


def many(count: int) -> tuple[Candidate, ...]:
    """So many candidates."""
    return (full().candidates * (count // len(full().candidates) + 1))[:count]


def test_long_lists_end_with_how_to_see_the_rest() -> None:
    rejected = tuple(replace(full().rejected[0], gpu=f"gpu-{i}") for i in range(20))
    text = written(replace(full(), candidates=many(20), pareto=(), rejected=rejected))
    assert "… and 8 more; --json and --report show all of them" in text
    assert "… and 12 more deployments; --json and --report show all of them" in text


def test_confidence_stands_beside_the_answer_and_each_candidate() -> None:
    sure = Confidence(meets=0.66, systems={"50": 5, "80": 6, "95": None}, step_factors={}, metric="ttft_ms")
    first, *rest = full().candidates
    text = words(written(replace(full(), candidates=(replace(first, confidence=sure), *rest))))
    assert "66%" in text
    assert "systems for 50%: 5, 80%: 6, 95%: none" in text
    assert "systems at 95% is the number that has 95%" in text


def test_models_are_compared_before_each_is_told() -> None:
    other = replace(full(), scenario=replace(full().scenario, model="llama-3.1-8b"))
    text = written(full(), other)
    assert text.startswith("Models compared\nThe same question for each model\n")
    assert text.count("\nQuestion") == 2
    table = text.split("\nQuestion")[0]
    assert "68.4" in table
    assert "73.0" in table
    assert "as published" in table

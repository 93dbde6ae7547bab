from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.report.example_plan import GOLDEN, full, without_answer
from tests.report.plans.texts import written
from tonnage.errors import InputError
from tonnage.plan.candidate import Confidence
from tonnage.plan.plan import Plan
from tonnage.report.plans.plan_document import first_glance, full_text, read_plans, report, to_json
from tonnage.report.plans.screen import screen
from tonnage.report.writers.html import html
from tonnage.report.writers.terminal import markdown, terminal


def saved(folder: Path, document: object) -> Path:
    path = folder / "plan.json"
    path.write_text(
        document if isinstance(document, str) else json.dumps(document), encoding="utf-8"
    )
    return path


@pytest.mark.parametrize("plans", [(full(),), (full(), without_answer())], ids=["one", "several"])
def test_a_saved_plan_says_what_the_plan_says(plans: tuple[Plan, ...], tmp_path: Path) -> None:
    read = read_plans(saved(tmp_path, to_json(plans)))
    assert read == plans
    assert html(report(*read)) == html(report(*plans))
    assert markdown(report(*read)) == markdown(report(*plans))
    assert terminal(full_text(read)) == terminal(full_text(plans))
    assert terminal(screen(read)) == terminal(screen(plans))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is no JSON"),
        ({"schema": "tonnage-plan/1"}, "written by another version"),
        ({}, "no plan"),
        ([1], "no plan"),
    ],
)
def test_what_is_no_plan_is_refused_in_one_line(content: object, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        read_plans(saved(tmp_path, content))


@pytest.fixture
def full_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")


@pytest.mark.usefixtures("full_width")
def test_text_is_the_golden_one() -> None:
    text = written(full()) + "\n"
    if os.environ.get("TONNAGE_GOLDEN") == "write":
        (GOLDEN / "plan.txt").write_text(text, encoding="utf-8")
    assert text == (GOLDEN / "plan.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("columns", [44, 60, 72, 80, 100, 110, 200])
def test_no_line_is_wider_than_the_terminal_and_identity_stays(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = written(full())
    assert max(
        len(line) for line in text.splitlines() if not line.startswith("  ./tonnage ")
    ) <= min(columns, 110), "but the command"
    assert "5 × dgx-h100" in text
    for one in full().candidates:
        for name in (one.gpu, one.precision, one.engine):
            assert name in text


def test_the_cards_are_the_plan_s_own_numbers() -> None:
    plan, cards = full(), dict(first_glance(full()))
    assert cards["systems to buy"] == str(plan.choice.systems)
    assert cards["GPUs"] == str(plan.choice.gpus)
    assert cards["of capacity, used at the peak"] == f"{plan.choice.utilisation:.0%}"
    sure = Confidence(
        meets=0.83, systems={"50": 4, "80": 5, "95": 6}, step_factors={}, metric="ttft_ms"
    )
    surer = replace(plan, candidates=(replace(plan.choice, confidence=sure), *plan.candidates[1:]))
    assert dict(first_glance(surer))["probability that every limit holds"] == "83%"

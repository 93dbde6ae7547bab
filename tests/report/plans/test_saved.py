"""Plans from files: the same report from a saved plan as from the plan itself, and one clear line for anything else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.report.example_plan import full, without_answer
from tonnage.errors import InputError
from tonnage.plan.plan import Plan
from tonnage.report.plans.plan_document import full_text, read_plans, report, to_json
from tonnage.report.plans.screen import screen
from tonnage.report.writers.html import html
from tonnage.report.writers.markdown import markdown
from tonnage.report.writers.terminal import terminal


def saved(folder: Path, document: object) -> Path:
    path = folder / "plan.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
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
    [("{", "is no JSON"), ({"schema": "tonnage-plan/1"}, "written by another version"), ({}, "no plan"), ([1], "no plan")],
)
def test_what_is_no_plan_is_refused_in_one_line(content: object, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        read_plans(saved(tmp_path, content))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read_plans(tmp_path / "nowhere.json")

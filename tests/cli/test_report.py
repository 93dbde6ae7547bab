"""``tonnage report``: a saved plan is written again, in every form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from tests.report.example_plan import HERE, full
from tonnage.cli.main import run
from tonnage.report.plans.plan_document import report
from tonnage.report.writers.html import html

if TYPE_CHECKING:
    import pytest

PLAN = str(HERE / "plan.json")


def test_text_markdown_and_json_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", PLAN]) == 0
    assert capsys.readouterr().out.startswith("Question     llama-3-8b, 2,000 tokens in, 200 out\n")
    assert run(["report", PLAN, "--explain"]) == 0
    assert "Where time and memory go" in capsys.readouterr().out
    assert run(["report", PLAN, "--markdown"]) == 0
    assert capsys.readouterr().out.startswith("# 5 × dgx-h100 for llama-3-8b\n")
    assert run(["report", PLAN, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == full().to_json()


def test_a_page_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "plan.html"
    assert run(["report", PLAN, "--output", str(page)]) == 0
    assert page.read_text(encoding="utf-8") == html(report(full()))
    assert capsys.readouterr().out == ""


def test_what_is_no_plan_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content, said in (("{}", "no plan"), ("[", "is no JSON")):
        (tmp_path / "x.json").write_text(content, encoding="utf-8")
        assert run(["report", str(tmp_path / "x.json")]) == 2
        error = capsys.readouterr().err
        assert len(error.splitlines()) == 1
        assert said in error

"""A saved plan, written again."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tests.report.example_plan import HERE, full
from tonnage.cli.main import run
from tonnage.report.plans.plan_document import HEADER, report
from tonnage.report.writers.html import html


def test_csv_has_a_line_for_every_deployment(
    saved: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", saved[1], "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    plan = json.loads(Path(saved[1]).read_text(encoding="utf-8"))
    assert tuple(rows[0]) == HEADER
    assert len(rows) == len(plan["candidates"]) + len(plan["rejected"])
    assert rows[0]["status"] == "chosen"
    assert float(rows[0]["ttft_ms_p95"]) == pytest.approx(
        plan["choice"]["at_peak"]["ttft_ms"]["p95"], rel=1e-5
    )


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

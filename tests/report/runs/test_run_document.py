"""The report of a run, measured, simulated or imported: figures that hold the values put in, and
what is missing named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.report.runs import example_run
from tests.report.runs.run_document_cases import SINGLE, blocks, figures, report
from tonnage.bench.steady import positions_of_gaps
from tonnage.cli.main import run
from tonnage.report.document import Document, Facts, Items, Text
from tonnage.report.drawing.figure import Plot
from tonnage.report.writers.html import html
from tonnage.report.writers.terminal import markdown


def said(document: Document) -> str:
    return "\n".join(block.text for block in blocks(document) if isinstance(block, Text))


def test_the_two_numbers_of_the_course_are_the_slopes_that_were_put_in(tmp_path: Path) -> None:
    text = said(report(example_run.measured(tmp_path / "run")))
    assert "20.0 ± 0.0000" in text
    assert "ms of TTFT per 1,000 prompt tokens" in text
    drift = next(line for line in text.splitlines() if "the drift" in line)
    # a bin of the histogram is 1 % wide
    assert float(drift.split()[0]) == pytest.approx(example_run.GAP_SLOPE, rel=0.05)
    assert list(positions_of_gaps(np.array([50, 50]))[:6]) == [1, 2.5, 5.5, 11.5, 23.5, 40.5]
    assert positions_of_gaps(np.array([40, 50]))[5] == np.mean([*range(32, 40), *range(32, 50)])
    assert positions_of_gaps(np.array([40]))[7] == (128 + 255) / 2


def test_a_verdict_against_the_run_stands_above_its_numbers(tmp_path: Path) -> None:
    document = report(example_run.measured(tmp_path / "run", failed=7))
    answer = document.sections[0].blocks
    warnings = [
        item
        for block in answer
        if isinstance(block, Items) and block.tone == "warning"
        for item in block.items
    ]
    notes = [
        item
        for block in answer
        if isinstance(block, Items) and block.tone == "note"
        for item in block.items
    ]
    assert warnings == ["The event loop was late: mean 9 ms > 2 ms."]
    assert notes == [
        "7 requests failed; the latencies are those of the 193 completed",
        "p99: too few samples",
    ]
    cards = next(dict(block.rows) for block in answer if isinstance(block, Facts))
    assert cards["verdict"] == "INVALID"


@pytest.mark.parametrize(
    "make", [example_run.simulated, lambda f: example_run.measured(f, tokens=False)]
)
def test_a_run_without_single_tokens_names_the_file_that_is_missing(
    tmp_path: Path, make: Any
) -> None:
    document = report(make(tmp_path / "run"))
    found = figures(document)
    assert set(found) == SINGLE
    assert found["gaps-by-position"].clouds == ()
    assert "need tokens.parquet, which this run folder does not hold" in said(document)


def test_a_sweep_shows_the_loads_in_order_and_each_run(tmp_path: Path) -> None:
    document = report(example_run.sweep(tmp_path / "sweep"))
    found = figures(document)
    assert set(found) == {"sweep", "ttft-boxes", "e2e-boxes"} | SINGLE
    assert [box.name for box in found["ttft-boxes"].boxes] == [
        "2 clients",
        "8 clients",
        "16 clients",
    ]
    sweep = found["sweep"]
    assert isinstance(sweep, Plot)
    assert {series.name for series in sweep.series} == {
        "TTFT mean",
        "TTFT p95",
        "ITL p99",
        "E2E mean",
    }
    assert all(len(series.points) == 3 for series in sweep.series)
    keys = [section.key for section in document.sections]
    assert len(keys) == len(set(keys))
    assert [
        section.title
        for section in document.sections
        if section.listed and section.key.startswith("answer-")
    ] == [
        "2 clients",
        "8 clients",
        "16 clients",
    ]


def test_a_run_of_few_requests_is_still_a_report(tmp_path: Path) -> None:
    from tonnage.results.metrics import summarize
    from tonnage.results.store import RunWriter, summary_document

    for count, failed in ((3, 0), (3, 3)):
        writer = RunWriter(tmp_path / f"run-{failed}")
        writer.add(example_run.batch(count=count, failed=failed))
        requests = writer.finish()
        summary = summary_document(summarize(requests), requests, ())
        writer.close(
            scenario=example_run.SCENARIO, summary=summary, provenance={}, run={"validity": {}}
        )
        document = report(tmp_path / f"run-{failed}")
        assert "requests" in figures(document)
        assert ("lengths" in figures(document)) == (not failed)
        assert "20 completed requests" in said(document)
        assert markdown(document)
        assert html(document)


def test_the_command_writes_page_markdown_text_and_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, page = example_run.measured(tmp_path / "run"), tmp_path / "run.html"
    assert run(["report", str(folder), "--output", str(page)]) == 0
    assert page.read_text(encoding="utf-8") == html(report(folder))
    assert run(["report", str(folder), "--markdown"]) == 0
    assert capsys.readouterr().out == markdown(report(folder))
    assert run(["report", str(folder)]) == 0
    assert "m, 10 requests/s, Poisson arrivals: measured" in capsys.readouterr().out
    assert run(["report", str(folder), "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["trends"]["ttft_ms_per_1000_prompt_tokens"]["slope"] == pytest.approx(20)
    assert values["validity"]["verdict"] == "INVALID"
    assert run(["report", str(example_run.sweep(tmp_path / "sweep")), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["points"]) == 3

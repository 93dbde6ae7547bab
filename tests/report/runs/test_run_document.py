"""The report of a run, measured, simulated or imported: figures that hold the values put in, and
what is missing named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.report.runs import example_run
from tonnage.bench.steady import positions_of_gaps
from tonnage.cli.main import run
from tonnage.errors import DataError, InputError
from tonnage.report.document import Block, Document, Drawing, Facts, Items, Text
from tonnage.report.drawing.figure import Boxes, Gantt, HeatMap, Plot, Scatter
from tonnage.report.runs.run_document import run_report
from tonnage.report.runs.shown_run import read_shown_runs
from tonnage.report.writers.html import html
from tonnage.report.writers.terminal import markdown

SINGLE = {
    "ttft-box",
    "ttft-by-prompt",
    "gaps-by-position",
    "e2e-box",
    "lengths",
    "ttft-over-time",
    "e2e-over-time",
    "in-flight",
    "requests",
}


def report(folder: Path) -> Document:
    return run_report(read_shown_runs(folder))


def blocks(document: Document) -> Iterator[Block]:
    for section in document.sections:
        yield from section.blocks


def figures(document: Document) -> dict[str, Any]:
    return {
        block.figure.key: block.figure for block in blocks(document) if isinstance(block, Drawing)
    }


def said(document: Document) -> str:
    return "\n".join(block.text for block in blocks(document) if isinstance(block, Text))


def test_a_measured_run_has_every_figure_and_each_holds_what_was_put_in(tmp_path: Path) -> None:
    shown = read_shown_runs(example_run.measured(tmp_path / "run"))
    found = figures(run_report(shown))
    assert set(found) == SINGLE
    box = found["ttft-box"]
    assert isinstance(box, Boxes)
    assert box.boxes[0].p50 == pytest.approx(np.percentile(shown[0].ttft_ms, 50))
    assert (
        box.boxes[0].p1 < box.boxes[0].p25 < box.boxes[0].p50 < box.boxes[0].p75 < box.boxes[0].p99
    )
    scatter = found["ttft-by-prompt"]
    assert isinstance(scatter, Scatter)
    assert len(scatter.clouds[0].dots) == example_run.COUNT
    assert all(y == pytest.approx(30 + x / 50, abs=1e-5) for x, y in scatter.clouds[0].dots)
    gaps = found["gaps-by-position"]
    assert isinstance(gaps, Scatter)
    assert all(y == pytest.approx(10 + x * 40 / 1e3, abs=1e-5) for x, y in gaps.clouds[0].dots)
    assert [round(point.x, 1) for point in gaps.series[0].points] == [1, 2.5, 5.5, 11.5, 23.5, 40.5]
    heat = found["lengths"]
    assert isinstance(heat, HeatMap)
    assert sum(cell.count for cell in heat.cells) == example_run.COUNT
    assert heat.rows == (50, 51)
    gantt = found["requests"]
    assert isinstance(gantt, Gantt)
    assert [lane.name for lane in gantt.lanes] == [str(i) for i in range(70, 130)]
    first = gantt.lanes[0].spans
    assert [(span.name, round(span.start, 3)) for span in first][:2] == [
        ("due, not yet sent", 7.0),
        ("waits for its first token", 7.002),
    ]


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


def test_what_is_no_run_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match="is no run folder, and none lies inside it"):
        read_shown_runs(tmp_path)
    folder = example_run.measured(tmp_path / "run")
    assert run(["report", str(folder), "--explain"]) == 2
    assert "--explain is for a plan, and " in capsys.readouterr().err
    (folder / "run.json").write_text("[", encoding="utf-8")
    with pytest.raises(DataError, match=r"run\.json: is damaged"):
        read_shown_runs(folder)


def test_what_the_server_said_is_drawn_in_the_time_of_the_run(tmp_path: Path) -> None:
    found = figures(report(example_run.with_server_metrics(example_run.measured(tmp_path / "run"))))
    assert set(found) == SINGLE | {"server-requests", "server-kv"}
    running = found["server-requests"].series
    assert [series.name for series in running] == ["running"]
    # two ranks together
    assert [(p.x, p.y) for p in running[0].points] == [(float(s), 2.0 * s) for s in range(10)]
    # their mean, in per cent
    assert [p.y for p in found["server-kv"].series[0].points] == pytest.approx(
        [5.0 * s for s in range(10)]
    )

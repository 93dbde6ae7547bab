"""The figures of runs hold what was put in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.report.runs import example_run
from tests.report.runs.run_document_cases import SINGLE, figures, report
from tonnage.report.drawing.figure import Boxes, Gantt, HeatMap, Scatter
from tonnage.report.runs.run_document import run_report
from tonnage.report.runs.shown_run import read_shown_runs


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

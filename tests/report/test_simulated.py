"""Simulated points as a document: tables and figures of a sweep."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.question.sweeps_cases import ASKED
from tonnage import api
from tonnage.report.simulated import PICTURED, simulated, sweep_figures, title_of


def test_the_table_names_what_is_swept_and_the_title_all_values() -> None:
    sweep = api.simulate_sweep(
        None,
        **{**ASKED, "tp": "1,2", "router": "random,weighted", "request_rate": "9", "instances": 2},
    )
    table: Any = simulated(sweep).sections[0].blocks[0]
    assert table.header[:3] == ("TP", "router", "load")
    assert [row[:3] for row in table.rows][:2] == [
        ("1", "random", "9/s, Poisson"),
        ("1", "weighted", "9/s, Poisson"),
    ]
    assert title_of(sweep).endswith(
        "on 1/2 × h100-sxm-80gb, tensorrt-llm-1.2, 200 tokens in, 20 out; 2 instances,"
        " random/weighted"
    )


def test_figures_go_along_the_load_a_number_or_the_points() -> None:
    by_load, by_number, by_name = (
        sweep_figures(api.simulate_sweep(None, **{**ASKED, **axes}))
        for axes in (
            {"tp": "1,2", "concurrency": "1,4"},
            {"tp": "1,2", "concurrency": "4"},
            {"precision": "fp16,fp8", "concurrency": "4"},
        )
    )
    assert [figure.title for figure in by_load] == list(PICTURED)
    lines: Any = by_load[0]
    assert (lines.x.title, [series.name for series in lines.series]) == (
        "clients",
        ["TP 1", "TP 2"],
    )
    line: Any = by_number[2]
    assert line.x.title == "TP"
    assert [point.x for point in line.series[0].points] == [1, 2]
    per_gpu: Any = by_number[3]
    rates = [point.y for point in line.series[0].points]
    assert [point.y for point in per_gpu.series[0].points] == pytest.approx(
        [rates[0], rates[1] / 2]
    )
    bars: Any = by_name[0]
    assert [bar.name for bar in bars.bars] == ["precision fp16", "precision fp8"]

"""What was measured: the ranges of the rows, as ``./fit ranges`` writes them and the package ships
them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.silicon_sample import NVIDIA, sample
from tonnage.perf import shipped_json
from tonnage.perf.ranges import shipped_ranges
from tonnage.perf.terms_file import shipped
from tools.fit.command import run
from tools.fit.fit import AGG, SUBMITTED
from tools.fit.ranges import ranges
from tools.fit.silicon.sample import installed_sample

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
needs_data = pytest.mark.skipif(
    not DATA.is_dir(),
    reason=f"THE MEASURED FILES ARE ABSENT: no {DATA}; the ranges are not checked",
)


def made(silicon: Path) -> dict[str, Any]:
    return ranges(DATA, silicon, DATA / "modern" / AGG, origins=shipped()["origins"])


@pytest.mark.accuracy
@needs_data
def test_the_shipped_ranges_of_engines_without_rows_in_the_wheel_are_those_of_the_files(
    tmp_path: Path,
) -> None:
    """Those of NIM, ATOM and TensorRT-LLM before 1.0, which need no wheel; the sample is one line
    of vLLM."""
    found, ships = (
        json.loads(json.dumps(made(sample(tmp_path, NVIDIA)))),
        shipped_json("ranges.json", ""),
    )
    whole = {"atom", "nim-2024", "tensorrt-llm-0.9", "tensorrt-llm-0.15"}
    assert {name: found["loads"][name] for name in whole} == {
        name: ships["loads"][name] for name in whole
    }
    assert found["engines"] == ships["engines"]
    assert {
        name: count for name, count in found["rows"].items() if "silicon" not in name
    }.items() <= ships["rows"].items()
    assert ships["date"] == shipped()["origins"]["date"]
    assert found["loads"]["vllm"]["dense"]["isl"][0] == min(
        1024, ships["loads"]["vllm"]["dense"]["isl"][0]
    )


@pytest.mark.accuracy
@needs_data
@pytest.mark.skipif(
    installed_sample() is None,
    reason="aiconfigurator-core, whose file holds the rows of current engines, is not installed",
)
def test_the_shipped_file_is_what_the_command_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["ranges", str(DATA), "--output", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"written: {tmp_path / 'ranges.json'}\n"
    assert json.loads((tmp_path / "ranges.json").read_text(encoding="utf-8")) == shipped_json(
        "ranges.json", ""
    )


def test_the_ranges_count_the_rows_that_the_fit_counts() -> None:
    report, counted = shipped()["report"], shipped_ranges().rows
    silicon = report["rows"]["silicon_sample.csv"] + report["rows"]["silicon_sample.csv, MoE"]
    plain = {
        name: count for name, count in report["rows"].items() if name.startswith(("trtllm", "nim"))
    }
    assert plain.items() <= counted.items()
    assert (counted["silicon_sample.csv"], counted[AGG] + counted[SUBMITTED]) == (
        silicon,
        report["modern"]["rows"],
    )

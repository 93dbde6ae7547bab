"""SGLang's bench_serving: requests and details of its lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.formats.field_files import SGLANG, written
from tests.formats.imported_runs import FILES, Imported
from tonnage.api.compare import import_run
from tonnage.errors import InputError
from tonnage.formats.measured_files import read_measured


def test_sglang_s_own_summary_comes_out_of_its_lists(tmp_path: Path) -> None:
    found = Imported(FILES / "sglang.jsonl", tmp_path / "run")
    said = json.loads((FILES / "sglang.jsonl").read_text())
    assert len(found.requests) == said["completed"] == 10
    for ours, theirs in (
        ("ttft_from_send_ms", "ttft"),
        ("tpot_ms", "tpot"),
        ("itl_ms", "itl"),
        ("e2e_ms", "e2e_latency"),
    ):
        assert found.summary[ours]["mean"] == pytest.approx(said[f"mean_{theirs}_ms"], rel=0.01), (
            theirs
        )
    assert found.requests.osl.sum() == said["total_output_tokens"]
    # its clock starts a little earlier
    assert found.summary["requests_per_second"] == pytest.approx(
        said["request_throughput"], rel=0.05
    )


def test_details_of_sglang_are_requests(tmp_path: Path) -> None:
    lists = {
        "input_lens": [1000] * 3,
        "output_lens": [5, 5, 0],
        "ttfts": [0.1, 0.1, 0],
        "itls": [[0.01] * 4, [0.01] * 4, []],
    }
    path = written(
        tmp_path / "out.jsonl",
        {**SGLANG, "max_concurrency": 1, **lists, "errors": ["", "", "boom"]},
    )
    ((_, summary, facts),) = import_run(path, tmp_path / "run")
    assert (summary.counted, facts["failed"]) == (2, {"boom": 1})
    assert (summary.ttft_ms.mean, summary.tpot_ms.mean) == (pytest.approx(100), pytest.approx(10))
    assert summary.window_s == pytest.approx(0.28)  # one client: one request after the other


SGLANG_BENCH_GIVEN: dict[str, str | int] = {
    "model": "llama-3.1-8b",
    "gpu": "h100",
    "precision": "fp8",
    "tp": 1,
}


LINE: dict[str, Any] = {
    "backend": "sglang",
    "request_rate": float("inf"),
    "max_concurrency": 16,
    "duration": 40.0,
    "completed": 80,
    "total_input_tokens": 80_800,
    "total_output_tokens": 15_920,
    "request_throughput": 2.0,
    "output_throughput": 398.0,
    "mean_e2e_latency_ms": 3900.0,
    "median_e2e_latency_ms": 3850.0,
    "mean_ttft_ms": 100.0,
    "p99_ttft_ms": 300.0,
    "mean_tpot_ms": 19.0,
    "p99_itl_ms": 60.0,
    "concurrency": 7.8,
}


def rows_of(folder: Path, *lines: dict[str, Any]) -> list[dict[str, Any]]:
    file = folder / "results.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return [dict(row) for row in read_measured(file, SGLANG_BENCH_GIVEN)]


def test_each_line_is_a_point_with_its_own_definitions(tmp_path: Path) -> None:
    first, second = rows_of(tmp_path, LINE, {**LINE, "request_rate": 2.5, "max_concurrency": None})
    assert (first["concurrency"], first["request_rate"], first["requests"]) == (16, None, 80)
    assert (second["concurrency"], second["request_rate"]) == (None, 2.5)
    assert (first["engine"], first["isl"], first["osl"]) == ("sglang", 1010, 199)
    assert (first["ttft_ms"], first["ttft_p99_ms"], first["tpot_ms"], first["itl_p99_ms"]) == (
        100.0,
        300.0,
        19.0,
        60.0,
    )
    assert (first["e2e_ms"], first["e2e_p50_ms"], first["requests_s"], first["output_tok_s"]) == (
        3900.0,
        3850.0,
        2.0,
        398.0,
    )
    random = {"random_input_len": 1000, "random_output_len": 200, "random_range_ratio": 0.8}
    varied, equal, other = rows_of(
        tmp_path,
        LINE | random,
        LINE | random | {"random_range_ratio": 1.0},
        LINE | random | {"dataset_name": "sharegpt"},
    )
    assert (varied["isl_drawn"], varied["osl_drawn"]) == ("800-1000", "160-200")
    assert equal["isl_drawn"] is None
    assert other["isl_drawn"] is None
    assert rows_of(tmp_path, {**LINE, "max_concurrency": None})[0]["concurrency"] == 80


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"request_rate": -2.5}, "request_rate"),
        ({"completed": None}, "does not say how many requests were completed"),
        ({"mean_ttft_ms": "quick"}, "mean_ttft_ms"),
    ],
)
def test_what_cannot_be_used_is_named(change: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"results\.jsonl, line 2.*{says}"):
        rows_of(tmp_path, LINE, {**LINE, **change})

"""Tables of measurements: headers of tools, loads as people write them, and cached shares."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.formats.field_files import rows_of, table
from tonnage.errors import InputError
from tonnage.evidence.predict import predict, read_point, workload_of
from tonnage.formats.table import find_column
from tonnage.perf.terms import step_model
from tonnage.spec.workload import OpenLoop


def test_loads_of_a_table_as_people_write_them(tmp_path: Path) -> None:
    path = table(
        tmp_path,
        {"request_rate": "inf", "num_prompts": 200},
        {"request_rate": "inf", "num_prompts": 200, "concurrency": 16},
        {"request_rate": 6, "concurrency": 50, "burstiness": 0.25},
        {"request_rate": 6, "burstiness": "inf"},
        {"request_rate": 6, "ramp_up_strategy": "linear"},
        {"request_rate": "inf"},
        {"concurrency": 4, "enforce_eager": "True"},
        {"concurrency": 4, "range_ratio": 0},
        {"concurrency": 4, "range_ratio": 0, "engine": "trtllm"},
        {"concurrency": 4, "range_ratio": 0, "engine": "sglang"},
    )
    rows, said = rows_of(path)
    loads = [(row["concurrency"], row["request_rate"], row["in_flight"]) for row in rows]
    assert loads == [
        (200, None, None),
        (16, None, None),
        (None, 6, 50),
        (None, 6, None),
        (4, None, None),
        (4, None, None),
    ]
    assert [row["isl_drawn"] for row in rows] == [None] * 5 + ["1-1000"]
    points = [read_point(row) for row in rows[2:4]]
    arrivals = [
        workload_of(point, step_model(point.deployment), turnaround_s=0.0).arrivals
        for point in points
    ]
    assert arrivals == [
        OpenLoop(rate=6, process="gamma", cv=2.0, in_flight=50),
        OpenLoop(rate=6, process="constant", cv=0.0),
    ]
    why = [
        "ramp_up_strategy linear",
        "no column requests says how many",
        "CUDA graphs (eager)",
        "a range_ratio of 0 is equal lengths",
    ]
    assert [words in sentence for words, sentence in zip(why, said, strict=True)] == [True] * 4
    assert [sentence.split(" is left out")[0].split("line ")[1] for sentence in said] == [
        "6",
        "7",
        "8",
        "10",
    ]


def test_a_cached_share_saves_prompt_tokens(tmp_path: Path) -> None:
    shares = [
        {"concurrency": 4, "isl": 8000, "num_prompts": 40, "cached_share": share}
        for share in (0, 0.9, 1)
    ]
    none, most, whole = (predict(read_point(row)) for row in rows_of(table(tmp_path, *shares))[0])
    assert most["ttft_ms"] < 0.5 * none["ttft_ms"]
    assert whole["ttft_ms"] < most["ttft_ms"]
    with pytest.raises(InputError, match="cached_share: is simulated for prompts of one length"):
        predict(
            read_point(
                rows_of(
                    table(tmp_path, {"concurrency": 4, "cached_share": 0.5, "isl": "500-1500"})
                )[0][0]
            )
        )


def test_percentiles_of_a_table_are_scored(tmp_path: Path) -> None:
    (row,), _ = rows_of(
        table(tmp_path, {"concurrency": 4, "ttft_p99_ms": 120, "p99 TPOT (ms)": 12})
    )
    assert (row["ttft_p99_ms"], row["tpot_p99_ms"]) == (120, 12)


def test_headers_of_tools_are_known_and_others_left_alone() -> None:
    for header, name, scale in [
        ("Time To First Token (ms)", "ttft_ms", 1.0),
        ("p95 TTFT [s]", "ttft_p95_ms", 1000.0),
        ("Inter Token Latency (ms) p99", "tpot_p99_ms", 1.0),
        ("itl_p95_ms", "itl_p95_ms", 1.0),
        ("Request Throughput (per sec)", "requests_s", 1.0),
        ("Output Token Throughput (tokens/sec)", "output_tok_s", 1.0),
        ("Max Concurrency", "concurrency", 1.0),
        ("FTL (ms)", "ttft_ms", 1.0),
        ("Time to Last Token (s)", "e2e_ms", 1000.0),
        ("requests/s per instance", "requests_s", 1.0),
    ]:
        column = find_column(header)
        assert (column.name, column.scale) == (name, scale)
    for header in [
        "Request Latency (ms) max",
        "ttft_p25_ms",
        "Time To Second Token (ms)",
        "measured_osl",
        "",
        "notes",
    ]:
        assert find_column(header) is None

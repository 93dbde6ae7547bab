"""LLMPerf's summaries in both of their forms."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.formats.field_files import LATENCIES, LLMPERF, rows_of, written


def test_llmperf_in_both_forms(tmp_path: Path) -> None:
    flat = {**LLMPERF, "results_number_input_tokens_mean": 1000}
    nested = {name: value for name, value in flat.items() if not name.startswith("results_")}
    nested["results"] = {
        "ttft_s": {"mean": 0.1, "quantiles": {"p99": 0.2}},
        "end_to_end_latency_s": {"mean": 1.1},
        "number_input_tokens": {"mean": 1000},
        "number_output_tokens": {"mean": 101, "stddev": 0},
        "num_completed_requests": 100,
        "num_completed_requests_per_min": 300.0,
        "mean_output_throughput_token_per_s": 505.0,
    }
    for document in (flat, nested):
        (row,), said = rows_of(written(tmp_path / "x_summary.json", document))
        assert [row[name] for name in (*LATENCIES, "ttft_p99_ms", "requests_s")] == pytest.approx(
            [100, 10, 1100, 200, 5]
        )
        assert (row["concurrency"], row["isl"], row["osl"], said) == (5, 1000, 101, ())

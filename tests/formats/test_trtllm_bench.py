"""trtllm-bench's reports: a point each, with its own deployment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tonnage.formats.measured_files import read_measured

STATISTICS = {
    "minimum": 1.0,
    "maximum": 9.0,
    "average": 5.0,
    "p50": 4.0,
    "p90": 7.0,
    "p95": 8.0,
    "p99": 8.9,
}


REPORT: dict[str, Any] = {
    "engine": {"model": "meta-llama/Llama-3.1-8B-Instruct", "version": "1.2.0", "backend": "Pytorch", "quantization": "FP8"},
    "machine": {"name": "NVIDIA H100 80GB HBM3", "memory.total": 79.1, "clocks.mem": 2.6},
    "world_info": {"tp_size": 2, "pp_size": 1, "ep_size": 1, "world_size": 2, "max_batch_size": 2048, "issue_rate": 40e6 * 1e9},
    "request_info": {"num_requests": 1000, "avg_num_concurrent_requests": 63.7, "avg_input_length": 2000.2, "avg_output_length": 199.9},
    "performance": {
        "total_latency_ms": 40_500.0,
        "avg_request_latency_ms": 2500.0,
        "request_throughput_req_s": 24.7,
        "system_output_throughput_tok_s": 4940.0,
        "request_latency_percentiles_ms": {**STATISTICS, "average": 2500.0, "p95": 3100.0},
    },
    "streaming_metrics": {
        "avg_ttft_ms": 210.0,
        "avg_tpot_ms": 11.5,
        "tpot_percentiles": {**STATISTICS, "average": 11.5, "p99": 14.0},
        "ttft_percentiles": {**STATISTICS, "average": 210.0, "p95": 420.0},
    },
}  # fmt: skip


def written_of_trtllm_bench(folder: Path, **changed: Any) -> Path:
    file = folder / "report.json"
    file.write_text(
        json.dumps(
            {name: value for name, value in (REPORT | changed).items() if value is not None}
        ),
        encoding="utf-8",
    )
    return file


def test_a_report_is_a_point_with_its_own_deployment(tmp_path: Path) -> None:
    (row,) = (
        dict(each) for each in read_measured(written_of_trtllm_bench(tmp_path), {"gpu": "h100"})
    )
    assert (row["model"], row["precision"], row["tp"], row["engine"]) == (
        "meta-llama/Llama-3.1-8B-Instruct",
        "fp8",
        2,
        "tensorrt-llm",
    )
    assert (row["isl"], row["osl"], row["concurrency"], row["requests"]) == (2000, 200, 64, 1000)
    assert (row["ttft_ms"], row["ttft_p95_ms"], row["tpot_ms"], row["tpot_p99_ms"]) == (
        210.0,
        420.0,
        11.5,
        14.0,
    )
    assert (row["e2e_ms"], row["e2e_p95_ms"], row["requests_s"], row["output_tok_s"]) == (
        2500.0,
        3100.0,
        24.7,
        4940.0,
    )
    queued = {**REPORT["world_info"], "issue_rate": 0.05e6 * 1e9}
    (row,) = (
        dict(each)
        for each in read_measured(
            written_of_trtllm_bench(tmp_path, world_info=queued, streaming_metrics=None),
            {"gpu": "h100"},
        )
    )
    assert row["concurrency"] == 1000
    assert (row["ttft_ms"], row["e2e_ms"]) == (None, 2500.0)

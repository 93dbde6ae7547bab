"""Files of load clients as they occur, and tables, that several readers' tests are about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import in_python
from tonnage.formats.invalid_runs import InvalidRuns
from tonnage.formats.measured_files import read_measured

GIVEN: dict[str, str | int] = {
    "model": "llama-3.1-8b",
    "gpu": "h100-sxm-80gb",
    "precision": "fp16",
    "tp": 1,
    "engine": "vllm",
}


LATENCIES = ("ttft_ms", "itl_ms", "e2e_ms")


def rows_of(
    path: Path, *, allow_errors: bool = False, **further: Any
) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """The rows of a file or folder, and what was said of it; skipped where a case from the field is
    absent."""
    if not path.exists():
        pytest.skip("the cases from the field are not here")
    invalid = InvalidRuns(allow_errors=allow_errors)
    return read_measured(path, GIVEN | further, invalid), tuple(map(in_python, invalid.sentences))


VLLM_RUN: dict[str, Any] = {
    "model_id": "m",
    "num_prompts": 40,
    "request_rate": "inf",
    "burstiness": 1.0,
    "max_concurrency": 8,
    "completed": 40,
    "total_input_tokens": 40_000,
    "total_output_tokens": 4_040,
    "request_throughput": 7.27,
    "output_throughput": 734.5,
    "mean_ttft_ms": 100.0,
    "mean_tpot_ms": 10.0,
    "mean_e2el_ms": 1100.0,
}


SGLANG = {
    name: value for name, value in VLLM_RUN.items() if name not in ("num_prompts", "mean_e2el_ms")
} | {"mean_e2e_latency_ms": 1100.0}


def written(path: Path, document: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


LLMPERF = {
    "model": "m",
    "mean_input_tokens": 550,
    "mean_output_tokens": 150,
    "num_concurrent_requests": 5,
    "results_ttft_s_mean": 0.1,
    "results_ttft_s_quantiles_p99": 0.2,
    "results_end_to_end_latency_s_mean": 1.1,
    "results_inter_token_latency_s_mean": 0.0109,
    "results_number_input_tokens_mean": 1000,
    "results_number_output_tokens_mean": 101,
    "results_number_output_tokens_stddev": 0,
    "results_num_completed_requests": 100,
    "results_num_completed_requests_per_min": 300.0,
    "results_mean_output_throughput_token_per_s": 505.0,
    "results_number_errors": 0,
}


def table(folder: Path, *rows: dict[str, Any]) -> Path:
    """A table of these rows; each has the columns of all."""
    base = {
        "model": "llama-3.1-8b",
        "gpu": "h100-sxm-80gb",
        "precision": "fp16",
        "tp": 1,
        "isl": 1000,
        "osl": 100,
        "e2e_ms": 1000,
    }
    every = list(dict.fromkeys(name for row in rows for name in {**base, **row}))
    lines = [",".join(str({**base, **row}.get(name, "")) for name in every) for row in rows]
    return written(folder / "t.csv", "\n".join([",".join(every), *lines, ""]))

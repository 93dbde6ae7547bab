"""A report of GenAI-Perf."""

from __future__ import annotations

from pathlib import Path
from typing import Any

REPORT_KEYS: dict[str, str | int] = {
    "model": "llama-3-8b",
    "gpu": "h100-sxm-80gb",
    "precision": "fp8",
    "tp": 1,
    "isl": 2000,
    "osl": 200,
}


REPORT_JSON: dict[str, Any] = {
    "request_throughput": {"unit": "requests/sec", "avg": 1.5},
    "request_latency": {
        "unit": "ms",
        "avg": 7000.25,
        "p50": 6500.5,
        "p90": 9000.75,
        "p95": 9400.0,
        "p99": 9800.5,
        "max": 9900.0,
    },
    "request_count": {"unit": "count", "avg": 45.0},
    "time_to_first_token": {
        "unit": "ms",
        "avg": 1020.5,
        "p50": 600.5,
        "p90": 3000.25,
        "p95": 3500.5,
        "p99": 3900.75,
        "std": 9.0,
    },
    "inter_token_latency": {
        "unit": "ms",
        "avg": 30.25,
        "p50": 30.0,
        "p90": 36.5,
        "p95": 38.0,
        "p99": 39.5,
    },
    "output_token_throughput": {"unit": "tokens/sec", "avg": 299.5},
    "output_token_throughput_per_user": {"unit": "tokens/sec/user", "avg": 33.06},
    "output_sequence_length": {"unit": "tokens", "avg": 199.45},
    "input_sequence_length": {"unit": "tokens", "avg": 2007.05},
    "telemetry_stats": {},
    "input_config": {
        "model_names": ["meta/llama3-8b-instruct"],
        "perf_analyzer": {"stimulus": {"concurrency": 10}},
        "verbose": False,
    },
}


def report_file(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return path

"""A result of vLLM's bench and a report of GuideLLM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROW_KEYS: dict[str, str | int] = {
    "gpu": "h100-sxm-80gb",
    "precision": "fp16",
    "tp": 1,
    "isl": 1000,
    "osl": 200,
}


VLLM_RESULT: dict[str, Any] = {
    "date": "20261121-010203",
    "backend": "vllm",
    "model_id": "meta-llama/Llama-3.1-8B-Instruct",
    "num_prompts": 80,
    "request_rate": "inf",
    "max_concurrency": 8,
    "duration": 40.0,
    "completed": 80,
    "total_input_tokens": 80_800,
    "total_output_tokens": 15_920,
    "request_throughput": 2.0,
    "output_throughput": 398.0,
    "mean_ttft_ms": 100.0,
    "median_ttft_ms": 90.0,
    "p99_ttft_ms": 300.0,
    "mean_tpot_ms": 19.0,
    "mean_itl_ms": 18.5,
    "p99_itl_ms": 60.0,
    "mean_e2el_ms": 3900.0,
}


def summary(mean: float) -> dict[str, Any]:
    return {
        "successful": {
            "mean": mean,
            "median": mean,
            "percentiles": {"p001": 0.0, "p50": mean, "p95": 1.5 * mean},
        },
        "errored": None,
    }


def guidellm(strategy: dict[str, Any]) -> dict[str, Any]:
    metrics = {
        "requests_per_second": summary(2.0),
        "request_latency": summary(3.9),
        "prompt_token_count": summary(1010.0),
        "output_token_count": summary(199.0),
        "time_to_first_token_ms": summary(100.0),
        "time_per_output_token_ms": summary(19.6),
        "inter_token_latency_ms": summary(19.0),
        "output_tokens_per_second": summary(398.0),
    }
    return {
        "type_": "generative_benchmark",
        "config": {"strategy": strategy, "backend": {"model": "llama-3.1-8b"}},
        "metrics": metrics,
    }


GUIDELLM: dict[str, Any] = {
    "metadata": {"version": 2},
    "benchmarks": [
        guidellm({"type_": "synchronous"}),
        guidellm({"type_": "concurrent", "streams": 8}),
        guidellm({"type_": "poisson", "rate": 2.5}),
        guidellm({"type_": "throughput", "max_concurrency": 64}),
    ],
}


def file_of(folder: Path, document: object, name: str = "result.json") -> Path:
    path = folder / name
    path.write_text(
        document if isinstance(document, str) else json.dumps(document), encoding="utf-8"
    )
    return path

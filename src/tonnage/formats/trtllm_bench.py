"""The report of ``trtllm-bench throughput`` and ``latency`` with ``--report_json``: one run per
JSON file.

Its TPOT is ours: (last token − first) / (tokens − 1), one value per request; its request latency is
our E2E, and its TTFT is there only with ``--streaming``. All three count from the moment a request
is handed to the engine, without HTTP. It names the GPU in words of the driver, which is left to the
caller. It does not say the requested concurrency: where all requests were handed over within a
twentieth of the run they count as queued at once; elsewhere the mean number in flight is taken.
``issue_rate`` is, whatever its name says, the mean nanoseconds between two requests times 10⁹.
Source: TensorRT-LLM 1.2, ``tensorrt_llm/bench/dataclasses/reporting.py`` (read 2026-11-22).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tonnage.formats.table import (
    completed_requests,
    count_at,
    inside,
    measure_at,
    name_at,
    number_at,
    with_keys,
)
from tonnage.formats.tool_format import Point, Points, ToolFormat

LATENCIES = {
    "e2e": ("performance", "request_latency_percentiles_ms"),
    "ttft": ("streaming_metrics", "ttft_percentiles"),
    "tpot": ("streaming_metrics", "tpot_percentiles"),
}
STATISTICS = {"average": "", "p50": "_p50", "p90": "_p90", "p95": "_p95", "p99": "_p99"}
FORMATS = {
    "FP8": "fp8",
    "NVFP4": "nvfp4",
    "W4A16_AWQ": "awq",
    "W4A16_GPTQ": "gptq",
    "W8A16": "int8-wo",
    "W4A16": "int4-wo",
}
"""Names of its quantisations."""
IN_FLIGHT = ("request_info", "avg_num_concurrent_requests")
# Share of a run within which all requests were handed over, where they count as queued at once
AT_ONCE = 0.05


def trtllm_points(document: dict[str, Any], where: str) -> Iterator[Point]:
    """The one run of the document. Raises InputError: naming the place and the key."""
    requests = completed_requests(document, where, "request_info", "num_requests")
    values: dict[str, str | int | float | None] = {"engine": "tensorrt-llm", "requests": requests}
    between, whole = (
        number_at(document, where, "world_info", "issue_rate"),
        measure_at(document, where, "performance", "total_latency_ms"),
    )
    at_once = (
        between is None or whole is None or between * 1e-18 * requests <= AT_ONCE * whole / 1e3
    )
    values["concurrency"] = (
        requests if at_once else count_at(document, where, *IN_FLIGHT, rounded=True)
    )
    for ours, path in LATENCIES.items():
        for theirs, suffix in STATISTICS.items():
            values[f"{ours}{suffix}_ms"] = measure_at(document, where, *path, theirs)
    for ours, theirs in (
        ("requests_s", "request_throughput_req_s"),
        ("output_tok_s", "system_output_throughput_tok_s"),
    ):
        values[ours] = measure_at(document, where, "performance", theirs)
    for ours, theirs in (("isl", "avg_input_length"), ("osl", "avg_output_length")):
        values[ours] = count_at(document, where, "request_info", theirs, rounded=True)
    for ours, theirs in (("tp", "tp_size"), ("pp", "pp_size")):
        values[ours] = count_at(document, where, "world_info", theirs)
    quantised = inside(document, "engine", "quantization")
    values["model"] = name_at(document, "engine", "model")
    values["precision"] = "fp16" if quantised is None else FORMATS.get(str(quantised))
    yield where, {name: value for name, value in values.items() if value is not None}


is_trtllm = with_keys("engine", "request_info", "performance", "world_info")

FORMAT = ToolFormat(
    name="trtllm", tool="trtllm-bench", points=Points(recognises=is_trtllm, read=trtllm_points)
)

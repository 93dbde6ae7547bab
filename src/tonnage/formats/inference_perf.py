"""``stage_N_lifecycle_metrics.json`` of inference-perf: one stage of its load per file, latencies in seconds.

Its time per output token is our TPOT, (E2E − TTFT) / (tokens − 1); its inter-token latency pools the gaps; the normalised one counts the
first token in and is left alone. It names neither the model nor the GPU. Source: kubernetes-sigs/inference-perf, reports (read 2026-11-28).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tonnage.formats.table import FAILED, REFUSED, SENT, completed_requests, count_at, inside, measure_at, number_at
from tonnage.formats.tool_format import Point, Points, ToolFormat

LATENCIES = {"time_to_first_token": "ttft", "time_per_output_token": "tpot", "inter_token_latency": "itl", "request_latency": "e2e"}
STATISTICS = {"mean": "", "median": "_p50", "p50": "_p50", "p90": "_p90", "p95": "_p95", "p99": "_p99"}


def inference_perf_points(document: dict[str, Any], where: str) -> Iterator[Point]:
    """The one stage of the document. Raises InputError: naming the place and the key."""
    completed = completed_requests(document, where, "successes", "count")
    failed = round(number_at(document, where, "failures", "count") or 0)
    values: dict[str, str | int | float | None] = {"requests": completed + failed, SENT: completed + failed, FAILED: failed}
    values["concurrency"] = count_at(document, where, "load_summary", "concurrency")
    values["request_rate"] = measure_at(document, where, "load_summary", "requested_rate") if values["concurrency"] is None else None
    if values["concurrency"] is None and values["request_rate"] is None:
        values[REFUSED] = "it is a summary of several stages; give the files stage_N_lifecycle_metrics.json"
    for theirs, ours in LATENCIES.items():
        for statistic, ending in STATISTICS.items():
            found = measure_at(document, where, "successes", "latency", theirs, statistic, scale=1e3)
            values[f"{ours}{ending}_ms"] = found or values.get(f"{ours}{ending}_ms")
    for theirs, ours in (("requests_per_sec", "requests_s"), ("output_tokens_per_sec", "output_tok_s")):
        values[ours] = measure_at(document, where, "successes", "throughput", theirs)
    for theirs, ours in (("prompt_len", "isl"), ("output_len", "osl")):
        values[ours] = count_at(document, where, "successes", theirs, "mean", rounded=True)
    yield where, {name: value for name, value in values.items() if value is not None}


def is_inference_perf(document: Any) -> bool:
    """Whether a document is such a stage, or the summary of all."""
    return all(isinstance(inside(document, part), dict) for part in ("load_summary", "successes", "failures"))


FORMAT = ToolFormat(name="inference-perf", tool="inference-perf", points=Points(recognises=is_inference_perf, read=inference_perf_points))

"""``*_summary.json`` of llmperf's ``token_benchmark_ray.py``: one closed loop per file, latencies
in seconds.

Its inter-token latency is the whole time of a request over its tokens, so the first token counts
in, and it is left alone: the mean TPOT follows from E2E and TTFT where outputs are of one length.
It counts tokens by a tokenizer of its choice. Source: ray-project/llmperf,
``token_benchmark_ray.py`` (recalled; names of the keys looked up 2026-11-28).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tonnage.formats.table import (
    FAILED,
    SENT,
    VARIES,
    completed_requests,
    count_at,
    inside,
    measure_at,
    name_at,
    number_at,
    with_keys,
)
from tonnage.formats.tool_format import Point, Points, ToolFormat

LATENCIES = {"ttft_s": "ttft", "end_to_end_latency_s": "e2e"}
STATISTICS = {
    "mean": "",
    "quantiles_p50": "_p50",
    "quantiles_p90": "_p90",
    "quantiles_p95": "_p95",
    "quantiles_p99": "_p99",
}


def llmperf_points(document: dict[str, Any], where: str) -> Iterator[Point]:
    """The one run of the document. Raises InputError: naming the place and the key."""
    flat = {**document, **_flat(inside(document, "results"), "results_")}
    completed = completed_requests(flat, where, "results_num_completed_requests")
    failed = round(number_at(flat, where, "results_number_errors") or 0)
    values: dict[str, str | int | float | None] = {
        "requests": completed + failed,
        SENT: completed + failed,
        FAILED: failed,
    }
    values["concurrency"] = count_at(flat, where, "num_concurrent_requests")
    values["model"] = name_at(flat, "model")
    for theirs, ours in LATENCIES.items():
        for statistic, ending in STATISTICS.items():
            values[f"{ours}{ending}_ms"] = measure_at(
                flat, where, f"results_{theirs}_{statistic}", scale=1e3
            )
    values["requests_s"] = measure_at(
        flat, where, "results_num_completed_requests_per_min", scale=1 / 60
    )
    values["output_tok_s"] = measure_at(flat, where, "results_mean_output_throughput_token_per_s")
    for theirs, ours in (("input", "isl"), ("output", "osl")):
        values[ours] = count_at(flat, where, f"results_number_{theirs}_tokens_mean", rounded=True)
        values[ours] = values[ours] or count_at(flat, where, f"mean_{theirs}_tokens", rounded=True)
    outputs, spread = (
        number_at(flat, where, f"results_number_output_tokens_{which}")
        for which in ("mean", "stddev")
    )
    ttft, whole = values["ttft_ms"], values["e2e_ms"]
    if (
        outputs
        and outputs > 1
        and (spread or 0) <= VARIES * outputs
        and isinstance(ttft, float)
        and isinstance(whole, float)
        and whole > ttft
    ):
        values["tpot_ms"] = (whole - ttft) / (outputs - 1)
    yield where, {name: value for name, value in values.items() if value is not None}


def _flat(results: Any, before: str) -> dict[str, Any]:
    """Nested results under the names of the flat ones, as the tool flattens them before it writes
    them.
    """
    flattened: dict[str, Any] = {}
    for name, value in results.items() if isinstance(results, dict) else ():
        flattened |= (
            _flat(value, f"{before}{name}_")
            if isinstance(value, dict)
            else {f"{before}{name}": value}
        )
    return flattened


is_llmperf = with_keys("num_concurrent_requests", "mean_input_tokens")

FORMAT = ToolFormat(
    name="llmperf", tool="llmperf", points=Points(recognises=is_llmperf, read=llmperf_points)
)

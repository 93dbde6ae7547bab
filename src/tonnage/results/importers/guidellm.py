"""``benchmarks.json`` of GuideLLM: several loads in one file.

Over the successful requests. Its inter-token latency is our TPOT, one value per request; what it calls time per
output token counts the first one in, (last token − start) / tokens, and is left alone. Latencies of whole requests
are in seconds. It does not say GPU, precision or parallelism. Source: GuideLLM 0.8.1,
``benchmark/schemas`` and ``schemas/request_stats.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tonnage.errors import InputError
from tonnage.results.json_format import JsonFormat, Point
from tonnage.results.json_values import count_at, inside, measure_at
from tonnage.results.table import shown

LATENCIES = {"time_to_first_token_ms": ("ttft", 1.0), "inter_token_latency_ms": ("tpot", 1.0), "request_latency": ("e2e", 1e3)}
PERCENTILES = ("p50", "p90", "p95", "p99")


def is_guidellm(document: Any) -> bool:
    """Whether a JSON document is such a report."""
    benchmarks = inside(document, "benchmarks")
    return isinstance(benchmarks, list) and all(isinstance(inside(b, "metrics"), dict) for b in benchmarks) and bool(benchmarks)


def guidellm_points(document: dict[str, Any], source: str) -> Iterator[Point]:
    """Each benchmark of the document; one in which nothing succeeded is left out.

    Raises:
        InputError: naming the place, the benchmark and the key.
    """
    succeeded = 0
    for number, benchmark in enumerate(document["benchmarks"], start=1):
        where = f"{source}, benchmark {number}"
        values = _measured(benchmark, where)
        if not values:
            continue
        succeeded += 1
        values |= _load(benchmark, where)
        model = inside(benchmark, "config", "backend", "model") or inside(document, "config", "spec", "backend", "model")
        if isinstance(model, str) and model.strip():
            values["model"] = shown(model)
        yield where, values
    if not succeeded:
        raise InputError(f"{source}: in none of its benchmarks did a request succeed; give a report that measured something")


def _measured(benchmark: dict[str, Any], where: str) -> dict[str, str | int | float]:
    metrics = benchmark["metrics"]
    values: dict[str, int | float | None] = {}
    for theirs, (ours, scale) in LATENCIES.items():
        values[f"{ours}_ms"] = measure_at(metrics, where, theirs, "successful", "mean", scale=scale)
        for p in PERCENTILES:
            values[f"{ours}_{p}_ms"] = measure_at(metrics, where, theirs, "successful", "percentiles", p, scale=scale)
    if values["e2e_ms"] is None:
        return {}
    for theirs, ours in (("requests_per_second", "requests_s"), ("output_tokens_per_second", "output_tok_s")):
        values[ours] = measure_at(metrics, where, theirs, "successful", "mean")
    for theirs, ours in (("prompt_token_count", "isl"), ("output_token_count", "osl")):
        values[ours] = count_at(metrics, where, theirs, "successful", "mean", rounded=True)
    return {name: value for name, value in values.items() if value is not None}


def _load(benchmark: dict[str, Any], where: str) -> dict[str, str | int | float]:
    strategy = inside(benchmark, "config", "strategy")
    kind = inside(strategy, "type_")
    if kind == "synchronous":
        return {"concurrency": 1}
    if kind == "concurrent":
        clients = count_at(strategy, f"{where}, strategy", "streams")
        if clients is not None:
            return {"concurrency": clients}
    if kind == "throughput":
        clients = count_at(strategy, f"{where}, strategy", "max_concurrency")
        if clients is not None:
            return {"concurrency": clients}
    if kind in ("poisson", "constant"):
        rate = measure_at(strategy, f"{where}, strategy", "rate")
        if rate is not None:
            return {"request_rate": rate}
    name = shown(str(kind)) if kind else "none"
    raise InputError(
        f"{where}: its load is not known (strategy {name}); give benchmarks that are synchronous, concurrent, poisson or constant"
    )


FORMAT = JsonFormat(tool="GuideLLM", recognises=is_guidellm, points=guidellm_points)

"""The results that SGLang's ``bench_serving`` appends to a file, one run per line.

Its TPOT is ours: (E2E − TTFT) / (tokens − 1), one value per request. Its ITL divides the gap before an event among the tokens
of the event. Rates are over the whole duration, ramp and drain included. It says neither the model nor the GPU, and its
lengths are means. Source: SGLang 0.5, ``python/sglang/bench_serving.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tonnage.errors import InputError
from tonnage.formats.table import DRAWN, completed_requests, count_at, measure_at, served_values, with_keys
from tonnage.formats.tool_format import Point, Points, ToolFormat

LATENCIES = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2e_latency": "e2e"}


def sglang_points(document: dict[str, Any], where: str) -> Iterator[Point]:
    """The one run of the document. Raises InputError: naming the place and the key."""
    completed = completed_requests(document, where, "completed")
    values: dict[str, str | int | float | None] = {"engine": "sglang", "requests": completed}
    clients, rate = count_at(document, where, "max_concurrency"), _rate(document, where)
    if clients is not None and rate is not None:
        raise InputError(f"{where}: has a request_rate and a max_concurrency; give runs that were loaded by one of them")
    values |= {"request_rate": rate} if rate is not None else {"concurrency": clients or completed}
    values |= served_values(document, where, LATENCIES, completed)
    values |= {DRAWN[name]: _drawn(document, where, side) for name, side in (("isl", "input"), ("osl", "output"))}
    yield where, {name: value for name, value in values.items() if value is not None}


def _drawn(document: dict[str, Any], where: str, part: str) -> str | None:
    """How the lengths of its random dataset vary: uniformly from a share of the stated length up to it; None where they are equal."""
    stated, ratio = count_at(document, where, f"random_{part}_len"), document.get("random_range_ratio")
    if stated is None or not isinstance(ratio, int | float) or not 0 <= ratio < 1 or document.get("dataset_name", "random") != "random":
        return None
    return f"{max(round(stated * ratio), 1)}-{stated}"


def _rate(document: dict[str, Any], where: str) -> float | None:
    """Requests per second of an open loop; None where all requests were sent at once: an infinite rate reads as none."""
    if document.get("request_rate") == "trace":
        raise InputError(f"{where}: its arrivals were those of a trace; give runs at a request_rate or with a max_concurrency")
    return measure_at(document, where, "request_rate")


# vLLM's result, which came first, has ``num_prompts`` and another name for E2E.
is_sglang = with_keys("completed", "total_output_tokens", "mean_e2e_latency_ms", "mean_ttft_ms")

FORMAT = ToolFormat(name="sglang", tool="SGLang's bench_serving", points=Points(recognises=is_sglang, read=sglang_points))

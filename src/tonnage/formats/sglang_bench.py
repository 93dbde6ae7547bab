"""The results that SGLang's ``bench_serving`` appends to a file, one run per line.

Its TPOT is ours: (E2E − TTFT) / (tokens − 1), one value per request. Its ITL divides the gap before
an event among the tokens of the event. Rates are over the whole duration, ramp and drain included.
It says neither the model nor the GPU, and its lengths are means. Source: SGLang 0.5,
``python/sglang/bench_serving.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tonnage.errors import InputError
from tonnage.formats.table import (
    DRAWN,
    REFUSED,
    completed_requests,
    count_at,
    failures,
    number_at,
    served_values,
    with_keys,
)
from tonnage.formats.tool_format import ImportedRun, Point, Points, Reading, Requests, ToolFormat
from tonnage.formats.vllm_bench import open_load, vllm_runs

LATENCIES = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2e_latency": "e2e"}


def sglang_points(document: dict[str, Any], where: str) -> Iterator[Point]:
    """The one run of the document. Raises InputError: naming the place and the key."""
    completed = completed_requests(document, where, "completed")
    values: dict[str, str | int | float | None] = {"engine": "sglang"}
    if document.get("request_rate") == "trace":
        values[REFUSED] = "its arrivals were those of a trace, which is not simulated"
    else:
        values |= open_load(document, where, completed)
    values |= failures(
        completed, None, number_at(document, where, "failed"), document.get("errors")
    )
    values |= served_values(document, where, LATENCIES, completed)
    values |= {
        DRAWN[name]: _drawn(document, where, side)
        for name, side in (("isl", "input"), ("osl", "output"))
    }
    yield where, {name: value for name, value in values.items() if value is not None}


def _drawn(document: dict[str, Any], where: str, part: str) -> str | None:
    """How the lengths of its random dataset vary: uniformly from a share of the stated length up to
    it; None where they are equal.
    """
    stated, ratio = (
        count_at(document, where, f"random_{part}_len"),
        document.get("random_range_ratio"),
    )
    if (
        stated is None
        or not isinstance(ratio, int | float)
        or not 0 <= ratio < 1
        or document.get("dataset_name", "random") != "random"
    ):
        return None
    return f"{max(round(stated * ratio), 1)}-{stated}"


def sglang_runs(path: Path, document: dict[str, Any], reading: Reading) -> list[ImportedRun]:
    """Every request of a run that was saved with ``--output-details``. Raises InputError: it was
    not, or a list is damaged.
    """
    if not isinstance(document.get("ttfts"), list):
        raise InputError(
            f"{path}: kept no single requests; measure again with the option output-details of"
            " SGLang's bench_serving"
        )
    return [replace(run, tool="sglang") for run in vllm_runs(path, document, reading)]


# vLLM's result, which came first, has ``num_prompts`` and another name for E2E.
is_sglang = with_keys("completed", "total_output_tokens", "mean_e2e_latency_ms", "mean_ttft_ms")

FORMAT = ToolFormat(
    name="sglang",
    tool="SGLang's bench_serving",
    points=Points(recognises=is_sglang, read=sglang_points),
    requests=Requests(recognises=is_sglang, read=sglang_runs),
)

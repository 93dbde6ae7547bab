"""The result file of ``vllm bench serve --save-result``: one run per JSON file.

Its TPOT is ours: (last token − first) / (tokens − 1), one value per request. Its ITL is every gap between two
chunks of the stream. Rates are over the whole duration, ramp and drain included. It does not say the GPU,
precision or parallelism, and its lengths are means. Source: vLLM 0.33, ``vllm/benchmarks/serve.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tonnage.errors import InputError
from tonnage.results.json_format import JsonFormat, Point
from tonnage.results.json_values import count_at, inside, measure_at, number_at
from tonnage.results.table import shown

LATENCIES = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2el": "e2e"}
STATISTICS = {"mean": "", "median": "_p50", "p90": "_p90", "p95": "_p95", "p99": "_p99"}


def is_vllm(document: Any) -> bool:
    """Whether a JSON document is such a result."""
    return isinstance(document, dict) and {"num_prompts", "total_output_tokens", "mean_ttft_ms"} <= document.keys()


def vllm_points(document: dict[str, Any], where: str) -> Iterator[Point]:
    """The one run of the document.

    Raises:
        InputError: naming the place and the key.
    """
    completed = count_at(document, where, "completed")
    if completed is None:
        raise InputError(f"{where}: no request was completed; give a run that measured something")
    values: dict[str, str | int | float | None] = dict(_load(document, where))
    for theirs, ours in LATENCIES.items():
        for statistic, suffix in STATISTICS.items():
            values[f"{ours}{suffix}_ms"] = measure_at(document, where, f"{statistic}_{theirs}_ms")
    values["requests_s"] = measure_at(document, where, "request_throughput")
    values["output_tok_s"] = measure_at(document, where, "output_throughput")
    for name, key in (("isl", "total_input_tokens"), ("osl", "total_output_tokens")):
        total = count_at(document, where, key)
        values[name] = None if total is None else max(round(total / completed), 1)
    model = inside(document, "model_id")
    if isinstance(model, str) and model.strip():
        values["model"] = shown(model)
    values["engine"] = "vllm"
    yield where, {name: value for name, value in values.items() if value is not None}


def _load(document: dict[str, Any], where: str) -> dict[str, int | float | None]:
    """Rate or clients; without either, all prompts at once."""
    prompts, clients = count_at(document, where, "num_prompts"), count_at(document, where, "max_concurrency")
    rate = inside(document, "request_rate")
    if isinstance(rate, str):
        if rate.strip().lower() not in ("inf", "infinity"):
            raise InputError(f"{where}, request_rate: '{shown(rate)}' is not a rate; give the file as the tool wrote it")
        rate = None
    elif rate is not None:
        rate = number_at(document, where, "request_rate")
    if rate is None or not math.isfinite(rate):
        return {"concurrency": clients or prompts, "requests": prompts}
    if clients is not None:
        raise InputError(f"{where}: has a request_rate and a max_concurrency; give runs that were loaded by one of them")
    if rate <= 0:
        raise InputError(f"{where}, request_rate: {rate:g} is not a rate; give the file as the tool wrote it")
    return {"request_rate": rate, "requests": prompts}


FORMAT = JsonFormat(tool="vllm bench", recognises=is_vllm, points=vllm_points)

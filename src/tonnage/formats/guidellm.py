"""``benchmarks.json`` of GuideLLM: several loads in one file.

Over the successful requests. Its inter-token latency is our TPOT, one value per request; what it
calls time per output token counts the first one in, (last token − start) / tokens, and is left
alone. Latencies of whole requests are in seconds. It does not say GPU, precision or parallelism.
Files of 0.2 and 0.3 have the load in ``args`` and the model in ``worker``. Source: GuideLLM 0.8.1,
``benchmark/schemas`` and ``schemas/request_stats.py``. Of single requests it keeps the first and
the last token and nothing between, so a run made of them has no gaps: its ITL percentiles are
empty, its TPOT is exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tonnage.errors import InputError
from tonnage.formats.table import (
    FAILED,
    NONE_COMPLETED,
    REFUSED,
    SENT,
    count_at,
    inside,
    measure_at,
    name_at,
    shown,
)
from tonnage.formats.tool_format import (
    ImportedRequest,
    ImportedRun,
    Point,
    Points,
    Reading,
    Requests,
    ToolFormat,
    finite_number,
)

LATENCIES = {
    "time_to_first_token_ms": ("ttft", 1.0),
    "inter_token_latency_ms": ("tpot", 1.0),
    "request_latency": ("e2e", 1e3),
}
PERCENTILES = ("p50", "p90", "p95", "p99")
NS_PER_S = 1e9
# Its groups of single requests, and how ours ended
_GROUPS = {"successful": "", "errored": "failed", "incomplete": "cancelled"}


def is_guidellm(document: Any) -> bool:
    """Whether a JSON document is such a report."""
    benchmarks = inside(document, "benchmarks")
    return (
        isinstance(benchmarks, list)
        and all(isinstance(inside(b, "metrics"), dict) for b in benchmarks)
        and bool(benchmarks)
    )


def guidellm_points(document: dict[str, Any], source: str) -> Iterator[Point]:
    """Each benchmark of the document. Raises InputError: naming the place, the benchmark and the
    key.
    """
    for number, benchmark in enumerate(document["benchmarks"], start=1):
        where = f"{source}, benchmark {number}"
        values = _measured(benchmark, where)
        if not values:
            yield where, {REFUSED: NONE_COMPLETED}
            continue
        values |= _load(benchmark, where) | _failures(benchmark)
        places = (
            ("config", "backend", "model"),
            ("worker", "backend_model"),
            ("benchmarker", "backend", "model"),
        )
        model = next((name for place in places if (name := name_at(benchmark, *place))), None)
        model = model or name_at(document, "config", "spec", "backend", "model")
        yield where, values | ({"model": model} if model else {})


def _measured(benchmark: dict[str, Any], where: str) -> dict[str, str | int | float]:
    metrics = benchmark["metrics"]
    values: dict[str, int | float | None] = {}
    for theirs, (ours, scale) in LATENCIES.items():
        values[f"{ours}_ms"] = measure_at(metrics, where, theirs, "successful", "mean", scale=scale)
        for p in PERCENTILES:
            values[f"{ours}_{p}_ms"] = measure_at(
                metrics, where, theirs, "successful", "percentiles", p, scale=scale
            )
    if values["e2e_ms"] is None:
        return {}
    for theirs, ours in (
        ("requests_per_second", "requests_s"),
        ("output_tokens_per_second", "output_tok_s"),
    ):
        values[ours] = measure_at(metrics, where, theirs, "successful", "mean")
    for theirs, ours in (("prompt_token_count", "isl"), ("output_token_count", "osl")):
        values[ours] = count_at(metrics, where, theirs, "successful", "mean", rounded=True)
    return {name: value for name, value in values.items() if value is not None}


def _strategy(benchmark: dict[str, Any]) -> dict[str, Any]:
    """How a benchmark was loaded, where versions from 0.2 on write it."""
    places = (("config", "strategy"), ("args", "strategy"), ("scheduler", "strategy"))
    strategy = next(
        (part for place in places if isinstance(part := inside(benchmark, *place), dict)), {}
    )
    return dict(strategy)


def _load(benchmark: dict[str, Any], where: str) -> dict[str, str | int | float]:
    strategy = _strategy(benchmark)
    kind = strategy.get("type_")
    if kind == "synchronous":
        return {"concurrency": 1}
    clients = {"concurrent": "streams", "throughput": "max_concurrency"}.get(str(kind))
    if clients and (streams := count_at(strategy, f"{where}, strategy", clients)) is not None:
        return {"concurrency": streams}
    rate = (
        measure_at(strategy, f"{where}, strategy", "rate")
        if kind in ("poisson", "constant", "async")
        else None
    )
    if rate is not None:
        cap = count_at(strategy, f"{where}, strategy", "max_concurrency")
        even = {"burstiness": math.inf} if kind == "constant" else {}
        return {"request_rate": rate, **even, **({"concurrency": cap} if cap else {})}
    name = shown(str(kind)) if kind else "none"
    why = (
        " sends as many requests as it can, and does not say how many"
        if kind == "throughput"
        else " is not simulated"
    )
    return {REFUSED: f"its strategy {name}{why}"}


def _failures(benchmark: dict[str, Any]) -> dict[str, str | int | float]:
    """How many requests were sent and failed; requests that the end of the benchmark cut off count
    as neither.
    """
    places = (
        ("request_totals",),
        ("metrics", "request_totals"),
        ("run_stats", "requests_made"),
        ("scheduler_metrics", "requests_made"),
    )
    totals = next(
        (part for place in places if isinstance(part := inside(benchmark, *place), dict)), {}
    )
    groups = inside(benchmark, "requests")
    counts = {}
    for name in ("successful", "errored"):
        listed = groups.get(name) if isinstance(groups, dict) else None
        total = totals.get(name)
        counts[name] = (
            total if isinstance(total, int) else len(listed) if isinstance(listed, list) else 0
        )
    return {SENT: sum(counts.values()), FAILED: counts["errored"]}


def guidellm_runs(path: Path, document: dict[str, Any], reading: Reading) -> list[ImportedRun]:
    """One run for each benchmark of the file. Raises InputError: a benchmark without its
    requests.
    """
    runs = []
    for place, benchmark in enumerate(document["benchmarks"], start=1):
        where = f"{path}, benchmark {place}"
        groups = benchmark.get("requests")
        if not isinstance(groups, dict) or not any(groups.get(name) for name in _GROUPS):
            raise InputError(
                f"{where}: holds no single requests; give a report that was saved with all of them"
            )
        requests = [
            _request(entry, outcome, where)
            for name, outcome in _GROUPS.items()
            for entry in groups.get(name) or ()
        ]
        requests.sort(key=lambda request: request.sent_ns)
        strategy = _strategy(benchmark)
        clients = strategy.get("streams") or strategy.get("max_concurrency") or 0
        rate = strategy.get("rate") or 0.0
        # clients that wait for answers have no schedule; their targeted start is when GuideLLM
        # began to prepare the request
        if not rate:
            requests = [replace(request, due_ns=request.sent_ns) for request in requests]
        runs.append(
            ImportedRun(
                tool="guidellm",
                model="",
                concurrency=int(clients),
                rate=float(rate),
                requests=tuple(requests),
            )
        )
    return runs


def _timings(entry: dict[str, Any]) -> dict[str, Any]:
    """The moments of a request under the names of 0.8: at its top they have others, up to 0.3."""
    info = inside(entry, "info", "timings") or inside(entry, "scheduler_info", "request_timings")
    if isinstance(info, dict):
        return info
    names = {"start_time": "request_start", "end_time": "request_end"}
    names |= {f"{which}_token_time": f"{which}_token_iteration" for which in ("first", "last")}
    return {ours: entry.get(theirs) for theirs, ours in names.items()}


def _request(entry: dict[str, Any], outcome: str, where: str) -> ImportedRequest:
    if not isinstance(entry, dict):
        raise InputError(f"{where}: a request is no object; give the file as the tool wrote it")
    timings = _timings(entry)
    start = timings.get("request_start") or timings.get("resolve_start") or timings.get("queued")
    if start is None:
        raise InputError(
            f"{where}: a request has no request_start; give the file as the tool wrote it"
        )
    sent = round(finite_number(start, f"{where}, request_start") * NS_PER_S)
    due = timings.get("targeted_start")
    due_ns = (
        sent
        if due is None
        else min(round(finite_number(due, f"{where}, targeted_start") * NS_PER_S), sent)
    )
    if outcome:
        return ImportedRequest(
            due_ns=due_ns, sent_ns=sent, events_ns=(), isl=0, osl=0, outcome=outcome
        )
    first = timings.get("first_token_iteration") or timings.get("first_iteration")
    last = (
        timings.get("last_token_iteration")
        or timings.get("last_iteration")
        or timings.get("request_end")
    )
    isl, osl = (
        round(finite_number(entry.get(name) or 0, f"{where}, {name}"))
        for name in ("prompt_tokens", "output_tokens")
    )
    stamps = [moment for moment in (first, last) if moment is not None]
    ends = tuple(round(finite_number(moment, f"{where}, timings") * NS_PER_S) for moment in stamps)
    if not ends or ends[-1] < sent or ends[0] > ends[-1]:
        return ImportedRequest(due_ns=due_ns, sent_ns=sent, events_ns=(), isl=isl, osl=osl)
    streamed, several = len(ends) > 1 and ends[0] < ends[-1], osl > 1
    events = ends if streamed and several else ends[-1:]
    return ImportedRequest(
        due_ns=due_ns,
        sent_ns=sent,
        events_ns=events,
        isl=isl,
        osl=osl,
        single=not several,
        streamed=streamed or not several,
    )


FORMAT = ToolFormat(
    name="guidellm",
    tool="GuideLLM",
    points=Points(recognises=is_guidellm, read=guidellm_points),
    requests=Requests(recognises=is_guidellm, read=guidellm_runs),
)

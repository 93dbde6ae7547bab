"""inference-perf: ``stage_N_lifecycle_metrics.json``, one stage of its load per file, and
``per_request_lifecycle_metrics.json``.

Latencies are in seconds. Its time per output token is our TPOT, (last token − first) / (tokens −
1), and its inter-token latency pools the gaps, both by its own tokenizer unless
``use_server_output_tokens`` is set: they are converted to the tokens that the server counted, where
it did. The normalised time per output token counts the first token in and is left alone. It names
neither the model nor the GPU. Until 0.5 it stamps each line of a stream, so that single gaps are
not known. Source: inference-perf 0.2 to 0.7, ``reportgen/base.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tonnage.formats.table import (
    FAILED,
    REFUSED,
    SENT,
    VARIES,
    completed_requests,
    count_at,
    inside,
    load_json,
    measure_at,
    name_at,
    number_at,
    with_keys,
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
    first_document,
)

LATENCIES = {
    "time_to_first_token": "ttft",
    "time_per_output_token": "tpot",
    "inter_token_latency": "itl",
    "request_latency": "e2e",
}
STATISTICS = {
    "mean": "",
    "median": "_p50",
    "p50": "_p50",
    "p90": "_p90",
    "p95": "_p95",
    "p99": "_p99",
}
# Of 0.6 on by the server, then by the client
LENGTHS = {"isl": ("prompt_tokens", "prompt_len"), "osl": ("output_tokens", "output_len")}
NS_PER_S = 1e9


def inference_perf_points(document: dict[str, Any], where: str) -> Iterator[Point]:
    """The one stage of the document. Raises InputError: naming the place and the key."""
    completed = completed_requests(document, where, "successes", "count")
    failed = round(number_at(document, where, "failures", "count") or 0)
    values: dict[str, str | int | float | None] = {
        "requests": completed + failed,
        SENT: completed + failed,
        FAILED: failed,
    }
    values |= _load(document, where)
    if values["concurrency"] is None and values["request_rate"] is None:
        values[REFUSED] = (
            "it is a summary of several stages; give the files stage_N_lifecycle_metrics.json"
        )
    tokens = _tokens_a_token(document, where)
    for theirs, ours in LATENCIES.items():
        for statistic, ending in STATISTICS.items():
            scale = 1e3 * (tokens if ours in ("tpot", "itl") else 1.0)
            measured = measure_at(
                document, where, "successes", "latency", theirs, statistic, scale=scale
            )
            # the gaps of other tokens have other percentiles
            if scale and (ours != "itl" or not ending or abs(tokens - 1) <= VARIES):
                values[f"{ours}{ending}_ms"] = measured or values.get(f"{ours}{ending}_ms")
    for theirs, ours in (
        ("requests_per_sec", "requests_s"),
        ("output_tokens_per_sec", "output_tok_s"),
    ):
        values[ours] = measure_at(document, where, "successes", "throughput", theirs)
    for ours, names in LENGTHS.items():
        lengths = (
            count_at(document, where, "successes", name, "mean", rounded=True) for name in names
        )
        values[ours] = next((length for length in lengths if length), None)
    if isinstance(values["requests_s"], float) and isinstance(values["osl"], int) and tokens != 1:
        values["output_tok_s"] = values["requests_s"] * values["osl"]
    yield where, {name: value for name, value in values.items() if value is not None}


def _load(document: Any, where: str) -> dict[str, str | int | float | None]:
    """Clients, or else a rate."""
    clients = count_at(document, where, "load_summary", "concurrency")
    rate = (
        measure_at(document, where, "load_summary", "requested_rate") if clients is None else None
    )
    return {"concurrency": clients, "request_rate": rate}


def _tokens_a_token(document: dict[str, Any], where: str) -> float:
    """The tokens after the first that its latencies count, for each one that the server counted.

    It is 1 where the server counted none, and 0 where the rates do not tell what the latencies
    count.
    """
    by_server = number_at(document, where, "successes", "output_tokens", "mean")
    rates = [
        number_at(document, where, "successes", "throughput", f"{name}_per_sec")
        for name in ("output_tokens", "requests")
    ]
    if not by_server or by_server <= 1:
        return 1.0
    counted = (rates[0] or 0.0) / (rates[1] or 1.0) if all(rates) else 0.0
    return (counted - 1) / (by_server - 1) if counted > 1 else 0.0


def is_inference_perf(document: Any) -> bool:
    """Whether a document is such a stage, or the summary of all."""
    return all(
        isinstance(inside(document, part), dict)
        for part in ("load_summary", "successes", "failures")
    )


def inference_perf_runs(path: Path, text: str, reading: Reading) -> list[ImportedRun]:
    """Every request; the load as the one stage next to the file says. Raises InputError: naming the
    entry and what is missing.
    """
    entries = [json.loads(line) for line in text.splitlines() if line.strip()]
    requests = [
        _request(entry, f"{path}, entry {place}") for place, entry in enumerate(entries, start=1)
    ]
    stages = sorted(path.parent.glob("*stage_*_lifecycle_metrics.json"))
    load = _load(load_json(stages[0]), str(stages[0])) if len(stages) == 1 else {}
    run = ImportedRun(
        tool="inference-perf",
        model=name_at(first_document(str(entries[0].get("request"))), "model") or "",
        concurrency=int(load.get("concurrency") or 0),
        rate=float(load.get("request_rate") or 0.0),
        requests=tuple(sorted(requests, key=lambda request: request.sent_ns)),
        remarks=[]
        if len(stages) <= 1
        else [f"The file holds the requests of {len(stages)} stages together."],
    )
    return [run]


def _request(entry: dict[str, Any], where: str) -> ImportedRequest:
    sent, ended = (
        round(finite_number(entry.get(name), f"{where}, {name}") * NS_PER_S)
        for name in ("start_time", "end_time")
    )
    error, info = entry.get("error"), entry.get("info")
    if error or not isinstance(info, dict):
        why = (name_at(error, "error_type") or "failed") if error else "has no info"
        return ImportedRequest(due_ns=sent, sent_ns=sent, events_ns=(), isl=0, osl=0, outcome=why)
    reply = info.get("response_metrics") or {}
    usage = reply.get("server_usage") or {}
    prompt = (
        usage.get("prompt_tokens")
        or info.get("input_tokens")
        or inside(info, "request_metrics", "text", "input_tokens")
    )
    output = (
        usage.get("completion_tokens")
        or usage.get("output_tokens")
        or reply.get("output_tokens")
        or info.get("output_tokens")
    )
    isl, osl = (
        round(finite_number(count or 0, f"{where}, {name}_tokens"))
        for name, count in (("input", prompt), ("output", output))
    )
    times = reply.get("output_token_times") or info.get("output_token_times") or []
    events = sorted(
        {
            round(finite_number(moment, f"{where}, output_token_times") * NS_PER_S)
            for moment in times
        }
    )
    streamed, single = bool(events), bool(reply) or osl <= 1 or len(events) <= 1
    if not single:
        events = [events[0], events[-1]]
    events_ns = tuple(events) or (ended,)
    return ImportedRequest(
        due_ns=sent,
        sent_ns=sent,
        events_ns=events_ns,
        isl=isl,
        osl=osl,
        single=single,
        streamed=streamed,
    )


FORMAT = ToolFormat(
    name="inference-perf",
    tool="inference-perf",
    points=Points(recognises=is_inference_perf, read=inference_perf_points),
    requests=Requests(
        recognises=with_keys("start_time", "end_time", "info", "error"),
        read=inference_perf_runs,
        file="per_request_lifecycle_metrics.json",
        lines=True,
    ),
)

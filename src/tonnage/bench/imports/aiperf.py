"""AIPerf's ``profile_export.jsonl`` (0.13): one record a line, times in nanoseconds of the wall clock, metrics in milliseconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tonnage.bench.imports.past_request import PastRequest, PastRun, moments, number
from tonnage.errors import InputError
from tonnage.results.importers.genai_perf import read_report

NS_PER_MS = 1e6
REPORT = "profile_export_aiperf.json"
"""The report beside the records, which says the model and the load."""


def read(path: Path, text: str) -> PastRun:
    """The records of the profiling phase; model and load as the report beside them says.

    Raises:
        InputError: naming file, line and what is missing.
    """
    requests = []
    for at, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {at}"
        try:
            record = json.loads(line)
            metadata, metrics = record["metadata"], record.get("metrics") or {}
            if metadata.get("benchmark_phase", "profiling") == "profiling":
                requests.append(_request(metadata, metrics, record.get("error"), where))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{where}: is not a record of AIPerf ({' '.join(str(error).split())[:80]})") from None
    requests.sort(key=lambda request: (request.sent_ns, request.due_ns))
    report = path.parent / REPORT
    said = read_report(report).values if report.is_file() else {}
    return PastRun(
        tool="aiperf",
        model=str(said.get("model", "")),
        concurrency=int(said.get("concurrency", 0)),
        rate=float(said.get("request_rate", 0.0)),
        requests=tuple(requests),
    )


def _request(metadata: dict[str, Any], metrics: dict[str, Any], error: Any, where: str) -> PastRequest:
    sent = round(number(metadata["request_start_ns"], f"{where}, request_start_ns"))
    issued = metadata.get("credit_issued_ns")
    due = sent if issued is None else min(round(number(issued, f"{where}, credit_issued_ns")), sent)
    if metadata.get("was_cancelled"):
        return PastRequest(due_ns=due, sent_ns=sent, events_ns=(), isl=0, osl=0, outcome="cancelled")
    if error or "request_latency" not in metrics:
        kind = error.get("type") if isinstance(error, dict) else None
        return PastRequest(due_ns=due, sent_ns=sent, events_ns=(), isl=0, osl=0, outcome=str(kind or "failed"))
    values = {name: entry["value"] for name, entry in metrics.items()}
    isl, osl = (round(number(values.get(f"{name}_sequence_length", 0), f"{where}, {name}_sequence_length")) for name in ("input", "output"))
    latency = number(values["request_latency"], f"{where}, request_latency")
    first = number(values.get("time_to_first_token", latency), f"{where}, time_to_first_token")
    gaps = values.get("inter_chunk_latency")
    if gaps is None:
        ends = (sent + round(first * NS_PER_MS), sent + round(latency * NS_PER_MS))
        return PastRequest(due_ns=due, sent_ns=sent, events_ns=ends if osl > 1 else ends[:1], isl=isl, osl=osl, single=osl <= 1)
    found = [number(gap, f"{where}, inter_chunk_latency") for gap in gaps]
    return PastRequest(due_ns=due, sent_ns=sent, events_ns=moments(sent, first, found, NS_PER_MS), isl=isl, osl=osl)

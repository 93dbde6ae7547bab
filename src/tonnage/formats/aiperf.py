"""AIPerf's files (0.13, schema 1.4): ``profile_export.jsonl``, read and written, its report
``profile_export_aiperf.json`` and ``.csv``.

The first has one record a line, times in nanoseconds of the wall clock, metrics in milliseconds, as
AIPerf defines them. The report is read as GenAI-Perf's is (``genai_perf``).
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tonnage.errors import InputError
from tonnage.formats.finished_run import PERCENTILES, FinishedRun, statistics
from tonnage.formats.genai_perf import metrics, read_report
from tonnage.formats.tool_format import (
    ImportedRequest,
    ImportedRun,
    Reading,
    Requests,
    ToolFormat,
    finite_number,
    moments,
)
from tonnage.results.requests import COMPLETED, UNFINISHED
from tonnage.results.store import write_json

SCHEMA, AIPERF = "1.4", "0.13.0"  # Of the report, and the version that writes it so

_CSV = ("avg", "min", "max", "sum", *(f"p{p}" for p in PERCENTILES), "std")


def records(run: FinishedRun) -> Iterator[dict[str, Any]]:
    """One record for each request that was sent, in the order of sending; times by the wall
    clock.
    """
    requests, start = run.requests, run.started_unix_ns
    for row in range(len(requests)):
        if requests.sent_ns[row] < 0:
            continue
        sent, due = int(requests.sent_ns[row]) + start, int(requests.due_ns[row]) + start
        done = requests.status[row] == COMPLETED
        tokens = run.tokens(row)
        metadata = {
            "session_num": row,
            "x_request_id": str(row),
            "credit_issued_ns": due,
            "request_start_ns": sent,
            "request_ack_ns": sent + int(tokens[0]) if len(tokens) else None,
            "request_end_ns": sent + int(tokens[-1]) if len(tokens) else sent,
            "worker_id": "tonnage",
            "record_processor_id": "tonnage",
            "benchmark_phase": "profiling",
            "was_cancelled": bool(requests.status[row] == UNFINISHED),
        }
        error = (
            None
            if done
            else {"code": None, "type": "failed", "message": "the request did not complete"}
        )
        yield {
            "metadata": metadata,
            "metrics": _metrics(run, row) if done and len(tokens) else {},
            "error": error,
        }


def _metrics(run: FinishedRun, row: int) -> dict[str, Any]:
    tokens = run.tokens(row)
    first, last, count = float(tokens[0]) / 1e6, float(tokens[-1]) / 1e6, len(tokens)
    values: dict[str, tuple[Any, str]] = {
        "input_sequence_length": (int(run.requests.isl[row]), "tokens"),
        "output_sequence_length": (count, "tokens"),
        "output_token_count": (count, "tokens"),
        "time_to_first_token": (first, "ms"),
        "request_latency": (last, "ms"),
    }
    if count > 1:
        step = (last - first) / (count - 1)
        values["time_to_second_token"] = (float(tokens[1] - tokens[0]) / 1e6, "ms")
        values["inter_token_latency"] = (step, "ms")
        values["inter_chunk_latency"] = (run.event_gaps_ms(row).tolist(), "ms")
        if step > 0:
            values["output_token_throughput_per_user"] = (1e3 / step, "tokens/sec/user")
    return {name: {"value": value, "unit": unit} for name, (value, unit) in values.items()}


def write_aiperf(run: FinishedRun, folder: Path) -> list[Path]:
    """Write the three files; their paths."""
    import numpy as np

    paths = [
        folder / name
        for name in (
            "profile_export.jsonl",
            "profile_export_aiperf.json",
            "profile_export_aiperf.csv",
        )
    ]
    with paths[0].open("w", encoding="utf-8") as file:
        for record in records(run):
            file.write(json.dumps(record) + "\n")
    run_metrics = metrics(run, counted=True)
    gaps = np.concatenate([np.zeros(0), *(run.event_gaps_ms(row) for row in run.rows)])
    run_metrics["inter_chunk_latency"] = statistics(gaps, "ms", counted=True)
    run_metrics["output_token_count"] = statistics(run.osl, "tokens", counted=True)
    failed = (
        {"error_request_count": {"unit": "requests", "avg": float(run.failed)}}
        if run.failed
        else {}
    )
    versions = {"schema_version": SCHEMA, "aiperf_version": AIPERF}
    write_json(
        paths[1],
        {
            **versions,
            **run_metrics,
            **failed,
            "input_config": _config(run),
            "was_cancelled": False,
            "error_summary": [],
        },
    )
    with paths[2].open("w", newline="", encoding="utf-8") as csv_file:
        lines = csv.writer(csv_file)
        lines.writerow(["Metric", *_CSV])
        plain = {name: values for name, values in run_metrics.items() if "p50" in values}
        for name, values in plain.items():
            lines.writerow([_title(name, values), *(f"{values[s]:.2f}" for s in _CSV)])
        lines.writerow([])
        lines.writerow(["Metric", "Value"])
        for name, values in run_metrics.items():
            if name not in plain and "avg" in values:
                lines.writerow([_title(name, values), f"{values['avg']:.2f}"])
    return paths


def _config(run: FinishedRun) -> dict[str, Any]:
    """The question, as AIPerf's configuration says it."""
    load, endpoint = run.run["load"], run.run["endpoint"]
    count, closed = len(run.requests), bool(load["concurrency"])
    pattern = load.get("pattern")
    kind = "concurrency" if closed else pattern if pattern in ("constant", "gamma") else "poisson"
    stimulus = {"concurrency": load["concurrency"]} if closed else {"rate": load["request_rate"]}
    lengths = {
        name: {"mean": float(values.mean()) if values.size else 0.0}
        for name, values in (("isl", run.isl), ("osl", run.osl))
    }
    return {
        "models": {"items": [{"name": endpoint["model"]}]},
        "endpoint": {
            "urls": [run.scenario.get("url") or ""],
            "type": endpoint["type"],
            "streaming": endpoint["streaming"],
        },
        "datasets": [{"name": "main", "type": "synthetic", "entries": count, "prompts": lengths}],
        "phases": [
            {"name": "profiling", "kind": "profiling", "type": kind, "requests": count, **stimulus}
        ],
    }


def _title(name: str, values: dict[str, Any]) -> str:
    return f"{name.replace('_', ' ').title()} ({values['unit']})"


NS_PER_MS = 1e6
# The report next to the records, which says the model and the load
REPORT = "profile_export_aiperf.json"


def aiperf_runs(path: Path, text: str, reading: Reading) -> list[ImportedRun]:
    """The records of the profiling phase; model and load as the report next to them says.

    Raises InputError: naming file, line and what is missing.
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
            raise InputError(
                f"{where}: is not a record of AIPerf ({' '.join(str(error).split())[:80]})"
            ) from None
    requests.sort(key=lambda request: (request.sent_ns, request.due_ns))
    report = path.parent / REPORT
    report_values = read_report(report) if report.is_file() else {}
    run = ImportedRun(
        tool="aiperf",
        model=str(report_values.get("model", "")),
        concurrency=int(report_values.get("concurrency", 0)),
        rate=float(report_values.get("request_rate", 0.0)),
        requests=tuple(requests),
    )
    return [run]


def _request(
    metadata: dict[str, Any], metrics: dict[str, Any], error: Any, where: str
) -> ImportedRequest:
    sent = round(finite_number(metadata["request_start_ns"], f"{where}, request_start_ns"))
    issued = metadata.get("credit_issued_ns")
    due = (
        sent
        if issued is None
        else min(round(finite_number(issued, f"{where}, credit_issued_ns")), sent)
    )
    if metadata.get("was_cancelled"):
        return ImportedRequest(
            due_ns=due, sent_ns=sent, events_ns=(), isl=0, osl=0, outcome="cancelled"
        )
    if error or "request_latency" not in metrics:
        kind = error.get("type") if isinstance(error, dict) else None
        return ImportedRequest(
            due_ns=due, sent_ns=sent, events_ns=(), isl=0, osl=0, outcome=str(kind or "failed")
        )
    values = {name: entry["value"] for name, entry in metrics.items()}
    isl, osl = (
        round(
            finite_number(
                values.get(f"{name}_sequence_length", 0), f"{where}, {name}_sequence_length"
            )
        )
        for name in ("input", "output")
    )
    latency = finite_number(values["request_latency"], f"{where}, request_latency")
    first = finite_number(
        values.get("time_to_first_token", latency), f"{where}, time_to_first_token"
    )
    gaps = values.get("inter_chunk_latency")
    if gaps is None:
        ends = (sent + round(first * NS_PER_MS), sent + round(latency * NS_PER_MS))
        return ImportedRequest(
            due_ns=due,
            sent_ns=sent,
            events_ns=ends if osl > 1 else ends[:1],
            isl=isl,
            osl=osl,
            single=osl <= 1,
        )
    finite_gaps = [finite_number(gap, f"{where}, inter_chunk_latency") for gap in gaps]
    return ImportedRequest(
        due_ns=due,
        sent_ns=sent,
        events_ns=moments(sent, first, finite_gaps, NS_PER_MS),
        isl=isl,
        osl=osl,
    )


def is_aiperf(document: Any) -> bool:
    """Whether a line is a record of AIPerf."""
    return (
        isinstance(document, dict)
        and "metadata" in document
        and ("metrics" in document or "error" in document)
    )


FORMAT = ToolFormat(
    name="aiperf",
    tool="AIPerf",
    requests=Requests(
        recognises=is_aiperf, read=aiperf_runs, file="profile_export.jsonl", lines=True
    ),
    write=write_aiperf,
)

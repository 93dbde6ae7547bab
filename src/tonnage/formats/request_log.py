"""Access logs with one JSON object a request: LiteLLM's payloads, gateways' lines, and logged responses of the OpenAI API.

A line has a moment (``startTime``, ``start_time``, ``timestamp``, ``time``, ``created`` and others: ISO, or unix time down to ns) and
counts of tokens, at the top or in ``usage``, under the names of OpenAI, Anthropic or OpenTelemetry. Where it also has an end or a duration,
``import`` has latencies; without the moment of the first token TTFT is the whole. Lines without counts are left out, as failed ones.

Source: docs.litellm.ai, StandardLoggingPayload; platform.openai.com, the usage of a response; both read 2026-11-25. Envoy's and other
gateways' fields have the names that their configuration gives them: those of the list above are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tonnage.errors import InputErrors
from tonnage.formats.table import inside
from tonnage.formats.tool_format import ImportedRequest, ImportedRun, Reading, Requests, ToolFormat

BEGINS = ("startTime", "start_time", "request_time", "timestamp", "@timestamp", "time", "ts", "created", "created_at")
ENDS = ("endTime", "end_time")
FIRST = ("completionStartTime", "first_token_time")
TOOK_MS = ("duration_ms", "latency_ms", "duration")
TOKENS = {
    "isl": ("prompt_tokens", "input_tokens", "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
    "osl": ("completion_tokens", "output_tokens", "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
}
WITHIN: tuple[tuple[str, ...], ...] = ((), ("usage",), ("response", "usage"), ("response", "body", "usage"), ("standard_logging_object",))
STATUS = ("status", "status_code", "response_code")
MODEL = ("model", "gen_ai.request.model", "gen_ai.response.model")
UNITS = ((1e17, 1.0), (1e14, 1e3), (1e11, 1e6), (0.0, 1e9))
"""Nanoseconds per unit of a unix time from so large a number on: nanoseconds, microseconds, milliseconds, seconds."""


def is_access_log(document: Any) -> bool:
    """Whether a line is one of a request with its moment and its tokens."""
    row = _row(document)
    return _moment(row, BEGINS) is not None and all(_count(document, side) is not None for side in TOKENS)


def access_log_runs(path: Path, text: str, _: Reading) -> list[ImportedRun]:
    """The requests of a log as one run. Raises InputError: lines that are no JSON objects, or have no moment; every one is named."""
    errors: list[str] = []
    requests = sorted(_requests(path, text, errors), key=lambda one: one.due_ns)
    InputErrors.raise_if(errors)
    first = json.loads(next(line for line in text.splitlines() if line.strip()))
    return [
        ImportedRun(tool="an access log", model=str(_first(_row(first), MODEL) or ""), concurrency=0, rate=0.0, requests=tuple(requests))
    ]


def _requests(path: Path, text: str, errors: list[str]) -> Iterator[ImportedRequest]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            document = None
        row = _row(document)
        begins = _moment(row, BEGINS)
        if not isinstance(document, dict) or begins is None:
            errors.append(
                f"{path}, line {number}: {'has no time' if row else 'is no JSON object'}; give a line a request, with such as startTime"
            )
            continue
        took = _first(row, TOOK_MS)
        ends = _moment(row, ENDS) or (begins + round(1e6 * took) if isinstance(took, int | float) and took > 0 else None)
        first = _moment(row, FIRST) or ends
        counts = {side: _count(document, side) or 0 for side in TOKENS}
        failed = _failed(row) or not all(counts.values())
        events = () if ends is None or first is None or failed else (first, ends)[: 1 + (counts["osl"] > 1)]
        outcome = "failed" if failed else ""
        yield ImportedRequest(due_ns=begins, sent_ns=begins, events_ns=events, **counts, outcome=outcome, single=False)


def _row(document: Any) -> Mapping[str, Any]:
    """The fields of a line; LiteLLM's callbacks have them one level down."""
    inner = inside(document, "standard_logging_object")
    row = inner if isinstance(inner, dict) else document
    return row if isinstance(row, dict) else {}


def _first(row: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


def _count(document: Any, side: str) -> int | None:
    for keys in WITHIN:
        found = inside(document, *keys) if keys else document
        value = _first(found, TOKENS[side]) if isinstance(found, dict) else None
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9:
            return int(value)
    return None


def _failed(row: Mapping[str, Any]) -> bool:
    status = _first(row, STATUS)
    if isinstance(status, str) and not status.isdigit():
        return status.lower() in ("failure", "failed", "error")
    return status is not None and str(status).isdigit() and int(status) >= 400


def _moment(row: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    """A moment in nanoseconds of unix time; None where there is none."""
    value = _first(row, names)
    try:
        number = float(value)
    except (TypeError, ValueError):
        pass
    else:
        return next(round(number * unit) for least, unit in UNITS if number >= least) if 0 < number < 1e19 else None
    try:
        parsed = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return round((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp() * 1e6) * 1_000


FORMAT = ToolFormat(name="access-log", tool="an access log", requests=Requests(recognises=is_access_log, read=access_log_runs, lines=True))

"""Sessions in OpenTelemetry spans of the GenAI conventions, as OTLP writes them in JSON: one
document, or one a line.

A span with ``gen_ai.usage.input_tokens`` and ``gen_ai.usage.output_tokens`` is a request. A session
is a conversation (``gen_ai.conversation.id``), else a trace. The requests inside of an
``invoke_agent`` span within another one are those of a sub-agent. Spans name no blocks: a prompt
that is long enough is taken to begin with the whole prompt and answer of the request before it.

Source: open-telemetry/semantic-conventions, docs/gen-ai, v1.41.0.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tonnage.errors import InputError
from tonnage.spec.recorded_sessions import Call, RecordedSessions, Session, recorded_of
from tonnage.spec.sessions import ENDLESS

INPUT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
OUTPUT = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")


@dataclass(slots=True, kw_only=True)
class _Span:
    """A span: its own id and its parent's, when it was, and its attributes."""

    own: str
    parent: str
    trace: str
    begins: int
    ends: int
    attributes: Mapping[str, Any]

    @property
    def operation(self) -> str:
        return str(self.attributes.get("gen_ai.operation.name", ""))

    def tokens(self, names: tuple[str, ...]) -> int:
        """The first of the numbers that is there; 0 for none."""
        return next((int(self.attributes[name]) for name in names if name in self.attributes), 0)


def recognises(document: Any) -> bool:
    """Whether a document has OTLP's spans."""
    return isinstance(document, dict) and isinstance(
        document.get("resourceSpans", document.get("resource_spans")), list
    )


def read(text: bytes, path: str, where: str) -> RecordedSessions:
    """All sessions of a file. Raises InputError: spans that are none, or none with numbers of
    tokens.
    """
    try:
        spans = {span.own: span for document in _documents(text) for span in _spans(document)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as fault:
        raise InputError(
            f"{where}: {path}: is not OTLP's JSON ({type(fault).__name__}: {fault})"
        ) from None
    requests = [
        span for span in spans.values() if span.tokens(INPUT) > 0 and span.tokens(OUTPUT) > 0
    ]
    if not requests:
        raise InputError(
            f"{where}: {path}: none of {len(spans)} spans has {INPUT[0]} and {OUTPUT[0]}"
        )
    sessions: dict[str, list[_Span]] = {}
    for span in sorted(requests, key=lambda span: (span.begins, span.own)):
        named = (
            ancestor.attributes.get("gen_ai.conversation.id") for ancestor in _above(span, spans)
        )
        sessions.setdefault(str(next(filter(None, named), span.trace)), []).append(span)
    tools = sorted(span.begins for span in spans.values() if span.operation == "execute_tool")
    return recorded_of(
        path, (_session(group, spans, tools) for group in sessions.values()), 0, common=False
    )


def _documents(text: bytes) -> Iterator[Any]:
    try:
        yield json.loads(text)
    except ValueError:
        yield from (json.loads(line) for line in text.splitlines() if line.strip())


def _spans(document: Any) -> Iterator[_Span]:
    for resource in document.get("resourceSpans", document.get("resource_spans")):
        for scope in resource.get("scopeSpans", resource.get("scope_spans", ())):
            for span in scope.get("spans", ()):
                yield _Span(
                    own=span["spanId"],
                    parent=span.get("parentSpanId") or "",
                    trace=span.get("traceId", ""),
                    begins=int(span["startTimeUnixNano"]),
                    ends=int(span["endTimeUnixNano"]),
                    attributes={
                        attribute["key"]: next(iter(attribute["value"].values()), None)
                        for attribute in span.get("attributes", ())
                    },
                )


def _above(span: _Span, spans: Mapping[str, _Span]) -> Iterator[_Span]:
    """A span and the spans around it, the nearest first."""
    visited: set[str] = set()
    current: _Span | None = span
    while current is not None and current.own not in visited:
        yield current
        visited.add(current.own)
        current = spans.get(current.parent)


def _session(requests: list[_Span], spans: Mapping[str, _Span], tools: list[int]) -> Session:
    """The requests of a session: each waits for the one before it of its agent, and for sub-agents
    that have ended since.
    """
    from bisect import bisect_left

    first = requests[0].begins
    agents: dict[str, int] = {}
    last: dict[str, int] = {}
    over: dict[str, list[str]] = {}
    calls: list[Call] = []
    for place, span in enumerate(requests):
        # the outermost is the session itself
        chain = [
            ancestor.own for ancestor in _above(span, spans) if ancestor.operation == "invoke_agent"
        ][:-1]
        agent, parent = (chain[0], chain[1] if len(chain) > 1 else "") if chain else ("", "")
        waits = (
            {last[agent]}
            if agent in last
            else {last[parent]}
            if parent in last
            else {0}
            if place
            else set()
        )
        if agent not in last and agent:
            over.setdefault(parent, []).append(agent)
        ended = [
            sub_agent
            for sub_agent in over.get(agent, ())
            if first + calls[last[sub_agent]].at_ns + calls[last[sub_agent]].took_ns <= span.begins
        ]
        waits |= {last[sub_agent] for sub_agent in ended}
        over[agent] = [sub_agent for sub_agent in over.get(agent, ()) if sub_agent not in ended]
        since = max(
            (first + calls[wait].at_ns + calls[wait].took_ns for wait in waits), default=span.begins
        )
        isl, osl, before = span.tokens(INPUT), span.tokens(OUTPUT), last.get(agent, -1)
        goes_on = before >= 0 and isl >= calls[before].isl + calls[before].osl
        called = bisect_left(tools, span.begins) > bisect_left(tools, since)
        calls.append(
            Call(
                isl=isl,
                osl=osl,
                at_ns=span.begins - first,
                took_ns=span.ends - span.begins,
                waits=tuple(sorted(waits)),
                pause_ns=max(span.begins - since, 0),
                tool=called,
                agent=agents.setdefault(agent, len(agents)),
                continues=before if goes_on else -1,
                shared=ENDLESS if goes_on else 0,
            )
        )
        last[agent] = place
    return Session(calls=calls, begins_ns=first)

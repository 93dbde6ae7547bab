"""Answers of an engine without what may differ: what a model says, how many tokens a prompt has,
ids and times."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from tests.engines.conformance import Got, Sent

_ID = re.compile(r"[0-9a-f]{8}[0-9a-f-]*$|[0-9a-zA-Z]{9,}$")
_WORDS = (
    "content",
    "text",
    "arguments",
    "token",
    "delta",
    "prompt_text",
    "name",
    "partial_json",
    "decoded_token",
    "thinking",
    "prompt",
)
_NUMBERS: tuple[str, ...] = (
    "created",
    "created_at",
    "completed_at",
    "prompt_tokens",
    "total_tokens",
    "input_tokens",
    "logprob",
    "count",
)
_NUMBERS += ("original_input_tokens", "sequence_number")
_LISTS = ("token_ids", "prompt_token_ids", "tokens", "token_strs", "bytes", "text_offset")


def normal(value: Any, name: str = "") -> Any:
    """A document without what may differ."""
    if isinstance(value, dict):
        if name == "prompt_tokens_details" or (
            name == "prompt_logprobs" and "logprob" not in value
        ):
            return None
        return {
            key: normal(one, key)
            for key, one in value.items()
            if (value.get("type"), key) != ("tool_use", "input")
        }
    if isinstance(value, list):
        return _list(value, name)
    if isinstance(value, str):
        return _string(value, name)
    return "number" if name in _NUMBERS and value is not None else value


def _list(value: list[Any], name: str) -> list[Any]:
    if name in _LISTS:
        return [type(value[0]).__name__] if value else []
    if name == "top_logprobs":
        return ["odds" if one else one for one in value]
    if name == "prompt_logprobs":
        return [value[0], all(value[1:])]
    if name == "token_logprobs":
        return ["number" if one is not None else None for one in value][:2]
    return [normal(one, name) for one in value]


def _string(value: str, name: str) -> str:
    if name in ("id", "item_id", "request_id", "response_id", "call_id"):
        return _ID.sub("…", value)
    if name in ("system_fingerprint", "root", "version"):
        return "…"
    if name == "message":
        return re.sub(r"<(dict|list) of \d+ items>", r"<\1>", value)
    return "words" if value and name in (*_WORDS, "stop_sequence") else value


def collapsed(events: list[Any]) -> list[Any]:
    """Events that are alike, one after another, as one."""
    return [event for i, event in enumerate(events) if i == 0 or event != events[i - 1]]


def answer(sent: Sent, got: Got) -> dict[str, Any]:
    """An answer without what may differ, as a golden file has it."""
    kind = got.headers.get("content-type", "")
    if sent.free:
        return _unnumbered(answer(replace(sent, free=False), got))
    found: dict[str, Any] = {"status": got.status, "type": kind}
    if kind.startswith("text/event-stream"):
        events = [[name, normal(_spoken(document))] for name, document in got.events]
        return {**found, "events": collapsed(events)}
    return {**found, "body": normal(got.json) if got.text and "json" in kind else bool(got.text)}


def _unnumbered(value: Any) -> Any:
    """Without the number of output tokens."""
    if isinstance(value, dict):
        return {
            k: "number" if k in ("completion_tokens", "output_tokens") and one else _unnumbered(one)
            for k, one in value.items()
        }
    return [_unnumbered(one) for one in value] if isinstance(value, list) else value


def _spoken(document: Any) -> Any:
    """An event whose text may be empty where a character is not whole yet."""
    if isinstance(document, dict):
        for choice in document.get("choices") or []:
            if "role" not in choice.get("delta", {"role": ""}) and isinstance(
                choice["delta"].get("content"), str
            ):
                choice["delta"]["content"] = "words"
            if "text" in choice:
                choice["text"] = "words"
    return document


def metrics_of(page: str) -> dict[str, Any]:
    """Names of metrics with their types, labels, and the bounds of their buckets; not when they
    were created, which no engine counts."""
    found: dict[str, Any] = {}
    for line in page.splitlines():
        if line.startswith("# TYPE"):
            name, kind = line.split()[2:]
            if not name.endswith("_created"):
                found[name] = {"type": kind, "labels": [], "bounds": []}
        elif line and line[0] != "#":
            name, labels = line.partition(" ")[0].partition("{")[::2]
            known = [name, *(name.removesuffix(ending) for ending in ("_bucket", "_sum", "_count"))]
            one = next((found[base] for base in known if base in found), None)
            if one is not None:
                keys = re.findall(r'(\w+)="([^"]*)"', labels)
                one["labels"] = sorted({*one["labels"], *(key for key, _ in keys if key != "le")})
                one["bounds"] = sorted(
                    {*one["bounds"], *(float(value) for key, value in keys if key == "le")}
                )
    return found

"""The same requests to two servers, and whether their answers have the same shape: keys, and the types of values."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

MESSAGES = [{"role": "user", "content": "tell a tale"}]
PLAIN = {"model": "tiny", "max_tokens": 5, "temperature": 0, "ignore_eos": True}
USAGE = {"stream": True, "stream_options": {"include_usage": True}}
EACH = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"

REQUESTS: dict[str, tuple[str, Any]] = {
    "models": ("/v1/models", None),
    "version": ("/version", None),
    "chat": (CHAT, {**PLAIN, "messages": MESSAGES}),
    "chat, two choices": (CHAT, {**PLAIN, "messages": MESSAGES, "n": 2, "temperature": 1}),
    "chat, max_completion_tokens": (CHAT, {"model": "tiny", "messages": MESSAGES, "max_completion_tokens": 3, "ignore_eos": True}),
    "chat, parts of a content": (CHAT, {**PLAIN, "messages": [{"role": "user", "content": [{"type": "text", "text": "a tale"}]}]}),
    "chat, streamed": (CHAT, {**PLAIN, "messages": MESSAGES, "stream": True}),
    "chat, streamed with usage": (CHAT, {**PLAIN, **USAGE, "messages": MESSAGES}),
    "text": (TEXT, {**PLAIN, "prompt": "a tale"}),
    "text, token ids": (TEXT, {**PLAIN, "prompt": [5, 6, 7]}),
    "text, two prompts": (TEXT, {**PLAIN, "prompt": ["a", "tale"]}),
    "text, streamed": (TEXT, {**PLAIN, "prompt": "a tale", "stream": True}),
    "text, streamed with usage": (TEXT, {**PLAIN, **USAGE, "prompt": "a tale"}),
    "text, streamed with usage in every event": (TEXT, {**PLAIN, **EACH, "prompt": "a tale"}),
    "chat, streamed with usage in every event": (CHAT, {**PLAIN, **EACH, "messages": MESSAGES}),
    "another model": (TEXT, {**PLAIN, "prompt": "a", "model": "another"}),
    "another model, chat": (CHAT, {**PLAIN, "messages": MESSAGES, "model": "another"}),
    "beyond the context": (TEXT, {**PLAIN, "prompt": "a", "max_tokens": 10_000_000}),
    "beyond the context, chat": (CHAT, {**PLAIN, "messages": MESSAGES, "max_tokens": 10_000_000}),
    "a prompt beyond the context": (TEXT, {**PLAIN, "prompt": [7] * 5_000}),
    "cut short by the context": (TEXT, {**PLAIN, "prompt": [7] * 2_000, "max_tokens": 1_000}),
    "no messages": (CHAT, {**PLAIN, "messages": []}),
    "messages of another type": (CHAT, {**PLAIN, "messages": 5}),
    "no prompt": (TEXT, PLAIN),
    "temperature out of range": (TEXT, {**PLAIN, "prompt": "a", "temperature": -1}),
    "top_p out of range": (TEXT, {**PLAIN, "prompt": "a", "top_p": 7}),
    "no tokens": (TEXT, {**PLAIN, "prompt": "a", "max_tokens": -1}),
    "no choices": (TEXT, {**PLAIN, "prompt": "a", "n": 0}),
    "no JSON": (TEXT, b"{"),
    "no object": (TEXT, b"[1]"),
    "no such path": ("/v1/nothing", {}),
}
"""By name: the path, and the body; None is a GET, and bytes are sent as they stand."""


def answer(port: int, path: str, body: Any) -> tuple[int, list[Any]]:
    """Status and documents of an answer: one, or the events of a stream, of which the last may be "[DONE]"."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection.request("GET" if body is None else "POST", path, data, {"content-type": "application/json"})
        reply = connection.getresponse()
        text = reply.read().decode()
    finally:
        connection.close()
    if not text.startswith("data: "):
        return reply.status, [json.loads(text)]
    events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    return reply.status, [event if event == "[DONE]" else json.loads(event) for event in events]


def parts(documents: list[Any]) -> list[str]:
    """What each document of an answer is: events without choices hold the usage."""
    return ["done" if one == "[DONE]" else "usage" if isinstance(one, dict) and one.get("choices") == [] else "part" for one in documents]


def shape(value: Any) -> Any:
    """Keys and types: "int" for 5, a list of one shape for a list, None for null, which is of any type."""
    if isinstance(value, dict):
        return {name: shape(one) for name, one in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return None if value is None else type(value).__name__


def differences(one: Any, other: Any, where: str = "") -> Iterator[str]:
    """Where two shapes differ; null is like every type, an empty list like every list."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted(one.keys() ^ other.keys()):
            yield f"{where}.{name}: only in the {'first' if name in one else 'second'}"
        for name in sorted(one.keys() & other.keys()):
            yield from differences(one[name], other[name], f"{where}.{name}")
    elif isinstance(one, list) and isinstance(other, list):
        if one and other:
            yield from differences(one[0], other[0], f"{where}[]")
    elif None not in (one, other) and one != other:
        yield f"{where}: {one} and {other}"

"""vLLM's command as keywords of its engine, as Ray hands them on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

SERVER = ("api_server_count",)
"""Settings of vLLM's HTTP server, which Ray runs in its place."""

Value = bool | int | float | str | dict[str, Any]


def engine_arguments(argv: Sequence[str]) -> dict[str, Value]:
    """The flags of a command "vllm serve MODEL …" by the names of the engine's arguments; those of its server are left out.

    Args:
        argv: the whole command.
    """
    return {name: value for name, value in _pairs(argv[3:]) if name not in SERVER}


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, Value]]:
    for place, word in enumerate(words):
        if not word.startswith("--"):
            continue
        flag, _, joined = word.removeprefix("--").partition("=")
        following = words[place + 1] if place + 1 < len(words) else "--"
        name = flag.replace("-", "_")
        if joined:
            yield name, _value(joined)
        elif not following.startswith("--"):
            yield name, _value(following)
        else:
            yield name.removeprefix("no_"), not name.startswith("no_")


def _value(text: str) -> Value:
    if text.startswith("{"):
        found: dict[str, Any] = json.loads(text)
        return found
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text

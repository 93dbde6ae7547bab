"""Protocol buffers in their text form, in which Triton reads the configuration of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Word:
    """The name of a value of an enumeration, which is written without quotation marks."""

    name: str


@dataclass(frozen=True, slots=True)
class Said:
    """A comment, on its own lines, under any key that no field has."""

    text: str


def pbtxt(message: Mapping[str, Any]) -> str:
    """A message: mappings are messages, lists are repeated fields, and a field that is a ``Said``
    is a comment.
    """
    return "".join(f"{line}\n" for line in _fields(message))


def _fields(message: Mapping[str, Any]) -> Iterator[str]:
    for name, value in message.items():
        if isinstance(value, Said):
            yield from (f"# {line}" for line in value.text.splitlines())
        elif isinstance(value, Mapping):
            yield from _block(name, value)
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            for part in value:
                yield from _block(name, part)
        elif isinstance(value, list):
            yield f"{name}: [ {', '.join(map(_scalar, value))} ]"
        else:
            yield f"{name}: {_scalar(value)}"


def _block(name: str, message: Mapping[str, Any]) -> Iterator[str]:
    yield f"{name} {{"
    yield from (f"  {line}" for line in _fields(message))
    yield "}"


def _scalar(value: Any) -> str:
    if isinstance(value, Word):
        return value.name
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"{value}"
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'

"""YAML with comments at the places that the writer of a document chose, each before the key or the
item that it speaks of.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tonnage.errors import visible

WIDTH = 110  # Columns of a line of comment

STEP = "  "


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """A value with its comment."""

    value: Any  # of a key or an item
    note: str = ""  # the comment before it; empty for none
    anchor: str = ""  # name under which an ``Alias`` takes it over; empty for none


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """Stands for the value that was anchored under this name; below the key "<<" its keys are taken
    over.
    """

    name: str


def noted(value: Any, note: str) -> Noted:
    """A value with a comment before its key."""
    return Noted(value=value, note=note)


def yaml_text(*documents: Mapping[str, Any], head: str = "") -> str:
    """The documents (plain values, any may be ``Noted``) as YAML below a comment, each after a line
    of three hyphens if several.
    """
    texts = ["\n".join(_value(document)) + "\n" for document in documents]
    return "".join(f"{line}\n" for line in _comment(head)) + "---\n".join(texts)


def plain(value: Any) -> Any:
    """A value without its comments."""
    if isinstance(value, Noted):
        return plain(value.value)
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, list | tuple) else value


def _comment(note: str) -> list[str]:
    """A comment's lines; lines that begin with blanks stay as they are."""
    lines: list[str] = []
    for line in visible(note).splitlines():
        lines += (
            [line]
            if line.startswith(" ")
            else textwrap.wrap(line, WIDTH, break_on_hyphens=False) or [""]
        )
    return [f"# {line}".rstrip() for line in lines]


def _value(value: Any) -> Iterator[str]:
    """The lines of a mapping or a list that is not empty."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _entry(
                "<<:" if isinstance(part, Alias) and key == "<<" else f"{_scalar(key)}:", part
            )
        return
    for part in value:
        yield from _item(part)


def _entry(key: str, part: Any) -> Iterator[str]:
    note, anchor, value = _open(part)
    yield from _comment(note)
    begin = f"{key} &{anchor}" if anchor else key
    if _nested(value):
        yield begin
        yield from (STEP + line if line else line for line in _value(value))
    else:
        first, *rest = _flat(value)
        yield f"{begin} {first}"
        yield from (STEP + line if line else line for line in rest)


def _item(part: Any) -> Iterator[str]:
    note, _, value = _open(part)
    yield from _comment(note)
    lines = list(_value(value)) if _nested(value) else _flat(value)
    while lines[0].startswith("#"):
        yield lines.pop(0)
    for place, line in enumerate(lines):
        yield (STEP if place else "- ") + line if line else line


def _open(part: Any) -> tuple[str, str, Any]:
    """Comment, anchor and value."""
    return (part.note, part.anchor, part.value) if isinstance(part, Noted) else ("", "", part)


def _nested(value: Any) -> bool:
    return isinstance(value, Mapping | Sequence) and not isinstance(value, str) and len(value) > 0


def _flat(value: Any) -> list[str]:
    """What is behind a key: one line, or a block with the lines of a text."""
    if isinstance(value, Alias):
        return [f"*{value.name}"]
    if isinstance(value, str) and _fits_block(value):
        return ["|", *value.removesuffix("\n").split("\n")]
    return [_scalar(value)]


def _fits_block(text: str) -> bool:
    """Whether a text of several lines can be written as it is, below a "|"."""
    lines = text.removesuffix("\n").split("\n")
    ends = text.endswith("\n") and not text.endswith("\n\n")
    readable = all(line.isprintable() and line == line.rstrip() for line in lines)
    return len(lines) > 1 and ends and readable and bool(lines[0]) and not lines[0].startswith(" ")


def _scalar(value: Any) -> str:
    return (
        _text(value)
        if isinstance(value, str)
        else _dumped(list(value) if isinstance(value, tuple) else value)
    )


@cache
def _text(value: str) -> str:
    """Most keys and many texts of a folder are written dozens of times, at a tenth of a millisecond
    each.
    """
    return _dumped(value, None if value.isprintable() else '"')


def _dumped(value: Any, style: str | None = None) -> str:
    import yaml

    text = str(
        yaml.safe_dump(
            value, default_flow_style=True, default_style=style, width=100_000, allow_unicode=True
        )
    )
    return text.removesuffix("\n").removesuffix("\n...")

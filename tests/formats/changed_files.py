"""Genuine files with a field dropped, repeated, moved or of another type."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tonnage.errors import TonnageError

RETYPED: list[Callable[[Any], Any]] = [
    lambda value: None,
    str,
    lambda value: [value],
    lambda value: {"value": value},
    lambda value: True,
    lambda value: "",
    lambda value: [],
    lambda value: {},
]


def paths_of(document: Any, before: tuple[Any, ...] = (), depth: int = 5) -> list[tuple[Any, ...]]:
    """Where the fields of a document are; of a list the first two items."""
    if depth == 0:
        return []
    items = (
        list(document.items())
        if isinstance(document, dict)
        else list(enumerate(document[:2]))
        if isinstance(document, list)
        else []
    )
    return [
        path
        for key, value in items
        for path in ((*before, key), *paths_of(value, (*before, key), depth - 1))
    ]


@st.composite
def changed(draw: st.DrawFn, document: Any) -> Any:
    """The document with one field dropped, of another type, or its neighbours in another order or
    twice."""
    found = copy.deepcopy(document)
    path = draw(st.sampled_from(paths_of(document)))
    holder = found
    for key in path[:-1]:
        holder = holder[key]
    kind = draw(st.sampled_from(["drop", "retype", "reorder", "repeat"]))
    if kind == "drop":
        del holder[path[-1]]
    elif kind == "retype":
        holder[path[-1]] = draw(st.sampled_from(RETYPED))(holder[path[-1]])
    elif isinstance(holder, dict):
        items = list(holder.items())[::-1]
        holder.clear()
        holder.update(items)
        if kind == "repeat":
            holder[f"{path[-1]}_again"] = copy.deepcopy(holder[path[-1]])
    elif kind == "reorder":
        holder.reverse()
    else:
        holder.insert(0, copy.deepcopy(holder[path[-1]]))
    return found


def told(error: TonnageError, path: Path) -> None:
    assert all(line.strip() for line in str(error).splitlines())
    assert (
        path.name in str(error)
        or path.parent.name in str(error)
        or "valid measurement" in str(error)
    )

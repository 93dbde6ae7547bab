"""What a load client's JSON files look like: how one is recognised, and the points that it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Point = tuple[str, Mapping[str, str | int | float]]
"""Where a measured point stands, for messages, and what it says by canonical column name (``columns``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonFormat:
    """A format of JSON files.

    Attributes:
        tool: the load client that writes it, as messages name it.
        recognises: whether a parsed document is of this format.
        points: the points of such a document; its second argument says where the document stands. Raises an ``InputError``
            that names the place and the key.
    """

    tool: str
    recognises: Callable[[Any], bool]
    points: Callable[[Any, str], Iterator[Point]]

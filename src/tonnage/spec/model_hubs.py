"""Where else a model's name is looked up than in the catalog: readers of a hub, which the floors
that may use a network put here.

Floors 0 to 4 have no reader by themselves: without one a name is looked up in the catalog alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tonnage.spec.model import Model

HUB_NAME = (
    # "owner/name", with a revision behind "@"
    r"(?!.*\.\.)[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}(?:@[\w.-][\w./-]{0,200})?"
)

# of a name and a layout: the model, or why there is none, as a clause
Reader = Callable[[str, str], "Model | str"]

_readers: list[Reader] = []


def look_also(reader: Reader) -> None:
    """Ask ``reader`` too for models of the form ``HUB_NAME`` that the catalog does not have."""
    if reader not in _readers:
        _readers.append(reader)


def readers() -> tuple[Reader, ...]:
    """Every reader, in their order."""
    return tuple(_readers)

"""Sections put together from blocks, of which some may be missing."""

from __future__ import annotations

from tonnage.report.document import Block, Drawing, Items, Section, Table
from tonnage.report.drawing.figure import Figure


def section(key: str, name: str, *blocks: Block | None, folded: bool = False) -> Section:
    """A section of those blocks that are there."""
    return Section(key=key, title=name, blocks=tuple(block for block in blocks if block is not None), folded=folded)


def items(lines: tuple[str, ...], tone: str = "plain") -> Items | None:
    """The lines as a list; None where there are none."""
    kept = tuple(line for line in lines if line)
    return Items(items=kept, tone=tone) if kept else None


def drawing(figure: Figure | None, reading: str, numbers: Table | None) -> Drawing | None:
    """A figure with its numbers; None where one of them is missing."""
    return None if figure is None or numbers is None else Drawing(figure=figure, reading=reading, numbers=numbers)

"""A table or a paragraph alone, as the terminal writer writes it: for text that is not a document yet."""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.report.document import Table
from tonnage.report.numbers import number
from tonnage.report.writers.terminal import folded, width
from tonnage.report.writers.terminal_table import table_lines

__all__ = ["number", "table", "wrapped"]


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns two spaces apart; numbers are aligned to the right."""
    return "\n".join(table_lines(Table(caption="", header=tuple(header), rows=tuple(map(tuple, rows))), width()))


def wrapped(text: str, indent: str = "  ", hanging: str | None = None) -> str:
    """A paragraph folded at the width of the terminal; ``hanging`` begins every line but the first."""
    return folded(text, indent, indent + "  " if hanging is None else hanging)

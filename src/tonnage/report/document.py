"""A report before it is written: sections of text, facts, tables and figures.

The terminal, Markdown and HTML are three ways of writing the same blocks, so they cannot say
different things.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tonnage.report.numbers import ABSENT

if TYPE_CHECKING:
    from tonnage.report.drawing.figure import Figure


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph; ``tone`` is "plain", "answer" (the sentence to read first), "warning" or
    "note".
    """

    text: str
    tone: str = "plain"


@dataclass(frozen=True, slots=True)
class Items:
    """A list of sentences; ``tone`` as in Text."""

    items: tuple[str, ...]
    tone: str = "plain"


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and what they are; ``big`` shows the values large, for a first glance."""

    rows: tuple[tuple[str, str], ...]
    big: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under a header."""

    caption: str = ""
    header: tuple[str, ...]  # column names with their units
    rows: tuple[tuple[str, ...], ...]  # cells as text, as many as the header has
    chosen: int | None = None  # index of the row to see first, or None; ``mark`` says why
    mark: str = "chosen"
    folded: bool = False  # whether it is closed at first, where the reader can open it
    note: str = ""  # what a reader must know of the cells
    # names of the columns that a narrow page may leave out, the first to go first. The others
    # identify the row or the question, and never go.
    spare: tuple[str, ...] = ()

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Which columns hold nothing but numbers, with a unit at most, and are aligned to the
        right.
        """
        return tuple(
            bool(self.rows) and all(_numeric(row[i]) for row in self.rows)
            for i in range(len(self.header))
        )

    def without(self, names: Collection[str]) -> Table:
        """The table without some of its columns."""
        columns = [i for i, name in enumerate(self.header) if name not in names]
        return replace(
            self,
            header=tuple(self.header[i] for i in columns),
            rows=tuple(tuple(row[i] for i in columns) for row in self.rows),
        )

    def filled(self, *names: str) -> Table:
        """Leave out the columns, of the named ones or of all, that hold nothing."""
        columns = [(i, name) for i, name in enumerate(self.header) if name in names or not names]
        return self.without(
            {name for i, name in columns if all(row[i] in ("", ABSENT) for row in self.rows)}
        )


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure, a sentence on how to read it, and its numbers; None where a table of another
    section holds them.
    """

    figure: Figure
    reading: str
    numbers: Table | None


@dataclass(frozen=True, slots=True)
class Command:
    """A command line to copy."""

    text: str


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines that are kept as they are, in letters of one width: a picture made of characters."""

    text: str


Block = Text | Items | Facts | Table | Drawing | Command | Lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Blocks under a heading."""

    key: str
    title: str
    blocks: tuple[Block, ...]  # what is under it
    listed: bool = True  # whether the list of parts names it
    folded: bool = False  # whether it is closed at first, where the reader can open it


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A report as blocks, before it is written in a format."""

    title: str = ""
    subtitle: str = ""
    sections: tuple[Section, ...]


_WORD = re.compile(r"[^\W\d_]{3}")


def _numeric(cell: str) -> bool:
    cell = cell.removeprefix("over ").removeprefix("under ")
    return not cell or ((cell[0].isdigit() or cell[0] in "–-+−.×<>") and _WORD.search(cell) is None)


def document(*sections: Section, title: str = "", subtitle: str = "") -> Document:
    """A document of these sections."""
    return Document(title=title, subtitle=subtitle, sections=sections)


def section(key: str, name: str, *blocks: Block | None, folded: bool = False) -> Section:
    """A section of those blocks that are there."""
    return Section(
        key=key,
        title=name,
        blocks=tuple(block for block in blocks if block is not None),
        folded=folded,
    )


def items(lines: tuple[str, ...], tone: str = "plain") -> Items | None:
    """The lines as a list; None where there are none."""
    shown = tuple(line for line in lines if line)
    return Items(shown, tone=tone) if shown else None


def facts_known(rows: Iterable[tuple[str, str]]) -> Facts:
    """The facts that there are."""
    return Facts(tuple(row for row in rows if row[1]))


def charted(
    figure: Figure,
    reading: str,
    caption: str,
    header: Collection[str],
    rows: Iterable[tuple[str, ...]],
) -> Drawing:
    """A figure with its numbers in a table that is closed at first."""
    return Drawing(
        figure, reading, Table(caption=caption, header=tuple(header), rows=tuple(rows), folded=True)
    )


def drawing(figure: Figure | None, reading: str, numbers: Table | None) -> Drawing | None:
    """A figure with its numbers; None where one of them is missing."""
    return None if figure is None or numbers is None else Drawing(figure, reading, numbers)

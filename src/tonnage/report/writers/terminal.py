"""A document as text for a terminal: aligned, without decoration, and never wider than the terminal unless a single word is."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence

from tonnage.report.document import Block, Command, Document, Drawing, Facts, Items, Lines, Section, Table, Text

# A table for a terminal: aligned columns that never grow wider than the terminal, and in which no id is ever broken. Where the cells are
# too wide, they are folded between words; then columns are left out, but only those that the table says can be spared; then each row is
# written as a few lines of its own.


TOGETHER = 20
"""Columns up to which a cell of words stays on one line while other columns can still be left out."""
BESIDE = 2
"""Spaces between two columns."""
CHOSEN = "←"
"""Stands behind the first cell of the row to see first; a line below the table says what it means."""


def table_lines(table: Table, width: int) -> list[str]:
    """The header, a rule and the rows, each row on as many lines as its longest cell needs; then what the table notes."""
    header, rows = list(table.header), [list(row) for row in table.rows]
    marked = table.chosen is not None and table.chosen < len(rows)
    if table.chosen is not None and marked:
        rows[table.chosen][0] += f" {CHOSEN}"
    kept = _kept(table, header, rows, width)
    right = [table.numeric[i] and i > 0 for i in kept]
    lines = _aligned([header[i] for i in kept], [[row[i] for i in kept] for row in rows], right, width)
    return [*lines, *(textwrap.wrap(f"{CHOSEN} {table.mark}", width) if marked else [])]


def _kept(table: Table, header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """The columns that fit side by side without folding a few words that belong together."""
    kept = list(range(len(header)))
    least = [_least(header[i], [row[i] for row in rows], together=TOGETHER, numeric=table.numeric[i]) for i in kept]
    gone: list[str] = []
    for name in table.spare:
        if _total([least[i] for i in kept]) <= width:
            break
        kept = [i for i in kept if header[i] != name]
        gone.append(name)
    for name in reversed(gone):
        more = sorted([*kept, *(i for i, each in enumerate(header) if each == name)])
        kept = more if _total([least[i] for i in more]) <= width else kept
    return kept


def _aligned(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool], width: int) -> list[str]:
    columns = [[row[i] for row in rows] for i in range(len(header))]
    widths = [max(len(cell) for cell in (name, *cells)) for name, cells in zip(header, columns, strict=True)]
    for together in (TOGETHER, 0):
        least = [_least(name, cells, together=together, numeric=n) for name, cells, n in zip(header, columns, right, strict=True)]
        found = list(widths)
        while _total(found) > width:
            widest = max(range(len(found)), key=lambda i: (found[i] > least[i], found[i]))
            if found[widest] <= least[widest]:
                break
            found[widest] -= 1
        widths = found
    if _total(widths) > width:
        return [line for row in rows for line in _stacked(header, row, width)]
    folded = [[_folded(cell, wide) for cell, wide in zip(row, widths, strict=True)] for row in (header, *rows)]
    widths = [max(len(line) for row in folded for line in row[i]) for i in range(len(header))]
    head, *body = (_side_by_side(row, widths, right) for row in folded)
    return [*head, (" " * BESIDE).join("─" * wide for wide in widths), *(line for row in body for line in row)]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + BESIDE * (len(widths) - 1)


def _least(name: str, cells: Sequence[str], *, together: int, numeric: bool) -> int:
    """Columns that a column needs if no word is broken, no number is folded, and words that are short together stay together."""
    words = [len(word) for cell in ((name,) if numeric else (name, *cells)) for word in cell.split()]
    return max([*words, *(len(cell) if numeric else min(len(cell), together) for cell in cells)], default=0)


def _folded(cell: str, width: int) -> list[str]:
    return textwrap.wrap(cell, width, break_on_hyphens=False, break_long_words=False) or [""]


def _side_by_side(row: Sequence[Sequence[str]], widths: Sequence[int], right: Sequence[bool]) -> list[str]:
    """One row of folded cells, on as many lines as the longest cell needs."""
    lines = []
    for i in range(max(map(len, row))):
        parts = [cell[i] if i < len(cell) else "" for cell in row]
        aligned = (part.rjust(wide) if to_right else part.ljust(wide) for part, wide, to_right in zip(parts, widths, right, strict=True))
        lines.append((" " * BESIDE).join(aligned).rstrip())
    return lines


def _stacked(header: Sequence[str], row: Sequence[str], width: int) -> list[str]:
    """One row below the other: its first cell, then every other cell behind the name of its column."""
    lines = _folded(row[0], width)
    for name, cell in zip(header[1:], row[1:], strict=True):
        said = f"  {name}: {cell}" if name else f"  {cell}"
        lines += textwrap.wrap(
            said, width, initial_indent="", subsequent_indent="    ", break_on_hyphens=False, break_long_words=False, drop_whitespace=True
        )
    return lines


WIDEST = 110
"""Columns that text takes at most, and takes where there is no terminal."""
NARROWEST = 40
LABEL = 11
"""Letters of a name next to a fact for which there is always room, so that the facts of one text are in one column."""
_SIGNS = {"warning": "! "}
BULLET = "· "


def terminal(document: Document) -> str:
    """The document as lines of text, without a line break at the end."""
    head = "\n".join(folded(line, hanging="  ") for line in (document.title, document.subtitle) if line)
    return "\n\n".join(part for part in (head, *map(_section, document.sections)) if part)


def width() -> int:
    """Columns to write in: those of the terminal, within reason."""
    return min(max(shutil.get_terminal_size((WIDEST, 24)).columns, NARROWEST), WIDEST)


def folded(text: str, first: str = "", hanging: str = "") -> str:
    """A paragraph folded between words at the width of the terminal."""
    return textwrap.fill(text, width(), initial_indent=first, subsequent_indent=hanging, break_on_hyphens=False, break_long_words=False)


def _section(section: Section) -> str:
    """The heading on its own line, then the blocks, a blank line between two of them."""
    body = "\n\n".join(filter(None, map(terminal_block, section.blocks)))
    return "\n".join(part for part in (section.title, body) if part)


def terminal_block(block: Block) -> str:
    """One block as lines of text."""
    if isinstance(block, Text | Items):
        sign = _SIGNS.get(block.tone, BULLET if isinstance(block, Items) else "")
        sentences = block.items if isinstance(block, Items) else (block.text,)
        return "\n".join(folded(sentence, sign, " " * len(sign)) for sentence in sentences)
    if isinstance(block, Facts):
        return _facts(block)
    if isinstance(block, Table | Drawing):
        numbers = block if isinstance(block, Table) else block.numbers
        return "" if numbers is None else _table(numbers)
    if isinstance(block, Command):
        return f"  {block.text}"
    assert isinstance(block, Lines)
    return block.text


def _facts(facts: Facts) -> str:
    """Names in a column, and beside each what it is, folded under its own beginning."""
    most = width() // 3
    column = max(LABEL, *(len(name) for name, _ in facts.rows if len(name) <= most)) + 2
    lines = []
    for name, value in facts.rows:
        if len(name) <= most:
            lines.append(folded(value, name.ljust(column), " " * column))
        else:
            lines += [folded(name), folded(value, " " * column, " " * column)]
    return "\n".join(lines)


def _table(table: Table) -> str:
    caption = [folded(table.caption, hanging="  ")] if table.caption else []
    note = [folded(line, hanging="  ") for line in table.note.splitlines()]
    return "\n".join([*caption, *table_lines(table, width()), *note])

"""Documents as text: for a terminal, with plots of characters, and as Markdown."""

from __future__ import annotations

import math
import re
import shutil
import textwrap
from collections.abc import Sequence
from itertools import pairwise

from tonnage.errors import in_python, visible
from tonnage.report.document import (
    Block,
    Command,
    Document,
    Drawing,
    Facts,
    Items,
    Lines,
    Section,
    Table,
    Text,
)
from tonnage.report.drawing.figure import Axis, Plot
from tonnage.report.numbers import short

LETTERS = "abcdefgh"
WIDTH, HEIGHT = 64, 16  # columns and lines inside the axes, at most and always
MARGIN = 8  # columns of the numbers next to the axis
NARROWEST_PLOT = 24
# Where two series share a place
SEVERAL = "#"


def plot_text(plot: Plot, columns: int) -> str:
    """The plot in ``columns`` columns, with a line for each letter below it; "" where no series has
    two points.
    """
    series = [line_series for line_series in plot.series if len(line_series.points) > 1][
        : len(LETTERS)
    ]
    if not series:
        return ""
    width = max(NARROWEST_PLOT, min(WIDTH, columns - MARGIN - 2))
    xs = [point.x for line_series in series for point in line_series.points] + [
        rule.value for rule in plot.rules if rule.along == "x"
    ]
    ys = [point.y for line_series in series for point in line_series.points] + [
        rule.value for rule in plot.rules if rule.along == "y"
    ]
    across, up = _Scale(plot.x, xs, width), _Scale(plot.y, ys, HEIGHT)
    cells = [[" "] * width for _ in range(HEIGHT)]
    for rule in plot.rules:
        if rule.along == "y":
            for column in range(0, width, 2):
                cells[up.at(rule.value)][column] = "-"
        else:
            for row in range(HEIGHT):
                cells[row][across.at(rule.value)] = "|"
    for letter, plotted in zip(LETTERS, series, strict=False):
        for column, row in _drawn(
            [(across.at(point.x), up.at(point.y)) for point in plotted.points]
        ):
            cells[row][column] = (
                letter if cells[row][column] in (" ", "-", "|", letter) else SEVERAL
            )
    lines = [
        f"{_number(up, row):>{MARGIN}} ┤{''.join(cells[row]).rstrip()}"
        for row in reversed(range(HEIGHT))
    ]
    lines.append(" " * MARGIN + " └" + "─" * width)
    low_label, high_label = short(across.low), short(across.high)
    lines.append(" " * (MARGIN + 2) + low_label + high_label.rjust(width - len(low_label)))
    names = [
        f"{letter} {line_series.name}" for letter, line_series in zip(LETTERS, series, strict=False)
    ]
    lines.append(" " * (MARGIN + 2) + plot.x.title)
    lines += [f"  {name}, {plot.y.title}" for name in names]
    lines += [f"  {'- -' if rule.along == 'y' else '|'} {rule.label}" for rule in plot.rules]
    return "\n".join(lines)


class _Scale:
    """The place of a value along an axis of cells."""

    def __init__(self, axis: Axis, values: Sequence[float], cells: int) -> None:
        positive = [value for value in values if value > 0] or [1.0]
        self.log, self.cells = axis.log, cells
        self.low, self.high = (
            (min(positive), max(positive)) if axis.log else (min(0.0, *values), max(values))
        )
        self.high = self.high if self.high > self.low else self.low + 1.0

    def at(self, value: float) -> int:
        share = (
            math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
            if self.log
            else (value - self.low) / (self.high - self.low)
        )
        return min(self.cells - 1, max(0, round(share * (self.cells - 1))))

    def value(self, cell: int) -> float:
        share = cell / (self.cells - 1)
        return (
            self.low * (self.high / self.low) ** share
            if self.log
            else self.low + share * (self.high - self.low)
        )


def _number(scale: _Scale, row: int) -> str:
    """The value next to every third line."""
    return short(scale.value(row)) if row % 3 == 0 else ""


def _drawn(places: Sequence[tuple[int, int]]) -> Sequence[tuple[int, int]]:
    """The cells of the points, and of straight lines between them."""
    cells = []
    for (x0, y0), (x1, y1) in pairwise(places):
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        cells += [
            (x0 + round(i * (x1 - x0) / steps), y0 + round(i * (y1 - y0) / steps))
            for i in range(steps + 1)
        ]
    return list(dict.fromkeys(cells))


# A table for a terminal: aligned columns that never grow wider than the terminal, and in which no
# id is ever broken. Where the cells are too wide, they are folded between words; then columns are
# left out, but only the table's spare ones; then each row is written as a few lines.


# columns up to which a cell of words stays on one line while other columns can still be left out
TOGETHER = 20
BESIDE = 2  # spaces between two columns
# follows the first cell of the row to see first; a line below the table says what it means
CHOSEN = "←"


def table_lines(table: Table, width: int) -> list[str]:
    """The header, a rule and the rows, each row on as many lines as its longest cell needs; then
    what the table notes.
    """
    header, rows = list(table.header), [list(row) for row in table.rows]
    marked = table.chosen is not None and table.chosen < len(rows)
    if table.chosen is not None and marked:
        rows[table.chosen][0] += f" {CHOSEN}"
    columns = _unfolded_columns(table, header, rows, width)
    right = [table.numeric[i] and i > 0 for i in columns]
    lines = _aligned(
        [header[i] for i in columns], [[row[i] for i in columns] for row in rows], right, width
    )
    return [*lines, *(textwrap.wrap(f"{CHOSEN} {table.mark}", width) if marked else [])]


def _unfolded_columns(
    table: Table, header: Sequence[str], rows: Sequence[Sequence[str]], width: int
) -> list[int]:
    """The columns that fit side by side without folding a few words that belong together."""
    columns = list(range(len(header)))
    least = [
        _least(header[i], [row[i] for row in rows], together=TOGETHER, numeric=table.numeric[i])
        for i in columns
    ]
    gone: list[str] = []
    for name in table.spare:
        if _total([least[i] for i in columns]) <= width:
            break
        columns = [i for i in columns if header[i] != name]
        gone.append(name)
    for name in reversed(gone):
        more = sorted([*columns, *(i for i, title in enumerate(header) if title == name)])
        columns = more if _total([least[i] for i in more]) <= width else columns
    return columns


def _aligned(
    header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool], width: int
) -> list[str]:
    columns = [[row[i] for row in rows] for i in range(len(header))]
    widths = [
        max(len(cell) for cell in (name, *cells))
        for name, cells in zip(header, columns, strict=True)
    ]
    for together in (TOGETHER, 0):
        least = [
            _least(name, cells, together=together, numeric=n)
            for name, cells, n in zip(header, columns, right, strict=True)
        ]
        narrowed = list(widths)
        while _total(narrowed) > width:
            widest = max(range(len(narrowed)), key=lambda i: (narrowed[i] > least[i], narrowed[i]))
            if narrowed[widest] <= least[widest]:
                break
            narrowed[widest] -= 1
        widths = narrowed
    if _total(widths) > width:
        return [line for row in rows for line in _stacked(header, row, width)]
    folded = [
        [_folded(cell, wide) for cell, wide in zip(row, widths, strict=True)]
        for row in (header, *rows)
    ]
    widths = [max(len(line) for row in folded for line in row[i]) for i in range(len(header))]
    head, *body = (_side_by_side(row, widths, right) for row in folded)
    return [
        *head,
        (" " * BESIDE).join("─" * wide for wide in widths),
        *(line for row in body for line in row),
    ]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + BESIDE * (len(widths) - 1)


def _least(name: str, cells: Sequence[str], *, together: int, numeric: bool) -> int:
    """Columns that a column needs if no word is broken, no number is folded, and words that are
    short together stay together.
    """
    words = [
        len(word) for cell in ((name,) if numeric else (name, *cells)) for word in cell.split()
    ]
    return max(
        [*words, *(len(cell) if numeric else min(len(cell), together) for cell in cells)], default=0
    )


def _folded(cell: str, width: int) -> list[str]:
    return textwrap.wrap(cell, width, break_on_hyphens=False, break_long_words=False) or [""]


def _side_by_side(
    row: Sequence[Sequence[str]], widths: Sequence[int], right: Sequence[bool]
) -> list[str]:
    lines = []
    for i in range(max(map(len, row))):
        parts = [cell[i] if i < len(cell) else "" for cell in row]
        aligned = (
            part.rjust(wide) if to_right else part.ljust(wide)
            for part, wide, to_right in zip(parts, widths, right, strict=True)
        )
        lines.append((" " * BESIDE).join(aligned).rstrip())
    return lines


def _stacked(header: Sequence[str], row: Sequence[str], width: int) -> list[str]:
    """Write rows one below the other: the first cell, then every other cell behind its column's
    name.
    """
    lines = _folded(row[0], width)
    for name, cell in zip(header[1:], row[1:], strict=True):
        text = f"  {name}: {cell}" if name else f"  {cell}"
        lines += textwrap.wrap(
            text,
            width,
            initial_indent="",
            subsequent_indent="    ",
            break_on_hyphens=False,
            break_long_words=False,
            drop_whitespace=True,
        )
    return lines


WIDEST = 110  # columns that text takes at most, and takes where there is no terminal
NARROWEST = 40
# letters of a name next to a fact for which there is always room, so that the facts of one text are
# in one column
LABEL = 11
_SIGNS = {"warning": "! "}
BULLET = "· "


def terminal(document: Document) -> str:
    """The document as lines of text, without a line break at the end."""
    head = "\n".join(
        folded(line, hanging="  ") for line in (document.title, document.subtitle) if line
    )
    return visible("\n\n".join(part for part in (head, *map(_section, document.sections)) if part))


def width() -> int:
    """Columns to write in: those of the terminal, within reason."""
    return min(max(shutil.get_terminal_size((WIDEST, 24)).columns, NARROWEST), WIDEST)


def folded(text: str, first: str = "", hanging: str = "") -> str:
    """A paragraph folded between words at the width of the terminal."""
    return textwrap.fill(
        text,
        width(),
        initial_indent=first,
        subsequent_indent=hanging,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _section(section: Section) -> str:
    """The heading on its own line, then the blocks, a blank line between two of them."""
    body = "\n\n".join(filter(None, map(terminal_block, section.blocks)))
    return "\n".join(part for part in (section.title, body) if part)


def terminal_block(block: Block) -> str:
    """Write a block as lines of text."""
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
    """Names in a column, and next to each its meaning, folded under its own beginning."""
    widest = width() // 3
    column = max(LABEL, *(len(name) for name, _ in facts.rows if len(name) <= widest)) + 2
    lines = []
    for name, value in facts.rows:
        if len(name) <= widest:
            lines.append(folded(value, name.ljust(column), " " * column))
        else:
            lines += [folded(name), folded(value, " " * column, " " * column)]
    return "\n".join(lines)


def _table(table: Table) -> str:
    caption = [folded(table.caption, hanging="  ")] if table.caption else []
    note = [folded(line, hanging="  ") for line in table.note.splitlines()]
    return "\n".join([*caption, *table_lines(table, width()), *note])


_SPECIAL = re.compile(r"([\\`*_\[\]|~])")
_MARKS = {"warning": "**Warning:** ", "note": ""}


def markdown(document: Document) -> str:
    """The document as Markdown text, for a wiki, a merge request or a mail: the figures are there
    as their numbers.
    """
    parts = [
        line
        for line in (document.title and f"# {plain(document.title)}", plain(document.subtitle))
        if line
    ]
    for section in document.sections:
        parts += _markdown_section(section)
    return visible(in_python("\n\n".join(parts))) + "\n"


def plain(text: str) -> str:
    """Text that Markdown and HTML leave as it is: on one line, every sign with a meaning
    escaped.
    """
    line = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", line)


def _markdown_section(section: Section) -> list[str]:
    heading = [f"## {plain(section.title)}"] if section.title else []
    return [*heading, *filter(None, map(_block, section.blocks))]


def _block(block: Block) -> str:
    if isinstance(block, Text):
        return f"**{plain(block.text)}**" if block.tone == "answer" else plain(block.text)
    if isinstance(block, Items):
        return "\n".join(f"- {_MARKS.get(block.tone, '')}{plain(item)}" for item in block.items)
    if isinstance(block, Facts):
        return "\n".join(f"- {plain(name)}: {plain(value)}" for name, value in block.rows)
    if isinstance(block, Command | Lines):
        language = "sh" if isinstance(block, Command) else ""
        longest = max((len(run) for run in re.findall(r"`+", block.text)), default=0)
        fence = "`" * max(3, longest + 1)
        return f"{fence}{language}\n{block.text}\n{fence}"
    numbers = block.numbers if isinstance(block, Drawing) else block
    return "" if numbers is None else _pipe_table(numbers)


def _pipe_table(table: Table) -> str:
    """A table; the chosen row in bold."""
    rule = "|".join("---:" if right else "---" for right in table.numeric)
    lines = [_line(table.header, bold=False), f"|{rule}|"]
    lines += [_line(row, bold=i == table.chosen) for i, row in enumerate(table.rows)]
    note = f"\n\n{plain(table.note)}" if table.note else ""
    caption = f"{plain(table.caption)}:\n\n" if table.caption else ""
    return caption + "\n".join(lines) + note


def _line(cells: tuple[str, ...], bold: bool) -> str:
    written_cells = (
        f"**{plain(cell)}**" if bold and cell.strip() else plain(cell) for cell in cells
    )
    return f"| {' | '.join(written_cells)} |"

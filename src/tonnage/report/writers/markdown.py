"""A document as Markdown, for a wiki, a merge request or a mail: the figures are there as their numbers."""

from __future__ import annotations

import re

from tonnage.errors import in_python
from tonnage.report.document import Block, Command, Document, Drawing, Facts, Items, Lines, Section, Table, Text

_SPECIAL = re.compile(r"([\\`*_\[\]|~])")
_MARKS = {"warning": "**Warning:** ", "note": ""}


def markdown(document: Document) -> str:
    """The document as Markdown text."""
    parts = [line for line in (document.title and f"# {plain(document.title)}", plain(document.subtitle)) if line]
    for section in document.sections:
        parts += _section(section)
    return in_python("\n\n".join(parts)) + "\n"


def plain(text: str) -> str:
    """Text that Markdown and HTML leave as it is: on one line, every sign with a meaning escaped."""
    line = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", line)


def _section(section: Section) -> list[str]:
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
    return "" if numbers is None else _table(numbers)


def _table(table: Table) -> str:
    """A table; the chosen row in bold."""
    rule = "|".join("---:" if right else "---" for right in table.numeric)
    lines = [_line(table.header, bold=False), f"|{rule}|"]
    lines += [_line(row, bold=i == table.chosen) for i, row in enumerate(table.rows)]
    note = f"\n\n{plain(table.note)}" if table.note else ""
    caption = f"{plain(table.caption)}:\n\n" if table.caption else ""
    return caption + "\n".join(lines) + note


def _line(cells: tuple[str, ...], bold: bool) -> str:
    written_cells = (f"**{plain(cell)}**" if bold and cell.strip() else plain(cell) for cell in cells)
    return f"| {' | '.join(written_cells)} |"

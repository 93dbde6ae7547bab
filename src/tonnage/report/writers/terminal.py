"""A document as text for a terminal: aligned, without decoration, and never wider than the terminal unless a single word is."""

from __future__ import annotations

import shutil
import textwrap

from tonnage.report.document import Block, Command, Document, Drawing, Facts, Items, Lines, Section, Table, Text
from tonnage.report.writers.terminal_table import table_lines

WIDEST = 110
"""Columns that text takes at most, and takes where there is no terminal."""
NARROWEST = 40
LABEL = 11
"""Letters of a name beside a fact for which there is always room, so that the facts of one text stand in one column."""
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
    """The heading on a line of its own, then the blocks, a blank line between two of them."""
    body = "\n\n".join(filter(None, map(terminal_block, section.blocks)))
    return "\n".join(part for part in (section.title, body) if part)


def terminal_block(block: Block) -> str:
    """One block as lines of text."""
    if isinstance(block, Text | Items):
        return _prose(block)
    if isinstance(block, Facts):
        return _facts(block)
    if isinstance(block, Table | Drawing):
        numbers = block if isinstance(block, Table) else block.numbers
        return "" if numbers is None else _table(numbers)
    if isinstance(block, Command):
        return f"  {block.text}"
    assert isinstance(block, Lines)
    return block.text


def _prose(block: Text | Items) -> str:
    """A paragraph, or a list with a sign before each sentence."""
    sign = _SIGNS.get(block.tone, BULLET if isinstance(block, Items) else "")
    sentences = block.items if isinstance(block, Items) else (block.text,)
    return "\n".join(folded(sentence, sign, " " * len(sign)) for sentence in sentences)


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

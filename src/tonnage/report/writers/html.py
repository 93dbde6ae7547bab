"""A document as one HTML page that needs nothing else: no network, no other file.

Everything that comes from the plan is text and is escaped. A content policy allows the page's own
style and script, by their hashes, and nothing more: a name that is a script stays a name, twice
over.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import tempfile
from dataclasses import replace
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path

from tonnage.errors import InputError, in_python, option
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
from tonnage.report.drawing.draw import draw, picture

# columns that have room side by side on a telephone; a wider table is there as one block for each
# row
MOST_BESIDE = 2


# What a foreign page says of its tables and lists is taken back; the attributes of a drawing are
# not
ALONE = "container-type: inline-size;\n:where(:not(svg, svg *)) { all: revert; }\n"
# Where several answers follow each other, each takes less room than on a page
CLOSER = "h1 { font-size: 1.3rem; }\nsection { margin-top: .5rem; padding-top: .5rem; }\n"

_SPACE = re.compile(r"(\s+)")
# A word with hyphens that is short enough for the narrowest page
_ID = re.compile(r"[\w.+*,;:()]{1,24}(?:-[\w.+*,;:()]{1,24}){1,4}")


def write_page(path: str | Path, document: Document) -> None:
    """Write a document as a page; a file that is there already is replaced whole, or not at all.
    Raises InputError.
    """
    _write(path, html(document), "report")


def write_picture(path: str | Path, document: Document) -> None:
    """Write the figures of a document under one another as one SVG, or the whole document as a
    page, as the file's name ends.

    Raises InputError.
    """
    figures = [
        block.figure
        for part in document.sections
        for block in part.blocks
        if isinstance(block, Drawing)
    ]
    svg = str(path).lower().endswith(".svg")
    _write(
        path,
        picture(document.title, figures, _asset("page.css")) if svg else html(document),
        "plot",
    )


def _write(path: str | Path, text: str, where: str) -> None:
    target, page = Path(path), in_python(text)
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(page)
            Path(name).chmod(0o644)
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as fault:
        raise InputError(
            f"{option(where)}: cannot write '{target}': {fault.strerror}; name a file in a folder"
            " that exists"
        ) from fault


def html(document: Document) -> str:
    """Write a document as an HTML page."""
    style, script = _asset("page.css"), _asset("page.js")
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri"
        " 'none'; form-action 'none'"
    )
    links = "".join(
        f'<li><a href="#{escape(s.key)}">{escape(s.title)}</a></li>'
        for s in document.sections
        if s.listed
    )
    first, rest = document.sections[0], document.sections[1:]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy, quote=False)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(document.title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        '<a class="skip" href="#answer">To the answer</a>\n'
        f'<nav aria-label="Parts of this report"><ul>{links}</ul></nav>\n<main>\n<div'
        ' class="first">\n'
        f"<header><p>{escape(document.subtitle)}</p><h1>{_words(document.title)}</h1></header>\n{_section(first)}</div>\n"
        f"{''.join(_section(section) for section in rest)}</main>\n"
        f'<div id="tip" role="status" hidden></div>\n<script>{script}</script>\n</body>\n</html>\n'
    )


def piece(document: Document) -> str:
    """A document as a part of a foreign page, such as a notebook: the first section and the first
    figure open, the others folded.
    """
    heading = f"<header><h1>{_words(document.title)}</h1></header>\n" if document.title else ""
    sections = [section for section in document.sections if section.blocks]
    drawings = [
        section
        for section in sections
        if any(isinstance(block, Drawing) for block in section.blocks)
    ]
    opened = (sections[0], *drawings[:1])
    first, *rest = (
        _section(
            replace(section, folded=bool(section.title) and section not in opened), anchor=False
        )
        for section in sections
    )
    return _styled(f'{heading}<div class="first">{first}</div>\n{"".join(rest)}')


def drawn(block: Drawing) -> str:
    """Draw a figure for a foreign page, with its numbers folded."""
    return _styled(
        _drawing(
            block
            if block.numbers is None
            else replace(block, numbers=replace(block.numbers, folded=True))
        )
    )


def _styled(inside: str) -> str:
    """Markup with the style of our pages, which holds inside of it alone, and in which no rule of
    the foreign page holds.

    The rules are nested under a selector that outweighs those of notebooks, and depend on the width
    of the markup, not of the window.
    """
    style = re.sub(r"(?m)^( *)(:root|html) \{", r"\1& {", _asset("page.css")).replace(
        "@media screen and (", "@container ("
    )
    outer = ".tonnage" * 4
    return in_python(
        f'<div class="tonnage"><style>{outer}'
        f" {{\n{ALONE}{style}{CLOSER}}}</style>\n{inside}</div>\n"
    )


@cache
def _asset(name: str) -> str:
    return files("tonnage.report.writers").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _section(section: Section, *, anchor: bool = True) -> str:
    """A section; without an anchor it may be on a page more than once."""
    key, title = escape(section.key), escape(section.title)
    blocks = "\n".join(_block(block) for block in section.blocks)
    heading = f'<h2 id="{key}-title">{title}</h2>' if anchor else f"<h2>{title}</h2>"
    inside = (
        f"<details><summary>{heading}</summary>\n{blocks}\n</details>"
        if section.folded
        else f"{heading}\n{blocks}"
    )
    named = f'id="{key}" aria-labelledby="{key}-title"' if anchor else f'aria-label="{title}"'
    return f"<section {named}>{inside}\n</section>\n"


def _words(text: str) -> str:
    """Text of which no id is broken at a hyphen: it stays on one line."""
    return "".join(
        f'<span class="word">{escape(part)}</span>' if _ID.fullmatch(part) else escape(part)
        for part in _SPACE.split(text)
    )


def _block(block: Block) -> str:
    if isinstance(block, Text):
        return f'<p class="{escape(block.tone)}">{_words(block.text)}</p>'
    if isinstance(block, Items):
        return f'<ul class="{escape(block.tone)}">{"".join(f"<li>{_words(item)}</li>" for item in block.items)}</ul>'  # noqa: E501
    if isinstance(block, Facts):
        rows = "".join(
            f"<div><dt>{escape(name)}</dt><dd>{_words(value)}</dd></div>"
            for name, value in block.rows
        )
        plain = "".join(
            f"<dt>{escape(name)}</dt><dd>{_words(value)}</dd>" for name, value in block.rows
        )
        return f'<dl class="big">{rows}</dl>' if block.big else f"<dl>{plain}</dl>"
    if isinstance(block, Table):
        return _table(block)
    return _verbatim(block) if isinstance(block, Command | Lines) else _drawing(block)


def _verbatim(block: Command | Lines) -> str:
    """Text of which every sign stays as it is."""
    if isinstance(block, Lines):
        return f"<pre>{escape(block.text)}</pre>"
    return (
        f'<div class="command"><code>{escape(block.text)}</code><button type="button" data-copy'
        " hidden>copy</button></div>"
    )


def _drawing(block: Drawing) -> str:
    reading = f'<p class="reading">{escape(block.reading)}</p>' if block.reading else ""
    figure = f"<figure><figcaption>{escape(block.figure.title)}</figcaption>{reading}{draw(block.figure)}</figure>"  # noqa: E501
    return figure if block.numbers is None else f"{figure}\n{_table(block.numbers)}"


def _table(block: Table) -> str:
    caption, numeric = escape(block.caption), block.numeric
    head = "".join(
        f'<th scope="col"{_right(n)}>{escape(name)}</th>'
        for name, n in zip(block.header, numeric, strict=True)
    )
    stacked = len(block.header) > MOST_BESIDE
    names = block.header if stacked else ()
    rows = "".join(
        _row(row, numeric, block.mark if i == block.chosen else "", names)
        for i, row in enumerate(block.rows)
    )
    kind = ' class="stacked"' if stacked else ""
    shown = "" if block.folded or not caption else f"<caption>{caption}</caption>"
    note = f'<p class="cell-note">{escape(block.note)}</p>' if block.note else ""
    table = (
        '<div class="scroll" tabindex="0" role="region"'
        f' aria-label="{caption}"><table{kind}>{shown}'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{note}"
    )
    return f"<details><summary>{caption}</summary>{table}</details>" if block.folded else table


def _row(
    cells: tuple[str, ...], numeric: tuple[bool, ...], mark: str, names: tuple[str, ...]
) -> str:
    """One row; ``names`` are what a telephone writes before each cell where the columns have no
    room side by side.
    """
    number = f' data-name="{escape(names[0])}"' if names and numeric[0] else ""
    first = f'<th scope="row"{_right(numeric[0])}{number}>{_words(cells[0])}{escape(mark and f" ({mark})")}</th>'  # noqa: E501
    attributes = [f' data-name="{escape(name)}"' for name in names] or [""] * len(cells)
    rest = "".join(
        f"<td{_right(n)}{name}>{_words(cell)}</td>"
        for cell, n, name in zip(cells[1:], numeric[1:], attributes[1:], strict=True)
    )
    kind = ' class="chosen"' if mark else ""
    return f"<tr{kind}>{first}{rest}</tr>"


def _right(numeric: bool) -> str:
    return ' class="n"' if numeric else ""


def fragment(*sections: Section) -> str:
    """Sections as a part of a page that has the style and the script of a report already."""
    return in_python("".join(map(_section, sections)))

"""A document as text for a terminal: nothing wider than it, no id in pieces, no row without its
identity."""

from __future__ import annotations

import os
import re

from hypothesis import given
from hypothesis import strategies as st

from tests.report.example_plan import GOLDEN, full, hostile
from tonnage.report.document import Command, Document, Facts, Items, Lines, Section, Table, Text
from tonnage.report.plans.plan_document import report
from tonnage.report.writers.terminal import markdown, plain, table_lines, terminal


def written(*blocks: Text | Items | Facts | Table | Command | Lines) -> str:
    return terminal(
        Document(title="", subtitle="", sections=(Section(key="one", title="", blocks=blocks),))
    )


def test_a_table_leaves_out_what_it_may_before_it_folds_words() -> None:
    rows = (("name", "1234567890123", "a reason that is told in a good many words"),)
    spared = table_lines(
        Table(caption="", header=("first", "number", "reason"), rows=rows, spare=("number",)), 30
    )
    assert "1234567890123" not in "".join(spared)
    folded = table_lines(Table(caption="", header=("first", "number", "reason"), rows=rows), 44)
    assert len(folded) > 3
    assert (
        " ".join(" ".join(folded[2:]).split())
        == "name 1234567890123 a reason that is told in a good many words"
    )


WORDS = st.text(st.characters(codec="ascii", categories=("L", "Nd")), min_size=1, max_size=12)


@given(st.lists(st.tuples(WORDS, WORDS, WORDS), min_size=1, max_size=5), st.integers(20, 110))
def test_every_word_of_every_cell_survives_at_every_width(
    rows: list[tuple[str, str, str]], columns: int
) -> None:
    lines = table_lines(
        Table(caption="", header=("alpha", "beta", "gamma"), rows=tuple(rows)), columns
    )
    shown = " ".join(lines).split()
    assert all(word in shown for row in rows for word in row)
    assert max(map(len, lines)) <= max(columns, 4 + len("gamma: ") + 12)


# The report as Markdown: the golden text, tables that are tables, names that are text.


def test_markdown_is_the_golden_text() -> None:
    written = markdown(report(full()))
    if os.environ.get("TONNAGE_GOLDEN") == "write":
        (GOLDEN / "report.md").write_text(written, encoding="utf-8")
    assert written == (GOLDEN / "report.md").read_text(encoding="utf-8")


def test_names_and_commands_are_text() -> None:
    text = markdown(report(hostile()))
    outside = re.sub(r"(?ms)^(`{3,})sh$.*?^\1$", "", text)
    assert "<script" not in outside
    assert "<img" not in outside
    assert plain("a|b*c_d`e\n<f>&") == "a\\|b\\*c\\_d\\`e &lt;f&gt;&amp;"
    command = Section(
        key="repeat", title="Repeat it", blocks=(Command(text="./tonnage size --model '```'"),)
    )
    text = markdown(Document(title="", subtitle="", sections=(command,)))
    assert text == "## Repeat it\n\n````sh\n./tonnage size --model '```'\n````\n"

"""The report as Markdown: the golden text, tables that are tables, names that are text."""

from __future__ import annotations

import os
import re

from tests.report.example_plan import GOLDEN, documents, full, hostile
from tonnage.report.document import Command, Document, Section
from tonnage.report.plans.plan_document import report
from tonnage.report.writers.markdown import markdown, plain


def test_markdown_is_the_golden_text() -> None:
    written = markdown(report(full()))
    if os.environ.get("TONNAGE_GOLDEN") == "write":
        (GOLDEN / "report.md").write_text(written, encoding="utf-8")
    assert written == (GOLDEN / "report.md").read_text(encoding="utf-8")


def test_every_row_has_the_cells_of_its_header() -> None:
    for document in documents().values():
        cells = 0
        for line in markdown(document).splitlines():
            if not line.startswith("|"):
                cells = 0
                continue
            found = len(re.findall(r"(?<!\\)\|", line))
            assert cells in {0, found}
            cells = found


def test_names_are_text() -> None:
    text = markdown(report(hostile()))
    outside = re.sub(r"(?ms)^(`{3,})sh$.*?^\1$", "", text)
    assert "<script" not in outside
    assert "<img" not in outside
    assert plain("a|b*c_d`e\n<f>&") == "a\\|b\\*c\\_d\\`e &lt;f&gt;&amp;"


def test_command_with_backticks_stays_inside_its_fence() -> None:
    command = Section(key="repeat", title="Repeat it", blocks=(Command(text="./tonnage size --model '```'"),))
    text = markdown(Document(title="", subtitle="", sections=(command,)))
    assert text == "## Repeat it\n\n````sh\n./tonnage size --model '```'\n````\n"

"""The lesson in ticks as a document: its figures, and the slots over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.report.blocks import section
from tonnage.report.document import Document, Lines, Table
from tonnage.report.numbers import ABSENT

if TYPE_CHECKING:
    from tonnage.simulator.lesson import LessonResult

NAMES = {
    "e2e": "E2E",
    "ttft": "TTFT",
    "itl": "ITL",
    "requests_per_1k_ticks": "requests per 1,000 ticks",
    "tokens_per_1k_ticks": "tokens per 1,000 ticks",
    "final_queue": "queue at the end",
}


def lesson(result: LessonResult) -> Document:
    """The six figures of the course, then a row of letters for each slot."""
    rows = tuple((NAMES[name], ABSENT if value is None else f"{value:g}") for name, value in result.to_json().items())
    table = Table(caption="", header=("in ticks", "value"), rows=rows)
    return Document(title="", subtitle="", sections=(section("figures", "", table), section("slots", "", Lines(text=result.slots_text()))))

"""What a plan rests on: its notes, what was not measured, the course's way of sizing for a mean, and the definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.report.blocks import items, section
from tonnage.report.document import Facts, Section, Table, Text
from tonnage.report.numbers import number, plain, sentence_of
from tonnage.report.wording.notes import note_texts
from tonnage.report.wording.percentile import arrivals_text, percentile_text

if TYPE_CHECKING:
    from tonnage.plan.percentile_answer import PercentileAnswer
    from tonnage.plan.plan import Plan

DEFINITIONS = (
    ("TTFT", "time to first token: from the moment a request was due to be sent, queueing included"),
    ("ITL", "every single gap between two tokens, all requests pooled"),
    ("TPOT", "(E2E − TTFT) / (output tokens − 1), one value per request"),
    ("E2E", "time to the last token"),
    ("p95", "95 of 100 are at or below it"),
    ("requests/s inside the limits", "the highest load at which every limit still holds"),
)


def assumptions_section(plan: Plan) -> Section:
    """The section of a page; a terminal shows its parts in places of their own."""
    marks = () if plan.choice is None else plan.choice.marks
    return section(
        "assumptions",
        "What it rests on",
        items(note_texts(plan)),
        items(tuple(sentence_of(f"The chosen deployment is estimated with this: {mark}") for mark in marks), "warning"),
        *percentile_blocks(plan.percentile_answer),
        Facts(rows=DEFINITIONS),
    )


def percentile_blocks(answer: PercentileAnswer | None) -> tuple[Table, Text] | tuple[()]:
    """The percentile way beside the simulated one, and what the two do; nothing where that was not asked."""
    if answer is None:
        return ()
    peak, mean = plain(answer.peak_requests_per_second), plain(answer.mean_requests_per_second)
    rows = (
        (f"percentile: {peak}/s over a closed loop", number(answer.systems_exact), str(answer.systems)),
        (
            f"simulation: {arrivals_text(answer)} arrivals at {mean}/s",
            number(answer.simulated_systems_exact),
            str(answer.simulated_systems),
        ),
    )
    header = ("way", "systems exactly", "systems")
    table = Table(caption="Two ways to size for a mean", header=header, rows=rows, chosen=1, mark="decides")
    return table, Text(text=percentile_text(answer))

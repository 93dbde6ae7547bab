"""A plan as a terminal shows it: the answer, what would change it, what else there is, what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tonnage.report.blocks import items, section
from tonnage.report.document import Document, Lines, Section
from tonnage.report.drawing.characters import plot_text
from tonnage.report.numbers import sentence_of
from tonnage.report.plans import figures
from tonnage.report.plans.assumptions import percentile_blocks
from tonnage.report.plans.candidates import candidates_section, rejected_section
from tonnage.report.plans.compared import compared_table
from tonnage.report.plans.cost_section import cost_section
from tonnage.report.plans.costs import yearly
from tonnage.report.plans.explained import explained_section
from tonnage.report.plans.job_section import job_section
from tonnage.report.plans.measured_comparison import beside
from tonnage.report.plans.measurement import measurement_section
from tonnage.report.plans.sensitivity import sensitivity_section
from tonnage.report.plans.summary import answer_lines, question_lines
from tonnage.report.wording.notes import note_texts
from tonnage.report.wording.warnings import warning_text

if TYPE_CHECKING:
    from tonnage.plan.plan import Plan


def plan_text(plans: Sequence[Plan], *, explain: bool = False, plot: int | None = None) -> Document:
    """The plans, one after the other; of several models a table of them first. ``explain`` adds where time and memory go.

    ``plot`` adds a plot of characters, in so many columns.
    """
    several = [section("models", "Models compared", compared_table(plans))] if len(plans) > 1 else []
    each = [one for plan in plans for one in _sections(plan, explain=explain, plot=plot) if one.blocks]
    return Document(title="", subtitle="", sections=(*several, *each))


def _sections(plan: Plan, *, explain: bool, plot: int | None) -> tuple[Section, ...]:
    warnings = tuple(sentence_of(warning_text(warning)) for warning in plan.warnings)
    return (
        section("question", "", question_lines(plan)),
        section("answer", "", answer_lines(plan), items(warnings, "warning")),
        _plotted(plan, plot),
        sensitivity_section(plan),
        measurement_section(plan),
        *((explained_section(plan),) if explain else ()),
        candidates_section(plan),
        rejected_section(plan),
        section("percentile", "", *percentile_blocks(plan.percentile_answer)),
        section("notes", "What it rests on", items(note_texts(plan))),
        beside(plan),
        cost_section(yearly(plan)),
        job_section(plan),
    )


def _plotted(plan: Plan, columns: int | None) -> Section:
    """Latency against load as a plot of characters; empty where it was not asked for, or nothing is known of it."""
    figure = None if columns is None else figures.curve(plan)
    text = "" if figure is None or columns is None else plot_text(figure, columns)
    return section("plot", "Latency against load", Lines(text=text) if text else None)

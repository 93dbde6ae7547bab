"""A plan in ten lines at most: what to buy or rent, how sure that is, the latencies, the cost, the main risk, how to see more."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tonnage.report.plans.headline import answer_text, cost_text, headline_rows
from tonnage.report.plans.summary import day_line, no_answer, question_lines
from tonnage.report.wording.confidence import confidence_text
from tonnage.report.wording.existing import existing_text
from tonnage.report.wording.reachable import reachable_text

if TYPE_CHECKING:
    from tonnage.plan.plan import Plan

MOST = 10
"""Lines at most."""
MORE = "without --brief: every deployment, and why not the others; --report FILE.html writes a page, --json every number"
SPARED = ("Measuring", "Router", "Risk", "A day")
"""Rows that go where there are too many, the first to go first."""
LABEL = 13
"""Letters of the column of names."""


def brief_lines(plans: Sequence[Plan]) -> tuple[str, ...]:
    """The lines, none of them folded; of several models one line each."""
    rows = _fitted(_rows(plans[0])) if len(plans) == 1 else tuple((plan.scenario.model, _in_one(plan)) for plan in plans)
    if len(rows) > MOST - 1:
        rows = (*rows[: MOST - 2], ("…", f"and {len(rows) - MOST + 2} more models"))
    column = max(LABEL, *(len(name) + 2 for name, _ in rows))
    return tuple(f"{name:<{column}}{text}" for name, text in (*rows, ("More", MORE)))


def _fitted(rows: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """The rows of one plan without those that the answer can do without, as far as there are too many."""
    for name in SPARED:
        if len(rows) > MOST - 1:
            rows = tuple(row for row in rows if row[0] != name)
    return rows


def answer_lines(plans: Sequence[Plan]) -> tuple[str, ...]:
    """The answer alone, one line for each plan."""
    named = [(f"{plan.scenario.model}: " if len(plans) > 1 else "", plan) for plan in plans]
    return tuple(name + (no_answer(plan) if plan.choice is None else answer_text(plan, plan.choice)) for name, plan in named)


def _rows(plan: Plan) -> tuple[tuple[str, str], ...]:
    (_, question), (_, demand), (_, limits), *aim = question_lines(plan).rows
    asked = ("Question", f"{question}; {demand}; limits: {limits}" + "".join(f"; aim: {text}" for _, text in aim))
    exists = ("Have", "" if plan.existing is None else existing_text(plan.existing))
    best = plan.choice
    if best is None:
        reached = "" if plan.reachable is None else reachable_text(plan.reachable)
        return tuple(row for row in (asked, exists, ("Answer", no_answer(plan)), ("Reachable", reached)) if row[1])
    start = ("Start", shlex.join(best.pool.launch) if len(best.pools) == 1 else "")
    day = day_line(plan) if best.standby is None else ("", "")
    return tuple(row for row in (asked, exists, *headline_rows(plan, best), day, start) if row[1])


def _in_one(plan: Plan) -> str:
    """One model of several: what to buy, how sure that is, what it costs."""
    best = plan.choice
    if best is None:
        return no_answer(plan)
    sure = "" if best.confidence is None else confidence_text(best.confidence)
    return "; ".join(filter(None, (answer_text(plan, best), sure, cost_text(plan))))

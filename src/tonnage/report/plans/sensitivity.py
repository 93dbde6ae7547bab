"""The sensitivity of a plan: the number of systems when one input is lower or higher."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.report.blocks import section
from tonnage.report.document import Block, Section, Table, Text
from tonnage.report.numbers import counted, number, signed
from tonnage.report.wording.reasons import reason_text
from tonnage.report.wording.sensitivity import INPUTS, relaxed_text

if TYPE_CHECKING:
    from tonnage.plan.plan import Plan
    from tonnage.plan.sensitivity import Changed, Sensitivity, Swing


def sensitivity_section(plan: Plan, drawn: Block | None = None) -> Section:
    """The section; empty where nothing was changed. ``drawn`` is a figure that shows the table too."""
    found, table = plan.sensitivity, sensitivity_table(plan)
    if found is None or table is None:
        return section("sensitivity", "What would change the answer")
    line = None if found.relaxed is None else Text(text=f"The cheapest limit to relax: {relaxed_text(found.relaxed)}.")
    return section("sensitivity", "What would change the answer", drawn or table, line)


def sensitivity_table(plan: Plan) -> Table | None:
    """One row for each input, lower and higher; None where nothing was changed."""
    found = plan.sensitivity
    if found is None or not found.swings:
        return None
    rows = tuple(
        (INPUTS[one.input], signed(one.low.change), needed(one.low), signed(one.high.change), needed(one.high)) for one in found.swings
    )
    caption = f"Systems when one input changes; now {counted(found.systems, 'system')}, {number(found.systems_exact)} exactly"
    return Table(caption=caption, header=("input", "lower", "systems", "higher", "systems"), rows=rows)


def widest_text(found: Sensitivity | None) -> str:
    """The input that moves the answer most, in a sentence; "" where nothing was changed."""
    if found is None or not found.swings:
        return ""
    base = found.systems_exact

    def width(swing: Swing) -> float:
        return max(abs((base if side.systems_exact is None else side.systems_exact) - base) for side in (swing.low, swing.high))

    one = max(found.swings, key=width)
    low, high = (f"{'no answer' if side.systems is None else side.systems} at {signed(side.change)}" for side in (one.low, one.high))
    return f"What moves the answer most is the {INPUTS[one.input]}: {low}, {high}."


def needed(changed: Changed) -> str:
    """Such as "6 (5.77 exactly)", or why there is none."""
    if changed.systems is None:
        return "none" if changed.reason is None else f"none: {reason_text(changed.reason)}"
    return f"{changed.systems} ({number(changed.systems_exact)})"

"""The sensitivity of a plan: the systems when one input is lower or higher, and what is most likely to make the answer wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.plan.warning import BurstyTrace
from tonnage.report.document import Block, Section, Table, Text, section
from tonnage.report.numbers import counted, number, signed
from tonnage.report.plans.candidates import reason_text
from tonnage.report.plans.confidence import fleet_check_text
from tonnage.report.plans.notes import warning_text
from tonnage.report.plans.question import value_text

if TYPE_CHECKING:
    from tonnage.plan.candidate import Candidate
    from tonnage.plan.plan import Plan
    from tonnage.plan.sensitivity import Changed, Input, Relaxed, Sensitivity, Swing

INPUTS: dict[Input, str] = {
    "isl": "input length",
    "osl": "output length",
    "rate": "requests per second",
    "step_time": "step time (model error)",
}

MORE: dict[Input, str] = {
    "isl": "longer prompts",
    "osl": "longer answers",
    "rate": "more requests",
    "step_time": "slower steps",
}
"""A rise of each input, after its size."""


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
    size = 0 if plan.choice is None else gpus_per_system(plan.choice)
    rows = tuple(
        (INPUTS[one.input], signed(one.low.change), needed(one.low, size), signed(one.high.change), needed(one.high, size))
        for one in found.swings
    )
    caption = f"Systems when one input changes; now {counted(found.systems, 'system')}, {number(found.systems_exact)} exactly"
    return Table(caption=caption, header=("input", "lower", "systems", "higher", "systems"), rows=rows)


def needed(changed: Changed, gpus_per_system: int = 0) -> str:
    """Such as "6 (5.77 exactly)", with its GPUs where its systems are of another size than ``gpus_per_system``; or why there is none."""
    if changed.systems is None:
        return "none" if changed.reason is None else f"none: {reason_text(changed.reason)}"
    gpus = f"; {counted(changed.gpus, 'GPU')}" if other_size(changed, gpus_per_system) else ""
    return f"{changed.systems:,} ({number(changed.systems_exact)}{gpus})"


def other_size(changed: Changed, gpus_per_system: int) -> bool:
    """Whether its systems hold another number of GPUs than those of the choice."""
    known = changed.gpus > 0 and changed.systems is not None and gpus_per_system > 0
    return known and changed.gpus != (changed.systems or 0) * gpus_per_system


def risk_text(plan: Plan, best: Candidate) -> str:
    """What is most likely to make the answer wrong; "" where nothing is known of it."""
    check = plan.fleet_check
    if check is not None and not check.holds:
        return fleet_check_text(check)
    bursts = next((one for one in plan.warnings if isinstance(one, BurstyTrace)), None)
    if bursts is not None:
        return warning_text(bursts)
    if plan.sensitivity is not None and plan.sensitivity.swings:
        return riskiest_text(plan.sensitivity, gpus_per_system(best))
    if plan.warnings:
        return warning_text(plan.warnings[0])
    return f"rests in part on {best.marks[0]}" if best.marks else ""


def gpus_per_system(best: Candidate) -> int:
    """GPUs of one system of the choice; 0 where its pools have systems of several sizes."""
    sizes = {pool.gpus_per_system for pool in best.pools}
    return sizes.pop() if len(sizes) == 1 else 0


def riskiest_text(found: Sensitivity, per_system: int = 0) -> str:
    """The input whose rise needs the most GPUs, read off the figures: "with 20% longer prompts it takes 3 systems in place of 2".

    Args:
        found: the figures.
        per_system: GPUs in one system of the choice; where the other answer has systems of another size, both are given in GPUs.
    """
    rises = [one for one in found.swings if one.input in MORE]
    none = next((one for one in rises if one.high.systems is None), None)
    if none is not None:
        return f"with {_more(none)} nothing meets the limits"
    worst = max(rises, key=lambda one: (one.high.gpus or one.high.systems or 0, one.high.systems_exact or 0.0))
    high, systems, exact = worst.high, worst.high.systems or 0, worst.high.systems_exact or 0.0
    if other_size(high, per_system) and high.gpus > found.systems * per_system:
        where = "" if high.deployment is None else f" of {high.deployment.gpu}"
        return f"with {_more(worst)} it takes {high.gpus:,} GPUs{where} in place of {found.systems * per_system:,}"
    if not other_size(high, per_system) and systems > found.systems:
        return f"with {_more(worst)} it takes {systems:,} systems in place of {found.systems:,}"
    return f"no input {100 * high.change:.0f}% higher takes more GPUs; {MORE[worst.input]} come nearest ({number(exact)} systems exactly)"


def _more(swing: Swing) -> str:
    return f"{100 * swing.high.change:.0f}% {MORE[swing.input]}"


def relaxed_text(relaxed: Relaxed) -> str:
    """Such as "TTFT p95 500 → 620 ms: one system fewer"."""
    limit = relaxed.limit
    before, after = value_text(limit, limit.milliseconds), value_text(limit, relaxed.to_ms)
    if before.split()[-1] == after.split()[-1]:
        before = before.split()[0]
    count = "one system" if relaxed.saved == 1 else f"{relaxed.saved} systems"
    left = f", {counted(relaxed.gpus, 'GPU')} in all" if relaxed.gpus else ""
    return f"{limit.name} {before} → {after}: {count} fewer{left}"

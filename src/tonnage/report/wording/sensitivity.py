"""What would change the answer, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.report.numbers import number
from tonnage.units import format_duration

if TYPE_CHECKING:
    from tonnage.plan.sensitivity import Input, Relaxed, Sensitivity, Swing

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


def riskiest_text(found: Sensitivity) -> str:
    """The input whose rise needs the most systems, read off the figures: "20 % more input tokens need 3 systems in place of 2"."""
    rises = [one for one in found.swings if one.input in MORE]
    none = next((one for one in rises if one.high.systems is None), None)
    if none is not None:
        return f"with {_more(none)} nothing meets the limits"
    worst = max(rises, key=lambda one: (one.high.systems or 0, one.high.systems_exact or 0.0))
    systems, exact = worst.high.systems or 0, worst.high.systems_exact or 0.0
    if systems > found.systems:
        return f"with {_more(worst)} it takes {systems:,} systems in place of {found.systems:,}"
    return f"no input 20 % higher takes more systems; {MORE[worst.input]} come nearest ({number(exact)} exactly)"


def _more(swing: Swing) -> str:
    return f"{100 * swing.high.change:.0f} % {MORE[swing.input]}"


def relaxed_text(relaxed: Relaxed) -> str:
    """Such as "TTFT p95 500 → 620 ms: one system fewer"."""
    limit = relaxed.limit
    before, after = format_duration(limit.seconds), format_duration(relaxed.to_ms / 1e3)
    if before.split()[-1] == after.split()[-1]:
        before = before.split()[0]
    count = "one system" if relaxed.saved == 1 else f"{relaxed.saved} systems"
    return f"{limit.metric.upper()} {limit.statistic} {before} → {after}: {count} fewer"

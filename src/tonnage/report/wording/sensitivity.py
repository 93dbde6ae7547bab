"""What would change the answer, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.units import format_duration

if TYPE_CHECKING:
    from tonnage.plan.sensitivity import Input, Relaxed

INPUTS: dict[Input, str] = {
    "isl": "input length",
    "osl": "output length",
    "rate": "requests per second",
    "step_time": "step time (model error)",
}


def relaxed_text(relaxed: Relaxed) -> str:
    """Such as "TTFT p95 500 → 620 ms: one system fewer"."""
    limit = relaxed.limit
    before, after = format_duration(limit.seconds), format_duration(relaxed.to_ms / 1e3)
    if before.split()[-1] == after.split()[-1]:
        before = before.split()[0]
    count = "one system" if relaxed.saved == 1 else f"{relaxed.saved} systems"
    return f"{limit.metric.upper()} {limit.statistic} {before} → {after}: {count} fewer"

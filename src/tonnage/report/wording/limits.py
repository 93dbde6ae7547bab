"""Limits in words: what was asked, what breaks it, and what ends a load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.report.numbers import plain
from tonnage.units import format_duration

if TYPE_CHECKING:
    from tonnage.plan.limit import Bound, Breach, Limit

BOUNDS = {"saturation": "saturation", "throughput": "throughput", "highest-measured": "the highest throughput measured"}


def limit_text(limit: Limit) -> str:
    """Such as "TTFT p95 ≤ 500 ms"."""
    return f"{limit.metric.upper()} {limit.statistic} ≤ {format_duration(limit.seconds)}"


def breach_text(breach: Breach) -> str:
    """Such as "TTFT p95 612 ms > 500 ms"."""
    limit, value = breach.limit, breach.value_ms
    name = f"{limit.metric.upper()} {limit.statistic}"
    if value is None:
        return f"{name} was not measured"
    shown, most = format_duration(value / 1e3), format_duration(limit.seconds)
    if shown == most:
        shown, most = f"{value:.6g} ms", f"{plain(limit.milliseconds)} ms"
    return f"{name} {shown} > {most}"


def bound_text(bound: Bound) -> str:
    """What ends a load: a limit, saturation, the throughput of a job, or the last point of a benchmark."""
    return BOUNDS[bound.kind] if bound.limit is None else limit_text(bound.limit)

"""What the router of a plan is worth, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tonnage.report.numbers import counted, number

if TYPE_CHECKING:
    from tonnage.plan.limit import Limit
    from tonnage.plan.routers import BehindRouter
    from tonnage.results.latencies import Latencies
    from tonnage.spec.deployment import LimitMetric, Statistic

NAMES = {"random": "random choice", "round-robin": "round robin"}


def routers_text(rows: Sequence[BehindRouter], limits: Sequence[Limit], systems: int) -> str:
    """Such as "random choice, TTFT p95 150 ms at the peak; behind least-outstanding 132 ms (4 systems would do), behind round robin 78 ms".

    Args:
        rows: the choice behind its router and behind others.
        limits: those that count; the first one on TTFT, or the first, says which latency is named.
        systems: of the plan, without spare ones.
    """
    if not rows:
        return ""
    first, *others = rows
    limit = next((one for one in limits if one.metric == "ttft"), None) or (limits[0] if limits else None)
    metric: LimitMetric = "ttft" if limit is None else limit.metric
    statistic: Statistic = "p95" if limit is None else limit.statistic

    def value(row: BehindRouter) -> str:
        values: Latencies = getattr(row, f"{metric}_ms")
        return f"{number(values.value(statistic))} ms"

    said = [f"{NAMES.get(row.router, row.router)} {value(row)}{_systems(systems, row)}" for row in others]
    own = f"{NAMES.get(first.router, first.router)}, {metric.upper()} {statistic} {value(first)} at the peak{_systems(systems, first)}"
    return f"{own}; behind {', behind '.join(said)}"


def _systems(planned: int, row: BehindRouter) -> str:
    if row.systems is None:
        return " (no number of systems holds the limits)"
    if row.systems == planned:
        return ""
    return (
        f" ({'it takes ' if row.systems > planned else ''}{counted(row.systems, 'system')}{'' if row.systems > planned else ' would do'})"
    )

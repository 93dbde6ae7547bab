"""What requests see at the asked peak, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

from tonnage.report.numbers import number, percent, plain
from tonnage.spec.deployment import LimitMetric

if TYPE_CHECKING:
    from tonnage.plan.at_peak import AtPeak
    from tonnage.plan.limit import Limit
    from tonnage.results.latencies import Latencies

LITTLE = 0.01
"""Share below which no number is named."""

ALWAYS = ("ttft", "tpot", "e2e")
"""Metrics that are named with their mean where no limit names them."""


def at_peak_text(peak: AtPeak, limits: Sequence[Limit]) -> str:
    """Such as "TTFT p95 189 ms (limit 500), TPOT p95 28.3 ms (limit 50), E2E mean 4,034 ms; 79% of capacity"."""
    latencies = ", ".join(f"{name} {value} ms{limit}" for name, value, limit in peak_values(peak, limits))
    used = used_text(peak.utilisation)
    return f"{latencies}; {used}" if latencies else used


def used_text(share: float) -> str:
    """How much of what the fleet carries inside the limits is used: "79% of capacity"."""
    return f"{used_share(share)} of capacity"


def used_share(share: float) -> str:
    """The share alone: "79%", or "under 1%"."""
    return percent(share) if share >= LITTLE else "under 1%"


def peak_values(peak: AtPeak, limits: Sequence[Limit]) -> tuple[tuple[str, str, str], ...]:
    """Name, value in milliseconds and limit of every limited statistic, and of the mean of what is not limited.

    Where gaps between tokens are limited, they stand for the time per token as well.
    """
    found = []
    gaps = any(one.metric == "itl" for one in limits)
    for metric in get_args(LimitMetric):
        values: Latencies = getattr(peak, f"{metric}_ms")
        asked = [(one.statistic, f" (limit {plain(one.milliseconds)})") for one in limits if one.metric == metric]
        for statistic, limit in asked or ([("mean", "")] if metric in ALWAYS and not (gaps and metric == "tpot") else []):
            value = values.value(statistic)
            if value is not None:
                found.append((f"{metric.upper()} {statistic}", number(value), limit))
    return tuple(found)

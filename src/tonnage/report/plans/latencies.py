"""Limits and latencies in words: what was asked, what breaks it, what ends a load, and what requests see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

from tonnage.report.numbers import number, percent, plain, whole
from tonnage.spec.deployment import LimitMetric
from tonnage.spec.use_cases import FAST_READING_S, READING_P99_S, READING_S
from tonnage.units import format_duration

if TYPE_CHECKING:
    from tonnage.plan.candidate import Candidate
    from tonnage.plan.fleet import AtPeak
    from tonnage.plan.limit import Bound, Breach, Limit
    from tonnage.results.metrics import Latencies

METRICS = ("ttft", "itl", "tpot", "e2e")
BOUNDS = {"saturation": "saturation", "throughput": "throughput", "highest-measured": "the highest throughput measured"}

LITTLE = 0.01
"""Share below which no number is named."""

ALWAYS = ("ttft", "tpot", "e2e")
"""Metrics that are named with their mean where no limit names them."""


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


def latency(candidate: Candidate | AtPeak, metrics: tuple[str, ...] = METRICS) -> tuple[str, ...]:
    """Mean and high percentiles of each latency that is known, such as "TTFT mean 104, p95 232, p99 305 ms"."""
    found = []
    for metric in metrics:
        values = getattr(candidate, f"{metric}_ms")
        known = [f"{name} {number(value)}" for name in ("mean", "p95", "p99") if (value := getattr(values, name)) is not None]
        found += [f"{metric.upper()} {', '.join(known)} ms"] if known else []
    return tuple(found)


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


def pace_text(itl_mean_s: float, itl_p99_s: float) -> str:
    """Such as "faster than a fast reader (90 ms per token), and p99 is within the 250 ms that readers accept"; both in seconds."""
    fast, usual = (f"{whole(1e3 * seconds)} ms" for seconds in (FAST_READING_S, READING_S))
    if itl_mean_s <= FAST_READING_S:
        than = f"faster than a fast reader ({fast} per token)"
    elif itl_mean_s <= READING_S:
        than = f"faster than an average reader ({usual} per token), slower than a fast one ({fast})"
    else:
        than = f"slower than an average reader ({usual} per token)"
    inside = "within" if itl_p99_s <= READING_P99_S else "beyond"
    return f"{than}, and p99 is {inside} the {whole(1e3 * READING_P99_S)} ms that readers accept"

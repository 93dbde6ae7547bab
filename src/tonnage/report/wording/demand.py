"""How the load at the peak came about, in words."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from tonnage.report.numbers import number, plain, span, whole

if TYPE_CHECKING:
    from tonnage.plan.demand import Demand, DemandSource


def demand_text(demand: Demand) -> str:
    """The rate that the systems are sized for, and what it was made of."""
    source = demand.source
    if source.kind == "trace":
        return _trace(demand, source)
    if source.kind == "existing":
        return f"none asked: the {number(demand.sizing_requests_per_second)} requests/s that the systems carry"
    if source.kind == "job":
        rate = f"{number(demand.sizing_requests_per_second, 4)} requests/s throughout, no peak"
        return f"{many(demand.offline_requests or 0)} requests within {span(demand.offline_seconds or 0.0)}: {rate}"
    rate = f"{plain(demand.sizing_requests_per_second)} requests/s"
    if source.profile_hours is None and source.kind == "peak":
        return f"{rate} at the peak, as given"
    if source.profile_hours is None:
        mean, name, times, origin = source.requests_per_second, "the mean", "the mean of", _origin(source)
    else:
        mean, name, times, origin = max(demand.profile or (0.0,)), "the busiest hour", "the busiest hour's", _profile(demand, source)
    if demand.factor is not None:
        return f"{rate} at the peak: {plain(demand.factor)} × {times} {plain(mean)}{origin}"
    return f"{rate}: {name}{origin}" if demand.percentile is None else f"{rate}: {_second(demand, mean, name + origin)}"


def many(count: float) -> str:
    """A count, in millions where it is that large."""
    return f"{plain(count / 1e6)} million" if count >= 1e6 else f"{count:,.10g}"


def _second(demand: Demand, mean: float | None, name: str) -> str:
    """Which of a mean and a percentile of its Poisson arrivals in one second is sized for, and why."""
    peak, counted = demand.peak_requests_per_second, demand.source.counted
    second = f"{plain(demand.percentile)}th percentile of the arrivals in one second"
    if peak == mean:
        return f"{name}; the {second}, {plain(counted)}, is not above it"
    if demand.sizing_requests_per_second == peak:
        return f"the {second}; {plain(mean)} is {name}"
    return f"{name}; Tonnage simulates arrivals at this rate, bursts included; {second}, for comparison: {plain(peak)}"


def _origin(source: DemandSource) -> str:
    """What a mean was made of, in brackets; "" where it was given."""
    if source.kind == "calls":
        calls = "call" if source.calls_per_year == 1 else "calls"
        requests = "request" if source.requests_per_call == 1 else "requests"
        return f" ({many(source.calls_per_year or 0)} {calls} a year × {plain(source.requests_per_call)} {requests})"
    if source.kind == "users":
        asked = f"{plain(source.requests_per_user_day)} requests a day over {plain(source.working_hours)} working hours"
        return f" ({many(source.users or 0)} users × {asked})"
    return ""


def _profile(demand: Demand, source: DemandSource) -> str:
    """The hours that a busiest one is of, and their mean, in brackets."""
    shape = f"profile of {source.profile_hours} hours"
    if source.kind == "peak":
        shape += f" with its busiest at {plain(source.requests_per_second)}/s"
    elif source.kind != "profile":
        shape += f" over a mean of {plain(source.requests_per_second)} requests/s{_origin(source)}"
    return f" ({shape}, mean of all hours {plain(demand.mean_requests_per_second)})"


def _trace(demand: Demand, source: DemandSource) -> str:
    """A recording's size, its mean and its bursts."""
    mean, peak, poisson = demand.mean_requests_per_second, demand.peak_second or 0, demand.poisson_peak_requests_per_second or 0.0
    by_second = f"{peak} requests/s: the busiest second of the " if demand.sizing_requests_per_second == peak != mean else ""
    burst = f"; a Poisson peak of that mean would be {plain(poisson)} (95th percentile of seconds)" if peak > poisson else ""
    bursty = " (Poisson: 1)" if demand.bursty else ""
    return (
        f"{by_second}trace {PurePath(source.trace).name}{source.trace_change}: {source.trace_requests:,} requests in "
        f"{whole(source.trace_seconds)} s, mean {number(mean)}/s, busiest second {peak}, CV of the gaps {number(demand.cv)}{bursty}{burst}"
    )

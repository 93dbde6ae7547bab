"""How the load at the peak came about, in words."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from tonnage.report.numbers import number, plain, span, whole

if TYPE_CHECKING:
    from tonnage.plan.demand import Demand, DemandSource


def demand_text(demand: Demand) -> str:
    """What was given, and the peak that was made of it."""
    source = demand.source
    if source.kind == "trace":
        return _trace(demand, source)
    if source.kind == "existing":
        return f"none asked: the {number(demand.sizing_requests_per_second)} requests/s that the systems carry"
    if source.kind == "job":
        rate = f"{number(demand.sizing_requests_per_second, 4)} requests/s throughout, no peak"
        return f"{many(demand.offline_requests or 0)} requests within {span(demand.offline_seconds or 0.0)}: {rate}"
    if source.profile_hours is not None:
        return _profile(demand, source)
    if source.kind == "peak":
        return f"{plain(demand.peak_requests_per_second)} requests/s at the peak, as given"
    return _peak_of(demand, source, _mean(source))


def many(count: float) -> str:
    """A count, in millions where it is that large."""
    return f"{plain(count / 1e6)} million" if count >= 1e6 else f"{count:,.10g}"


def _mean(source: DemandSource) -> str:
    """The mean that was given, and from what."""
    mean = f"mean of {plain(source.requests_per_second)} requests/s"
    if source.kind == "calls":
        calls = "call" if source.calls_per_year == 1 else "calls"
        requests = "request" if source.requests_per_call == 1 else "requests"
        each = f"{plain(source.requests_per_call)} {requests}"
        return f"{mean} ({many(source.calls_per_year or 0)} {calls} a year × {each})"
    if source.kind == "users":
        asked = f"{plain(source.requests_per_user_day)} requests a day over {plain(source.working_hours)} working hours"
        return f"{mean} ({many(source.users or 0)} users × {asked})"
    return mean


def _peak_of(demand: Demand, source: DemandSource, mean: str) -> str:
    """The peak that was made of a mean."""
    peak = demand.peak_requests_per_second
    if demand.factor is not None:
        return f"{plain(peak)} requests/s at the peak: {plain(demand.factor)} × the {mean.replace(' requests/s', '', 1)}"
    counted = peak if source.counted is None else source.counted
    floor = "" if counted == peak else f"; taken as {plain(peak)}, as a peak is not below its mean"
    return f"{mean}, Poisson arrivals: {plain(counted)} in the {plain(demand.percentile)}th percentile of seconds{floor}"


def _profile(demand: Demand, source: DemandSource) -> str:
    """The busiest hour, and the peak that was made within it."""
    busiest = max(demand.profile or (0.0,))
    shape = f"profile of {source.profile_hours} hours"
    if source.kind == "peak":
        shape += f" with its busiest at {plain(source.requests_per_second)}/s"
    elif source.kind != "profile":
        shape += f" over a {_mean(source)}"
    hour = f"busiest hour of the {shape}: {plain(busiest)} requests/s, mean of all hours {plain(demand.mean_requests_per_second)}"
    if demand.percentile is None and demand.factor is None:
        return hour
    peak = _peak_of(demand, source, f"mean of {plain(busiest)} requests/s")
    return f"{hour}; in that hour a {peak}" if demand.factor is None else f"{hour}; {peak} of that hour"


def _trace(demand: Demand, source: DemandSource) -> str:
    """A recording's size, its mean and its bursts."""
    mean, peak, poisson = demand.sizing_requests_per_second, demand.peak_second or 0, demand.poisson_peak_requests_per_second or 0.0
    burst = f"; a Poisson peak of that mean would be {plain(poisson)} (95th percentile of seconds)" if peak > poisson else ""
    return (
        f"trace {PurePath(source.trace).name}{source.trace_change}: {source.trace_requests:,} requests in {whole(source.trace_seconds)} s, "
        f"mean {number(mean)}/s, busiest second {peak}, CV of the gaps {number(demand.cv)}{' (Poisson: 1)' if demand.bursty else ''}{burst}"
    )

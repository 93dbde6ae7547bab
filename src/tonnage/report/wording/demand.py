"""How the load at the peak came about, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tonnage.plan.demand import Demand, DemandSource


def demand_text(demand: Demand) -> str:
    """What was given, and the peak that was made of it."""
    source = demand.source
    if source.kind == "trace":
        return _trace(demand, source)
    if source.kind == "job":
        hours = (demand.offline_seconds or 0.0) / 3600
        rate = f"{demand.sizing_requests_per_second:.4g} requests/s throughout, no peak"
        return f"{many(demand.offline_requests or 0)} requests within {hours:g} h: {rate}"
    if source.profile_hours is not None:
        return _profile(demand, source)
    if source.kind == "peak":
        return f"{demand.peak_requests_per_second:g} requests/s at the peak, as given"
    return _peak_of(demand, source, _mean(source))


def many(count: float) -> str:
    """A count, in millions where it is that large."""
    return f"{count / 1e6:g} million" if count >= 1e6 else f"{count:,.10g}"


def _mean(source: DemandSource) -> str:
    """The mean that was given, and from what."""
    mean = f"mean of {source.requests_per_second:g} requests/s"
    if source.kind == "calls":
        return f"{mean} ({many(source.calls_per_year or 0)} calls a year × {source.requests_per_call:g} requests)"
    if source.kind == "users":
        asked = f"{source.requests_per_user_day:g} requests a day over {source.working_hours:g} working hours"
        return f"{mean} ({many(source.users or 0)} users × {asked})"
    return mean


def _peak_of(demand: Demand, source: DemandSource, mean: str) -> str:
    """The peak that was made of a mean."""
    peak = demand.peak_requests_per_second
    if demand.factor is not None:
        return f"{peak:g} requests/s at the peak: {demand.factor:g} × the {mean.replace(' requests/s', '', 1)}"
    counted = peak if source.counted is None else source.counted
    floor = "" if counted == peak else f"; taken as {peak:g}, as a peak is not below its mean"
    return f"{mean}, Poisson arrivals: {counted:g} in the {demand.percentile:g}th percentile of seconds{floor}"


def _profile(demand: Demand, source: DemandSource) -> str:
    """The busiest hour, and the peak that was made within it."""
    busiest = max(demand.profile or (0.0,))
    shape = f"profile of {source.profile_hours} hours"
    if source.kind == "peak":
        shape += f" with its busiest at {source.requests_per_second:g}/s"
    elif source.kind != "profile":
        shape += f" over a {_mean(source)}"
    hour = f"busiest hour of the {shape}: {busiest:g} requests/s, mean of all hours {demand.mean_requests_per_second:g}"
    if demand.percentile is None and demand.factor is None:
        return hour
    peak = _peak_of(demand, source, f"mean of {busiest:g} requests/s")
    return f"{hour}; in that hour a {peak}" if demand.factor is None else f"{hour}; {peak} of that hour"


def _trace(demand: Demand, source: DemandSource) -> str:
    """A recording's size, its mean and its bursts."""
    mean, peak, poisson = demand.sizing_requests_per_second, demand.peak_second or 0, demand.poisson_peak_requests_per_second or 0.0
    burst = f"; a Poisson peak of that mean would be {poisson:g} (95th percentile of seconds)" if peak > poisson else ""
    return (
        f"trace {source.trace}{source.trace_change}: {source.trace_requests:,} requests in {source.trace_seconds:,.0f} s, "
        f"mean {mean:.3g}/s, busiest second {peak}, CV of the gaps {demand.cv:.3g}{' (Poisson: 1)' if demand.bursty else ''}{burst}"
    )

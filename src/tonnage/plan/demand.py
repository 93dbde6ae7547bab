"""How many requests per second a plan is for, and what that number was made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tonnage.spec.typed_values import FORBID

BURSTY = 1.5
"""Coefficient of variation of the gaps from which arrivals are called bursty: a Poisson peak is too low there."""

DemandKind = Literal["peak", "mean", "calls", "users", "profile", "trace", "job", "existing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandSource:
    """What the asker gave; None where it does not come into it.

    Attributes:
        kind: "peak": requests/s at the peak; "mean": mean requests/s; "calls": a year's calls; "users": people and what each asks a
            day; "profile": hourly requests/s as they are; "trace": recorded requests; "job": so many requests within a time;
            "existing": none, the plan is for what systems that exist carry.
        requests_per_second: the rate that this gave before any peak was made of it: as given, of the mean, or of the working hours.
        calls_per_year, requests_per_call: of "calls".
        users, requests_per_user_day, working_hours: of "users"; hours a day.
        profile_hours: length of an hourly profile that gives the shape, 24 or 168.
        counted: arrivals in the percentile of seconds, before they are raised to the mean.
        trace, trace_change: of "trace": the file, and what was done to its times, in words.
        trace_requests, trace_seconds: its size.
    """

    __pydantic_config__ = FORBID

    kind: DemandKind
    requests_per_second: float | None = None
    calls_per_year: float | None = None
    requests_per_call: float | None = None
    users: float | None = None
    requests_per_user_day: float | None = None
    working_hours: float | None = None
    profile_hours: int | None = None
    counted: float | None = None
    trace: str = ""
    trace_change: str = ""
    trace_requests: int | None = None
    trace_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The load at the peak.

    Attributes:
        peak_requests_per_second: what the course's percentile way sizes for.
        sizing_requests_per_second: what the systems are sized for. By simulation it is the peak, or with a percentile the mean, whose
            bursts the simulation makes itself, and of a trace its mean; by measured points it is the peak.
        mean_requests_per_second: the mean over all hours; None where only a peak was given.
        percentile: of the Poisson count in one second; None where it does not come into it.
        factor: peak over mean; None where it does not come into it.
        profile: requests per second of each hour of a day (24 values) or a week (168); None where not known.
        cv: standard deviation of a trace's gaps over their mean; None without a trace.
        peak_second: requests in the busiest second of a trace; None without one.
        poisson_peak_requests_per_second: what a Poisson peak of the trace's mean would be; None without one.
        offline_requests: how many requests are to be done, where only throughput decides; None elsewhere.
        offline_seconds: the time for them; None elsewhere.
        source: what the asker gave.
    """

    __pydantic_config__ = FORBID

    peak_requests_per_second: float
    sizing_requests_per_second: float
    mean_requests_per_second: float | None = None
    percentile: float | None = None
    factor: float | None = None
    profile: tuple[float, ...] | None = None
    cv: float | None = None
    peak_second: int | None = None
    poisson_peak_requests_per_second: float | None = None
    offline_requests: int | None = None
    offline_seconds: float | None = None
    source: DemandSource

    @property
    def bursty(self) -> bool:
        """Whether a trace's arrivals are burstier than Poisson ones."""
        return self.cv is not None and self.cv > BURSTY

    @property
    def of_existing(self) -> bool:
        """Whether no load was asked for: the plan is for what systems that exist carry."""
        return self.source.kind == "existing"

    @property
    def offline(self) -> bool:
        """Whether a number of requests is to be done within a time, all queued from the start."""
        return self.offline_requests is not None

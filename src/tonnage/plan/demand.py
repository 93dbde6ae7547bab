"""How many requests per second a plan is for, and what that number was made of."""

from __future__ import annotations

from typing import Literal

from tonnage.plan.limit import Bound
from tonnage.plan.pool import Identity
from tonnage.spec.typed_values import strict

BURSTY = 1.5
"""Coefficient of variation of the gaps from which arrivals are called bursty: a Poisson peak is too low there."""

DemandKind = Literal["peak", "mean", "calls", "users", "profile", "trace", "job", "existing", "sessions"]


@strict
class DemandSource:
    """What the asker gave; None where it does not come into it.

    Attributes:
        kind: "peak": requests/s at the peak; "mean": mean requests/s; "calls": a year's calls; "users": people and what each asks a
            day; "profile": hourly requests/s as they are; "trace": recorded requests; "job": so many requests within a time;
            "sessions": recorded sessions at once; "existing": none, the plan is for what systems that exist carry.
        requests_per_second: the rate that this gave before any peak was made of it: as given, of the mean, or of the working hours.
        calls_per_year, requests_per_call: of "calls".
        users, requests_per_user_day, working_hours: of "users"; hours a day.
        profile_hours: length of an hourly profile that gives the shape, 24 or 168.
        counted: arrivals in the percentile of seconds, before they are raised to the mean.
        trace, trace_change: of "trace": the file, and what was done to its times, in words.
        trace_requests, trace_seconds: its size.
        sessions, engineers: of "sessions": recorded ones at once, and the people who hold them, where these were given.
        session_seconds, session_requests: of a session, on average, as it was recorded.
    """

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
    sessions: float | None = None
    engineers: float | None = None
    session_seconds: float | None = None
    session_requests: float | None = None


@strict
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
        """Whether no load was requested: the plan is for what systems that exist carry."""
        return self.source.kind == "existing"

    @property
    def offline(self) -> bool:
        """Whether a number of requests is to be done within a time, all queued from the start."""
        return self.offline_requests is not None


# How long the chosen systems are enough for a load that grows, and how many it takes later.


AHEAD = (12, 24, 36)
"""Months ahead that a plan looks at."""


@strict
class Ahead:
    """The load after some months, and the systems of the chosen deployment that it takes.

    Attributes:
        months: from today on.
        requests_per_second: of the load then, as the plan sizes for it.
        systems: found by the same search, spare ones included; None where no number of them holds the limits.
        systems_exact: before rounding up, without standby ones; None likewise.
    """

    months: int
    requests_per_second: float
    systems: int | None
    systems_exact: float | None


@strict
class Growth:
    """What the growth of the load means for the choice.

    Attributes:
        per_month: of the load, as a share.
        months_left: whole months for which the systems of the plan are enough, the next one being needed in the month after; None where
            the load does not grow, or where they are enough for fifty years.
        ahead: the load and the systems in 12, 24 and 36 months; without those whose load is beyond what can be sized.
    """

    per_month: float
    months_left: int | None
    ahead: tuple[Ahead, ...]


# What systems that exist can carry.


@strict
class OwnedGroup:
    """One kind of system that exists.

    Attributes:
        count, system: how many, and what.
        deployment: what runs on them; None where no deployment on these systems meets the limits.
        instances: on all of them.
        requests_per_second: of them together, inside the limits.
        binds: what breaks first there; None where nothing runs.
    """

    count: int
    system: str
    deployment: Identity | None
    instances: int
    requests_per_second: float
    binds: Bound | None


@strict
class ADay:
    """A working day of the highest load inside the limits.

    Attributes:
        hours: of the working day; ``peak_factor`` is the peak over the mean within them.
        requests, input_tokens, output_tokens: in that time.
        requests_per_user, users: what each user asks in a day, and how many users that makes; None where it was not given.
    """

    hours: float
    peak_factor: float
    requests: float
    input_tokens: float
    output_tokens: float
    requests_per_user: float | None = None
    users: float | None = None


@strict
class Existing:
    """What systems that exist can carry.

    Attributes:
        groups: one per kind of system.
        requests_per_second: the highest load of all together inside the limits.
        asked_requests_per_second: the load today, as the plan sizes for it; None where no load was requested.
        headroom: how much more than today's load they carry, as a share; negative where they are too few; None likewise.
        breaks_first: what breaks first when the load grows; None where nothing runs.
        growth_per_month: of the load; None where it was not given.
        months_left: whole months after which the load still fits, −1 where it does not today; None without growth, or where it never
            ends.
        a_day: a working day of the highest load; None where nothing runs.
    """

    groups: tuple[OwnedGroup, ...]
    requests_per_second: float
    asked_requests_per_second: float | None
    headroom: float | None
    breaks_first: Bound | None
    growth_per_month: float | None
    months_left: int | None
    a_day: ADay | None = None


# Recorded sessions on the chosen fleet.


@strict
class HeldTier:
    """What a memory below the KV cache of the choice buys, with the ones before it.

    Attributes:
        name: "KV cache" for the GPUs' alone, then "host" and so on.
        bytes_per_instance, bytes_per_second, latency_seconds: of one instance.
        per_system: sessions that a system holds with it; None where no load is inside the limits.
        systems: that the load takes then, spare ones left out; None likewise.
    """

    name: str
    bytes_per_instance: float
    bytes_per_second: float | None = None
    latency_seconds: float | None = None
    per_system: float | None
    systems: int | None


@strict
class HeldSessions:
    """What recorded sessions are like on the choice.

    Attributes:
        at_once: sessions that are held at the same time, as asked.
        per_instance, per_system: of them that one instance, and one system, carries inside the limits, at the asked confidence.
        requests, input_tokens, computed_tokens, output_tokens: of a session, on average; what its cache leaves to compute at that load.
        hit_rate: share of the prompt tokens that come from the caches.
        seconds: that a session lasts, as recorded.
        slowdown_p50, slowdown_p90: how many times as long its answers take as alone, at that load.
        first_ttft_p95_ms, further_ttft_p95_ms: at that load.
        left_out: share of the recorded requests that exceed the model's context.
        source: the file.
        offloader: what keeps blocks below the KV cache; "" for plain tiers, or none.
        tiers: the KV cache, and each memory below it; empty without any.
    """

    at_once: float
    per_instance: float
    per_system: float
    requests: float
    input_tokens: float
    computed_tokens: float
    output_tokens: float
    hit_rate: float
    seconds: float
    slowdown_p50: float | None
    slowdown_p90: float | None
    first_ttft_p95_ms: float | None
    further_ttft_p95_ms: float | None
    left_out: float
    source: str
    offloader: str = ""
    tiers: tuple[HeldTier, ...] = ()


# When a job is done on the chosen fleet.


@strict
class JobDone:
    """When a job is done on the chosen fleet, where every instance gets an equal share of it at the start.

    Attributes:
        requests: of the whole job.
        requests_per_instance: the largest share of an instance.
        allowed_seconds: the time in which the job has to be done.
        finish_seconds: from the start to the last token of the slowest instance.
        fixed_seconds, seconds_per_request: the time of one instance as a line over the length of its queue: ramp-up and drain, and the
            time of each request. They depend neither on the fleet nor on the time allowed.
    """

    requests: int
    requests_per_instance: int
    allowed_seconds: float
    finish_seconds: float
    fixed_seconds: float
    seconds_per_request: float

    def seconds_on(self, instances: int) -> float:
        """Seconds until that many instances have finished the job, each with an equal share of it."""
        return self.fixed_seconds + self.seconds_per_request * self.requests / instances

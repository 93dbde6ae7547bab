"""How many requests per second a plan is for, and what that number was made of."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from tonnage.plan.candidate import Identity
from tonnage.plan.limit import Bound, Breach
from tonnage.spec.typed_values import strict

# coefficient of variation of the gaps from which arrivals are called bursty: a Poisson peak is too
# low there
BURSTY = 1.5

DemandKind = Literal[
    "peak",
    "mean",
    "calls",
    "users",
    "profile",
    "trace",
    "job",
    "existing",
    "sessions",
    "concurrency",
]


@strict
class DemandSource:
    """The form in which the load was given; None for what that form does not have."""

    # "peak": requests/s at the peak; "mean": mean requests/s; "calls": a year's calls; "users":
    # people and what each asks a day; "profile": hourly requests/s as they are; "trace": recorded
    # requests; "job": so many requests within a time; "sessions": recorded sessions at once;
    # "existing": none, the plan is for what systems that exist carry; "concurrency": requests in
    # flight at once
    kind: DemandKind
    # the rate that this gave before any peak was made of it: as given, of the mean, or of the
    # working hours
    requests_per_second: float | None = None
    # calls_per_year, requests_per_call: of "calls"
    calls_per_year: float | None = None
    requests_per_call: float | None = None
    # users, requests_per_user_day, working_hours: of "users"; hours a day
    users: float | None = None
    requests_per_user_day: float | None = None
    working_hours: float | None = None
    profile_hours: int | None = None  # length of an hourly profile that gives the shape, 24 or 168
    # arrivals in the percentile of seconds, before they are raised to the mean
    counted: float | None = None
    # trace, trace_change: of "trace": the file, and what was done to its times, in words
    trace: str = ""
    trace_change: str = ""
    # trace_requests, trace_seconds: its size
    trace_requests: int | None = None
    trace_seconds: float | None = None
    # sessions, engineers: of "sessions": recorded ones at once, and the people who hold them, where
    # these were given
    sessions: float | None = None
    engineers: float | None = None
    concurrency: float | None = (
        # of "concurrency": requests in flight at the peak, on average, whose rate the choice's E2E
        # latency gave
        None
    )
    # session_seconds, session_requests: of a session, on average, as it was recorded
    session_seconds: float | None = None
    session_requests: float | None = None


@strict
class Demand:
    """The load at the peak."""

    peak_requests_per_second: float  # what the course's percentile way sizes for
    # what the systems are sized for. By simulation it is the peak, or with a percentile the mean,
    # whose bursts the simulation makes itself, and of a trace its mean; by measured points it is
    # the peak.
    sizing_requests_per_second: float
    # the mean over all hours; None where only a peak was given
    mean_requests_per_second: float | None = None
    # of the Poisson count in one second; None where it does not come into it
    percentile: float | None = None
    factor: float | None = None  # peak over mean; None where it does not come into it
    # requests per second of each hour of a day (24 values) or a week (168); None where not known
    profile: tuple[float, ...] | None = None
    # standard deviation of a trace's gaps over their mean; None without a trace
    cv: float | None = None
    peak_second: int | None = None  # requests in the busiest second of a trace; None without one
    # what a Poisson peak of the trace's mean would be; None without one
    poisson_peak_requests_per_second: float | None = None
    # how many requests are to be done, where only throughput decides; None elsewhere
    offline_requests: int | None = None
    offline_seconds: float | None = None  # the time for them; None elsewhere
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

    def part(self, share: float) -> Demand:
        """The demand of a share of the requests."""
        mean, profile = self.mean_requests_per_second, self.profile
        return replace(
            self,
            peak_requests_per_second=self.peak_requests_per_second * share,
            sizing_requests_per_second=self.sizing_requests_per_second * share,
            mean_requests_per_second=None if mean is None else mean * share,
            profile=None if profile is None else tuple(rate * share for rate in profile),
        )


AHEAD = (12, 24, 36)  # months ahead that a plan looks at


@strict
class Ahead:
    """The load after some months, and the systems of the chosen deployment that it takes."""

    months: int  # from today on
    requests_per_second: float  # of the load then, as the plan sizes for it
    # found by the same search, spare ones included; None where no number of them holds the limits
    systems: int | None
    systems_exact: float | None  # before rounding up, without standby ones; None likewise


@strict
class Growth:
    """The consequences of the load's growth for the choice."""

    per_month: float  # of the load, as a share
    # whole months for which the systems of the plan are enough, the next one being needed in the
    # month after; None where the load does not grow, or where they are enough for fifty years
    months_left: int | None
    # the load and the systems in 12, 24 and 36 months; without those whose load is beyond what can
    # be sized
    ahead: tuple[Ahead, ...]


@strict
class Region:
    """A region with its own hourly profile, a part of the load."""

    name: str
    peak_requests_per_second: float  # in its busiest hour
    peak_hour: int  # that hour, of UTC, counted from 0
    mean_requests_per_second: float
    # at_peak, over_year: its share of the requests in the busiest hour of all, and of all hours
    at_peak: float
    over_year: float
    # of the choice's deployment, for its peak alone, spare ones included; None where these were not
    # sized
    systems: int | None
    usd_per_year: float | None = None  # its share of the cost; None where no price is known


@strict
class Regions:
    """The use of each region, and the saving of one fleet for all against a fleet in each."""

    regions: tuple[Region, ...]
    systems: int  # of the plan
    # the way of serving whose cost is divided; "" where no price is known
    where: str = ""

    @property
    def systems_apart(self) -> int | None:
        """Systems of a fleet in each region; None where one of them was not sized."""
        counts = [region.systems for region in self.regions]
        return None if None in counts else sum(count for count in counts if count is not None)


@strict
class OwnedGroup:
    """One kind of system that exists."""

    # count, system: how many, and what
    count: int
    system: str
    # what runs on them; None where no deployment on these systems meets the limits
    deployment: Identity | None
    instances: int  # on all of them
    requests_per_second: float  # of them together, inside the limits
    binds: Bound | None  # what breaks first there; None where nothing runs


@strict
class ADay:
    """A working day of the highest load inside the limits."""

    hours: float  # of the working day; ``peak_factor`` is the peak over the mean within them
    peak_factor: float
    # requests, input_tokens, output_tokens: in that time
    requests: float
    input_tokens: float
    output_tokens: float
    # requests_per_user, users: what each user asks in a day, and how many users that makes; None
    # where it was not given
    requests_per_user: float | None = None
    users: float | None = None


@strict
class Existing:
    """The load that existing systems can carry."""

    groups: tuple[OwnedGroup, ...]  # one per kind of system
    requests_per_second: float  # the highest load of all together inside the limits
    # the load today, as the plan sizes for it; None where no load was requested
    asked_requests_per_second: float | None
    # how much more than today's load they carry, as a share; negative where they are too few; None
    # likewise
    headroom: float | None
    breaks_first: Bound | None  # what breaks first when the load grows; None where nothing runs
    growth_per_month: float | None  # of the load; None where it was not given
    # whole months after which the load still fits, −1 where it does not today; None without growth,
    # or where it never ends
    months_left: int | None
    a_day: ADay | None = None  # a working day of the highest load; None where nothing runs


@strict
class HeldTier:
    """The gain of a memory tier below the KV cache, together with the tiers before it."""

    name: str  # "KV cache" for the GPUs' alone, then "host" and so on
    # bytes_per_instance, bytes_per_second, latency_seconds: of one instance
    bytes_per_instance: float
    bytes_per_second: float | None = None
    latency_seconds: float | None = None
    # sessions that a system holds with it; None where no load is inside the limits
    per_system: float | None
    systems: int | None  # that the load takes then, spare ones left out; None likewise


HowKept = Literal["recompute", "pin", "cache", "offload"]


@strict
class KeptCache:
    """Sessions that a system holds by what becomes of the cache of a session that waits."""

    # "recompute": it is dropped with every answer; "pin": it stays, so that a session is admitted
    # only where its largest context fits; "cache": it stays until others need the room; "offload":
    # it goes to the memory below then
    how: HowKept
    per_system: float  # sessions at once inside the limits of the question; 0 where none are
    systems: int | None  # for the sessions of the question; None likewise
    alone: Breach | None = None  # what a single session breaks where none are; None likewise


@strict
class HeldSessions:
    """The behaviour of recorded sessions on the chosen deployment."""

    at_once: float  # sessions that are held at the same time, as asked
    # per_instance, per_system: of them that one instance, and one system, carries inside the
    # limits, at the asked confidence
    per_instance: float
    per_system: float
    # requests, input_tokens, computed_tokens, output_tokens: of a session, on average; what its
    # cache leaves to compute at that load
    requests: float
    input_tokens: float
    computed_tokens: float
    output_tokens: float
    hit_rate: float  # share of the prompt tokens that come from the caches
    seconds: float  # that a session lasts, as recorded
    # slowdown_p50, slowdown_p90: how many times as long its answers take as alone, at that load
    slowdown_p50: float | None
    slowdown_p90: float | None
    # first_ttft_p95_ms, further_ttft_p95_ms: at that load
    first_ttft_p95_ms: float | None
    further_ttft_p95_ms: float | None
    left_out: float  # share of the recorded requests that exceed the model's context
    source: str
    offloader: str = ""  # what keeps blocks below the KV cache; "" for plain tiers, or none
    tiers: tuple[HeldTier, ...] = ()  # the KV cache, and each memory below it; empty without any
    kept: tuple[KeptCache, ...] = ()  # what becomes of the cache of a session that waits


@strict
class SpeedTier:
    """Sessions that a system holds at one speed and one time to first token."""

    # slowdown_p90, further_ttft_p95_ms: the limits of the tier
    slowdown_p90: float
    further_ttft_p95_ms: float
    per_system: float  # sessions at once; 0 where no load is inside the limits
    # least, most: between which it is with a probability of 80 %, for sessions like the recorded
    # ones
    least: float
    most: float
    systems: int | None  # for the sessions of the question; None likewise


@strict
class Admission:
    """More sessions than the limits allow, with and without admission by session."""

    over: float  # sessions that want to run at once, over the number that the limits allow
    # slowdown_p90, further_ttft_p95_ms: without admission, at the asked confidence; None where not
    # measured
    slowdown_p90: float | None
    further_ttft_p95_ms: float | None
    # until a session may begin where only as many as the limits allow are admitted, on average, if
    # one wants to begin as soon as another one is over
    wait_seconds: float
    # per_hour, per_hour_admitted: sessions that an instance ends in an hour, without admission and
    # with it
    per_hour: float
    per_hour_admitted: float


@strict
class SessionTiers:
    """Recorded sessions on the choice at other limits, and more of them than these allow."""

    speeds: tuple[SpeedTier, ...]
    admission: tuple[Admission, ...]


@strict
class JobDone:
    """When a job is done on the chosen fleet, where every instance gets an equal share of it at the
    start.
    """

    requests: int  # of the whole job
    requests_per_instance: int  # the largest share of an instance
    allowed_seconds: float  # the time in which the job has to be done
    finish_seconds: float  # from the start to the last token of the slowest instance
    # fixed_seconds, seconds_per_request: the time of one instance as a line over the length of its
    # queue: ramp-up and drain, and the time of each request. They depend neither on the fleet nor
    # on the time allowed.
    fixed_seconds: float
    seconds_per_request: float

    def seconds_on(self, instances: int) -> float:
        """Seconds until that many instances have finished the job, each with an equal share of
        it.
        """
        return self.fixed_seconds + self.seconds_per_request * self.requests / instances

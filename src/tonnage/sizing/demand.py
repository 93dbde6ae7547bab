"""How many requests per second a sizing is for: the demand, from any of the forms in which people
state it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tonnage.errors import InputError, option
from tonnage.plan.demand import Demand, DemandSource
from tonnage.spec.recording import Recording

PERCENTILE = 95.0
"""Percentile of the arrivals in one second that a mean is sized for when none is given; the
course's choice."""

SECONDS_PER_YEAR = 365 * 86_400

HOURS_PER_DAY = 24

DAYS_PER_WEEK = 7

WORKING_HOURS = 8.0
"""Hours a day over which users work where nothing else is given, from 8 h on."""

WORKING_DAYS = 5
"""Days a week on which users work where nothing else is given."""

LEAST_RPS = 1e-300
"""Least rate; below it, parts of it are no numbers any more."""

MOST_LOAD = 1e15
"""Largest of the hourly values of a profile, which may be shares of any size."""

LONGEST_JOB_S = 1e10
"""Seconds of the longest time that a job is given."""


def demand_of(
    *,
    peak_rps: float | None = None,
    mean_rps: float | None = None,
    percentile: float | None = None,
    factor: float | None = None,
    users: float | None = None,
    requests_per_user_day: float | None = None,
    working_hours: float | None = None,
    working_days: float | None = None,
    calls_per_year: float | None = None,
    requests_per_call: float | None = None,
    profile: Sequence[float] | None = None,
    trace: Recording | None = None,
    requests: float | None = None,
    within_s: float | None = None,
) -> Demand:
    """The demand, from any of the forms in which people state it.

    Args:
        peak_rps: requests per second at the peak; or
        mean_rps: mean requests per second; or
        users, requests_per_user_day, working_hours, working_days: people, what each asks a day, and
            the hours a day (8 unless said) and days a week (5) over which they do; or
        calls_per_year, requests_per_call: a year's volume, and what one call asks (1 unless said);
            or
        profile: 24 or 168 hourly values: requests per second, or shares where a mean, a volume or a
            peak is given too; or
        trace: recorded requests; with ``mean_rps`` they are stretched to that mean already; or
        requests, within_s: a job of so many requests to be done in so many seconds.
        percentile: of the Poisson count of arrivals in one second, from 1 to below 100; 95 where a
            mean has neither this nor a factor.
        factor: peak over mean, 1 or more.

    Raises:
        InputError: nothing is given, what is given contradicts itself, or a number is out of range.
    """
    people = {
        "requests_per_user_day": requests_per_user_day,
        "working_hours": working_hours,
        "working_days": working_days,
    }
    _check_parts(
        users,
        {option(name): value for name, value in people.items()},
        calls_per_year,
        requests_per_call,
    )
    sources = {
        "peak_rps": peak_rps,
        "mean_rps": mean_rps,
        "users": users,
        "calls_per_year": calls_per_year,
        "requests": requests,
    }
    flags = _named_forms(sources, profile, trace)
    if requests is not None or within_s is not None:
        return _offline(requests, within_s, percentile, factor, trace)
    if trace is not None:
        return _from_trace(trace, flags, percentile, factor)
    if users is not None:
        day = _Day(
            users=users, per_user=requests_per_user_day or 0, hours=working_hours, days=working_days
        )
        return _from_users(day, percentile, factor)
    hours = None if profile is None else _hours(profile)
    if peak_rps is not None:
        return _from_peak(peak_rps, hours, percentile, factor)
    source = _mean(mean_rps, calls_per_year, requests_per_call)
    mean = source.requests_per_second or 1.0
    if hours is None:
        return _from_mean(mean, percentile, factor, source)
    scale = mean * len(hours) / math.fsum(hours) if flags else 1.0
    of = (
        replace(source, profile_hours=len(hours))
        if flags
        else DemandSource(kind="profile", profile_hours=len(hours))
    )
    return _from_hours([h * scale for h in hours], of, percentile, factor)


def carried_by_existing(requests_per_second: float = 1.0) -> Demand:
    """The demand where none is requested: what systems that exist carry; before that is known,
    any.
    """
    rate = requests_per_second
    source = DemandSource(kind="existing", requests_per_second=rate)
    return Demand(peak_requests_per_second=rate, sizing_requests_per_second=rate, source=source)


def _named_forms(
    sources: dict[str, float | None], profile: Sequence[float] | None, trace: Recording | None
) -> list[str]:
    """The forms in which a number of requests was given; one, next to a profile or a trace that say
    when they come.
    """
    flags = [option(name) for name, value in sources.items() if value is not None]
    if len(flags) > 1 or not (flags or profile is not None or trace is not None):
        raise _count_error(flags)
    timed = {"trace": trace, "users": sources["users"], "requests": sources["requests"]}
    timed_flag = next((option(name) for name, value in timed.items() if value is not None), None)
    if profile is not None and timed_flag is not None:
        raise InputError(
            f"{option('profile')} and {timed_flag}: each says when requests come; give one of them"
        )
    return flags


def _from_peak(
    peak_rps: float, hours: list[float] | None, percentile: float | None, factor: float | None
) -> Demand:
    if percentile is not None or factor is not None:
        raise InputError(
            f"{option('peak_rps')}: is the peak itself; a percentile or a factor goes with"
            f" {option('mean_rps')}"
        )
    peak = _positive(peak_rps, option("peak_rps"))
    source = DemandSource(kind="peak", requests_per_second=peak)
    if hours is None:
        return Demand(peak_requests_per_second=peak, sizing_requests_per_second=peak, source=source)
    return _from_hours(
        [h * peak / max(hours) for h in hours],
        replace(source, profile_hours=len(hours)),
        None,
        None,
    )


def _count_error(names: list[str]) -> InputError:
    if not names:
        return InputError(
            f"{option('peak_rps')} and {option('mean_rps')}: neither is given; write for example"
            f" {option('peak_rps')} 20, or {option('users')} 5000"
            f" {option('requests_per_user_day')} 20"
        )
    both = f"{', '.join(names[:-1])} and {names[-1]}"
    return InputError(
        f"{both}: {'both' if len(names) == 2 else 'all'} are given; say how many requests per"
        " second with one of them"
    )


def _check_parts(
    users: float | None,
    people: dict[str, float | None],
    calls: float | None,
    per_call: float | None,
) -> None:
    """Refuse a part of a form without the form itself."""
    alone = [name for name, value in people.items() if value is not None and users is None]
    if alone:
        raise InputError(
            f"{alone[0]}: goes with {option('users')}; add for example {option('users')} 5000"
        )
    if per_call is not None and calls is None:
        raise InputError(
            f"{option('requests_per_call')}: goes with {option('calls_per_year')}; add for example"
            f" {option('calls_per_year')} 30000000"
        )
    if users is not None and people[option("requests_per_user_day")] is None:
        raise InputError(
            f"{option('users')}: goes with {option('requests_per_user_day')}; add for example"
            f" {option('requests_per_user_day')} 20, or type {option('concurrency')} {users:g} for"
            " so many requests at once"
        )


def _mean(mean_rps: float | None, calls: float | None, per_call: float | None) -> DemandSource:
    """The mean requests per second, and what they were given as; 1 where nothing gives them."""
    if calls is None:
        mean = 1.0 if mean_rps is None else _positive(mean_rps, option("mean_rps"))
        return DemandSource(kind="mean", requests_per_second=mean)
    requests_per_call = 1.0 if per_call is None else _amount(per_call, option("requests_per_call"))
    mean = _positive(
        _amount(calls, option("calls_per_year")) * requests_per_call / SECONDS_PER_YEAR,
        option("calls_per_year"),
    )
    return DemandSource(
        kind="calls",
        requests_per_second=mean,
        calls_per_year=calls,
        requests_per_call=requests_per_call,
    )


def _from_mean(
    mean: float, percentile: float | None, factor: float | None, source: DemandSource
) -> Demand:
    """The peak of a mean: a factor of it, or a percentile of its Poisson arrivals in one second."""
    if factor is not None:
        if percentile is not None:
            raise InputError(
                f"{option('peak_factor')} and {option('peak_percentile')}: both are given; make the"
                " peak with one of them"
            )
        if not (math.isfinite(factor) and factor >= 1):
            raise InputError(
                f"{option('peak_factor')}: {factor:g} is not a factor; write how many times the"
                " mean the peak is, 1 or more"
            )
        peak = _positive(mean * factor, option("peak_factor"))
        return Demand(
            peak_requests_per_second=peak,
            sizing_requests_per_second=peak,
            mean_requests_per_second=mean,
            factor=factor,
            source=source,
        )
    chosen = PERCENTILE if percentile is None else percentile
    if not 1 <= chosen < 100:
        raise InputError(
            f"{option('peak_percentile')}: {chosen:g} is not a percentile; write a number from 1 to"
            " below 100, such as 95"
        )
    counted = float(poisson_peak(mean, chosen))
    peak = max(counted, mean)
    return Demand(
        peak_requests_per_second=peak,
        sizing_requests_per_second=mean,
        mean_requests_per_second=mean,
        percentile=chosen,
        source=replace(source, counted=counted),
    )


def _from_hours(
    hours: Sequence[float], source: DemandSource, percentile: float | None, factor: float | None
) -> Demand:
    """The busiest hour as it is, or with a percentile or a factor within it."""
    busiest, mean = max(hours), math.fsum(hours) / len(hours)
    _positive(busiest, option("profile"))
    if percentile is None and factor is None:
        return Demand(
            peak_requests_per_second=busiest,
            sizing_requests_per_second=busiest,
            mean_requests_per_second=mean,
            profile=tuple(hours),
            source=source,
        )
    return replace(
        _from_mean(busiest, percentile, factor, source),
        mean_requests_per_second=mean,
        profile=tuple(hours),
    )


def _hours(profile: Sequence[float]) -> list[float]:
    """The hourly values, refused where they are none."""
    if len(profile) not in (HOURS_PER_DAY, HOURS_PER_DAY * DAYS_PER_WEEK):
        raise InputError(
            f"{option('profile')}: has {len(profile)} values; write 24 for the hours of a day, or"
            " 168 for a week from Monday 0 h"
        )
    bad = [(hour, value) for hour, value in enumerate(profile) if not 0 <= value <= MOST_LOAD]
    if bad:
        raise InputError(
            f"{option('profile')}: {bad[0][1]:g} at hour {bad[0][0]} is not a load; write requests"
            " per second, or shares, 0 or more"
        )
    if not max(profile) > 0:
        raise InputError(
            f"{option('profile')}: every hour is 0; give the hours in which requests come a value"
            " above 0"
        )
    return [float(value) for value in profile]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Day:
    """People, requests of each a day, and hours a day and days a week over which they come."""

    users: float
    per_user: float
    hours: float | None
    days: float | None


def _from_users(day_values: _Day, percentile: float | None, factor: float | None) -> Demand:
    """People who ask so much a day, evenly over their working hours; a week's profile from 8 h on,
    Monday first.
    """
    hours = WORKING_HOURS if day_values.hours is None else day_values.hours
    days = WORKING_DAYS if day_values.days is None else day_values.days
    if not 0 < hours <= HOURS_PER_DAY:
        raise InputError(
            f"{option('working_hours')}: {hours:g} is not a working day; write hours a day above 0,"
            " at most 24"
        )
    if not (1 <= days <= DAYS_PER_WEEK and days == round(days)):
        raise InputError(
            f"{option('working_days')}: {days:g} is not a working week; write whole days a week"
            " from 1 to 7"
        )
    day = _amount(day_values.users, option("users")) * _amount(
        day_values.per_user, option("requests_per_user_day")
    )
    rate = _positive(day / (hours * 3600), option("users"))
    source = DemandSource(
        kind="users",
        requests_per_second=rate,
        users=day_values.users,
        requests_per_user_day=day_values.per_user,
        working_hours=hours,
    )
    return replace(
        _from_mean(rate, percentile, factor, source),
        mean_requests_per_second=day * days / (DAYS_PER_WEEK * 86_400),
        profile=working_week(rate, hours, round(days)),
    )


def working_week(rate: float, hours: float, days: int) -> tuple[float, ...]:
    """Requests per second of each hour of a week: ``rate`` over the working hours from 8 h on
    (earlier where they do not fit).
    """
    begin = min(8, HOURS_PER_DAY - math.ceil(hours))
    day = [
        rate * min(1.0, max(0.0, hours - (hour - begin))) if hour >= begin else 0.0
        for hour in range(HOURS_PER_DAY)
    ]
    return tuple(day * days + [0.0] * HOURS_PER_DAY * (DAYS_PER_WEEK - days))


def _from_trace(
    trace: Recording, other_flags: list[str], percentile: float | None, factor: float | None
) -> Demand:
    """A trace's own mean; its bursts come with it, so neither a percentile nor a factor is
    added.
    """
    conflicts = [name for name in other_flags if name != option("mean_rps")]
    conflicts += [
        name
        for name, value in (
            (option("peak_percentile"), percentile),
            (option("peak_factor"), factor),
        )
        if value is not None
    ]
    if conflicts:
        raise InputError(
            f"{option('trace')} and {conflicts[0]}: a trace brings its own peaks; "
            f"give at most {option('mean_rps')} with it, to which it is stretched"
        )
    mean, cv, peak = trace.mean_rps, trace.cv, trace.peak_second
    _positive(mean, option("mean_rps"))
    poisson = float(poisson_peak(mean, PERCENTILE))
    return Demand(
        peak_requests_per_second=max(float(peak), mean),
        sizing_requests_per_second=mean,
        mean_requests_per_second=mean,
        cv=cv,
        peak_second=peak,
        poisson_peak_requests_per_second=poisson,
        source=DemandSource(
            kind="trace",
            trace=trace.source,
            trace_change=trace.change,
            trace_requests=len(trace),
            trace_seconds=trace.seconds,
        ),
    )


def _offline(
    requests: float | None,
    within_s: float | None,
    percentile: float | None,
    factor: float | None,
    trace: Recording | None,
) -> Demand:
    """A job: only its throughput counts."""
    if requests is None or within_s is None:
        missing = (
            f"{option('requests')}: goes with {option('within')}, the time"
            if within_s is None
            else f"{option('within')}: goes with {option('requests')}, the number of them"
        )
        raise InputError(
            f"{missing} for a job such as {option('requests')} 1000000 {option('within')} 8h"
        )
    extra = [
        n
        for n, v in (
            (option("peak_percentile"), percentile),
            (option("peak_factor"), factor),
            (option("trace"), trace),
        )
        if v is not None
    ]
    if extra:
        raise InputError(
            f"{option('requests')} and {extra[0]}: a job of so many requests has no peak; leave"
            f" {extra[0]} out"
        )
    count = round(_amount(requests, option("requests")))
    if not (math.isfinite(within_s) and within_s > 0) or count < 1:
        raise InputError(
            f"{option('within')}: a job of at least one request takes time; "
            f"write for example {option('requests')} 1000000 {option('within')} 8h"
        )
    if within_s > LONGEST_JOB_S:
        raise InputError(
            f"{option('within')}: {within_s:g} s is longer than any job; write at most"
            f" {LONGEST_JOB_S:g} s (317 years)"
        )
    rate = _positive(count / within_s, option("requests"))
    return Demand(
        peak_requests_per_second=rate,
        sizing_requests_per_second=rate,
        mean_requests_per_second=rate,
        offline_requests=count,
        offline_seconds=within_s,
        source=DemandSource(kind="job"),
    )


def _positive(value: float | None, where: str) -> float:
    if value is None or not (math.isfinite(value) and LEAST_RPS <= value <= 1e9):
        raise InputError(
            f"{where}: {value} is not a rate; write requests per second above 0, at most 10⁹"
        )
    return float(value)


def _amount(value: float | None, where: str) -> float:
    if value is None or not (math.isfinite(value) and 0 < value <= 1e15):
        raise InputError(f"{where}: {value} is not a number of them; write a number above 0")
    return float(value)


# The peak of a second: a percentile of the Poisson count.


MOST_ARRIVALS = 1e9
"""Largest mean that ``poisson_peak`` takes; its work grows with the square root."""

_NEGLIGIBLE = 1e-30
"""Weight, relative to the mode's, below which the tail of a Poisson distribution is cut."""


def poisson_peak(mean: float, percentile: float) -> int:
    """The least count k with P(X ≤ k) ≥ percentile for a Poisson count X: 64 at 95 % gives 77.

    Sums the probabilities outwards from the mode, relative to it, so that nothing over- or
    underflows, and divides by their total. NVIDIA's course on sizing LLM inference takes it as the
    peak of the requests that arrive in one second.

    Args:
        mean: mean arrivals in the interval, 0 to 10⁹.
        percentile: above 0 and below 100.

    Raises:
        InputError: an argument outside its range.
    """
    if not 0 <= mean <= MOST_ARRIVALS:
        raise InputError(
            f"mean arrivals of {mean:g} cannot be; write a number from 0 to {MOST_ARRIVALS:g}"
        )
    if not 0 < percentile < 100:
        raise InputError(
            f"a percentile of {percentile:g} cannot be; write a number above 0 and below 100, such"
            " as 95"
        )
    mode = math.floor(mean)
    below = _weights_below(mean, mode)
    above = _weights_above(mean, mode)
    target = percentile / 100 * (math.fsum(below) + 1.0 + math.fsum(above))
    count, reached = mode - len(below), 0.0
    for weight in [*reversed(below), 1.0, *above]:
        reached += weight
        if reached >= target:
            return count
        count += 1
    return count


def _weights_below(mean: float, mode: int) -> list[float]:
    """P(k) / P(mode) for k = mode − 1, mode − 2, … until negligible."""
    weights: list[float] = []
    weight = 1.0
    for count in range(mode, 0, -1):
        weight *= count / mean
        if weight < _NEGLIGIBLE:
            break
        weights.append(weight)
    return weights


def _weights_above(mean: float, mode: int) -> list[float]:
    """P(k) / P(mode) for k = mode + 1, mode + 2, … until negligible."""
    weights: list[float] = []
    weight, count = 1.0, mode
    while True:
        count += 1
        weight *= mean / count
        if weight < _NEGLIGIBLE:
            return weights
        weights.append(weight)

"""A scenario of what a deployment served over days: its week by the hour, its lengths, its growth,
and what nobody could see.
"""

from __future__ import annotations

import math
import os.path
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnage.errors import InputError, in_python, option
from tonnage.formats.prometheus import Buckets
from tonnage.results.metrics import student_t
from tonnage.spec.scenario import (
    DemandAsked,
    LengthsAsked,
    Scenario,
    SearchAsked,
    SessionsAsked,
    to_document,
)
from tonnage.spec.workload import MOST_CV
from tonnage.workload.history import DAY_H, HOUR_S, WEEK_H, History

if TYPE_CHECKING:
    from numpy.typing import NDArray

MONTH_DAYS = 365.25 / 12
CONFIDENCE = 0.8  # Of the interval of a growth, as of every prediction (docs/intervals.md)
# Days from which on a growth is fitted; from two weeks on a level is fitted for each day of the
# week
FEWEST_DAYS = 4
# Distance of a lognormal distribution from the shares at all bounds up to which it stands for the
# buckets
NEAR = 0.03
# Share of the prompt tokens in a prefix cache from which on a scenario shares something
LEAST_SHARED = 0.01
INSIDE = 8  # Lengths that a bucket is filled with, where no distribution fits
# Longest interval whose counts tell bursts: those of longer ones differ by the hours of the day as
# well
FINE_S = 900.0
PEAK = 0.999  # Quantile of the requests of one second that is called the peak second


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The trend of requests a day."""

    per_day: float  # growth of the logarithm in a day
    # low, high: its interval
    low: float
    high: float
    days: int  # that it was fitted to
    by_weekday: bool  # whether a level was fitted for each day of the week

    @property
    def significant(self) -> bool:
        """Whether the interval excludes that nothing grows or shrinks."""
        return self.low > 0 or self.high < 0

    def months(self, per_day: float) -> float:
        """Such a growth as the share by which the load grows in a month."""
        return math.expm1(per_day * MONTH_DAYS)

    def until(self, ratio: float) -> tuple[float, float, float]:
        """Days until the load has grown by a ratio, and their interval; infinite where it never
        does, 0 where it has.
        """
        rates = (self.per_day, self.high, self.low)
        return tuple(
            0.0 if ratio <= 1 else math.log(ratio) / rate if rate > 0 else math.inf
            for rate in rates
        )  # type: ignore[return-value]

    def to_json(self) -> dict[str, Any]:
        """Convert to JSON, with the growth of a month as a share."""
        return {
            **asdict(self),
            **{
                f"{name}_month": self.months(getattr(self, name))
                for name in ("per_day", "low", "high")
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenLengths:
    """One side of the requests."""

    mean: float | None  # in tokens; None where the history says none
    # bounds of the bucket that holds the 95th percentile; None where there is no histogram
    p95: tuple[float, float] | None
    written: str  # as a scenario writes it
    how: str  # "distribution", "buckets" where they are filled, or "mean" where no more is known


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryFit:
    """The load that a history shows."""

    history: History  # the hours
    # requests per second by the hour of the week, Monday first, or of the day; empty where less
    # than a day was seen
    profile: tuple[float, ...]
    # isl, osl: lengths of the last week
    isl: SeenLengths
    osl: SeenLengths
    growth: Growth | None  # None where too few days were seen
    # of the requests in the finest intervals: 1 for Poisson arrivals, above that for bursts, and
    # for hours that differ
    dispersion: float
    peak_second: float  # requests of the busiest hour's ``PEAK`` second, where its arrivals vary so
    scenario: Scenario  # which ``size`` reads
    files: dict[str, str] = field(default_factory=dict)  # that it names
    gaps: tuple[str, ...] = ()  # what could not be seen, and what that does to an answer

    @property
    def mean_rps(self) -> float:
        """Requests per second in the hours that were seen."""
        hours = self.history.seen
        return float(self.history.requests[hours].mean()) / HOUR_S

    @property
    def peak_rps(self) -> float:
        """Requests per second of the busiest hour that the scenario has."""
        return (
            max(self.profile)
            if self.profile
            else float(self.history.requests[self.history.seen].max()) / HOUR_S
        )

    @property
    def ends(self) -> datetime:
        """The last moment of the history."""
        return datetime.fromtimestamp(self.history.end_s, UTC)

    def to_json(self) -> dict[str, Any]:
        """Rates in requests per second, lengths in tokens."""
        h = self.history
        gauges = {"mean_gpu_watts": h.watts, "mean_running": h.running, "mean_waiting": h.waiting}
        return {
            "source": h.source,
            "engine": h.engine,
            "remarks": list(map(in_python, h.remarks)),
            "hours": int(h.seen.sum()),
            "from": h.at(0).isoformat(),
            "until": self.ends.isoformat(),
            "requests": float(h.requests[h.seen].sum()),
            "mean_rps": self.mean_rps,
            "peak_hour_rps": self.peak_rps,
            "peak_second_requests": self.peak_second,
            "dispersion": self.dispersion,
            "isl": asdict(self.isl),
            "osl": asdict(self.osl),
            "cached_share": h.cache,
            **{
                name: None if gauge is None else float(gauge[h.seen].mean())
                for name, gauge in gauges.items()
            },
            "growth": None if self.growth is None else self.growth.to_json(),
            "not_seen": list(self.gaps),
            "scenario": to_document(self.scenario),
            "files": sorted(self.files),
        }


def fit_history(
    history: History,
    stem: str,
    *,
    model: str | None = None,
    isl: str | None = None,
    osl: str | None = None,
) -> HistoryFit:
    """The scenario of a history.

    Args:
        history: the hours.
        stem: what the names of the files next to the scenario begin with.
        model: of the scenario.
        isl, osl: lengths that are taken where the history says none.

    Raises:
        InputError: no lengths in the history, and none given.
    """
    files: dict[str, str] = {}
    growth = growth_of(history)
    profile = _profile(history)
    shared = (
        _shared(history) if isl is None or history.mean("isl", history.last_week) is not None else 0
    )
    length_settings = (("isl", isl, shared), ("osl", osl, 0))
    sides = {
        name: _lengths(history, name, stated, f"{stem}.{name}.csv", files, less=less)
        for name, stated, less in length_settings
    }
    peak = max(profile) if profile else float(history.requests[history.seen].max()) / HOUR_S
    steps = np.diff(history.fine)
    steps = steps[np.isfinite(steps)]
    mean = float(np.nanmean(history.fine))
    dispersion = float((steps**2).mean()) / 2 / mean if steps.size and mean > 0 else 1.0
    certain = dispersion > 1.1 and dispersion > 1 + 3 * math.sqrt(2 / max(1, len(history.fine) - 1))
    bursty = certain and history.fine_s <= FINE_S
    if profile:
        files[f"{stem}.profile.csv"] = "requests_per_second\n" + "".join(
            f"{rate:.6g}\n" for rate in profile
        )
    demand = (
        DemandAsked(profile=f"{stem}.profile.csv")
        if profile
        else DemandAsked(peak_rps=float(f"{peak:.6g}"))
    )
    cv = min(MOST_CV, math.sqrt(dispersion))
    source = os.path.basename(os.path.normpath(history.source))
    scenario = Scenario(
        title=f"Traffic of {source} until {history.at(len(history.requests)):%Y-%m-%d}",
        model=model,
        lengths=LengthsAsked(isl=sides["isl"].written, osl=sides["osl"].written),
        sessions=SessionsAsked(shared_prefix=shared or None),
        demand=demand,
        search=SearchAsked(arrivals="gamma", cv=float(f"{cv:.3g}")) if bursty else SearchAsked(),
        growth=(
            f"{100 * growth.months(growth.per_day):.3g}%/month"
            if growth is not None and growth.low > 0
            else None
        ),
    )
    return HistoryFit(
        history=history,
        profile=profile,
        isl=sides["isl"],
        osl=sides["osl"],
        growth=growth,
        dispersion=dispersion,
        peak_second=_quantile(peak, dispersion if bursty else 1.0),
        scenario=scenario,
        files=files,
        gaps=tuple(_gaps(history, sides, growth, dispersion, bursty=bursty, shared=shared)),
    )


def growth_of(history: History) -> Growth | None:
    """The trend of the logarithm of requests a day by least squares, each day by its requests; None
    for too few days.

    Days are 24 hours, counted back from the end. One of which half and more was seen counts with
    what the hours of the week that were not seen usually have.
    """
    hours = np.concatenate([np.full(-len(history.requests) % DAY_H, math.nan), history.requests])
    period = WEEK_H if len(hours) >= WEEK_H else DAY_H
    usual = _usual(history, period)[_place(history, period, len(hours))]
    rates, weekdays, places = [], [], []
    for place in range(len(hours) // DAY_H):
        day, shape = hours[DAY_H * place :][:DAY_H], usual[DAY_H * place :][:DAY_H]
        finite = np.isfinite(day)
        if finite.sum() >= DAY_H / 2 and np.nansum(day) > 0:
            rates.append(float(np.nansum(day) * shape.sum() / shape[finite].sum()))
            places.append(place)
            weekdays.append(place % 7)
    by_weekday = all(weekdays.count(day) > 1 for day in range(7))
    levels = (
        [[float(day == weekday) for weekday in range(7)] for day in weekdays]
        if by_weekday
        else [[1.0] for _ in weekdays]
    )
    columns = len(levels[0]) + 1 if levels else 0
    if len(rates) < max(FEWEST_DAYS, columns + 1):
        return None
    design = np.column_stack([np.array(levels), np.array(places)])
    values, root = np.log(rates), np.sqrt(rates)
    solution = np.linalg.lstsq(design * root[:, None], values * root, rcond=None)[0]
    degrees = len(rates) - columns
    scatter = float(((values - design @ solution) ** 2 * rates).sum()) / degrees
    covariance = np.linalg.inv((design * root[:, None]).T @ (design * root[:, None]))
    # counts of Poisson arrivals scatter by 1 at least
    error = math.sqrt(max(1.0, scatter) * float(covariance[-1, -1]))
    half = student_t((1 + CONFIDENCE) / 2, degrees) * error
    slope = float(solution[-1])
    return Growth(
        per_day=slope, low=slope - half, high=slope + half, days=len(rates), by_weekday=by_weekday
    )


def _place(history: History, period: int, count: int) -> NDArray[np.int64]:
    """The hour of the week, Monday first, or of the day, of each of the last so many hours."""
    first = history.at(len(history.requests) - count)
    return (
        np.arange(count) + first.hour + (DAY_H * first.weekday() if period == WEEK_H else 0)
    ) % period


def _usual(history: History, period: int) -> NDArray[np.float64]:
    """Mean requests of each hour of the week, or of the day."""
    place = _place(history, period, len(history.requests))
    hourly = [history.requests[(place == hour) & history.seen] for hour in range(period)]
    means = np.array([float(values.mean()) if values.size else math.nan for values in hourly])
    return np.where(np.isfinite(means), means, np.nanmean(means))


def _profile(history: History) -> tuple[float, ...]:
    """Requests per second by the hour of the week, or of the day below a week; the mean of all, at
    the level of the last such period.
    """
    hours = history.seen
    period = next((candidate for candidate in (WEEK_H, DAY_H) if hours.sum() >= candidate), 0)
    if not period:
        return ()
    usual = _usual(history, period)
    last, shape = history.requests[-period:], usual[_place(history, period, period)]
    level = float(np.nansum(last) / shape[np.isfinite(last)].sum())
    return tuple(float(rate) for rate in usual * level / HOUR_S)


def _quantile(rate: float, dispersion: float) -> float:
    """The ``PEAK`` quantile of the requests in one second: normal, with a variance that much above
    Poisson's.
    """
    return math.ceil(rate + NormalDist().inv_cdf(PEAK) * math.sqrt(dispersion * rate))


def _shared(history: History) -> int:
    """Tokens of a common beginning with which a cache finds the share seen, in all but the shortest
    tenth of the prompts; else 0.
    """
    hours = history.last_week
    mean, buckets = history.mean("isl", hours), history.histograms.get("isl")
    if history.cache is None or history.cache < LEAST_SHARED or mean is None:
        return 0
    tokens, histogram = (
        round(history.cache * mean),
        None if buckets is None else buckets.over(hours),
    )
    return (
        tokens
        if histogram is None or not histogram.count or tokens <= histogram.bracket(0.1)[0]
        else 0
    )


def _lengths(
    history: History, side: str, text: str | None, file: str, files: dict[str, str], *, less: int
) -> SeenLengths:
    """One side; what a scenario writes is so much less than what was seen."""
    hours = history.last_week
    buckets = history.histograms[side].over(hours) if side in history.histograms else Buckets()
    mean = history.mean(side, hours)
    if not buckets.count:
        if text is None and mean is None:
            raise InputError(
                f"{history.source}: says no lengths of {'prompts' if side == 'isl' else 'outputs'};"
                f" give {option(side)}"
            )
        written = text if text is not None else f"{max(1, round(mean or 1) - less)}"
        return SeenLengths(
            mean=mean, p95=None, written=written, how="mean" if text is None else "given"
        )
    fitted = _lognormal(buckets, less)
    if fitted is None:
        rows = [(max(1, value - less), weight) for value, weight in _filled(buckets)]
        files[file] = "value,weight\n" + "".join(
            f"{value},{weight:.6g}\n" for value, weight in rows
        )
    return SeenLengths(
        mean=buckets.mean,
        p95=buckets.bracket(0.95),
        written=fitted or file,
        how="distribution" if fitted else "buckets",
    )


def _lognormal(buckets: Buckets, less: int) -> str | None:
    """Fit a lognormal distribution of the same mean to the shares at all bounds, shortened by the
    given tokens; None where none is near.
    """
    shares = [
        (bound, count / buckets.count)
        for bound, count in zip(buckets.bounds, buckets.counts, strict=True)
        if math.isfinite(bound)
    ]
    best, sigma = 1.0, 0.0
    for place in range(1, 151):
        width = 0.02 * place
        normal = NormalDist(math.log(buckets.mean) - width * width / 2, width)
        distance = max(
            (
                abs(normal.cdf(math.log(bound + 0.5)) - share)
                for bound, share in shares
                if bound > 0
            ),
            default=1.0,
        )
        best, sigma = min((best, sigma), (distance, width))
    deviation = buckets.mean * math.sqrt(math.expm1(sigma**2))
    return f"lognormal:{buckets.mean - less:.5g},{deviation:.5g}" if best <= NEAR else None


def _filled(buckets: Buckets) -> list[tuple[int, float]]:
    """Lengths with weights: each bucket filled alike, so that the mean is the one that was
    counted.
    """
    cells = []
    low, below = 0.0, 0.0
    for bound, count in zip(buckets.bounds, buckets.counts, strict=True):
        high = bound if math.isfinite(bound) else 4 * max(low, 1.0)
        if count > below:
            cells.append((low + 1, max(high, low + 1), count - below))
        low, below = high, count

    def values(tilt: float) -> list[tuple[float, float]]:
        places = [((k + 0.5) / INSIDE) ** tilt for k in range(INSIDE)]
        return [
            (low * (high / low) ** place, weight / INSIDE)
            for low, high, weight in cells
            for place in places
        ]

    lower, upper = -8.0, 8.0
    for _ in range(60):
        middle = (lower + upper) / 2
        mean = (
            math.fsum(value * weight for value, weight in values(math.exp(middle))) / buckets.count
        )
        lower, upper = (middle, upper) if mean > buckets.mean else (lower, middle)
    merged: dict[int, float] = {}
    for value, weight in values(math.exp(lower)):
        merged[max(1, round(value))] = merged.get(max(1, round(value)), 0.0) + weight
    return sorted(merged.items())


def _gaps(
    history: History,
    sides: dict[str, SeenLengths],
    growth: Growth | None,
    dispersion: float,
    *,
    bursty: bool,
    shared: int,
) -> Iterator[str]:
    names = {"isl": "prompts", "osl": "outputs"}
    for side, seen_lengths in sides.items():
        if seen_lengths.how == "mean":
            yield (
                f"Lengths of {names[side]}: only their mean is known, and all get it; long ones"
                " take more time and KV cache, so that the answer is on the low side. Give"
                f" {option(side)} with a spread."
            )
        elif seen_lengths.p95 is not None and history.engine != "requests":
            low, high = seen_lengths.p95
            yield (
                f"Lengths of {names[side]} within a bucket: their mean is exact, their p95 is"
                f" between {low:,.0f} and {high:,.0f} tokens."
            )
    if history.engine != "requests":
        yield (
            "Which prompt had which output: both are drawn on their own; where long prompts have"
            " short outputs or the other way round, latencies differ and the number of systems"
            " hardly does."
        )
        explanation = "varied as those of Poisson arrivals do"
        if history.fine_s > FINE_S:
            explanation = (
                "vary with the hour of the day too, so that arrivals are taken as Poisson's"
            )
        elif bursty:
            explanation = (
                f"varied {dispersion:.3g} times as much as those of Poisson arrivals, and so does"
                " the scenario"
            )
        yield (
            f"Bursts shorter than {history.fine_s:.0f} s: counts over such intervals {explanation}."
            " Shorter bursts are taken to be alike; where they are not, TTFT limits break first."
        )
    if history.cache is not None and history.cache >= LEAST_SHARED:
        explanation = (
            f"all prompts of the scenario have {shared:,} tokens in common, of which a cache finds"
            " as much. Where each conversation has a beginning apart, the KV cache holds less, and"
            " the answer is on the low side"
            if shared
            else (
                "a beginning common to all would be longer than the shortest tenth of the prompts,"
                " and the scenario shares nothing, so that the answer is on the high side. Give"
                f" {option('turns')} for conversations"
            )
        )
        yield (
            f"What prompts share: a prefix cache had {history.cache:.0%} of their tokens, and"
            f" nobody says which; {explanation}."
        )
    missing = int((~history.seen).sum())
    if missing:
        yield (
            f"{missing} of {len(history.requests)} hours, in which fewer than nine tenths were"
            " sampled; they are left out."
        )
    if growth is None:
        yield "Growth: fewer than four days were seen."
    elif not growth.by_weekday:
        yield (
            f"Growth apart from the days of the week: {growth.days} days were seen, and two weeks"
            " would separate the two."
        )

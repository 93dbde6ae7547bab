"""The traffic of a deployment over days, by the hour: read off the series of a Prometheus, or
counted from single requests.

Hours are those of UTC. An hour counts where the requests were seen for nine tenths of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from tonnage.errors import InputError, option
from tonnage.formats.prometheus import HISTORIES, INCREASE, Buckets, Curve, Signals, once
from tonnage.formats.table import shown
from tonnage.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.spec.recording import Recording

    Values = NDArray[np.float64]

HOUR_S, DAY_H, WEEK_H = 3_600, 24, 168
SEEN = 0.9  # Share of an hour that must be covered by samples
GAP = 3.0  # A gap of more than so many steps is one in which nothing was seen
# Of NVIDIA's DCGM exporter, of Triton, and of AMD's exporters
WATTS = (
    "DCGM_FI_DEV_POWER_USAGE",
    "nv_gpu_power_usage",
    "gpu_package_power",
    "gpu_average_package_power",
)
BINS_PER_DOUBLING = 16  # Bounds of lengths that are counted from single requests


@dataclass(frozen=True, slots=True, kw_only=True)
class HourlyHistogram:
    """A histogram by the hour."""

    bounds: tuple[float, ...]  # upper bounds, ascending, the last one infinite
    counts: Values  # observations up to each bound, of (hours, bounds)
    totals: Values  # sums of the observations, of (hours,)

    def over(self, hours: NDArray[np.bool_]) -> Buckets:
        """Sum some hours."""
        counts = self.counts[hours].sum(axis=0)
        return Buckets(
            bounds=self.bounds,
            counts=tuple(float(count) for count in counts),
            total=float(self.totals[hours].sum()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Hours of traffic."""

    source: str  # the file or server
    engine: str  # whose metrics these are, or "requests" where single requests were counted
    start_s: float  # unix seconds of the first hour
    requests: Values  # that ended in each hour; NaN where it was not seen
    fine_s: float  # seconds of the finest intervals that were seen
    fine: Values  # requests of each of them; NaN likewise
    instances: Values  # series of requests in each hour; NaN where single requests were counted
    # by "isl", "osl" (tokens), "ttft", "itl", "tpot", "e2e" (seconds), as far as they were
    # published
    histograms: Mapping[str, HourlyHistogram] = field(default_factory=dict)
    # counters of prompt and output tokens by the hour, by "isl" and "osl", where there are some
    tokens: Mapping[str, Values] = field(default_factory=dict)
    # running, waiting: means of the gauges by the hour; None where they are not published
    running: Values | None = None
    waiting: Values | None = None
    watts: Values | None = None  # of all GPUs by the hour; None likewise
    cache: float | None = None  # share of the prompt tokens that a prefix cache had; None likewise
    # what of the series was counted once, and whether they are of several models
    remarks: tuple[str, ...] = ()

    @property
    def seen(self) -> NDArray[np.bool_]:
        """The hours that have observations."""
        return np.isfinite(self.requests)

    @property
    def last_week(self) -> NDArray[np.bool_]:
        """The hours of the last seven days that were seen."""
        return self.seen & (np.arange(len(self.requests)) >= len(self.requests) - WEEK_H)

    @property
    def end_s(self) -> float:
        """Unix seconds at which the last hour ends."""
        return self.start_s + HOUR_S * len(self.requests)

    def mean(self, side: str, hours: NDArray[np.bool_] | None = None) -> float | None:
        """Mean tokens of a request, "isl" or "osl": by the histogram, else by the counter of
        tokens; None where neither is published.
        """
        hours = self.seen if hours is None else hours
        if side in self.histograms and self.histograms[side].over(hours).count:
            return self.histograms[side].over(hours).mean
        count = float(self.requests[hours].sum())
        return (
            float(self.tokens[side][hours].sum()) / count if side in self.tokens and count else None
        )

    def at(self, hour: int) -> datetime:
        """The beginning of an hour."""
        return datetime.fromtimestamp(self.start_s + HOUR_S * hour, UTC)


def history_of(all_curves: Sequence[Curve], source: str) -> History:
    """The hours of some series.

    Raises:
        InputError: no engine that is known counts requests in them, or several do, or less than an
            hour was seen.
    """
    by_name: dict[str, list[Curve]] = {}
    scraped_once, labels = once(all_curves)
    for scraped in scraped_once:
        by_name.setdefault(scraped.name, []).append(scraped)
    engine, signals = _engine(by_name, source)
    counted = by_name[signals.requests]
    first, last = (
        min(float(curve.times[0]) for curve in counted),
        max(float(curve.times[-1]) for curve in counted),
    )
    start, count = (
        HOUR_S * math.floor(first / HOUR_S),
        math.ceil(last / HOUR_S) - math.floor(first / HOUR_S),
    )
    edges = start + HOUR_S * np.arange(count + 1.0)
    sampled = np.sum([np.diff(_covered(curve, edges)) for curve in counted], axis=0) / HOUR_S
    whole = np.diff(_covered_by_any(counted, edges)) >= SEEN * HOUR_S
    if not whole.any():
        raise InputError(
            f"{source}: holds {(last - first) / 60:.0f} minutes of {signals.requests}; a history"
            " has an hour or more"
        )
    step = max(60.0, *(curve.step_s for curve in counted))
    fine = first + step * np.arange(math.floor((last - first) / step) + 1.0)
    fine_seen = np.diff(_covered_by_any(counted, fine)) >= SEEN * step

    def summed(name: str) -> Values | None:
        curves = by_name.get(name + INCREASE, by_name.get(name, []))
        return np.sum([curve.grown(edges) for curve in curves], axis=0) if name and curves else None

    def gauge(*names: str) -> Values | None:
        curves = [curve for name in names for curve in by_name.get(name, ())]
        return np.sum([_hourly(curve, edges) for curve in curves], axis=0) if curves else None

    tokens = {
        side: summed(name)
        for side, name in (("isl", signals.prompt_tokens), ("osl", signals.output_tokens))
    }
    queries, had = (summed(name) for name in (signals.cache_queries, signals.cache_hits))
    names = (("isl", signals.isl), ("osl", signals.osl), *signals.histograms.items())
    histograms = {side: _histogram(by_name, name, edges) for side, name in names if name}
    counts = np.sum([curve.grown(edges) for curve in counted], axis=0)
    return History(
        source=source,
        engine=engine,
        start_s=float(start),
        requests=np.where(whole, counts, math.nan),
        fine_s=step,
        fine=np.where(
            fine_seen, np.sum([curve.grown(fine) for curve in counted], axis=0), math.nan
        ),
        instances=np.where(whole, sampled, math.nan),
        histograms={
            side: hourly_histogram
            for side, hourly_histogram in histograms.items()
            if hourly_histogram is not None
        },
        tokens={
            side: side_tokens for side, side_tokens in tokens.items() if side_tokens is not None
        },
        running=gauge(signals.running),
        waiting=gauge(signals.waiting),
        watts=gauge(*WATTS),
        cache=(
            None
            if queries is None or had is None or not queries.sum()
            else float(had.sum() / queries.sum())
        ),
        remarks=(*_scraped_often(labels), *_of_models(counted)),
    )


def _scraped_often(labels: Sequence[str]) -> tuple[str, ...]:
    """State in one sentence that targets were scraped several times."""
    if not labels:
        return ()
    return (
        (
            f"Some targets were scraped more than once: their series differ in {', '.join(labels)}"
            " alone, and count once."
        ),
    )


def _of_models(counted: Sequence[Curve]) -> tuple[str, ...]:
    """That requests of several models are counted together, in one sentence with what narrows them
    to one.
    """
    for label in ("model_name", "model"):
        names = list(
            dict.fromkeys(str(curve.labels[label]) for curve in counted if label in curve.labels)
        )
        if len(names) > 1:
            matcher = f'{label}="{names[0]}"'
            return (
                (
                    f"Requests of {len(names)} models are counted together"
                    f" ({', '.join(map(shown, names[:4]))}); one of them alone is read with"
                    f" {option('select')} '{matcher}'."
                ),
            )
    return ()


def _engine(by_name: Mapping[str, object], source: str) -> tuple[str, Signals]:
    matching = {name: signals for name, signals in HISTORIES.items() if signals.requests in by_name}
    if len(matching) != 1:
        names = ", ".join(signals.requests for signals in (matching or HISTORIES).values())
        if matching:
            raise InputError(
                f"{source}: counts requests of {' and '.join(matching)}; narrow it to one"
                f" deployment ({names})"
            )
        raise InputError(
            f"{source}: has no counter of requests that is known; it needs one of {names}"
        )
    return next(iter(matching.items()))


def _covered(curve: Curve, at: Values) -> Values:
    """Seconds up to each moment in which a series was sampled without a gap."""
    steps = np.diff(curve.times)
    steps = np.where(steps <= GAP * curve.step_s, steps, 0.0)
    return np.asarray(np.interp(at, curve.times, np.concatenate([[0.0], np.cumsum(steps)])))


def _covered_by_any(curves: Sequence[Curve], at: Values) -> Values:
    """The seconds in which at least one of several series was sampled."""
    sampled = [
        np.stack([curve.times[:-1], curve.times[1:]], axis=1)[
            np.diff(curve.times) <= GAP * curve.step_s
        ]
        for curve in curves
    ]
    spans = np.concatenate(sampled)
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    reached = np.maximum.accumulate(spans[:, 1])
    starts = np.maximum(spans[:, 0], np.concatenate([[-math.inf], reached[:-1]]))
    lengths = np.maximum(spans[:, 1] - starts, 0.0)
    total = np.cumsum(lengths)
    places = np.searchsorted(starts, at, side="right") - 1
    inside = np.clip(at - starts[places], 0.0, lengths[places])
    return np.where(places >= 0, total[places] - lengths[places] + inside, 0.0)


def _hourly(curve: Curve, edges: Values) -> Values:
    """The mean of a gauge in each hour; 0 without a sample."""
    places = np.searchsorted(edges, curve.times, side="right") - 1
    inside = (places >= 0) & (places < len(edges) - 1)
    sums, counts = (
        np.bincount(places[inside], weights=w, minlength=len(edges) - 1)
        for w in (curve.values[inside], None)
    )
    return np.asarray(sums / np.maximum(counts, 1))


def _histogram(
    by_name: Mapping[str, Sequence[Curve]], name: str, edges: Values
) -> HourlyHistogram | None:
    """A histogram by the hour; None where it was not read, or observed nothing."""
    counts_by_bound: dict[float, Values] = {}
    for curve in by_name.get(f"{name}_bucket{INCREASE}", by_name.get(f"{name}_bucket", ())):
        bound = float(curve.labels.get("le", "nan"))
        if not math.isnan(bound):
            counts_by_bound[bound] = counts_by_bound.get(bound, 0.0) + curve.grown(edges)
    sums = by_name.get(f"{name}_sum{INCREASE}", by_name.get(f"{name}_sum", ()))
    bounds = tuple(sorted(counts_by_bound))
    if not bounds or not sums or not counts_by_bound[bounds[-1]].any():
        return None
    counts = np.maximum.accumulate(
        np.stack([counts_by_bound[bound] for bound in bounds], axis=1), axis=1
    )
    return HourlyHistogram(
        bounds=bounds,
        counts=counts,
        totals=np.sum([series.grown(edges) for series in sums], axis=0),
    )


def history_of_requests(recording: Recording) -> History:
    """The hours of single requests, which have moments and lengths. Raises InputError: less than an
    hour of them.
    """
    began = recording.began_ns / NS_PER_S
    due = began + np.array(recording.due_ns) / NS_PER_S
    start = HOUR_S * math.floor(began / HOUR_S)
    count = math.ceil((float(due[-1]) - start) / HOUR_S)
    edges = start + HOUR_S * np.arange(count + 1.0)
    covered = np.diff(np.clip(edges, due[0], due[-1]))
    whole = covered >= SEEN * HOUR_S
    if not whole.any():
        raise InputError(
            f"{recording.source}: holds {(due[-1] - due[0]) / 60:.0f} minutes; a history has an"
            " hour or more"
        )
    hours = np.minimum(((due - start) // HOUR_S).astype(np.int64), count - 1)
    histograms: dict[str, HourlyHistogram] = {}
    for side, values in (("isl", recording.isl), ("osl", recording.osl)):
        lengths = np.array(values, dtype=np.float64)
        if lengths.size:
            bins = math.ceil(BINS_PER_DOUBLING * math.log2(float(lengths.max()))) + 1
            bounds = np.unique(np.ceil(2 ** (np.arange(bins + 1) / BINS_PER_DOUBLING)))
            cells = np.zeros((count, len(bounds) + 1))
            np.add.at(cells, (hours, np.searchsorted(bounds, lengths)), 1.0)
            totals = np.bincount(hours, weights=lengths, minlength=count).astype(np.float64)
            histograms[side] = HourlyHistogram(
                bounds=(*map(float, bounds), math.inf), counts=cells.cumsum(axis=1), totals=totals
            )
    requests = np.where(whole, np.bincount(hours, minlength=count).astype(np.float64), math.nan)
    fine = np.bincount((due - due[0]).astype(np.int64), minlength=int(due[-1] - due[0]) + 1).astype(
        np.float64
    )
    return History(
        source=recording.source,
        engine="requests",
        start_s=float(start),
        requests=requests,
        fine_s=1.0,
        fine=fine[:-1],
        instances=np.full(count, math.nan),
        histograms=histograms,
    )

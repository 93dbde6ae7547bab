"""How arrivals vary: the gaps between requests, and the counts of requests over seconds, minutes
and hours.

The index of dispersion of counts (IDC) is the variance of the number of requests in intervals of
one width over its mean. Poisson arrivals have 1 at every width; arrivals whose rate drifts have
more the wider the interval is (Gusella, "Characterizing the variability of arrival processes with
indexes of dispersion", IEEE JSAC 9(2), 1991).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Values = NDArray[np.int64] | NDArray[np.float64]


COMPARED = ("p50", "p90", "p95", "p99")  # The percentiles that a fit has to reproduce


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Mean, standard deviation, percentiles and extremes, all in the unit of the values."""

    mean: float
    std: float
    p50: float
    p90: float
    p95: float
    p99: float
    least: float
    most: float

    def to_json(self) -> dict[str, Any]:
        """The values as JSON has them, by name."""
        return asdict(self)

    def farthest(self, spread: Spread, floor: float = 0.0) -> float:
        """The largest relative difference of another spread's mean and percentiles from these.

        Args:
            spread: the spread that is held against this one.
            floor: differences are taken relative to this value at least, so that a percentile of 0
                can be compared.
        """
        pairs = [(getattr(self, name), getattr(spread, name)) for name in ("mean", *COMPARED)]
        return max(
            abs(b - a) / max(abs(a), floor) if a or floor else (0.0 if b == a else float("inf"))
            for a, b in pairs
        )


def spread(values: Values) -> Spread:
    """The spread of at least one value; percentiles are interpolated as numpy does by default."""
    p50, p90, p95, p99 = (float(v) for v in np.percentile(values, (50, 90, 95, 99)))
    least, greatest = float(values.min()), float(values.max())
    return Spread(
        mean=float(values.mean()),
        std=float(values.std()),
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99,
        least=least,
        most=greatest,
    )


def kolmogorov_smirnov(sample: Values, drawn: Values) -> float:
    """The largest difference between the two empirical distribution functions, from 0 (alike) to 1:
    the two-sample statistic.
    """
    ordered, sorted_drawn = np.sort(sample), np.sort(drawn)
    places = np.concatenate((ordered, sorted_drawn))
    shares = (
        np.searchsorted(values, places, side="right") / len(values)
        for values in (ordered, sorted_drawn)
    )
    first, second = shares
    return float(np.abs(first - second).max())


WIDTHS_S = (1, 10, 60)  # Widths of the intervals in which requests are counted, in seconds

FEWEST_INTERVALS = 10  # Whole intervals below which no index of dispersion is given

# Whole intervals above which none is given: the traffic is too thin for that width
MOST_INTERVALS = 5_000_000

HOUR_S = 3_600


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispersion:
    """Dispersion of the counts of requests in whole intervals."""

    width_s: int  # of an interval, in seconds
    # variance over mean; None where the traffic has fewer than ten such intervals
    index: float | None
    intervals: int  # how many there are
    peak_to_mean: float | None  # the fullest interval over the mean of all; None as above


@dataclass(frozen=True, slots=True, kw_only=True)
class Burstiness:
    """Statistics of how arrivals vary."""

    gaps: Spread  # between one request and the next, in seconds
    dispersion: tuple[Dispersion, ...]  # of the counts, one for each width
    # the busiest whole hour over the mean of all whole hours; None below two of them
    hourly_peak_to_mean: float | None

    @property
    def cv(self) -> float:
        """Standard deviation of the gaps over their mean: 1 for Poisson arrivals."""
        return self.gaps.std / self.gaps.mean

    def to_json(self) -> dict[str, Any]:
        """Gaps in seconds; the indices by width."""
        return {
            "cv": self.cv,
            "gaps_s": self.gaps.to_json(),
            "dispersion": [asdict(dispersion) for dispersion in self.dispersion],
            "hourly_peak_to_mean": self.hourly_peak_to_mean,
        }


def burstiness(due_s: NDArray[np.float64]) -> Burstiness:
    """Burstiness of arrival times in seconds since the first, ascending, two or more and not all
    the same.
    """
    hours = counts(due_s, HOUR_S)
    hourly = float(hours.max() / hours.mean()) if len(hours) >= 2 and hours.any() else None
    return Burstiness(
        gaps=spread(np.diff(due_s)),
        dispersion=tuple(dispersion(due_s, width) for width in WIDTHS_S),
        hourly_peak_to_mean=hourly,
    )


def dispersion(due_s: NDArray[np.float64], width_s: int) -> Dispersion:
    """Dispersion over the whole intervals of one width."""
    whole = int(due_s[-1] // width_s)
    interval_counts = (
        counts(due_s, width_s) if FEWEST_INTERVALS <= whole <= MOST_INTERVALS else None
    )
    if interval_counts is None or not interval_counts.any():
        return Dispersion(width_s=width_s, index=None, intervals=whole, peak_to_mean=None)
    mean = float(interval_counts.mean())
    return Dispersion(
        width_s=width_s,
        index=float(interval_counts.var() / mean),
        intervals=whole,
        peak_to_mean=float(interval_counts.max() / mean),
    )


def counts(due_s: NDArray[np.float64], width_s: int) -> NDArray[np.int64]:
    """Requests of each whole interval, from the first request on; requests after the last whole one
    are left out.
    """
    whole = int(due_s[-1] // width_s)
    places = (due_s // width_s).astype(np.int64)
    return np.bincount(places[places < whole], minlength=whole)

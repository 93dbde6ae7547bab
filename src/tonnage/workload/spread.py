"""How values are spread: mean, percentiles and extremes, and how far two such spreads lie apart."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.int64] | NDArray[np.float64]

COMPARED = ("p50", "p90", "p95", "p99")
"""The percentiles that a fit has to reproduce."""


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
        """By name."""
        return asdict(self)

    def farthest(self, other: Spread, floor: float = 0.0) -> float:
        """The largest relative difference of another spread's mean and percentiles from these.

        Args:
            other: the spread that is held against this one.
            floor: differences are taken relative to this value at least, so that a percentile of 0 can be compared.
        """
        pairs = [(getattr(self, name), getattr(other, name)) for name in ("mean", *COMPARED)]
        return max(abs(b - a) / max(abs(a), floor) if a or floor else (0.0 if b == a else float("inf")) for a, b in pairs)


def spread(values: Values) -> Spread:
    """The spread of at least one value; percentiles are interpolated as numpy does by default."""
    import numpy as np

    p50, p90, p95, p99 = (float(v) for v in np.percentile(values, (50, 90, 95, 99)))
    least, most = float(values.min()), float(values.max())
    return Spread(mean=float(values.mean()), std=float(values.std()), p50=p50, p90=p90, p95=p95, p99=p99, least=least, most=most)


def kolmogorov_smirnov(seen: Values, drawn: Values) -> float:
    """The largest difference between the two empirical distribution functions, from 0 (alike) to 1: the two-sample statistic."""
    import numpy as np

    ordered, other = np.sort(seen), np.sort(drawn)
    places = np.concatenate((ordered, other))
    shares = (np.searchsorted(values, places, side="right") / len(values) for values in (ordered, other))
    first, second = shares
    return float(np.abs(first - second).max())

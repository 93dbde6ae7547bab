"""Values put into bins of round numbers: what lies in each, and how it is spread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tonnage.report.drawing.svg import log_ticks, nice_ticks
from tonnage.report.numbers import plain

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FAR_APART = 50
"""Ratio of the largest value to the smallest from which bins grow with the value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How values are spread; all in their own unit."""

    count: int
    mean: float
    p1: float
    p25: float
    p50: float
    p75: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Values whose place lies from ``low`` on and below ``high``; in the last bin ``high`` is included.

    Attributes:
        low, high: edges.
        middle: the mean place of what lies in it.
        spread: of the values.
    """

    low: float
    high: float
    middle: float
    spread: Spread

    @property
    def words(self) -> str:
        """Such as "1,000–1,200"."""
        return between_edges(self.low, self.high)


def between_edges(low: float, high: float) -> str:
    """A bin in words; one value alone where nothing else fits into it."""
    return plain(low) if high - low <= 1 and low == round(low) else f"{plain(low)}–{plain(high)}"


def edges(values: NDArray[np.float64] | NDArray[np.int64], most: int) -> tuple[float, ...]:
    """Round edges that hold all values, about ``most`` bins; values of 1 and more that are far apart get bins that grow."""
    low, high = float(values.min()), float(values.max())
    if low == high:
        return (low, low + 1)
    return log_ticks(low, high, most) if low >= 1 and high > FAR_APART * low else nice_ticks(low, high, most)


def spread(values: NDArray[np.float64]) -> Spread:
    """Mean and percentiles of at least one value."""
    import numpy as np

    p1, p25, p50, p75, p95, p99 = (float(v) for v in np.percentile(values, (1, 25, 50, 75, 95, 99)))
    return Spread(count=int(values.size), mean=float(values.mean()), p1=p1, p25=p25, p50=p50, p75=p75, p95=p95, p99=p99)


def binned(places: NDArray[np.float64] | NDArray[np.int64], values: NDArray[np.float64], bounds: tuple[float, ...]) -> Iterator[Bin]:
    """The bins that hold anything, in order.

    Args:
        places: by which the values are put into bins.
        values: one for each place.
        bounds: edges, ascending.
    """
    import numpy as np

    which = np.clip(np.searchsorted(bounds, places, side="right") - 1, 0, len(bounds) - 2)
    for place in range(len(bounds) - 1):
        inside = which == place
        if inside.any():
            middle = float(places[inside].mean())
            yield Bin(low=bounds[place], high=bounds[place + 1], middle=middle, spread=spread(values[inside]))


def every_nth(values: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """At most so many of the values, evenly taken."""
    import numpy as np

    return values if values.size <= most else values[np.linspace(0, values.size - 1, most).astype(np.int64)]

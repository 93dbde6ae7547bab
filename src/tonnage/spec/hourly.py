"""Requests that come by the hour: a Poisson process whose rate is that of a day's or a week's profile."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tonnage.units import PS_PER_S

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

HOUR_S = 3600.0

SPREAD = 8.0
"""Standard deviations by which more gaps are drawn than are expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HourlyArrivals:
    """Open-loop arrivals over a profile, once from its first hour to its last.

    Attributes:
        hours: requests per second in each hour; within one the rate is constant.
    """

    hours: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Mean requests per second."""
        return math.fsum(self.hours) / len(self.hours)

    @property
    def process(self) -> str:
        """The kind of arrivals, in a word."""
        return "profile"

    @property
    def expected(self) -> int:
        """Requests that are expected, rounded up."""
        return math.ceil(math.fsum(self.hours) * HOUR_S)

    @property
    def most(self) -> int:
        """More requests than will ever be drawn."""
        return math.ceil(self.expected + SPREAD * math.sqrt(self.expected) + SPREAD)

    def at_mean(self, rate: float) -> HourlyArrivals:
        """The same shape with another mean, in requests per second."""
        return HourlyArrivals(hours=tuple(hour * rate / self.rate for hour in self.hours))

    def due_ps(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """When the requests come, in picoseconds: gaps of mean 1 in the expected number of requests, which time is read from."""
        import numpy as np

        reached = rng.standard_exponential(self.most).cumsum()
        expected = np.append(0.0, np.cumsum(np.array(self.hours) * HOUR_S))
        reached = reached[: int(np.searchsorted(reached, expected[-1]))]
        hours = np.interp(reached, expected, np.arange(len(expected)) * HOUR_S)
        due: NDArray[np.int64] = np.rint(hours * PS_PER_S).astype(np.int64)
        return due

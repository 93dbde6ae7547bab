"""Finds the distribution, of those that a scenario takes, that reproduces lengths which were seen.

Every candidate is drawn from as the simulator draws (``Lengths.draw``), with a fixed seed, and what comes is held against what was
seen: mean, p50, p90, p95 and p99, and the Kolmogorov-Smirnov distance. A candidate fits where none of these five is off by more
than 10 %, and where its 99.9th percentile is not far beyond the longest length that was seen. Of several that fit, the one with
the smallest distance is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tonnage.spec.lengths import Lengths, parse_lengths
from tonnage.workload.spread import Spread, kolmogorov_smirnov, spread

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TOLERANCE = 0.10
"""Relative error of a mean or percentile up to which a distribution fits."""

DRAWS = 100_000
"""Lengths that are drawn of a candidate; their own p99 then lies within about 1 % of the distribution's."""

SEED = 0

Z95 = 1.6449
"""Standard deviations to the 95th percentile of a normal distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedLengths:
    """A distribution beside the lengths that it is to reproduce.

    Attributes:
        written: as a scenario writes it, such as "lognormal:2000,500".
        seen, drawn: mean and percentiles of the lengths that were seen and of those that it draws, in tokens.
        error: the largest relative error of mean, p50, p90, p95 and p99.
        distance: Kolmogorov-Smirnov distance, from 0 (alike) to 1.
    """

    written: str
    seen: Spread
    drawn: Spread
    error: float
    distance: float

    @property
    def fits(self) -> bool:
        """Whether mean and percentiles are reproduced within 10 %, and no lengths are drawn far beyond those that were seen."""
        return self.error <= TOLERANCE and not self.overshoots

    @property
    def overshoots(self) -> bool:
        """Whether its 99.9th percentile exceeds the longest length that was seen by more than 10 %: a model may not take such requests."""
        return self.lengths.longest > (1 + TOLERANCE) * self.seen.most

    @property
    def lengths(self) -> Lengths:
        """The distribution itself."""
        return parse_lengths(self.written, "the fitted lengths")

    def to_json(self) -> dict[str, Any]:
        """The distribution as a scenario writes it, and how well it fits."""
        return {
            "distribution": self.written,
            "fits": self.fits,
            "largest_error": self.error,
            "overshoots": self.overshoots,
            "ks_distance": self.distance,
        }


def fitted_lengths(values: NDArray[np.int64]) -> FittedLengths:
    """The candidate that comes nearest: the nearest of those that fit, else the one with the smallest largest error."""
    seen = spread(values)
    found = [_compared(written, seen, values) for written in dict.fromkeys(_candidates(values, seen))]
    fitting = [one for one in found if one.fits]
    return min(fitting, key=lambda one: one.distance) if fitting else min(found, key=lambda one: (one.error, one.distance))


def _compared(written: str, seen: Spread, values: NDArray[np.int64]) -> FittedLengths:
    import numpy as np

    drawn = parse_lengths(written, "the fitted lengths").draw(DRAWS, np.random.default_rng(SEED))
    found = spread(drawn)
    distance = kolmogorov_smirnov(values, drawn)
    return FittedLengths(written=written, seen=seen, drawn=found, error=seen.farthest(found), distance=distance)


def _candidates(values: NDArray[np.int64], seen: Spread) -> Iterator[str]:
    """Distributions whose parameters follow from the values: by likelihood, by moments, and by percentiles."""
    yield f"{max(1, round(seen.mean))}"
    if seen.least == seen.most:
        return
    yield f"normal:{seen.mean:.5g},{seen.std:.5g}"
    yield f"uniform:{seen.least:.0f}-{seen.most:.0f}"
    for plus in dict.fromkeys((0, int(seen.least) - 1, int(seen.least) // 2)):
        yield from _lognormals(values, plus)


def _lognormals(values: NDArray[np.int64], plus: int) -> Iterator[str]:
    """Lognormal distributions on top of a fixed part of ``plus`` tokens, which is below the least length."""
    import numpy as np

    own = values - plus
    logs = np.log(own)
    yield from _lognormal(math.exp(float(logs.mean() + logs.var() / 2)), math.sqrt(math.expm1(float(logs.var()))), plus)
    yield from _lognormal(float(own.mean()), float(own.std() / own.mean()), plus)
    p50, p95 = (float(v) for v in np.percentile(own, (50, 95)))
    sigma = math.log(p95 / p50) / Z95
    yield from _lognormal(p50 * math.exp(sigma * sigma / 2), math.sqrt(math.expm1(sigma * sigma)), plus)


def _lognormal(mean: float, cv: float, plus: int) -> Iterator[str]:
    """Mean and coefficient of variation as a scenario writes them; nothing where they are out of its range."""
    if mean >= 1 and cv > 1e-4 and mean * cv < 1e7:
        yield f"lognormal:{mean:.5g},{mean * cv:.5g}{f'+{plus}' if plus else ''}"

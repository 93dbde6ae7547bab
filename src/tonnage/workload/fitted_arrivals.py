"""Finds the arrival process, of those that a scenario takes, that reproduces arrivals which were seen.

Evenly spaced, Poisson and gamma arrivals are tried. One of them fits where mean, p50, p90, p95 and p99 of its gaps lie within 10 % of
those that were seen, and where its counts vary as much over 10 s and 60 s. The latter sets traffic with a drifting rate apart: its
gaps may be those of Poisson arrivals, while its minutes vary many times more. Where none fits, the moments themselves are kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tonnage.spec.workload import LEAST_CV, MOST_CV, OpenLoop, unit_gaps
from tonnage.workload.burstiness import Burstiness, burstiness
from tonnage.workload.fitted_lengths import SEED, TOLERANCE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DRAWS = 200_000
"""Gaps that are drawn of a candidate."""

NOTHING = 0.001
"""Gaps are compared relative to this share of the mean gap at least: shorter ones are alike."""

SIGMAS = 3.0
"""Standard errors of an index of dispersion, beyond the 10 %, up to which it agrees."""

EVEN = 0.01
"""Coefficient of variation below which arrivals are evenly spaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedArrivals:
    """An arrival process beside the arrivals that it is to reproduce.

    Attributes:
        process: "constant", "poisson", "gamma", or "trace" where none of them fits.
        cv: of gamma arrivals; None elsewhere.
        rate: mean requests per second.
        error: the largest relative error of mean and percentiles of the gaps; of the nearest process where none fits.
        dispersion_error: seen over drawn index of dispersion, of the width at which they differ most; None where no width was judged.
        disagreement: why the nearest process does not fit, "gaps" or "counts"; empty where one fits.
        nearest: the process that ``error`` is of.
    """

    process: Literal["constant", "poisson", "gamma", "trace"]
    cv: float | None
    rate: float
    error: float
    dispersion_error: float | None
    disagreement: Literal["", "gaps", "counts"]
    nearest: str

    def to_json(self) -> dict[str, Any]:
        """The process and how well it, or the nearest one, fits."""
        return {
            "process": self.process,
            "cv": self.cv,
            "mean_rps": self.rate,
            "nearest": self.nearest,
            "largest_error": self.error,
            "dispersion_ratio": self.dispersion_error,
            "disagreement": self.disagreement or None,
        }


def fitted_arrivals(seen: Burstiness) -> FittedArrivals:
    """The simplest process that fits: evenly spaced, then Poisson, then gamma; else the trace itself."""
    cv = min(max(seen.cv, LEAST_CV), MOST_CV)
    rate = 1 / seen.gaps.mean
    candidates = (
        *((OpenLoop(rate=rate, process="constant"),) if cv <= EVEN else ()),
        OpenLoop(rate=rate, process="poisson"),
        OpenLoop(rate=rate, process="gamma", cv=cv),
    )
    found = [_compared(one, seen) for one in candidates]
    fitting = next((one for one in found if not one.disagreement), None)
    if fitting is not None:
        return fitting
    nearest = min(found, key=lambda one: (one.disagreement == "gaps", one.error))
    return FittedArrivals(
        process="trace",
        cv=None,
        rate=rate,
        error=nearest.error,
        dispersion_error=nearest.dispersion_error,
        disagreement=nearest.disagreement,
        nearest=nearest.nearest,
    )


def _compared(arrivals: OpenLoop, seen: Burstiness) -> FittedArrivals:
    import numpy as np

    drawn = _drawn(arrivals, np.random.default_rng(SEED))
    error = seen.gaps.farthest(drawn.gaps, NOTHING * seen.gaps.mean)
    ratios = [
        (one.index / other.index, _allowed(one.intervals, other.intervals))
        for one, other in zip(seen.dispersion, drawn.dispersion, strict=True)
        if one.width_s > 1 and one.index and other.index
    ]
    off = max(ratios, key=lambda one: abs(math.log(one[0])), default=None)
    apart = any(not 1 - allowed <= ratio <= 1 + allowed for ratio, allowed in ratios) and arrivals.process != "constant"
    return FittedArrivals(
        process=arrivals.process,
        cv=arrivals.cv if arrivals.process == "gamma" else None,
        rate=arrivals.rate,
        error=error,
        dispersion_error=None if off is None else off[0],
        disagreement="gaps" if error > TOLERANCE else "counts" if apart else "",
        nearest=arrivals.process if arrivals.process != "gamma" else f"gamma arrivals with a CV of {arrivals.cv:.3g}",
    )


def _drawn(arrivals: OpenLoop, rng: np.random.Generator) -> Burstiness:
    gaps: NDArray[np.float64] = unit_gaps(arrivals, DRAWS, rng) / arrivals.rate
    return burstiness(gaps.cumsum())


def _allowed(seen: int, drawn: int) -> float:
    """By how much two indices may differ: 10 %, and three standard errors of sqrt(2 / intervals) each."""
    return TOLERANCE + SIGMAS * math.sqrt(2 / seen + 2 / drawn)

"""Two runs side by side, measured or simulated: the ratio of every latency with its interval, and quantile against quantile."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tonnage.bench.intervals import CONFIDENCE, STATISTICS, block_draws, latencies_ms, statistics
from tonnage.errors import in_python
from tonnage.notebook import InNotebooks
from tonnage.results.metrics import Attained, attained, summarize
from tonnage.results.requests import Requests

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.spec.deployment import Slo

QUANTILES = tuple(range(1, 100))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """One statistic of two runs."""

    metric: str  # and statistic: what is compared
    statistic: str
    first: float  # and second: its value in either run
    second: float
    low: float = math.nan  # and high: between which their ratio is with a confidence of 0.95; NaN where the runs are too short for that
    high: float = math.nan

    @property
    def ratio(self) -> float:
        """The second over the first; NaN where there is none."""
        return self.second / self.first if self.first else math.nan

    @property
    def differs(self) -> bool | None:
        """Whether the interval leaves out 1; None where there is no interval."""
        return None if math.isnan(self.low) else not self.low <= 1 <= self.high

    def to_json(self) -> dict[str, Any]:
        """By name."""
        names = ("metric", "statistic", "first", "second", "ratio", "low", "high", "differs")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(InNotebooks):
    """Two runs."""

    ratios: tuple[Ratio, ...]  # every statistic that is compared
    quantiles_ms: dict[str, tuple[tuple[float, ...], tuple[float, ...]]]  # by metric, the quantiles from 1 % to 99 % of either run
    notes: tuple[str, ...]  # what makes the runs hard to compare, in words; options in them are not spelled yet

    def to_json(self) -> dict[str, Any]:
        """By name."""
        return {
            "ratios": [ratio.to_json() for ratio in self.ratios],
            "confidence": CONFIDENCE,
            "quantiles_ms": {name: {"first": first, "second": second} for name, (first, second) in self.quantiles_ms.items()},
            "notes": list(map(in_python, self.notes)),
        }


def compare(first: Requests, second: Requests, *, slo: Slo = (), seed: int = 0) -> Comparison:
    """Compare two runs by their records alone, and the goodput of their joint attainment of ``slo``; a prediction's record will do too."""
    import numpy as np

    ours, theirs = latencies_ms(first), latencies_ms(second)
    ratios = []
    for place, metric in enumerate(ours):
        ratios += _ratios(metric, ours[metric], theirs[metric], seed=seed + 2 * place)
    one, other = summarize(first), summarize(second)
    ratios += [Ratio(metric="itl_ms", statistic=s, first=getattr(one.itl_ms, s), second=getattr(other.itl_ms, s)) for s in STATISTICS]
    for name in ("requests_per_second", "output_tokens_per_second"):
        ratios.append(Ratio(metric=name, statistic="mean", first=getattr(one, name), second=getattr(other, name)))
    for ours_met, theirs_met in zip(attained(first, slo), attained(second, slo), strict=True):
        ratios.append(share_ratio(ours_met, theirs_met))
        rates = (ours_met.requests_per_second, theirs_met.requests_per_second)
        ratios.append(Ratio(metric=f"goodput {ours_met.limits}", statistic="mean", first=rates[0], second=rates[1]))
    quantiles = {
        metric: tuple(tuple(float(v) for v in np.percentile(x, QUANTILES)) for x in (ours[metric], theirs[metric]))
        for metric in ours
        if ours[metric].size and theirs[metric].size
    }
    pairs = {metric: (found[0], found[1]) for metric, found in quantiles.items()}
    return Comparison(ratios=tuple(ratios), quantiles_ms=pairs, notes=_notes(first, second))


def share_ratio(first: Attained, second: Attained) -> Ratio:
    """The ratio of two shares, with an interval from those of both (Donner and Zou, MOVER for ratios); none where the first may be 0."""
    one, other, product = first.share, second.share, first.share * second.share
    low = high = math.nan
    if first.low > 0 and 2 * one > first.high:
        below = second.low * (2 * other - second.low), first.high * (2 * one - first.high)
        above = second.high * (2 * other - second.high), first.low * (2 * one - first.low)
        low = (product - math.sqrt(max(0.0, product**2 - below[0] * below[1]))) / below[1]
        high = (product + math.sqrt(max(0.0, product**2 - above[0] * above[1]))) / above[1]
    return Ratio(metric=f"share {first.limits}", statistic="mean", first=one, second=other, low=low, high=high)


def _ratios(metric: str, first: NDArray[np.float64], second: NDArray[np.float64], *, seed: int) -> list[Ratio]:
    """The ratios of one latency; both runs are drawn again independently."""
    import numpy as np

    if not first.size or not second.size:
        return []
    values = zip(STATISTICS, statistics(first), statistics(second), strict=True)
    draws = block_draws(first, seed=seed), block_draws(second, seed=seed + 1)
    if draws[0] is None or draws[1] is None:
        return [Ratio(metric=metric, statistic=name, first=float(a), second=float(b)) for name, a, b in values]
    tails = (1 - CONFIDENCE) / 2
    low, high = np.quantile(draws[1] / np.maximum(draws[0], 1e-9), [tails, 1 - tails], axis=0)
    return [
        Ratio(metric=metric, statistic=name, first=float(a), second=float(b), low=float(low[k]), high=float(high[k]))
        for k, (name, a, b) in enumerate(values)
    ]


def _notes(first: Requests, second: Requests) -> tuple[str, ...]:
    """Where the two were not asked the same."""
    notes = []
    for name, column in (("prompts", "isl"), ("outputs", "osl")):
        a, b = (float(getattr(run, column)[run.status == 0].mean()) if (run.status == 0).any() else math.nan for run in (first, second))
        if not math.isclose(a, b, rel_tol=0.02):
            notes.append(f"{name} are {a:.0f} tokens on average in the first run, {b:.0f} in the second")
    shares = [float((run.status != 0).mean()) if len(run) else 0.0 for run in (first, second)]
    if max(shares) > 0.01:
        notes.append(f"{shares[0]:.1%} of the requests did not complete in the first run, {shares[1]:.1%} in the second")
    return tuple(notes)

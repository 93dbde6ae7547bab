"""A Prometheus histogram over a stretch of time: its mean, and its quantiles with the bucket that each lies in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tonnage.watch.page import Page


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """Counts of observations, cumulated over upper bounds.

    Attributes:
        bounds: upper bounds in seconds, ascending, the last one infinite; empty where nothing was published.
        counts: observations up to each bound.
        total: sum of the observations in seconds.
    """

    bounds: tuple[float, ...] = ()
    counts: tuple[float, ...] = ()
    total: float = 0.0

    @property
    def count(self) -> float:
        """How many observations there are."""
        return self.counts[-1] if self.counts else 0.0

    @property
    def mean(self) -> float:
        """In seconds; NaN without observations."""
        return self.total / self.count if self.count else math.nan

    def since(self, before: Buckets) -> Buckets:
        """What came after an earlier state; everything, where the counters began anew in between."""
        if before.bounds != self.bounds or before.count > self.count:
            return self
        counts = tuple(max(0.0, now - then) for now, then in zip(self.counts, before.counts, strict=True))
        return Buckets(bounds=self.bounds, counts=counts, total=self.total - before.total)

    def bracket(self, share: float) -> tuple[float, float]:
        """The bounds of the bucket in which the quantile lies, in seconds; NaN without observations."""
        if not self.count:
            return math.nan, math.nan
        rank = share * self.count
        place = next(place for place, count in enumerate(self.counts) if count >= rank)
        return (self.bounds[place - 1] if place else 0.0), self.bounds[place]

    def quantile(self, share: float) -> float:
        """The quantile in seconds, observations lying evenly in their bucket, as ``histogram_quantile`` of Prometheus takes them.

        Beyond the last finite bound it is that bound; NaN without observations.
        """
        low, high = self.bracket(share)
        if math.isnan(low) or math.isinf(high):
            return low
        place = self.bounds.index(high)
        before = self.counts[place - 1] if place else 0.0
        inside = self.counts[place] - before
        return low + (high - low) * ((share * self.count - before) / inside if inside else 1.0)

    def slower(self, seconds: float) -> float:
        """The share of observations above a limit, lying evenly in their bucket; NaN without observations."""
        if not self.count:
            return math.nan
        low, below = 0.0, 0.0
        for bound, count in zip(self.bounds, self.counts, strict=True):
            if bound >= seconds:
                inside = 0.0 if math.isinf(bound) else (count - below) * (seconds - low) / (bound - low)
                return 1 - (below + inside) / self.count
            low, below = bound, count
        return 0.0


def buckets_of(page: Page, name: str) -> Buckets:
    """A histogram on a page, summed over its other labels."""
    found: dict[float, float] = {}
    for one in page.of(f"{name}_bucket"):
        bound = float(one.labels.get("le", "nan"))
        if not math.isnan(bound):
            found[bound] = found.get(bound, 0.0) + one.value
    bounds = tuple(sorted(found))
    return Buckets(bounds=bounds, counts=tuple(found[bound] for bound in bounds), total=page.total(f"{name}_sum"))


def together(parts: Sequence[Buckets]) -> Buckets:
    """The histograms of several instances as one; those with other bounds than the first are left out."""
    some = [part for part in parts if part.bounds]
    if not some:
        return Buckets()
    same = [part for part in some if part.bounds == some[0].bounds]
    counts = tuple(math.fsum(column) for column in zip(*(part.counts for part in same), strict=True))
    return Buckets(bounds=some[0].bounds, counts=counts, total=math.fsum(part.total for part in same))

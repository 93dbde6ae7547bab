"""The plan's latency limits as service-level objectives: so large a share of requests may be slower, and what Prometheus asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tonnage.deploy.service import Service
from tonnage.deploy.signals import Histogram
from tonnage.plan.limit import Limit

SHARES = {"p50": 0.5, "p90": 0.1, "p95": 0.05, "p99": 0.01}
"""The share of requests that may be slower than a limit, by its statistic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One limit of the plan.

    Attributes:
        limit: as the plan has it.
        histogram: of the engine that shows it.
        stands_in: whether the histogram is one of gaps (ITL) where the limit is on the mean gap of a request (TPOT).
        selector: of the deployment's series, such as 'deployment="x"'.
    """

    limit: Limit
    histogram: Histogram
    stands_in: bool
    selector: str

    @property
    def key(self) -> str:
        """Such as "ttft_p95"."""
        return f"{self.limit.metric}_{self.limit.statistic}"

    @property
    def counted(self) -> str:
        """What the histogram counts."""
        return "gaps between tokens" if self.limit.metric == "itl" or self.stands_in else "requests"

    @property
    def title(self) -> str:
        """The beginning of its alerts' names, such as "SlowTtftP95"."""
        return f"Slow{self.limit.metric.capitalize()}{self.limit.statistic.capitalize()}"

    @property
    def label(self) -> str:
        """Such as "TTFT p95 ≤ 500 ms"."""
        return f"{self.limit.metric.upper()} {self.limit.statistic} ≤ {self.limit.milliseconds:,g} ms"

    @property
    def budget(self) -> float | None:
        """Share of requests that may be slower than the limit; None for a limit on the mean, which is no share."""
        return SHARES.get(self.limit.statistic)

    def slow_share(self, window: str) -> str:
        """PromQL of the share of requests, or of gaps, that were slower than the limit.

        Between the bounds of two buckets the requests are taken to lie evenly, as ``histogram_quantile`` takes them.
        """
        name, seconds = self.histogram.name, self.limit.seconds
        below = max((bound for bound in self.histogram.bounds if bound <= seconds), default=0.0)
        above = min((bound for bound in self.histogram.bounds if bound >= seconds), default=None)
        if above is None:
            fast = self._bucket(below, window)
        elif above == below:
            fast = self._bucket(above, window)
        else:
            share = (seconds - below) / (above - below)
            upper = f"{share:.4g} * {self._bucket(above, window)}"
            fast = upper if below == 0 else f"{1 - share:.4g} * {self._bucket(below, window)} + {upper}"
        return f"1 - ({fast}) / sum(rate({name}_count{{{self.selector}}}[{window}]))"

    def mean(self, window: str) -> str:
        """PromQL of the mean, in seconds."""
        name = self.histogram.name
        return f"sum(rate({name}_sum{{{self.selector}}}[{window}])) / sum(rate({name}_count{{{self.selector}}}[{window}]))"

    def quantile(self, window: str) -> str:
        """PromQL of the limit's own statistic, in seconds."""
        if self.budget is None:
            return self.mean(window)
        name = self.histogram.name
        return f"histogram_quantile({1 - self.budget:g}, sum by (le) (rate({name}_bucket{{{self.selector}}}[{window}])))"

    def _bucket(self, bound: float, window: str) -> str:
        return f'sum(rate({self.histogram.name}_bucket{{{self.selector},le="{bound}"}}[{window}]))'


def objectives(service: Service) -> tuple[Objective, ...]:
    """The limits that count, of which the engine publishes a histogram; the strictest of those with one name."""
    found: dict[str, Objective] = {}
    for one in _all(service):
        if one.key not in found or one.limit.milliseconds < found[one.key].limit.milliseconds:
            found[one.key] = one
    return tuple(found.values())


def _all(service: Service) -> Iterator[Objective]:
    histograms = service.signals.histograms
    selector = f'deployment="{service.name}"'
    for limit in service.plan.scenario.limits_that_count:
        own = histograms.get(limit.metric)
        other = histograms.get("itl") if limit.metric == "tpot" else None
        shown = own or other
        if shown is not None:
            yield Objective(limit=limit, histogram=shown, stands_in=own is None, selector=selector)


# PromQL of the requests that a deployment works on.


def in_flight(service: Service) -> str:
    """Requests in flight over all instances.

    Where the engine has no gauges, they are the seconds that requests took, a second (Little's law), over two minutes.
    """
    signals, at = service.signals, f'deployment="{service.name}"'
    if signals.running:
        return f"sum({signals.running}{{{at}}}) + sum({signals.waiting}{{{at}}})"
    return f"sum(rate({signals.histograms['e2e'].name}_sum{{{at}}}[2m]))"

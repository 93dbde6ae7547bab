"""How sure a plan is: the chance that its systems meet the limits, and how many do at 50, 80 and 95 % confidence.

Method: the step model's error is taken as one unknown factor on every step's time. Its distribution is that of the
held-out errors of the metric that binds (``intervals``): of TTFT where a TTFT limit does, of TPOT or E2E likewise, of
requests/s at saturation. Capacity is found again, limits and all, with steps slower by the factor's 50th, 80th and
95th percentile; the systems follow from it. The chance at the chosen number is that of the factor at which its
instances carry exactly the peak, read between these capacities. A TTFT under load grows faster than its steps, so
taking its error for the steps' is on the safe side. The scatter of a finite run is in it, as the standard error of the
limited latency. Traffic is taken as asked: its own uncertainty is not in this.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tonnage.perf.regime import Regime
    from tonnage.perf.residuals import Residuals

ASKED = (0.5, 0.8, 0.95)

METRICS = {"TTFT": "ttft_ms", "ITL": "itl_ms", "TPOT": "itl_ms", "E2E": "e2e_ms"}
"""Whose errors stand for the step factor, by the first word of what binds; requests/s otherwise."""

BISECTIONS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence:
    """How sure the number of systems is.

    Attributes:
        meets: probability that the chosen number of systems carries the peak inside the limits.
        systems: systems (spare ones included) that do with 50, 80 and 95 % confidence, by percent; None where none does.
        step_factors: the factors on step times that stand for these.
        metric: the column whose held-out errors these are.
    """

    meets: float
    systems: dict[str, int | None]
    step_factors: dict[str, float]
    metric: str

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    def text(self) -> str:
        """In one line."""
        parts = [f"{'none' if n is None else n} at {share} %" for share, n in self.systems.items()]
        return f"P(meets the limits) {self.meets:.0%}; systems at confidence: {', '.join(parts)}"


def confidence(
    *,
    rate: float,
    needed_rate: float,
    binds: str,
    regime: Regime,
    residuals: Residuals,
    rates_at: Callable[[Sequence[float]], Sequence[float]],
    systems_for: Callable[[float], int],
    noise: float = 0.0,
) -> Confidence:
    """How sure the answer is.

    Args:
        rate: requests per second that one instance carries by the prediction.
        needed_rate: what each of the chosen instances must carry at the peak.
        binds: what ends its load, in words that begin with the metric.
        regime: what the prediction is of.
        residuals: held-out errors.
        rates_at: the rate again, with every step so many times as long, for each of several factors; 0 where no load
            meets the limits.
        systems_for: whole systems, spare ones included, when one instance carries a rate above 0.
        noise: standard error of the limited latency in the run that found the rate, as a share of it.
    """
    metric = METRICS.get(binds.split(" ", maxsplit=1)[0].upper(), "requests_s")

    def of_steps(p: float) -> float:
        return residuals.log_error(metric, regime, p) if metric == "requests_s" else -residuals.log_error(metric, regime, 1 - p)

    middle = of_steps(0.5)

    def log_factor(p: float) -> float:
        away = math.hypot(of_steps(p) - middle, noise * NormalDist().inv_cdf(p))
        return middle + math.copysign(away, p - 0.5)

    factors = {p: math.exp(log_factor(p)) for p in ASKED}
    rates = dict(zip(ASKED, rates_at(list(factors.values())), strict=True))
    known = sorted({1.0: rate, **{factors[p]: rates[p] for p in ASKED}}.items())
    most = critical_factor(known, needed_rate)
    return Confidence(
        meets=_probability(log_factor, math.log(most)),
        systems={f"{100 * p:.0f}": systems_for(rates[p]) if rates[p] > 0 else None for p in ASKED},
        step_factors={f"{100 * p:.0f}": round(factors[p], 4) for p in ASKED},
        metric=metric,
    )


def critical_factor(known: list[tuple[float, float]], needed: float) -> float:
    """The step factor at which the rate falls to the needed one, between (factor, rate) pairs in order of the factor.

    Log-linear; beyond the pairs by the nearest two. A rate of 0 counts as reached halfway to it.
    """
    positive = [(math.log(factor), math.log(rate / needed)) for factor, rate in known if rate > 0]
    dead = [math.log(factor) for factor, rate in known if rate <= 0]
    if not positive:
        return known[0][0]
    if len(positive) == 1:
        found = positive[0][0] + positive[0][1]  # a rate that falls as the steps grow
    else:
        pairs = list(pairwise(positive))
        (x0, y0), (x1, y1) = next((pair for pair in pairs if pair[1][1] < 0), pairs[-1])
        slope = min((y1 - y0) / (x1 - x0), -0.5) if x1 > x0 else -1.0
        found = x0 - y0 / slope
    if dead:
        last = max(x for x, _ in positive)
        found = min(found, (last + min(dead)) / 2) if min(dead) > last else found
    return math.exp(found)


def _probability(log_factor: Callable[[float], float], at: float) -> float:
    """The share of the factor's distribution below a value, in whole per mille."""
    low, high = 0.001, 0.999
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if log_factor(middle) <= at else (low, middle)
    return round((low + high) / 2, 3)

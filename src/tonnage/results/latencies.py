"""Mean and percentiles of one latency: the one definition, for candidates, curves and checks."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tonnage.spec.deployment import Statistic
from tonnage.spec.typed_values import FORBID


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Mean and percentiles of one metric, in milliseconds; None where a value is undefined or was not measured."""

    __pydantic_config__ = FORBID

    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None

    def value(self, statistic: Statistic) -> float | None:
        """One of them by its name."""
        found: float | None = getattr(self, statistic)
        return found


def latencies(*, mean: float, p50: float, p90: float, p95: float, p99: float) -> Latencies:
    """The latencies of values in milliseconds that may be NaN: those become None."""
    values = {"mean": mean, "p50": p50, "p90": p90, "p95": p95, "p99": p99}
    return Latencies(**{name: value if math.isfinite(value) else None for name, value in values.items()})

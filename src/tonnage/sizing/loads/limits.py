"""The limits of a question beside the metrics of a run: how far each is used, which one breaks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tonnage.plan.limit import Bound, Breach, limit_of

if TYPE_CHECKING:
    from tonnage.results.metrics import Summary
    from tonnage.spec.deployment import Limit, Slo


def statistic_s(summary: Summary, limit: Limit) -> float:
    """The summary's value of the limited statistic, in seconds; NaN where it is undefined."""
    return summary.statistic_ms(limit.metric, limit.statistic) / 1e3


def strain(summary: Summary, slo: Slo) -> float:
    """The largest ratio of a value to its limit: above 1 a limit is broken; 0 without limits (an undefined value holds)."""
    ratios = (statistic_s(summary, limit) / limit.seconds for limit in slo)
    return max((ratio for ratio in ratios if not math.isnan(ratio)), default=0.0)


def worst_limit(summary: Summary, slo: Slo) -> Limit | None:
    """The limit that is exceeded by the largest factor, or None when all hold (an undefined value holds)."""
    over = [(statistic_s(summary, limit) / limit.seconds, i) for i, limit in enumerate(slo)]
    factor, index = max(((f, -i) for f, i in over if f > 1.0), default=(0.0, 0))
    return slo[-index] if factor else None


def breach(summary: Summary, limit: Limit) -> Breach:
    """The limit with the value that breaks it."""
    return Breach(limit=limit_of(limit), value_ms=1e3 * statistic_s(summary, limit))


def binding_limit(slo: Slo, binds: Bound | None) -> Limit | None:
    """The limit of the question that ends a load; None where something else does."""
    return next((limit for limit in slo if binds is not None and binds.limit == limit_of(limit)), None)

"""How many samples a percentile needs, and between which samples it lies.

The number of samples above the true p-quantile is binomial. A percentile can be bounded from above at a confidence c only
if the chance that all n samples lie below it is at most 1 − c: pⁿ ≤ 1 − c. For p99 at 0.99 that is 459 samples, the
count that MLPerf LoadGen's early stopping asks for (``loadgen/early_stopping.cc``, tolerance 0).
"""

from __future__ import annotations

import math

CONFIDENCE = 0.99


def needed(percentile: float, confidence: float = CONFIDENCE) -> int:
    """Samples that a percentile needs, such as 459 for 99.

    Args:
        percentile: above 0 and below 100.
        confidence: above 0 and below 1.
    """
    share = max(percentile, 100 - percentile) / 100
    return math.ceil(math.log(1 - confidence) / math.log(share))


def rank_interval(count: int, percentile: float, confidence: float = CONFIDENCE) -> tuple[int, int] | None:
    """Ranks (from 0) of the two sorted samples that hold the true percentile between them; None where there are too few.

    At most (1 − c) / 2 of the chance lies on either side.
    """
    import numpy as np

    if not count:
        return None
    p, tail = percentile / 100, (1 - confidence) / 2
    k = np.arange(count + 1)
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, count + 1)))])
    pmf = np.exp(logs[-1] - logs[k] - logs[count - k] + k * math.log(p) + (count - k) * math.log1p(-p))
    below = np.cumsum(pmf)
    low = int(np.searchsorted(below, tail, side="right")) - 1
    high = int(np.searchsorted(below, 1 - tail, side="left"))
    return (low, high) if low >= 0 and high < count else None

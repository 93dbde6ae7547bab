"""How sure a statistic is: a bootstrap over blocks of time, since neighbouring requests share the server's state.

The run is cut into blocks of neighbouring requests, blocks are drawn with replacement until there are as many, and the
statistic is taken again; the interval is between quantiles of what comes out (Künsch, "The jackknife and the
bootstrap for general stationary observations", Annals of Statistics 17, 1989: here with blocks that do not overlap).

The number of samples above the true p-quantile is binomial. A percentile can be bounded from above at a confidence c only if the chance
that all n samples are below it is at most 1 − c: pⁿ ≤ 1 − c. For p99 at 0.99 that is 459 samples, the count that MLPerf LoadGen's early
stopping asks for (``loadgen/early_stopping.cc``, tolerance 0).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tonnage.results.metrics import student_t
from tonnage.results.requests import COMPLETED, Requests

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


CONFIDENCE = 0.95
BLOCKS = 30
FEWEST_BLOCKS = 8
BLOCK_REQUESTS = 5
"""Requests of a block at least."""

DRAWS = 200

STATISTICS = ("mean", "p50", "p95", "p99")


def block_draws(values: NDArray[np.float64], *, seed: int) -> NDArray[np.float64] | None:
    """Mean, p50, p95 and p99 of each draw of blocks, float64 of shape (DRAWS, 4); None where there are too few values.

    ``values`` are one for each request, in the order of time. The draws are spread about the statistics of the values themselves as widely
    as Student's t asks for, since the spread of B block means is known from B values only.
    """
    import numpy as np

    count = min(BLOCKS, values.size // BLOCK_REQUESTS)
    if count < FEWEST_BLOCKS:
        return None
    blocks = np.array_split(values, count)
    rng = np.random.default_rng(seed)
    draws = np.array([statistics(np.concatenate([blocks[i] for i in places])) for places in rng.integers(0, count, (DRAWS, count))])
    return widened(draws, statistics(values), count)


def widened(draws: NDArray[np.float64], middle: NDArray[np.float64], blocks: int) -> NDArray[np.float64]:
    """Draws (float64 of (draws, statistics)) spread about the statistics of all values as widely as Student's t asks for."""
    found: NDArray[np.float64] = middle + (draws - middle) * (student_t(0.975, blocks - 1) / _NORMAL)
    return found


def block_intervals(values: NDArray[np.float64], *, seed: int) -> dict[str, tuple[float, float]]:
    """Between which values mean, p50, p95 and p99 lie with a confidence of 0.95; NaN where there are too few values for blocks."""
    import numpy as np

    draws = block_draws(values, seed=seed)
    if draws is None:
        return dict.fromkeys(STATISTICS, (math.nan, math.nan))
    low, high = np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
    return {name: (float(low[k]), float(high[k])) for k, name in enumerate(STATISTICS)}


def statistics(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean, p50, p95 and p99, in the order of ``STATISTICS``."""
    import numpy as np

    return np.array([values.mean(), *np.percentile(values, (50, 95, 99))])


_NORMAL = 1.959964


def latencies_ms(requests: Requests) -> dict[str, NDArray[np.float64]]:
    """TTFT, TPOT and E2E of the completed requests in milliseconds, in the order of their due times."""
    import numpy as np

    rows = np.flatnonzero(requests.status == COMPLETED)
    rows = rows[np.argsort(requests.due_ns[rows], kind="stable")]
    due, first, last, osl = requests.due_ns[rows], requests.first_token_ns[rows], requests.last_token_ns[rows], requests.osl[rows]
    several = osl > 1
    return {
        "ttft_ms": (first - due) / 1e6,
        "tpot_ms": (last - first)[several] / np.maximum(osl[several] - 1, 1) / 1e6,
        "e2e_ms": (last - due) / 1e6,
    }


def intervals(requests: Requests, *, seed: int = 0) -> dict[str, dict[str, tuple[float, float]]]:
    """Intervals of the mean, p50, p95 and p99 of TTFT, TPOT and E2E in milliseconds, at a confidence of 0.95."""
    return {metric: block_intervals(values, seed=seed) for metric, values in latencies_ms(requests).items()}


SAMPLES_CONFIDENCE = 0.99


def needed(percentile: float, confidence: float = SAMPLES_CONFIDENCE) -> int:
    """Samples that a percentile (above 0, below 100) needs at a confidence (above 0, below 1), such as 459 for 99."""
    share = max(percentile, 100 - percentile) / 100
    return math.ceil(math.log(1 - confidence) / math.log(share))


def rank_interval(count: int, percentile: float, confidence: float = SAMPLES_CONFIDENCE) -> tuple[int, int] | None:
    """Ranks (from 0) of the two sorted samples that hold the true percentile between them; None where there are too few.

    At most (1 − c) / 2 of the chance is on either side.
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

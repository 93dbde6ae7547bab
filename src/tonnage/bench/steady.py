"""The steady state of a run, by the latencies in the order of arrival in ten blocks, and the metrics over it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tonnage.results.requests import COMPLETED, Requests

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.bench.gaps import SingleGaps


BLOCKS = 10
MOST_LEFT_OUT = 5
"""Blocks at the beginning that may belong to the start of the run."""

FEWEST = 50
"""Completed requests below which nothing is said."""

DRIFT = 0.2
"""Change over the window, as a share of its mean, that is no longer steady."""

SURE = 3.0
"""Standard errors by which a drift must stand out."""

DEVIATION = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""

RISING = 5.0
"""Standard errors by which a rise of TTFT must stand out: seven blocks leave five degrees of freedom, one in 400 by chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """Where a run is steady.

    Attributes:
        found: whether it is anywhere; None where there are too few requests to say.
        start_s, end_s: the window, in seconds of the run, by due time; NaN where there is none.
        drift: change of the mean E2E over the window, or over the second half of the run where there is none, as a share.
    """

    found: bool | None
    start_s: float = math.nan
    end_s: float = math.nan
    drift: float = math.nan


def find_steady(requests: Requests) -> Steady:
    """The longest window up to the end of the run in which E2E does not drift.

    The first blocks are left out one by one, up to half of the run, until the first that is left is like the others and a
    straight line through the block means neither rises nor falls by more than ``DRIFT``, or does so by less than ``SURE``
    standard errors.
    """
    import numpy as np

    rows = np.flatnonzero(requests.status == COMPLETED)
    if rows.size < FEWEST:
        return Steady(found=None)
    order = rows[np.argsort(requests.due_ns[rows], kind="stable")]
    blocks = np.array_split(order, BLOCKS)
    means = np.array([(requests.last_token_ns[b] - requests.due_ns[b]).mean() for b in blocks])
    drift = math.nan
    for left_out in range(MOST_LEFT_OUT + 1):
        drift, errors = _trend(means[left_out:])
        if (abs(drift) <= DRIFT or errors < SURE) and not _stands_out(means[left_out:]):
            start, end = (int(requests.due_ns[i]) / 1e9 for i in (blocks[left_out][0], order[-1]))
            return Steady(found=True, start_s=start, end_s=end, drift=drift)
    return Steady(found=False, drift=drift)


def ttft_rise_ms(requests: Requests) -> float:
    """By how much TTFT rose over the last seven tenths of a run, in milliseconds; 0 where that does not stand out.

    A queue that grows slowly may not yet have broken a limit when a short run ends: its rise shows that it would.
    """
    import numpy as np

    rows = np.flatnonzero(requests.status == COMPLETED)
    if rows.size < FEWEST:
        return 0.0
    order = rows[np.argsort(requests.due_ns[rows], kind="stable")]
    blocks = np.array_split(order, BLOCKS)[3:]
    means = np.array([(requests.first_token_ns[b] - requests.due_ns[b]).mean() for b in blocks])
    drift, errors = _trend(means)
    return max(drift * float(means.mean()) / 1e6, 0.0) if errors >= RISING else 0.0


def _stands_out(means: NDArray[np.float64]) -> bool:
    """Whether the first block is far from the median of the others, by their median deviation: later blocks may belong to the start too."""
    import numpy as np

    others = means[1:]
    middle = float(np.median(others))
    off, spread = abs(float(means[0]) - middle), DEVIATION * float(np.median(np.abs(others - middle)))
    return off > DRIFT * middle and off > SURE * spread


def _trend(means: NDArray[np.float64]) -> tuple[float, float]:
    """Rise of a straight line over its length as a share of the mean, and in how many standard errors."""
    import numpy as np

    x = np.arange(means.size) - (means.size - 1) / 2
    slope = float((x * means).sum() / (x * x).sum())
    rest = means - means.mean() - slope * x
    error = math.sqrt(float((rest * rest).sum()) / max(means.size - 2, 1) / float((x * x).sum()))
    drift = slope * (means.size - 1) / float(means.mean())
    return drift, abs(slope) / error if error > 0 else math.inf


DEFINITION = "requests due in the window; rates count the requests that end in it and their output tokens, over its length"


def steady_metrics(requests: Requests, steady: Steady, gaps: SingleGaps | None) -> dict[str, Any] | None:
    """TTFT, TPOT, E2E and ITL in milliseconds, and the rates, over the steady window; None without one, and ITL out without ``gaps``."""
    import numpy as np

    if not steady.found:
        return None
    start, end = round(steady.start_s * 1e9), round(steady.end_s * 1e9)
    completed = requests.status == COMPLETED
    inside = completed & (requests.due_ns >= start) & (requests.due_ns <= end)
    ended = completed & (requests.last_token_ns >= start) & (requests.last_token_ns <= end)
    seconds = (end - start) / 1e9
    if not inside.any() or seconds <= 0:
        return None
    due, first, last, osl = (getattr(requests, name)[inside] for name in ("due_ns", "first_token_ns", "last_token_ns", "osl"))
    several = osl > 1
    return {
        "start_s": steady.start_s,
        "end_s": steady.end_s,
        "requests": int(inside.sum()),
        "ttft_ms": _statistics((first - due) / 1e6),
        "tpot_ms": _statistics((last - first)[several] / np.maximum(osl - 1, 1)[several] / 1e6),
        "e2e_ms": _statistics((last - due) / 1e6),
        **({} if gaps is None else {"itl_ms": gaps.of(inside).statistics()}),
        "requests_per_second": float(ended.sum()) / seconds,
        "output_tokens_per_second": float(requests.osl[ended].sum()) / seconds,
        "definition": DEFINITION,
    }


def _statistics(values: NDArray[np.float64]) -> dict[str, float | None]:
    import numpy as np

    if not values.size:
        return dict.fromkeys(("mean", "p50", "p90", "p95", "p99"))
    p50, p90, p95, p99 = map(float, np.percentile(values, (50, 90, 95, 99)))
    return {"mean": float(values.mean()), "p50": p50, "p90": p90, "p95": p95, "p99": p99}

"""Whether a run came to a steady state, and where: latencies by the order of arrival, in ten blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tonnage.results.requests import COMPLETED, Requests

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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
    """Whether the first block belongs to the start of the run: far from the median of the others, by their own spread too.

    Median and median deviation, since the blocks after the first may belong to the start as well.
    """
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

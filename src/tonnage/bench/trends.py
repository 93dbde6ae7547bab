"""What latencies depend on: TTFT on the length of the prompt, single gaps on the position in the output.

These are the two numbers that NVIDIA's course on sizing reads off GenAI-Perf's plots, as slopes of straight lines, and the lengths
that an engine must be built for.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tonnage.results.requests import COMPLETED, POSITION_BUCKETS, Requests, gap_edges_ns

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FEWEST = 20
"""Completed requests below which no line is drawn."""

DEFINITIONS = {
    "ttft_ms_per_1000_prompt_tokens": "slope of a straight line through TTFT over prompt tokens, by least squares over the requests",
    "itl_ms_per_1000_output_tokens": "slope of a straight line through the mean gap over the output position, weighted by the gaps",
    "limits_tokens": "99th percentile of prompt tokens, of output tokens and of their sum: what an engine is to be built for",
}


def trends(requests: Requests) -> dict[str, Any]:
    """Slopes with their standard errors, and the lengths; None where all lengths are alike or requests are too few."""
    import numpy as np

    rows = np.flatnonzero(requests.status == COMPLETED)
    if rows.size < FEWEST:
        return {"ttft_ms_per_1000_prompt_tokens": None, "itl_ms_per_1000_output_tokens": None, "limits_tokens": None}
    isl, osl = requests.isl[rows], requests.osl[rows]
    ttft = (requests.first_token_ns[rows] - requests.due_ns[rows]) / 1e6
    used = requests.gaps.any(axis=1)
    counts = requests.gaps[used].sum(axis=1).astype("float64")
    positions, gaps_ms = positions_of_gaps(osl)[used], (requests.gaps[used] * (gap_edges_ns() * 1.005 / 1e6)).sum(axis=1) / counts
    return {
        "ttft_ms_per_1000_prompt_tokens": _line(isl / 1e3, ttft, np.ones(rows.size)),
        "itl_ms_per_1000_output_tokens": _line(positions / 1e3, gaps_ms, counts),
        "limits_tokens": {
            "prompt_p99": float(np.percentile(isl, 99)),
            "output_p99": float(np.percentile(osl, 99)),
            "sum_p99": float(np.percentile(isl + osl, 99)),
        },
    }


def positions_of_gaps(osl: NDArray[np.int64]) -> NDArray[np.float64]:
    """The mean output position of the gaps of each bucket, float64 of ``POSITION_BUCKETS``; its middle where it holds none.

    Outputs end inside a bucket, so that its gaps are before its middle.
    """
    import numpy as np

    found = np.empty(POSITION_BUCKETS)
    for bucket in range(POSITION_BUCKETS):
        low, high = 2**bucket, 2 ** (bucket + 1) - 1
        last = np.minimum(osl[osl > low] - 1, high).astype(np.float64)
        held = last - low + 1
        found[bucket] = float(((low + last) / 2 * held).sum() / held.sum()) if last.size else (low + high) / 2
    return found


def _line(x: NDArray[np.float64], y: NDArray[np.float64], weights: NDArray[np.float64]) -> dict[str, float] | None:
    """Slope, its standard error, and the value at 0; None where x does not vary."""
    if x.size < 3:
        return None
    total = float(weights.sum())
    middle, level = float((weights * x).sum()) / total, float((weights * y).sum()) / total
    spread = float((weights * (x - middle) ** 2).sum())
    if spread <= 0 or float(x.max() - x.min()) < 0.01 * max(abs(middle), 1e-9):
        return None
    slope = float((weights * (x - middle) * (y - level)).sum()) / spread
    rest = y - level - slope * (x - middle)
    error = math.sqrt(float((weights * rest * rest).sum()) / total * x.size / (x.size - 2) / (spread / total * x.size))
    return {"slope": slope, "standard_error": error, "at_zero": level - slope * middle}

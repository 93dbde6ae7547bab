"""The steady state of a run, by the latencies in the order of arrival in ten blocks, and what
latencies depend on.

The slopes of TTFT over prompt tokens and of single gaps over the position in the output are the two
numbers that NVIDIA's course on sizing reads off GenAI-Perf's plots.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tonnage.bench.intervals import SingleGaps, completed_rows, latencies_ms, percentiles
from tonnage.results.requests import COMPLETED, POSITION_BUCKETS, Requests, gap_edges_ns

FEWEST_OF_TREND = 20  # Completed requests below which no line is drawn

DEFINITIONS = {
    "ttft_ms_per_1000_prompt_tokens": (
        "slope of a straight line through TTFT over prompt tokens, by least squares over the"
        " requests"
    ),
    "itl_ms_per_1000_output_tokens": (
        "slope of a straight line through the mean gap over the output position, weighted by the"
        " gaps"
    ),
    "limits_tokens": (
        "99th percentile of prompt tokens, of output tokens and of their sum: what an engine is to"
        " be built for"
    ),
}


def trends(requests: Requests) -> dict[str, Any]:
    """Slopes with their standard errors, and the lengths; None where all lengths are alike or
    requests are too few.
    """
    rows = np.flatnonzero(requests.status == COMPLETED)
    if rows.size < FEWEST_OF_TREND:
        return {
            "ttft_ms_per_1000_prompt_tokens": None,
            "itl_ms_per_1000_output_tokens": None,
            "limits_tokens": None,
        }
    isl, osl = requests.isl[rows], requests.osl[rows]
    ttft = (requests.first_token_ns[rows] - requests.due_ns[rows]) / 1e6
    used = requests.gaps.any(axis=1)
    counts = requests.gaps[used].sum(axis=1).astype("float64")
    positions, gaps_ms = (
        positions_of_gaps(osl)[used],
        (requests.gaps[used] * (gap_edges_ns() * 1.005 / 1e6)).sum(axis=1) / counts,
    )
    return {
        "ttft_ms_per_1000_prompt_tokens": _line(isl / 1e3, ttft, np.ones(rows.size)),
        "itl_ms_per_1000_output_tokens": _line(positions / 1e3, gaps_ms, counts),
        "limits_tokens": {
            "prompt_p99": float(np.percentile(isl, 99)),
            "output_p99": float(np.percentile(osl, 99)),
            "sum_p99": float(np.percentile(isl + osl, 99)),
        },
    }


def positions_of_gaps(osl: np.typing.NDArray[np.int64]) -> np.typing.NDArray[np.float64]:
    """The mean output position of the gaps of each bucket, float64 of ``POSITION_BUCKETS``: outputs
    end inside of one.
    """
    positions = np.empty(POSITION_BUCKETS)
    for bucket in range(POSITION_BUCKETS):
        low, high = 2**bucket, 2 ** (bucket + 1) - 1
        last = np.minimum(osl[osl > low] - 1, high).astype(np.float64)
        gaps = last - low + 1
        positions[bucket] = (
            float(((low + last) / 2 * gaps).sum() / gaps.sum()) if last.size else (low + high) / 2
        )
    return positions


def _line(
    x: np.typing.NDArray[np.float64],
    y: np.typing.NDArray[np.float64],
    weights: np.typing.NDArray[np.float64],
) -> dict[str, float] | None:
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
    error = math.sqrt(
        float((weights * rest * rest).sum())
        / total
        * x.size
        / (x.size - 2)
        / (spread / total * x.size)
    )
    return {"slope": slope, "standard_error": error, "at_zero": level - slope * middle}


BLOCKS = 10
MOST_LEFT_OUT = 5  # Blocks at the beginning that may belong to the start of the run
FEWEST = 50  # Completed requests below which there is no statement
DRIFT = 0.2  # Change over the window, as a share of its mean, that is no longer steady
SURE = 3.0  # Standard errors by which a drift must stand out
DEVIATION = 1.4826  # Standard deviation of a normal distribution over its median absolute deviation
# Standard errors by which a rise of TTFT must stand out: seven blocks leave five degrees of
# freedom, one in 400 by chance
RISING = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """The steady window of a run."""

    found: bool | None  # whether it is anywhere; None where there are too few requests to say
    # and end_s: the window, in seconds of the run, by due time; NaN where there is none
    start_s: float = math.nan
    end_s: float = math.nan
    # change of the mean E2E over the window, or over the second half of the run where there is
    # none, as a share
    drift: float = math.nan


def find_steady(requests: Requests) -> Steady:
    """The longest window up to the end of the run in which E2E does not drift.

    The first blocks are left out one by one, up to half of the run, until the first that is left is
    like the others and a straight line through the block means neither rises nor falls by more than
    ``DRIFT``, or does so by less than ``SURE`` standard errors.
    """
    order = completed_rows(requests)
    if order.size < FEWEST:
        return Steady(found=None)
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
    """Rise of TTFT over the last seven tenths of a run, in ms; 0 where it is not significant. It
    shows a queue that grows slowly.
    """
    order = completed_rows(requests)
    if order.size < FEWEST:
        return 0.0
    blocks = np.array_split(order, BLOCKS)[3:]
    means = np.array([(requests.first_token_ns[b] - requests.due_ns[b]).mean() for b in blocks])
    drift, errors = _trend(means)
    return max(drift * float(means.mean()) / 1e6, 0.0) if errors >= RISING else 0.0


def _stands_out(means: np.typing.NDArray[np.float64]) -> bool:
    """Whether the first block is far from the median of the others, by their median deviation:
    later blocks may belong to the start too.
    """
    later_means = means[1:]
    middle = float(np.median(later_means))
    off, spread = (
        abs(float(means[0]) - middle),
        DEVIATION * float(np.median(np.abs(later_means - middle))),
    )
    return off > DRIFT * middle and off > SURE * spread


def _trend(means: np.typing.NDArray[np.float64]) -> tuple[float, float]:
    """Rise of a straight line over its length as a share of the mean, and in how many standard
    errors.
    """
    x = np.arange(means.size) - (means.size - 1) / 2
    slope = float((x * means).sum() / (x * x).sum())
    rest = means - means.mean() - slope * x
    error = math.sqrt(float((rest * rest).sum()) / max(means.size - 2, 1) / float((x * x).sum()))
    drift = slope * (means.size - 1) / (float(means.mean()) or 1.0)  # latencies of 0 do not rise
    return drift, abs(slope) / error if error > 0 else math.inf


DEFINITION = (
    "requests due in the window; rates count the requests that end in it and their output tokens,"
    " over its length"
)


def steady_metrics(
    requests: Requests, steady: Steady, gaps: SingleGaps | None
) -> dict[str, Any] | None:
    """TTFT, TPOT, E2E and ITL in milliseconds, and the rates, over the steady window; None without
    one, and ITL out without ``gaps``.
    """
    if not steady.found:
        return None
    start, end = round(steady.start_s * 1e9), round(steady.end_s * 1e9)
    completed = requests.status == COMPLETED
    inside = completed & (requests.due_ns >= start) & (requests.due_ns <= end)
    ended = completed & (requests.last_token_ns >= start) & (requests.last_token_ns <= end)
    seconds = (end - start) / 1e9
    if not inside.any() or seconds <= 0:
        return None
    return {
        "start_s": steady.start_s,
        "end_s": steady.end_s,
        "requests": int(inside.sum()),
        **{
            metric: percentiles(values)
            for metric, values in latencies_ms(requests, np.flatnonzero(inside)).items()
        },
        **({} if gaps is None else {"itl_ms": gaps.of(inside).statistics()}),
        "requests_per_second": float(ended.sum()) / seconds,
        "output_tokens_per_second": float(requests.osl[ended].sum()) / seconds,
        "definition": DEFINITION,
    }

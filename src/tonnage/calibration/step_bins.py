"""The steps of a simulated run, gathered into bins, so that its metrics are weighted sums of step times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tonnage.results.requests import COMPLETED
from tonnage.simulator import steps as record
from tonnage.units import PS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.results.requests import Requests
    from tonnage.simulator.steps import StepRecord

    Floats = NDArray[np.float64]

NEAR_P95 = 0.03
"""Requests whose TTFT is within this share of the 95th percentile stand for it."""

BIN = 1 << 14
"""More than any count of sequences in a step, so that (P, n, B) packs into one integer."""


@dataclass(frozen=True, slots=True)
class Bins:
    """The steps of one simulated row, gathered into bins of equal prefill tokens P, prefill sequences n and decode sequences B.

    Attributes:
        shape: int64 (3, bins): P, n and B of each bin.
        weights: float64 (4, 3, bins): for each of four spans (TTFT, decode time, the whole run, the p95 TTFT) the number of steps, the sum
            of their attention pairs A and the sum of their context tokens C, per request.
        rest: float64 (4,): seconds of each span that are no whole step: an idle engine, or the rest of the step that ran when the request
            arrived.
        metrics: what the simulation itself gave, by column.
    """

    shape: NDArray[np.int64]
    weights: Floats
    rest: Floats
    metrics: dict[str, float]


def gather(run: Requests, log: StepRecord, metrics: dict[str, float]) -> Bins:
    """Gather the steps of a run into bins."""
    steps = log.steps
    count = len(steps)
    done = np.flatnonzero(run.status == COMPLETED)
    ends = (steps[:, record.START] + steps[:, record.DURATION]) // 1000
    sent = np.searchsorted(ends, run.due_ns, side="right")  # steps that had ended when the request came
    ttft = (run.first_token_ns - run.due_ns)[done] / 1e9
    decode = (run.last_token_ns - run.first_token_ns)[done] / 1e9
    p95 = metrics["ttft_p95_ms"] / 1e3
    near = done[np.abs(ttft - p95) <= max(NEAR_P95 * p95, float(np.abs(ttft - p95).min()))]
    whole = np.zeros(count)
    whole[: int(log.last_step[done].max()) + 1] = 1.0
    first, last = log.first_step + 1, log.last_step + 1
    spans = [_share(sent[done], first[done], count), _share(first[done], last[done], count), whole, _share(sent[near], first[near], count)]
    seconds = steps[:, record.DURATION] / PS_PER_S
    near_ttft = float((run.first_token_ns - run.due_ns)[near].mean()) / 1e9
    actual = np.array([ttft.mean(), decode.mean(), _along(whole, seconds), near_ttft])
    packed = (steps[:, record.PREFILL_TOKENS] * BIN + steps[:, record.PREFILL_SEQUENCES]) * BIN + steps[:, record.DECODE_SEQUENCES]
    _, index, inverse = np.unique(packed, return_index=True, return_inverse=True)
    columns = (record.PREFILL_TOKENS, record.PREFILL_SEQUENCES, record.DECODE_SEQUENCES)
    factors = (np.ones(count), steps[:, record.PAIRS_2] / 2, steps[:, record.CONTEXT_TOKENS].astype(float))
    weights = np.array([[np.bincount(inverse, span * factor) for factor in factors] for span in spans])
    rest = actual - np.array([_along(span, seconds) for span in spans])
    return Bins(np.array([steps[index, i] for i in columns]), weights, rest, metrics)


def _share(begin: NDArray[np.int64], end: NDArray[np.int64], count: int) -> Floats:
    """The share of the spans [begin, end) that cover each step."""
    edges = np.bincount(begin, minlength=count + 1)[: count + 1] - np.bincount(end, minlength=count + 1)[: count + 1]
    return np.asarray(edges.cumsum()[:count] / len(begin))


def _along(span: Floats, seconds: Floats) -> float:
    """The seconds of a span. A sum and no dot product: BLAS would start threads of its own, whose spinning costs more than a simulation."""
    return float((span * seconds).sum())

"""Arrivals and lengths of a simulated run whose sums are exact, so that a short run says as much as a far longer one.

Draws of a few thousand requests miss the rate that was asked for, and the mean length, by 2 % or so, and the load that an instance is
found to carry by as much. Here the gaps of a run add up to the requests over the rate, and the lengths are every sixteenth of sixteen
times as many in order of size, or evenly apart where all of a range are as likely; then they are shuffled. Gaps and lengths of a run come
from its seed and number of requests alone: at another rate the same gaps are stretched.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tonnage.spec.workload import OpenLoop, Trace, Workload, unit_gaps
from tonnage.units import LONGEST_S, PS_PER_S

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.spec.lengths import Lengths, Pairs

OVERDRAWN = 16
"""Lengths that are drawn for each that is used."""

KEPT = 64
"""Runs whose draws are kept."""


def balanced_trace(workload: Workload, arrivals: OpenLoop, seed: int) -> Trace:
    """The requests of an open loop; one that lasts longer than a simulated run may is cut to a stretch that fits, and not balanced."""
    import numpy as np

    count, picoseconds = workload.requests, PS_PER_S / arrivals.rate
    if count * picoseconds > LONGEST_S * PS_PER_S:
        return workload.trace(seed, stretch=True)
    due = np.rint(_unit_arrivals(arrivals.process, arrivals.cv, count, seed) * picoseconds).astype(np.int64)
    isl, osl = _lengths(workload.isl, workload.osl, workload.pairs, count, seed)
    return Trace(due_ps=due, isl=isl, osl=osl, concurrency=0, turnaround_ps=0, seed=seed)


@lru_cache(maxsize=KEPT)
def _unit_arrivals(process: str, cv: float, count: int, seed: int) -> NDArray[np.float64]:
    """When each request comes at one a second; the last comes after ``count`` seconds."""
    import numpy as np

    gaps = unit_gaps(OpenLoop(rate=1.0, process=process, cv=cv), count, np.random.default_rng([seed, 0]))  # type: ignore[arg-type]
    at = gaps.cumsum()
    return np.asarray(at * (count / at[-1]))


@lru_cache(maxsize=KEPT)
def _lengths(isl: Lengths, osl: Lengths, pairs: Pairs | None, count: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Prompts and outputs, in columns."""
    import numpy as np

    order = np.random.default_rng([seed, 1])
    if pairs is not None:
        drawn = pairs.draw(OVERDRAWN * count, np.random.default_rng([seed, 2]))
        chosen = order.permutation(_every(np.argsort(drawn[0] + drawn[1], kind="stable")))
        return drawn[0][chosen], drawn[1][chosen]
    columns = (_in_order(lengths, count, np.random.default_rng([seed, 2 + i])) for i, lengths in enumerate((isl, osl)))
    prompts, outputs = (order.permutation(column) for column in columns)
    return prompts, outputs


def _in_order(lengths: Lengths, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """So many lengths from the shortest to the longest; those of a range are evenly apart, and need no draws."""
    import numpy as np

    if lengths.kind != "uniform":
        return _every(np.sort(lengths.draw(OVERDRAWN * count, rng)))
    half = lengths.std * 3.0**0.5
    apart = lengths.mean + half * ((2 * np.arange(count) + 1) / count - 1)
    return np.asarray(np.maximum(np.rint(apart), 1).astype(np.int64))


def _every(column: NDArray[np.int64]) -> NDArray[np.int64]:
    return column[OVERDRAWN // 2 :: OVERDRAWN]

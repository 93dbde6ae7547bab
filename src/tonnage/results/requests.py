"""The record of a run holds one row per request, and next to the rows a histogram of the gaps
between tokens.

Simulated and measured runs leave the same record. Times are int64 nanoseconds since the start of
the run; -1 where it did not happen.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Relative width of one bin of the gap histogram, which is the error of any gap percentile
GAP_BIN_WIDTH = 0.01

GAP_FLOOR_NS = 1_000  # Gaps below one microsecond share the first bin

GAP_BINS = 2_400  # Bins of 1 % from one microsecond reach 6.5 hours

# Bucket b holds the gaps after output tokens 2**b to 2**(b+1) - 1, counted from 1
POSITION_BUCKETS = 24

COMPLETED = 0
REJECTED = 1
UNFINISHED = 2
FAILED = 3
STATUS_NAMES = ("completed", "rejected", "unfinished", "failed")


@cache
def gap_edges_ns() -> NDArray[np.int64]:
    """Lower edges of the gap bins in nanoseconds, int64 of ``GAP_BINS``; the first is 0. One array
    for all, which cannot be written.
    """
    import numpy as np

    edges: NDArray[np.int64] = np.rint(
        GAP_FLOOR_NS * (1.0 + GAP_BIN_WIDTH) ** np.arange(GAP_BINS)
    ).astype(np.int64)
    edges[0] = 0
    edges.setflags(write=False)
    return edges


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """Turns and calls of the requests of sessions."""

    session: NDArray[np.int64]  # the number of each one's session
    first: NDArray[np.bool_]  # whether it is the session's first
    # how long its answer takes where the session is the only one; -1 where that does not compare
    alone_ns: NDArray[np.int64]

    def some(self, rows: slice | NDArray[np.int64]) -> Turns:
        """Select the turns of some requests."""
        return Turns(
            session=self.session[rows], first=self.first[rows], alone_ns=self.alone_ns[rows]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """One row per request, row number = id, and the histogram of all single gaps."""

    due_ns: NDArray[np.int64]  # when the request was due to be sent (open loop: its scheduled time)
    sent_ns: NDArray[np.int64]  # when it was sent
    # first_token_ns, last_token_ns: when these reached the client; -1 if never
    first_token_ns: NDArray[np.int64]
    last_token_ns: NDArray[np.int64]
    # isl, osl: prompt tokens, and output tokens received
    isl: NDArray[np.int64]
    osl: NDArray[np.int64]
    cached_tokens: NDArray[np.int64]  # prompt tokens found in a prefix cache
    instance: NDArray[np.int32]  # which instance served it; -1 if none
    status: NDArray[np.int8]  # index into ``STATUS_NAMES``
    preemptions: NDArray[np.int32]  # how often it lost its KV blocks
    # int64 of shape (POSITION_BUCKETS, GAP_BINS): counts of single gaps between consecutive output
    # tokens, by bucket of output position and by bin of ``gap_edges_ns``
    gaps: NDArray[np.int64]
    # the run's end as far as rates are concerned: requests that completed in [0, window_ns] count;
    # -1 for the whole run
    window_ns: int = -1
    # the place of each in the trace, of a simulated engine whose requests are sent in another
    # order; None elsewhere
    row: NDArray[np.int64] | None = None
    turns: Turns | None = None  # whose session each is of, in sizings of sessions; None elsewhere
    # when the prompt of each began to be computed, -1 where no token came of it; None of measured
    # runs
    admitted_ns: NDArray[np.int64] | None = None
    # when the prefill pool had computed it; None where there are no two pools
    prefilled_ns: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        """Number of requests."""
        return len(self.isl)

    def some(self, rows: slice | NDArray[np.int64]) -> Requests:
        """Select some requests; the gaps stay those of all."""
        there = [
            name for name in (*ROW_COLUMNS, *SIMULATED_COLUMNS) if getattr(self, name) is not None
        ]
        turns = None if self.turns is None else self.turns.some(rows)
        return replace(self, **{name: getattr(self, name)[rows] for name in there}, turns=turns)


# What there is of every request in some simulated runs
SIMULATED_COLUMNS = ("row", "admitted_ns", "prefilled_ns")

# What there is of every request
ROW_COLUMNS = tuple(
    part.name
    for part in fields(Requests)
    if part.name not in ("gaps", "window_ns", "turns", *SIMULATED_COLUMNS)
)

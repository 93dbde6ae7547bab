"""The record of an engine's requests."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tonnage.results.requests import COMPLETED, GAP_BINS, POSITION_BUCKETS, REJECTED, UNFINISHED, Requests, gap_edges_ns
from tonnage.simulator.reference.job import Job
from tonnage.simulator.request import CANCELLED
from tonnage.units import PS_PER_NS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# The histogram of single gaps between tokens.


class Gaps:
    """The histogram of single gaps: whole nanoseconds, rounded down, by output position and bin."""

    def __init__(self) -> None:
        """Start with nothing counted."""
        self.edges = gap_edges_ns().tolist()
        self.counts: dict[tuple[int, int], int] = {}

    def add(self, position: int, gap_ps: int) -> None:
        """Count the gap after output token ``position``, counted from 1."""
        bucket = min(position.bit_length() - 1, POSITION_BUCKETS - 1)
        place = bucket, bisect.bisect_right(self.edges, gap_ps // PS_PER_NS) - 1
        self.counts[place] = self.counts.get(place, 0) + 1

    def table(self) -> NDArray[np.int64]:
        """Counts of shape (POSITION_BUCKETS, GAP_BINS)."""
        import numpy as np

        table = np.zeros((POSITION_BUCKETS, GAP_BINS), np.int64)
        for place, count in self.counts.items():
            table[place] = count
        return table


def requests_of(jobs: Sequence[Job], gaps: Gaps, window_ps: int) -> Requests:
    """What has happened to requests, one row each; a cancelled one is unfinished."""
    import numpy as np

    def column(values: list[int]) -> NDArray[np.int64]:
        return np.array(values, dtype=np.int64)

    due = column([job.due // PS_PER_NS for job in jobs])
    return Requests(
        due_ns=due,
        sent_ns=due.copy(),
        first_token_ns=column([job.first_token // PS_PER_NS for job in jobs]),
        last_token_ns=column([job.last_token // PS_PER_NS if job.status == COMPLETED else -1 for job in jobs]),
        isl=column([job.isl for job in jobs]),
        osl=column([job.generated for job in jobs]),
        cached_tokens=column([job.cached for job in jobs]),
        instance=column([-1 if job.status == REJECTED else 0 for job in jobs]).astype(np.int32),
        status=column([UNFINISHED if job.status == CANCELLED else job.status for job in jobs]).astype(np.int8),
        preemptions=column([job.preemptions for job in jobs]).astype(np.int32),
        gaps=gaps.table(),
        window_ns=window_ps // PS_PER_NS if window_ps >= 0 else -1,
    )

"""The histogram of single gaps between tokens."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING

from tonnage.results.requests import GAP_BINS, POSITION_BUCKETS, gap_edges_ns
from tonnage.units import PS_PER_NS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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

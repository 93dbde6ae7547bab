"""A GPU that several batches share: each has an equal part of its speed.

With k batches at once the GPU works at 1 + overlap·(k − 1) times the speed that it has with one. Of a GPU on which batches take turns
(overlap 0) this is processor sharing, the usual model of kernels of several processes in time slices.
"""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tonnage.simulator.services.batch import Batch


class SharedGpu:
    """One GPU.

    Attributes:
        version: of the batches on it; an end that was foretold for an earlier one does not come.
        busy_ps: time in which it had a batch.
    """

    def __init__(self, overlap: float) -> None:
        """Start idle at time 0."""
        self.overlap = overlap
        self.version = 0
        self.busy_ps = 0
        self._now = 0
        self._done = 0.0
        self._batches: list[tuple[float, int, Batch]] = []
        self._entered = 0

    def __len__(self) -> int:
        """Batches that run."""
        return len(self._batches)

    def start(self, batch: Batch, work_ps: int, now: int) -> None:
        """Begin a batch that takes ``work_ps`` picoseconds on an otherwise idle GPU."""
        self._go_on(now)
        self._entered += 1
        heapq.heappush(self._batches, (self._done + work_ps, self._entered, batch))
        self.version += 1

    def next_end(self) -> int | None:
        """When the first of the batches ends if no other begins, in picoseconds; None on an idle GPU."""
        if not self._batches:
            return None
        return self._now + max(math.ceil((self._batches[0][0] - self._done) / self._speed()), 0)

    def ended(self, now: int) -> list[Batch]:
        """Take out the batches that have ended by now, in the order in which they end."""
        self._go_on(now)
        found = []
        while self._batches and self._batches[0][0] <= self._done + 0.5:
            found.append(heapq.heappop(self._batches)[2])
        self.version += 1
        if not self._batches:
            self._done = 0.0
        return found

    def _speed(self) -> float:
        """Of each of the batches."""
        running = len(self._batches)
        return (1.0 + self.overlap * (running - 1)) / running

    def _go_on(self, now: int) -> None:
        if self._batches:
            self._done += (now - self._now) * self._speed()
            self.busy_ps += now - self._now
        self._now = now

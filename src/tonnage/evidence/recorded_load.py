"""The load of a run folder as it was: the same lengths in the same order, and in an open loop the same moments.

A short run's latencies depend on which prompts met which. A calibration that drew its own lengths and arrivals would fit that chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tonnage.results.requests import COMPLETED
from tonnage.results.store import read_run
from tonnage.spec.workload import Trace
from tonnage.units import to_ps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.evidence.predict import Point

    Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedLoad:
    """The completed requests of a run as a load that can be simulated.

    Attributes:
        isl, osl: int64 (requests,), tokens of each, in the order in which they were sent.
        due_ps: int64 (requests,), when each came; -1 in a closed loop.
        concurrency: clients of the closed loop; 0 in an open one.
        turnaround_ps: of a client.
    """

    isl: Ints
    osl: Ints
    due_ps: Ints
    concurrency: int
    turnaround_ps: int

    @property
    def queued(self) -> bool:
        """Whether all requests are there at the start and no client waits for an answer."""
        return 0 < len(self.isl) <= self.concurrency

    def trace(self, seed: int) -> Trace:
        """The requests; nothing is drawn."""
        return Trace(
            due_ps=self.due_ps, isl=self.isl, osl=self.osl, concurrency=self.concurrency, turnaround_ps=self.turnaround_ps, seed=seed
        )


def recorded_load(folder: str, point: Point, requests: int, turnaround_s: float) -> RecordedLoad:
    """The load that a run folder recorded.

    Args:
        folder: of the run.
        point: the load in numbers; its lengths are means and are not used.
        requests: how many a closed loop sends. Where a time ended it, that is more than were recorded, and they begin again.
        turnaround_s: of a client, in seconds.
    """
    due, isl, osl = _sent(folder, (Path(folder) / "requests.parquet").stat().st_mtime_ns)
    if point.concurrency is None:
        return RecordedLoad(isl=isl, osl=osl, due_ps=due, concurrency=0, turnaround_ps=0)
    count = max(requests, 1) if point.window_s is not None else len(isl)
    return RecordedLoad(
        isl=np.resize(isl, count),
        osl=np.resize(osl, count),
        due_ps=np.full(count, -1, dtype=np.int64),
        concurrency=point.concurrency,
        turnaround_ps=to_ps(turnaround_s),
    )


@cache
def _sent(folder: str, written: int) -> tuple[Ints, Ints, Ints]:
    """Due times in picoseconds from the first, prompts and outputs of the completed requests, in the order of their due times.

    Args:
        folder: of the run.
        written: when its record was, so that a folder into which another run was written meanwhile is read again.
    """
    found = read_run(Path(folder)).requests
    rows = np.flatnonzero(found.status == COMPLETED)
    rows = rows[np.argsort(found.due_ns[rows], kind="stable")]
    due = found.due_ns[rows]
    return (due - min(int(due[0]), 0)) * 1000, np.maximum(found.isl[rows], 1), np.maximum(found.osl[rows], 1)

"""The record of an engine's requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tonnage.results.requests import COMPLETED, REJECTED, UNFINISHED, Requests
from tonnage.simulator.happened import CANCELLED
from tonnage.simulator.reference.gaps import Gaps
from tonnage.simulator.reference.job import Job
from tonnage.units import PS_PER_NS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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

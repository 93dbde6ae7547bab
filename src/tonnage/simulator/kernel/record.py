"""The record of a machine's requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tonnage.results.requests import COMPLETED, REJECTED, UNFINISHED, Requests
from tonnage.simulator.happened import CANCELLED
from tonnage.simulator.kernel.memory import Machine
from tonnage.units import PS_PER_NS

if TYPE_CHECKING:
    from numpy.typing import NDArray


def received(m: Machine, column: NDArray[np.int64], before: int) -> NDArray[np.int64]:
    """A column of rows, with that value for those that the engine has not received yet; the very column where it has them all."""
    if m.state["arrived"] >= len(column):
        return column
    values = column.copy()
    values[m.state["arrived"] :] = before
    return values


def requests_of(m: Machine, count: int) -> Requests:
    """What has happened to the first ``count`` requests; an unfinished one has no last token. The gaps are the machine's own."""
    rows, window = m.rows, int(m.cfg["window"])
    sent_ns, status = rows.sent[:count] // PS_PER_NS, received(m, rows.status[:count], UNFINISHED)
    last = np.where(status == COMPLETED, rows.last[:count], -1)
    return Requests(
        due_ns=sent_ns,
        sent_ns=sent_ns.copy(),
        first_token_ns=received(m, rows.first[:count], -1) // PS_PER_NS,
        last_token_ns=last // PS_PER_NS,
        isl=rows.isl[:count].copy(),
        osl=received(m, rows.generated[:count], 0).copy(),
        cached_tokens=np.zeros(count, np.int64),
        instance=np.where(status == REJECTED, -1, 0).astype(np.int32),
        status=np.where(status == CANCELLED, UNFINISHED, status).astype(np.int8),
        preemptions=received(m, rows.preemptions[:count], 0).astype(np.int32),
        gaps=m.tallies.gaps,
        window_ns=window // PS_PER_NS if window >= 0 else -1,
    )

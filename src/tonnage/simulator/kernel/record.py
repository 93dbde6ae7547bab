"""The record of a machine's requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tonnage.results.requests import COMPLETED, REJECTED, UNFINISHED, Requests
from tonnage.simulator.happened import CANCELLED
from tonnage.simulator.kernel.memory import Rows
from tonnage.units import PS_PER_NS

if TYPE_CHECKING:
    from numpy.typing import NDArray


def requests_of(rows: Rows, count: int, gaps: NDArray[np.int64], window_ps: int = -1) -> Requests:
    """What has happened to the first ``count`` requests; an unfinished one has no last token, and what was cancelled is unfinished.

    The rows are of no use afterwards: the record has their columns, because ten million rows are 80 MB each. Their lengths and the
    instants at which they are sent are left as they are; those may be the columns of a trace.
    """
    status, first_ns, last_ns = rows.status[:count], rows.first[:count], rows.last[:count]
    for column in (first_ns, last_ns):
        np.floor_divide(column, PS_PER_NS, out=column)
    done, sent_ns = status == COMPLETED, rows.sent[:count] // PS_PER_NS
    osl, instance = rows.osl[:count], np.zeros(count, np.int32)
    if not done.all():
        last_ns[~done] = -1
        osl = np.where(done, osl, rows.generated[:count])
        instance[status == REJECTED] = -1
        status = np.where(status == CANCELLED, np.int8(UNFINISHED), status)
    return Requests(
        due_ns=sent_ns,
        sent_ns=sent_ns,
        first_token_ns=first_ns,
        last_token_ns=last_ns,
        isl=rows.isl[:count],
        osl=osl,
        cached_tokens=np.zeros(count, np.int64),
        instance=instance,
        status=status,
        preemptions=rows.preemptions[:count],
        gaps=gaps,
        window_ns=window_ps // PS_PER_NS if window_ps >= 0 else -1,
    )

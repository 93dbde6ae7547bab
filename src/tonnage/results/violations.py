"""How often limits were broken in a run: by how many requests, and in how many hours."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from tonnage.results.requests import COMPLETED

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.results.requests import Requests
    from tonnage.spec.deployment import Limit, Slo

HOUR_NS = 3_600_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """What became of one limit.

    Attributes:
        limit: such as "TTFT p95 ≤ 500 ms".
        share: of all requests, those that took longer than the limit's time, or were not completed.
        broken_hours: hours of the run in which the limit's statistic, over the requests that were due in them, was above it.
        hours: those in which a request was due.
        worst_hour: the hour with the largest share of such requests, counted from 0.
        worst_share: that share.
    """

    limit: str
    share: float
    broken_hours: int
    hours: int
    worst_hour: int
    worst_share: float


def violations(requests: Requests, slo: Slo) -> tuple[Violation, ...]:
    """One for each limit on TTFT, TPOT or E2E; single gaps are not known by request, so that limits on ITL are left out."""
    import numpy as np

    hour = requests.due_ns // HOUR_NS
    cuts = np.append(np.flatnonzero(np.diff(hour, prepend=-1)), len(hour))
    return tuple(_violation(requests, limit, cuts) for limit in slo if limit.metric != "itl")


def _violation(requests: Requests, limit: Limit, cuts: NDArray[np.int64]) -> Violation:
    import numpy as np

    done, values, most = requests.status == COMPLETED, _values(requests, limit), limit.seconds * 1e9
    late = ~done | (values > most)
    broken, worst, worst_share = 0, 0, 0.0
    for first, last in pairwise(cuts.tolist()):
        share = float(late[first:last].mean())
        if share > worst_share:
            worst, worst_share = int(requests.due_ns[first] // HOUR_NS), share
        mine = values[first:last][done[first:last]]
        if len(mine):
            found = mine.mean() if limit.statistic == "mean" else np.percentile(mine, float(limit.statistic[1:]))
            broken += bool(found > most)
    return Violation(
        limit=str(limit),
        share=float(late.mean()) if len(late) else 0.0,
        broken_hours=broken,
        hours=len(cuts) - 1,
        worst_hour=worst,
        worst_share=worst_share,
    )


def _values(requests: Requests, limit: Limit) -> NDArray[np.float64]:
    """Nanoseconds of each request; 0 for the pace of a request of one token."""
    import numpy as np

    first, last, due = requests.first_token_ns, requests.last_token_ns, requests.due_ns
    if limit.metric == "ttft":
        return (first - due).astype(np.float64)
    if limit.metric == "e2e":
        return (last - due).astype(np.float64)
    return np.where(requests.osl > 1, (last - first) / np.maximum(requests.osl - 1, 1), 0.0)

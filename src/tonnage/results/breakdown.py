"""What became of the limits of a run hour by hour, and what the requests of each class saw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnage.results.metrics import Attained, Latencies, attained, latencies_by_request, of_rows
from tonnage.results.requests import COMPLETED, REJECTED, Requests

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.spec.arrivals import TrafficClass
    from tonnage.spec.deployment import Limit, Slo


HOUR_NS = 3_600_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """The requests that broke one limit."""

    limit: str  # such as "TTFT p95 ≤ 500 ms"
    share: float  # of all requests that took longer than the limit's time, or were not completed
    # hours of the run in which the limit's statistic, over the requests that were due in them, was
    # above it
    broken_hours: int
    hours: int  # those in which a request was due
    worst_hour: int  # the hour with the largest share of such requests, counted from 0
    worst_share: float  # that share


def violations(requests: Requests, slo: Slo) -> tuple[Violation, ...]:
    """One for each limit on TTFT, TPOT or E2E; single gaps are not known by request, so that limits
    on ITL are left out.
    """
    hour = requests.due_ns // HOUR_NS
    cuts = np.append(np.flatnonzero(np.diff(hour, prepend=-1)), len(hour))
    return tuple(_violation(requests, limit, cuts) for limit in slo if limit.metric != "itl")


def _violation(requests: Requests, limit: Limit, cuts: NDArray[np.int64]) -> Violation:

    done, limit_ns = requests.status == COMPLETED, limit.seconds * 1e9
    values = (
        latencies_by_request(requests, done).ratios(limit.parts or ((limit.metric, 1.0),)) * 1e9
    )
    late = ~done | (values > limit_ns)
    broken, worst, worst_share = 0, 0, 0.0
    for first, last in pairwise(cuts.tolist()):
        share = float(late[first:last].mean())
        if share > worst_share:
            worst, worst_share = int(requests.due_ns[first] // HOUR_NS), share
        mine = values[first:last][done[first:last]]
        if len(mine):
            broken += _above(mine, limit, limit_ns, share)
    return Violation(
        limit=str(limit),
        share=float(late.mean()) if len(late) else 0.0,
        broken_hours=broken,
        hours=len(cuts) - 1,
        worst_hour=worst,
        worst_share=worst_share,
    )


def _above(values: NDArray[np.float64], limit: Limit, limit_share: float, late: float) -> bool:
    """Whether completed requests are above a limit in an hour in which the share ``late`` of all
    is.
    """
    if limit.share is not None:
        return late > 1 - limit.share + 1e-9
    return bool(
        (
            values.mean()
            if limit.statistic == "mean"
            else np.percentile(values, float(limit.statistic[1:]))
        )
        > limit_share
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassResult:
    """Results of one class of traffic."""

    # name, share: as they were requested
    name: str
    share: float
    # the time to first token that its requests should have, in seconds; None where none was given
    ttft_limit_s: float | None
    requests: int  # all that were sent …
    # completed, rejected: … of these; shed ones are rejected
    completed: int
    rejected: int
    preemptions: int  # times that one of them lost its KV blocks
    # share of all that were sent whose first token came within the limit, 0 to 1; None without a
    # limit
    within: float | None
    # ttft_ms, tpot_ms, e2e_ms: of the completed ones
    ttft_ms: Latencies
    tpot_ms: Latencies
    e2e_ms: Latencies
    attained: tuple[Attained, ...] = ()  # joint attainment of its requests

    def to_json(self) -> dict[str, Any]:
        """Convert to JSON values."""
        document = asdict(self)
        del document["attained"]
        return document | (
            {"attained": [attainment.to_json() for attainment in self.attained]}
            if self.attained
            else {}
        )


def by_class(
    requests: Requests, place: NDArray[np.int64], classes: Sequence[TrafficClass], slo: Slo = ()
) -> tuple[ClassResult, ...]:
    """The results of each class; ``place`` says which one each row of the record is of, and ``slo``
    holds limits on joint attainment.
    """
    class_results = []
    for number, traffic_class in enumerate(classes):
        of_class = place[: len(requests)] == number
        status, count = requests.status[of_class], int(of_class.sum())
        ttft, tpot, e2e = of_rows(
            requests, np.flatnonzero(of_class & (requests.status == COMPLETED))
        )
        first = requests.first_token_ns[of_class]
        within = None
        if traffic_class.ttft_s is not None:
            in_time = (first >= 0) & (
                first - requests.due_ns[of_class] <= traffic_class.ttft_s * 1e9
            )
            within = int(in_time.sum()) / count if count else math.nan
        class_results.append(
            ClassResult(
                name=traffic_class.name,
                share=traffic_class.share,
                ttft_limit_s=traffic_class.ttft_s,
                requests=count,
                completed=int((status == COMPLETED).sum()),
                rejected=int((status == REJECTED).sum()),
                preemptions=int(requests.preemptions[of_class].sum()),
                within=within,
                ttft_ms=ttft,
                tpot_ms=tpot,
                e2e_ms=e2e,
                attained=attained(
                    requests, tuple(limit for limit in slo if limit.share is not None), of_class
                ),
            )
        )
    return tuple(class_results)

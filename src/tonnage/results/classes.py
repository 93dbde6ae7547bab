"""What the requests of each class of a run saw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tonnage.results.latencies import Latencies
from tonnage.results.metrics import of_rows
from tonnage.results.requests import COMPLETED, REJECTED

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.results.requests import Requests
    from tonnage.spec.deployment import TrafficClass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassResult:
    """Of one class.

    Attributes:
        name, share: as they were asked for.
        ttft_limit_s: the time to first token that its requests should have, in seconds; None where none was given.
        requests: all that were sent …
        completed, rejected: … of these; what was shed is rejected.
        preemptions: times that one of them lost its KV blocks.
        within: share of all that were sent whose first token came within the limit, 0 to 1; None without a limit.
        ttft_ms, tpot_ms, e2e_ms: of the completed ones.
    """

    name: str
    share: float
    ttft_limit_s: float | None
    requests: int
    completed: int
    rejected: int
    preemptions: int
    within: float | None
    ttft_ms: Latencies
    tpot_ms: Latencies
    e2e_ms: Latencies

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        from dataclasses import asdict

        return asdict(self)


def by_class(requests: Requests, place: NDArray[np.int64], classes: Sequence[TrafficClass]) -> tuple[ClassResult, ...]:
    """The results of each class; ``place`` says which one each row of the record is of."""
    import numpy as np

    found = []
    for number, one in enumerate(classes):
        own = place[: len(requests)] == number
        status, count = requests.status[own], int(own.sum())
        ttft, tpot, e2e = of_rows(requests, np.flatnonzero(own & (requests.status == COMPLETED)))
        first = requests.first_token_ns[own]
        within = None
        if one.ttft_s is not None:
            in_time = (first >= 0) & (first - requests.due_ns[own] <= one.ttft_s * 1e9)
            within = int(in_time.sum()) / count if count else math.nan
        found.append(
            ClassResult(
                name=one.name,
                share=one.share,
                ttft_limit_s=one.ttft_s,
                requests=count,
                completed=int((status == COMPLETED).sum()),
                rejected=int((status == REJECTED).sum()),
                preemptions=int(requests.preemptions[own].sum()),
                within=within,
                ttft_ms=ttft,
                tpot_ms=tpot,
                e2e_ms=e2e,
            )
        )
    return tuple(found)

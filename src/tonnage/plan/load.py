"""The load that a figure holds at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tonnage.spec.typed_values import FORBID
from tonnage.spec.workload import Process

LoadKind = Literal["open", "closed", "trace", "queued"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How requests reach one instance.

    Attributes:
        kind: "open": on a schedule; "closed": from clients that wait for their answers; "trace": a share of recorded traffic;
            "queued": all at once, as a job.
        requests_per_second: of an open loop, or the mean of a trace's share; None elsewhere.
        clients: of a closed loop; None elsewhere.
        process: of the arrivals in a simulated open loop; None elsewhere.
        cv: coefficient of variation of gamma arrivals; None elsewhere.
        measured: whether a benchmark measured it; otherwise it was simulated.
    """

    __pydantic_config__ = FORBID

    kind: LoadKind
    requests_per_second: float | None = None
    clients: float | None = None
    process: Process | None = None
    cv: float | None = None
    measured: bool = False

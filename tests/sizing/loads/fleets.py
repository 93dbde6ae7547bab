"""Fleets that are checked."""

from __future__ import annotations

from typing import Any

from tonnage.sizing.loads.shared_load import balanced_trace
from tonnage.spec.lengths import parse_lengths
from tonnage.spec.workload import OpenLoop, Trace, Workload


def trace(
    isl: str = "lognormal:2000,2000",
    rate: float = 3.0,
    requests: int = 4_000,
    seed: int = 0,
    **arrivals: Any,
) -> Trace:
    loop = OpenLoop(rate=rate, **arrivals)
    work = Workload(
        isl=parse_lengths(isl, "isl"),
        osl=parse_lengths("200+-80", "osl"),
        arrivals=loop,
        requests=requests,
    )
    return balanced_trace(work, loop, seed)

"""The load that a benchmark sent for one row of a measured table, as a workload that can be simulated.

In a closed loop all clients start together, and each sends its next request when the last is answered, after the client's serial
turnaround. Where there are no more requests than clients, the benchmark runs in the engine's own process and nothing is streamed. In an
open loop requests arrive at random (Poisson).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tonnage.perf.step import StepModel
from tonnage.spec.workload import ClosedLoop, Lengths, OpenLoop, Workload
from tonnage.validation.point import Point
from tonnage.validation.static_batch import static_latencies_s

ROUNDS = 10
"""Requests per client of a closed loop that says neither ``requests`` nor ``window_s``: what benchmarks commonly send."""

OPEN_REQUESTS, OPEN_SECONDS, OPEN_MOST = 1_000, 60.0, 20_000
"""An open loop that does not say ``requests`` has this many, or as many as arrive in this many seconds, up to the third number."""

SEED = 0
"""Of the arrivals of an open loop."""

Load = Callable[[StepModel, float], Workload]
"""Gives the workload of a row from its step model and the seconds of the client's turnaround."""


def workload_of(point: Point, step: StepModel, *, turnaround_s: float) -> Workload:
    """The workload of a row; the constants of this module stand for what the row does not say.

    Args:
        point: the row.
        step: its step model, which tells how many requests fit into a window.
        turnaround_s: seconds that a client of a closed loop takes between an answer and its next request.
    """
    if point.concurrency is not None:
        arrivals: ClosedLoop | OpenLoop = ClosedLoop(concurrency=point.concurrency, turnaround_s=turnaround_s)
        requests = point.requests or ROUNDS * point.concurrency
        if point.window_s is not None:
            alone = static_latencies_s(step, 1, point.isl, point.osl)[1]
            requests = point.concurrency * (2 + math.ceil(point.window_s / alone))
    else:
        rate = point.request_rate or 1.0
        arrivals = OpenLoop(rate=rate)
        requests = point.requests or round(min(max(OPEN_REQUESTS, OPEN_SECONDS * rate), OPEN_MOST))
    return Workload(isl=Lengths(mean=point.isl), osl=Lengths(mean=point.osl), arrivals=arrivals, requests=requests)

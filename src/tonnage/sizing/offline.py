"""A job: a number of requests to be done within a time, all queued from the start; only throughput decides.

Every instance gets an equal share of the requests at time 0, and the share that it can finish is found by
simulation. Where a share is longer than ``SIMULATED`` requests, its time is that of two shorter runs,
continued in a straight line: once the batch is full, requests leave at a constant rate.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tonnage.plan.limit import THROUGHPUT
from tonnage.plan.reason import TooSlowForJob
from tonnage.results.metrics import summarize
from tonnage.results.requests import Requests
from tonnage.sizing.capacity import Capacity, no_capacity
from tonnage.sizing.instance import Instance
from tonnage.spec.workload import OpenLoop

SIMULATED = 16_000
"""Largest share, in requests, that is simulated whole."""


def offline_capacity(instance: Instance, requests: int, seconds: float) -> Capacity:
    """What one instance finishes of a job, as requests per second over the time allowed.

    Args:
        instance: the deployment.
        requests: of the whole job.
        seconds: allowed.
    """
    share = most_within(instance, requests, seconds)
    if share < 1:
        one = queued(instance, 1)
        return no_capacity(summarize(one), TooSlowForJob(seconds=makespan_s(one), allowed=seconds), 1)
    record = queued(instance, min(share, SIMULATED))
    summary = summarize(record)
    rate = share / seconds
    return Capacity(
        rate=rate,
        concurrency=float(instance.in_flight),
        saturation=max(rate, len(record) / makespan_s(record)),
        summary=summary,
        binds=THROUGHPUT,
        reason=None,
        simulated_requests=len(record),
    )


def most_within(instance: Instance, requests: int, seconds: float) -> int:
    """The most requests, at most ``requests``, that one instance finishes within ``seconds``."""
    expected = seconds * instance.saturation_estimate()
    if min(requests, expected) > 0.8 * SIMULATED:
        return min(requests, _continued(instance, seconds))
    low, high = 0, 1
    while high < requests and makespan_s(queued(instance, high)) <= seconds:
        low, high = high, min(requests, max(2 * high, round(0.9 * expected)))
    if high == requests and makespan_s(queued(instance, high)) <= seconds:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if makespan_s(queued(instance, middle)) <= seconds else (low, middle)
    return low


def _continued(instance: Instance, seconds: float) -> int:
    """The line through a half and a whole run of ``SIMULATED`` requests, up to ``seconds``."""
    whole = makespan_s(queued(instance, SIMULATED))
    half = makespan_s(queued(instance, SIMULATED // 2))
    per_request = (whole - half) / (SIMULATED - SIMULATED // 2)
    return SIMULATED + math.floor((seconds - whole) / per_request)


def queued(instance: Instance, requests: int) -> Requests:
    """A run of requests that are all queued at time 0, in the engine's own process, without a front end."""
    import numpy as np

    trace = instance.workload(OpenLoop(rate=1.0), requests).trace(instance.asked.seed)
    return instance.serve(replace(trace, due_ps=np.zeros(requests, dtype=np.int64)), instance.step.in_process)


def makespan_s(record: Requests) -> float:
    """Seconds from the start to the last token of all."""
    return float(record.last_token_ns.max()) / 1e9

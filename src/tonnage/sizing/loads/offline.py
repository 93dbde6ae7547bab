"""A job: a number of requests to be done within a time, all queued from the start; only throughput decides.

Every instance gets an equal share of the requests at time 0, and the longest queue that it can work off in the time is found by
simulation, however small the job is: the systems that a job needs are a true fraction of what they could do. Where a queue is longer
than ``SIMULATED`` requests, its time is that of two shorter runs, continued in a straight line: once the batch is full, requests leave at
a constant rate.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tonnage.plan.demand import JobDone
from tonnage.plan.limit import THROUGHPUT
from tonnage.plan.reason import TooSlowForJob
from tonnage.results.metrics import summarize
from tonnage.results.requests import Requests
from tonnage.sizing.loads.capacity import Capacity, no_capacity
from tonnage.sizing.loads.instance import Instance
from tonnage.sizing.question import Question
from tonnage.spec.workload import OpenLoop

SIMULATED = 16_000
"""Largest share, in requests, that is simulated whole."""


def offline_capacity(instance: Instance, requests: int, seconds: float) -> Capacity:
    """What one instance finishes in the time of a job, as requests per second over that time.

    Args:
        instance: the deployment.
        requests: of the whole job; latencies are of no longer queue than that.
        seconds: allowed.
    """
    share = most_within(instance, seconds)
    if share < 1:
        one = queued(instance, 1)
        return no_capacity(summarize(one), TooSlowForJob(seconds=makespan_s(one), allowed=seconds), 1)
    record = queued(instance, min(share, requests, SIMULATED))
    summary = summarize(record)
    rate = share / seconds
    return Capacity(
        rate=rate,
        concurrency=float(instance.in_flight),
        summary=summary,
        binds=THROUGHPUT,
        reason=None,
        simulated_requests=len(record),
    )


def most_within(instance: Instance, seconds: float) -> int:
    """The longest queue that one instance works off within ``seconds``, in requests."""
    expected = seconds * instance.saturation_estimate()
    if expected > 0.8 * SIMULATED:
        return _continued(instance, seconds)
    low, high = 0, 1
    while makespan_s(queued(instance, high)) <= seconds:
        if high > SIMULATED:
            return _continued(instance, seconds)
        low, high = high, max(2 * high, round(0.9 * expected))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if makespan_s(queued(instance, middle)) <= seconds else (low, middle)
    return low


def _continued(instance: Instance, seconds: float) -> int:
    """The queue at which the line through a half and a whole run of ``SIMULATED`` requests comes to ``seconds``."""
    fixed, per_request = _line(instance, SIMULATED)
    return max(0, math.floor((seconds - fixed) / per_request))


def _line(instance: Instance, requests: int) -> tuple[float, float]:
    """Seconds of ramp-up and drain, and of each request: the line through runs of ``requests`` requests and of half as many."""
    half = requests // 2
    whole = makespan_s(queued(instance, requests))
    per_request = (whole - makespan_s(queued(instance, half))) / (requests - half) if half else whole
    return whole - requests * per_request, per_request


def finish_s(instance: Instance, requests: int) -> float:
    """Seconds in which one instance works off a queue of so many requests."""
    if requests <= SIMULATED:
        return makespan_s(queued(instance, requests))
    fixed, per_request = _line(instance, SIMULATED)
    return fixed + requests * per_request


def job_done(question: Question, instance: Instance, instances: int) -> JobDone | None:
    """When the question's job is done on so many instances; None where it asks for no job."""
    requests, allowed = question.demand.offline_requests, question.demand.offline_seconds
    if requests is None or allowed is None:
        return None
    share = math.ceil(requests / instances)
    fixed, per_request = _line(instance, min(requests, SIMULATED))
    return JobDone(
        requests=requests,
        requests_per_instance=share,
        allowed_seconds=allowed,
        finish_seconds=finish_s(instance, share),
        fixed_seconds=max(0.0, fixed),
        seconds_per_request=per_request,
    )


def queued(instance: Instance, requests: int) -> Requests:
    """A run of requests that are all queued at time 0, in the engine's own process, without a front end."""
    import numpy as np

    trace = instance.workload(OpenLoop(rate=1.0), requests).trace(instance.traffic.seed)
    return instance.serve(replace(trace, due_ps=np.zeros(requests, dtype=np.int64)), instance.step.in_process)


def makespan_s(record: Requests) -> float:
    """Seconds from the start to the last token of all."""
    return float(record.last_token_ns.max()) / 1e9

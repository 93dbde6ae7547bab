"""The load that one instance carries inside latency limits, of whatever kind the load is."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tonnage.plan.demand import JobDone
from tonnage.plan.limit import SATURATION, THROUGHPUT, Bound, bound_by
from tonnage.plan.reason import (
    AboveSaturation,
    BrokenAtAnyLoad,
    BrokenEarly,
    BrokenOnManyInstances,
    Reason,
    TooSlowForJob,
)
from tonnage.results.metrics import Summary, summarize
from tonnage.results.requests import Requests
from tonnage.sizing.loads.fleet_check import Replayed, fleet_seen
from tonnage.sizing.loads.instance import SURE, Care, Instance
from tonnage.sizing.loads.load_scan import Highest, LoadScan, breach, strain, worst_limit
from tonnage.sizing.loads.runs import Runs, Seen
from tonnage.sizing.loads.trial import MARGIN, STABLE
from tonnage.sizing.question import Question
from tonnage.spec.deployment import Limit, Slo
from tonnage.spec.workload import OpenLoop


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What one instance carries.

    Attributes:
        rate: requests per second at the highest load inside all limits.
        concurrency: requests in flight there (mean), or the clients of a closed loop.
        summary: the metrics at that load, or at the load that shows why there is none.
        binds: what ends the load: a limit, or saturation; None when there is no such load.
        reason: why there is no such load; None when there is one.
    """

    rate: float
    concurrency: float
    summary: Summary
    binds: Bound | None
    reason: Reason | None


def find_capacity(
    runs: Runs,
    instance: Instance,
    slo: Slo,
    *,
    instances: int = 1,
    above: float = 0.0,
    care: Care = SURE,
    near: float = 0.0,
) -> Capacity:
    """The highest load up to which all limits hold, which a single client does not break
    (``broken_alone``); ``reason`` says why where there is none.

    ``instances`` are simulated together, behind the router; the search ends where it is certain
    that no load above ``above`` holds, begins at ``near`` where that is known, and ``care`` says
    how long the runs are that decide.
    """
    if instance.traffic.load == "closed":
        return _closed_capacity(runs, instance, slo)
    highest = LoadScan(runs, instance, instances).highest(slo, above, care, near)
    if isinstance(highest, Highest):
        return Capacity(
            rate=highest.rate,
            concurrency=highest.rate * highest.summary.statistic_ms("e2e", "mean") / 1e3,
            summary=highest.summary,
            binds=SATURATION if highest.limit is None else bound_by(highest.limit),
            reason=None,
        )
    if highest.limit is None:
        saturation = runs.saturation(instance)
        return no_capacity(
            highest.summary,
            AboveSaturation(requests_per_second=highest.rate, most=saturation),
        )
    share = highest.rate / instance.saturation_estimate()
    early = BrokenEarly(
        breach=breach(highest.summary, highest.limit),
        requests_per_second=highest.rate,
        share_of_saturation=share,
    )
    return no_capacity(highest.summary, early)


def broken_alone(alone: Summary, slo: Slo) -> Capacity | None:
    """No capacity where a single client breaks a limit, so that every load does; else None."""
    broken = worst_limit(alone, slo)
    if broken is None:
        return None
    return no_capacity(alone, BrokenAtAnyLoad(breach=breach(alone, broken)))


def no_capacity(summary: Summary, reason: Reason) -> Capacity:
    """A capacity of zero: no load is inside the limits, for the given reason."""
    return Capacity(
        rate=0.0,
        concurrency=0.0,
        summary=summary,
        binds=None,
        reason=reason,
    )


def _closed_capacity(runs: Runs, instance: Instance, slo: Slo) -> Capacity:
    """Bisection over the number of clients: the latencies grow with it."""
    max_clients = 2 * instance.in_flight
    top = runs.clients(instance, max_clients)
    best, best_summary = 1, instance.single_client()
    low, high = 1, max_clients
    binds = worst_limit(top, slo)
    if binds is None:
        best, best_summary, low = max_clients, top, high
    while high - low > max(1, low // 100):
        clients = (low + high) // 2
        summary = runs.clients(instance, clients)
        broken = worst_limit(summary, slo)
        if broken is not None:
            high, binds = clients, broken
            continue
        low = clients
        if summary.requests_per_second > best_summary.requests_per_second:
            best, best_summary = clients, summary
    return Capacity(
        rate=best_summary.requests_per_second,
        concurrency=float(best),
        summary=best_summary,
        binds=SATURATION if binds is None else bound_by(binds),
        reason=None,
    )


# Traffic that was recorded, replayed over whole numbers of instances: its bursts come with it. A
# Poisson peak of the same mean says too little where arrivals are bursty (Azure's code trace: CV
# 13). So the recording comes to n instances behind the router, all of them are simulated, and n is
# the least at which every limit holds over all requests.


MOST_INSTANCES = 4_096
"""Most instances that are tried."""

HALVINGS = 7
"""Halvings of the way to saturation for a recording that a single instance holds."""

HAIR = 1 - 1e-6
"""Share of the rate that one instance fewer would have to carry, which is not reached."""


def replay_capacity(runs: Runs, instance: Instance, slo: Slo, replayed: Replayed) -> Capacity:
    """What one instance carries of the recording: its mean over the least number of instances that
    hold the limits, which a single client does not break.

    That number is a fraction: between the least whole one that holds and one fewer, by the strain
    on the limits. Where a single instance holds, the recording is sped up until it does not.
    """
    recording = replayed.recording
    mean, saturated = recording.mean_rps, runs.saturation(instance)
    measured: dict[int, Seen] = {}

    def breaks(count: int) -> Limit | None:
        measured[count] = fleet_seen(runs, instance, mean, count, replayed=replayed)
        return worst_limit(measured[count].summary, slo)

    fewest = max(
        1, math.ceil(mean / (STABLE * min(saturated, MARGIN * instance.saturation_estimate())))
    )
    low, high = fewest - 1, fewest
    while (broken := breaks(high)) is not None:
        low, high = high, 2 * high
        if high > min(MOST_INSTANCES, 2 * len(recording)):
            most_instances = measured[low].summary
            reason = BrokenOnManyInstances(breach=breach(most_instances, broken), instances=low)
            return no_capacity(most_instances, reason)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if breaks(middle) is None else (middle, high)
    summary, stable_rate = measured[high].summary, STABLE * saturated
    binds = worst_limit(measured[low].summary, slo) if low in measured else None
    if binds is not None:
        rate = _between(
            mean / high, mean / low, strain(summary, slo), strain(measured[low].summary, slo)
        )
    elif low > 0:
        rate = min(stable_rate, mean / low * HAIR)
    else:
        rate, binds = _sped_up(runs, instance, slo, replayed, stable_rate)
    return Capacity(
        rate=rate,
        concurrency=rate * summary.statistic_ms("e2e", "mean") / 1e3,
        summary=summary,
        binds=SATURATION if binds is None else bound_by(binds),
        reason=None,
    )


def _between(low: float, high: float, below: float, above: float) -> float:
    """The load of one instance at which the limits are just used up, between one that holds and one
    that breaks them.

    Linear in the logarithm of the strain on the limits (``below`` and ``above`` 1); so the systems
    need not be a whole number of instances before they are rounded up, and rounded up they are as
    many.
    """
    share = math.log(1 / below) / math.log(above / below) if below > 0 else 0.0
    return low + min(share, 0.999) * (high - low)


def _sped_up(
    runs: Runs, instance: Instance, slo: Slo, replayed: Replayed, most_rps: float
) -> tuple[float, Limit | None]:
    """The highest mean of the recording that one instance holds, up to ``most_rps``, and what
    breaks above it; in requests per second.
    """
    recording = replayed.recording
    low, high, binds = recording.mean_rps, most_rps, None
    for half in range(HALVINGS + 1):
        rate = high if half == 0 else math.sqrt(low * high)
        faster = Replayed(recording=recording.at_mean(rate), lengths=replayed.lengths)
        broken = worst_limit(fleet_seen(runs, instance, rate, 1, replayed=faster).summary, slo)
        if broken is None:
            low = rate
        else:
            high, binds = rate, broken
        if low == high:
            break
    return low, binds


# A job: a number of requests to be done within a time, all queued from the start; only throughput
# decides. Every instance gets an equal share of the requests at time 0, and the longest queue that
# it can work off in the time is found by simulation, however small the job
# is: the systems that a job needs are a true fraction of what they could do. Where a queue is
# longer than ``SIMULATED`` requests, its time is that of two shorter runs, continued in a straight
# line: once the batch is full, requests leave at a constant rate.


SIMULATED = 16_000
"""Largest share, in requests, that is simulated whole."""


def offline_capacity(instance: Instance, requests: int, seconds: float) -> Capacity:
    """What one instance finishes in the seconds of a job, as requests per second; latencies are of
    no longer queue than the job's.
    """
    share = most_within(instance, seconds)
    if share < 1:
        single = queued(instance, 1)
        return no_capacity(
            summarize(single), TooSlowForJob(seconds=makespan_s(single), allowed=seconds)
        )
    record = queued(instance, min(share, requests, SIMULATED))
    summary = summarize(record)
    rate = share / seconds
    return Capacity(
        rate=rate,
        concurrency=float(instance.in_flight),
        summary=summary,
        binds=THROUGHPUT,
        reason=None,
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
        low, high = (
            (middle, high) if makespan_s(queued(instance, middle)) <= seconds else (low, middle)
        )
    return low


def _continued(instance: Instance, seconds: float) -> int:
    """The queue at which the line through a half and a whole run of ``SIMULATED`` requests comes to
    ``seconds``.
    """
    fixed, per_request = _line(instance, SIMULATED)
    return max(0, math.floor((seconds - fixed) / per_request))


def _line(instance: Instance, requests: int) -> tuple[float, float]:
    """Seconds of ramp-up and drain, and of each request: the line through runs of ``requests``
    requests and of half as many.
    """
    half = requests // 2
    whole = makespan_s(queued(instance, requests))
    per_request = (
        (whole - makespan_s(queued(instance, half))) / (requests - half) if half else whole
    )
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
    """A run of requests that are all queued at time 0, in the engine's own process, without a front
    end.
    """
    import numpy as np

    trace = instance.workload(OpenLoop(rate=1.0), requests).trace(instance.traffic.seed)
    return instance.serve(
        replace(trace, due_ps=np.zeros(requests, dtype=np.int64)), instance.step.in_process
    )


def makespan_s(record: Requests) -> float:
    """Seconds from the start to the last token of all."""
    return float(record.last_token_ns.max()) / 1e9

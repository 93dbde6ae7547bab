"""The highest load that one instance carries inside its latency limits.

The load is found by closing a bracket with simulated runs that share their random numbers: the same gaps
stretched, the same lengths. Closed forms decide where to look and what cannot work at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tonnage.perf.run_noise import statistic_noise
from tonnage.plan.limit import SATURATION, Bound, bound_by
from tonnage.plan.reason import AboveSaturation, BrokenAtAnyLoad, BrokenEarly, BrokenInVerification, Reason
from tonnage.results.metrics import Summary, summarize
from tonnage.sizing.instance import ALONE_REQUESTS, CLOSED_ROUNDS, MINIMUM_REQUESTS, Instance, middle
from tonnage.sizing.limits import binding_limit, breach, strain, worst_limit
from tonnage.spec.deployment import Limit

if TYPE_CHECKING:
    from tonnage.results.requests import Requests

SATURATED_BATCHES = 10
"""Length, in batches, of the run that measures saturation: in a shorter one, the first batch, which finishes together, distorts it."""

SATURATED_MOST = 12_000
"""Most requests of that run; large batches settle sooner."""

RATE_STEPS = 10
"""Most runs that close the bracket of the rate."""

RATE_WIDTH = 0.015
"""Width of the bracket, relative to the rate, at which it is closed."""

WIDE = 0.3
"""Width of the bracket, relative to the rate, above which a shorter run may decide."""

STABLE = 0.98
"""Share of the saturation rate up to which a queue is assumed to settle."""

VERIFICATIONS = 12
"""Most verifying runs; each is at a lower rate than the one before."""

OVERLOAD = 1.3
"""Load over the closed-form estimate under which saturation is measured."""


VERIFIED = 3
"""Length of the verifying run, in short runs: 20 measured requests lie beyond a p99."""

CONFIRMED = 8
"""The same for the run that confirms the best few: 52 measured requests lie beyond a p99."""


STEP_DOWN, STEP_GROWTH, MOST_DOWN = 0.02, 1.5, 0.3
"""When the longer, independent run breaks a limit, the rate is lowered by this share, then by 1.5 times as much, up to 30 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What one instance carries.

    Attributes:
        rate: requests per second at the highest load inside all limits.
        concurrency: requests in flight there (mean), or the clients of a closed loop.
        saturation: requests per second that it completes when always busy.
        summary: the metrics at that load, or at the load that shows why there is none.
        binds: what ends the load: a limit, or saturation; None when there is no such load.
        reason: why there is no such load; None when there is one.
        simulated_requests: requests of the deciding run.
        noise: standard error of the limited statistic in that run, as a share of it: that of a finite run.
    """

    rate: float
    concurrency: float
    saturation: float
    summary: Summary
    binds: Bound | None
    reason: Reason | None
    simulated_requests: int
    noise: float = 0.0


def unscreened() -> Reason | None:
    """Let every deployment be searched."""
    return None


def find_capacity(instance: Instance, screen: Callable[[], Reason | None] = unscreened) -> Capacity:
    """The highest load inside all limits; ``reason`` says why where there is none.

    Args:
        instance: the deployment under the question's lengths and limits.
        screen: called once the limits hold for a single client; what it returns, if anything, ends the search as the reason.
    """
    alone = instance.alone()
    broken = worst_limit(alone, instance.asked.slo)
    if broken is not None:
        return no_capacity(alone, BrokenAtAnyLoad(breach=breach(alone, broken)), ALONE_REQUESTS)
    screened = screen()
    if screened is not None:
        return no_capacity(alone, screened, ALONE_REQUESTS)
    return _closed_capacity(instance, alone) if instance.asked.load == "closed" else _open_capacity(instance, 0.0, alone)


def no_capacity(summary: Summary, reason: Reason, requests: int) -> Capacity:
    """No load is inside the limits, for the reason that the summary shows."""
    return Capacity(rate=0.0, concurrency=0.0, saturation=0.0, summary=summary, binds=None, reason=reason, simulated_requests=requests)


def saturation_rate(requests: Requests) -> float:
    """Completions per second between 30 % and 90 % of all completions, of a run that always had a queue.

    0 where hardly any completes.
    """
    import numpy as np

    ends = np.sort(requests.last_token_ns[requests.last_token_ns >= 0])
    if len(ends) < 10:
        return 0.0
    first, last = int(0.3 * len(ends)), int(0.9 * len(ends)) - 1
    return float((last - first) / ((ends[last] - ends[first]) / 1e9))


def saturation(instance: Instance) -> float:
    """Requests per second that the instance completes when always busy, from a run under ``OVERLOAD``."""
    requests = min(max(MINIMUM_REQUESTS, SATURATED_BATCHES * instance.in_flight), SATURATED_MOST)
    return saturation_rate(instance.open(OVERLOAD * instance.saturation_estimate(), requests, instance.asked.seed))


def capacity_above(instance: Instance, rate: float) -> Capacity:
    """The highest load of an open loop where the limits are known to hold at ``rate`` requests per second."""
    return _open_capacity(instance, rate, instance.measured(rate))


def _open_capacity(instance: Instance, low: float, at_low: Summary) -> Capacity:
    """Close the bracket of the rate with short runs, then verify it with a long one."""
    asked = instance.asked
    saturated = saturation(instance)
    most = STABLE * saturated
    if most <= low:
        return no_capacity(at_low, AboveSaturation(requests_per_second=low, most=most), instance.count(low))
    at_most = instance.measured(most)
    if worst_limit(at_most, asked.slo) is None:
        return _verified(instance, most, saturated, None)
    rate, broken_at, broken = closed_bracket((low, at_low), (most, at_most), instance)
    limit = worst_limit(broken, asked.slo)
    if rate == 0.0 or limit is None:
        early = BrokenEarly(
            breach=breach(broken, limit or asked.slo[0]), requests_per_second=broken_at, share_of_saturation=broken_at / saturated
        )
        return no_capacity(broken, early, instance.count(broken_at))
    return _verified(instance, rate, saturated, limit)


def closed_bracket(below: tuple[float, Summary], above: tuple[float, Summary], instance: Instance) -> tuple[float, float, Summary]:
    """The highest rate seen that holds and the lowest that does not, within ``RATE_WIDTH``, by regula falsi on the log of the strain.

    Interpolation is kept off the ends of the bracket; where it has not halved the bracket, the next run does.

    Args:
        below: a rate at which the limits hold, and its summary; 0 with that of a single client.
        above: a rate at which one is broken, and its summary.
        instance: the deployment, under at least one limit.

    Returns:
        The rate that holds (0 where none was found), the lowest that does not, and the summary there.
    """
    slo = instance.asked.slo
    low, high, at_high, halve = below[0], above[0], above[1], False
    strain_low, strain_high = strain(below[1], slo), strain(at_high, slo)
    for _ in range(RATE_STEPS):
        if high - low <= RATE_WIDTH * high:
            break
        share = 0.5
        if not halve and 0 < strain_low < 1 < strain_high:
            share = min(max(math.log(1 / strain_low) / math.log(strain_high / strain_low), 0.15), 0.85)
        rate, width = low + share * (high - low), high - low
        summary = instance.glanced(rate) if width > WIDE * high else instance.measured(rate)
        found = strain(summary, slo)
        if found <= 1.0:
            low, strain_low = rate, found
        else:
            high, strain_high, at_high = rate, found, summary
        halve = high - low > width / 2
    return low, high, at_high


def confirmed(instance: Instance, capacity: Capacity) -> Capacity:
    """A capacity of an open loop, verified in an even longer run."""
    return _verified(instance, capacity.rate, capacity.saturation, binding_limit(instance.asked.slo, capacity.binds), CONFIRMED)


def _verified(instance: Instance, rate: float, saturated: float, binds: Limit | None, runs: int = VERIFIED) -> Capacity:
    """The rate, verified in a longer run with other random numbers and lowered until it passes.

    Args:
        instance: the deployment.
        rate: in requests per second.
        saturated: the rate of saturation.
        binds: the limit that ends the load so far; None for saturation.
        runs: short runs that the verifying one is as long as.
    """
    count, seed = runs * instance.count(rate), instance.asked.seed + 1
    down = STEP_DOWN
    for _ in range(VERIFICATIONS):
        whole = instance.open(rate, count, seed)
        record = middle(whole)
        summary = summarize(record)
        broken = worst_limit(summary, instance.asked.slo)
        if broken is None:
            return Capacity(
                rate=rate,
                concurrency=rate * summary.statistic_ms("e2e", "mean") / 1e3,
                saturation=max(saturated, rate),
                summary=summary,
                binds=SATURATION if binds is None else bound_by(binds),
                reason=None,
                simulated_requests=len(whole),
                noise=0.0 if binds is None else statistic_noise(record, binds.metric, binds.statistic),
            )
        why = BrokenInVerification(breach=breach(summary, broken), requests_per_second=rate)
        binds, rate = broken, rate * (1 - down)
        down = min(down * STEP_GROWTH, MOST_DOWN)
    return no_capacity(summary, why, count)


def _closed_capacity(instance: Instance, alone: Summary) -> Capacity:
    """Bisection over the number of clients: the latencies grow with it."""
    most = 2 * instance.in_flight

    def at(clients: int) -> Summary:
        return instance.under_clients(clients)

    top = at(most)
    saturation = top.requests_per_second
    best, best_summary = 1, alone
    low, high = 1, most
    broken = worst_limit(top, instance.asked.slo)
    if broken is None:
        best, best_summary, low = most, top, high
    binds: Limit | None = None
    while high - low > max(1, low // 100):
        clients = (low + high) // 2
        summary = at(clients)
        broken = worst_limit(summary, instance.asked.slo)
        if broken is not None:
            high, binds = clients, broken
            continue
        low = clients
        if summary.requests_per_second > best_summary.requests_per_second:
            best, best_summary = clients, summary
    ended = binds or broken
    return Capacity(
        rate=best_summary.requests_per_second,
        concurrency=float(best),
        saturation=max(saturation, best_summary.requests_per_second),
        summary=best_summary,
        binds=SATURATION if ended is None else bound_by(ended),
        reason=None,
        simulated_requests=max(ALONE_REQUESTS, CLOSED_ROUNDS * best),
    )

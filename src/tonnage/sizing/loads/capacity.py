"""The load that one instance carries inside its latency limits: the highest up to which every scanned load holds.

Closed forms decide where to look and what cannot work at all; ``load_scan`` makes the runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tonnage.plan.limit import SATURATION, Bound, bound_by
from tonnage.plan.reason import BrokenAtAnyLoad, BrokenEarly, Reason
from tonnage.results.metrics import Summary
from tonnage.sizing.loads.instance import ALONE_REQUESTS, CLOSED_ROUNDS, MINIMUM_REQUESTS, Instance
from tonnage.sizing.loads.limits import breach, worst_limit
from tonnage.sizing.loads.load_scan import QUICK, Care, Highest, LoadScan

if TYPE_CHECKING:
    from tonnage.results.requests import Requests
    from tonnage.spec.deployment import Limit, Slo

SATURATED_BATCHES = 10
"""Length, in batches, of the run that measures saturation: in a shorter one, the first batch, which finishes together, distorts it."""

SATURATED_MOST = 12_000
"""Most requests of that run; large batches settle sooner."""

STABLE = 0.98
"""Share of the saturation rate up to which a queue is assumed to settle."""

OVERLOAD = 1.3
"""Load over the closed-form estimate under which saturation is measured."""


CLOSE, UNFOUND = 0.98, 0.5
"""Share of a load that keeps pace with conversations to the next that does not, at which it is known; and the share of what an instance
would carry without a cache that it is taken to carry in any case."""

COMES = 0.8
"""Share of the requests of a run that come while new conversations do; where fewer come, they wait for answers."""

PACED, SLOWER = 30_000, 1.3
"""Requests of a run in which that is seen, and how many times as long first tokens may take in its last third as in the second."""


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
        care: how long the runs were that decided.
    """

    rate: float
    concurrency: float
    saturation: float
    summary: Summary
    binds: Bound | None
    reason: Reason | None
    simulated_requests: int
    care: Care = QUICK


def find_capacity(instance: Instance, above: float = 0.0, care: Care = QUICK) -> Capacity:
    """The highest load up to which all limits hold; ``reason`` says why where there is none.

    Args:
        instance: the deployment under the question's lengths and limits.
        above: requests per second of an open loop that must be exceeded; the search ends where it is certain that it is not.
        care: how long the runs are that decide.
    """
    alone = instance.alone()
    broken = worst_limit(alone, instance.asked.slo)
    if broken is not None:
        return no_capacity(alone, BrokenAtAnyLoad(breach=breach(alone, broken)), ALONE_REQUESTS)
    return _closed_capacity(instance, alone) if instance.asked.load == "closed" else open_capacity(instance, above, care)


def open_capacity(instance: Instance, above: float = 0.0, care: Care = QUICK, slo: Slo | None = None) -> Capacity:
    """The same of an open loop whose limits hold for a single client.

    Args:
        instance, above, care: as for ``find_capacity``.
        slo: limits in place of those that the instance is asked to meet.
    """
    found = scan_of(instance).highest(instance.asked.slo if slo is None else slo, above, care)
    if isinstance(found, Highest):
        return _carried(instance, found, care)
    early = BrokenEarly(
        breach=breach(found.summary, found.limit), requests_per_second=found.rate, share_of_saturation=found.rate / saturation(instance)
    )
    return no_capacity(found.summary, early, instance.count(found.rate))


def scan_of(instance: Instance) -> LoadScan:
    """The scan of the instance, the same one each time, so that no run is made twice."""
    found: LoadScan | None = instance.scan
    if found is None:
        found = instance.scan = LoadScan(instance, lambda: STABLE * saturation(instance))
    return found


def _carried(instance: Instance, found: Highest, care: Care) -> Capacity:
    return Capacity(
        rate=found.rate,
        concurrency=found.rate * found.summary.statistic_ms("e2e", "mean") / 1e3,
        saturation=max(saturation(instance), found.rate),
        summary=found.summary,
        binds=SATURATION if found.limit is None else bound_by(found.limit),
        reason=None,
        simulated_requests=found.requests,
        care=care,
    )


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
    """Requests per second that the instance completes when always busy, from a run under ``OVERLOAD``, which is made once."""
    if instance.saturated is None and instance.asked.sharing is not None and instance.asked.sharing.follows:
        instance.saturated = kept_pace(instance)
    if instance.saturated is None:
        requests = min(max(MINIMUM_REQUESTS, SATURATED_BATCHES * instance.in_flight), SATURATED_MOST)
        instance.saturated = saturation_rate(instance.open(OVERLOAD * instance.saturation_estimate(), requests, instance.asked.seed))
    return instance.saturated


def kept_pace(instance: Instance) -> float:
    """The highest load at which an instance completes the turns of conversations as they come, in requests per second.

    An instance that is always busy lets conversations wait, and so loses their blocks before the next turn comes: what it then completes
    is less than what it carries.
    """
    high, low = instance.saturation_estimate(), UNFOUND * instance.saturation_estimate(found=False)
    while low < CLOSE * high:
        rate = math.sqrt(low * high)
        low, high = (rate, high) if _keeps_pace(instance, rate) else (low, rate)
    return low


def _keeps_pace(instance: Instance, rate: float) -> bool:
    """Whether first tokens of the last third of a long run take no longer than those of the second.

    A cache that is too small for the load loses more with every answer that takes longer, slowly at first.
    """
    warm = 0 if instance.shared is None else instance.shared.warm(rate)
    record = instance.open(rate, max(PACED, 2 * warm), instance.asked.seed)
    third = len(record) // 3
    waits = record.first_token_ns - record.due_ns
    before, last = float(waits[third : 2 * third].mean()), float(waits[2 * third :].mean())
    return len(record) >= COMES * max(PACED, 2 * warm) and last <= SLOWER * before


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

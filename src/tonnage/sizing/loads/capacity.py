"""The load that one instance carries inside latency limits, of whatever kind the load is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tonnage.plan.limit import SATURATION, Bound, bound_by
from tonnage.plan.reason import AboveSaturation, BrokenAtAnyLoad, BrokenEarly, Reason
from tonnage.results.metrics import Summary
from tonnage.sizing.loads.instance import ALONE_REQUESTS, SURE, Care, Instance
from tonnage.sizing.loads.limits import breach, worst_limit
from tonnage.sizing.loads.load_scan import Highest, LoadScan
from tonnage.sizing.loads.runs import CLOSED_ROUNDS, Runs

if TYPE_CHECKING:
    from tonnage.spec.deployment import Limit, Slo


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What one instance carries.

    Attributes:
        rate: requests per second at the highest load inside all limits.
        concurrency: requests in flight there (mean), or the clients of a closed loop.
        summary: the metrics at that load, or at the load that shows why there is none.
        binds: what ends the load: a limit, or saturation; None when there is no such load.
        reason: why there is no such load; None when there is one.
        simulated_requests: requests of the deciding run.
    """

    rate: float
    concurrency: float
    summary: Summary
    binds: Bound | None
    reason: Reason | None
    simulated_requests: int


def find_capacity(runs: Runs, instance: Instance, slo: Slo, *, instances: int = 1, above: float = 0.0, care: Care = SURE) -> Capacity:
    """The highest load up to which all limits hold; ``reason`` says why where there is none.

    Args:
        runs: the memory of the search.
        instance: the deployment under its traffic.
        slo: limits; all must hold.
        instances: that are simulated together, behind the router of the traffic.
        above: requests per second of an open loop that must be exceeded; the search ends where it is certain that it is not.
        care: how long the runs are that decide.
    """
    alone = runs.alone(instance)
    broken = worst_limit(alone, slo)
    if broken is not None:
        return no_capacity(alone, BrokenAtAnyLoad(breach=breach(alone, broken)), ALONE_REQUESTS)
    if instance.traffic.load == "closed":
        return _closed_capacity(runs, instance, slo, alone)
    found = LoadScan(runs, instance, instances).highest(slo, above, care)
    if isinstance(found, Highest):
        return Capacity(
            rate=found.rate,
            concurrency=found.rate * found.summary.statistic_ms("e2e", "mean") / 1e3,
            summary=found.summary,
            binds=SATURATION if found.limit is None else bound_by(found.limit),
            reason=None,
            simulated_requests=found.requests,
        )
    if found.limit is None:
        most = runs.saturation(instance)
        return no_capacity(found.summary, AboveSaturation(requests_per_second=found.rate, most=most), ALONE_REQUESTS)
    share = found.rate / instance.saturation_estimate()
    early = BrokenEarly(breach=breach(found.summary, found.limit), requests_per_second=found.rate, share_of_saturation=share)
    return no_capacity(found.summary, early, ALONE_REQUESTS)


def no_capacity(summary: Summary, reason: Reason, requests: int) -> Capacity:
    """No load is inside the limits, for the reason that the summary shows."""
    return Capacity(rate=0.0, concurrency=0.0, summary=summary, binds=None, reason=reason, simulated_requests=requests)


def _closed_capacity(runs: Runs, instance: Instance, slo: Slo, alone: Summary) -> Capacity:
    """Bisection over the number of clients: the latencies grow with it."""
    most = 2 * instance.in_flight
    top = runs.clients(instance, most)
    best, best_summary = 1, alone
    low, high = 1, most
    broken = worst_limit(top, slo)
    if broken is None:
        best, best_summary, low = most, top, high
    binds: Limit | None = None
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
    ended = binds or broken
    return Capacity(
        rate=best_summary.requests_per_second,
        concurrency=float(best),
        summary=best_summary,
        binds=SATURATION if ended is None else bound_by(ended),
        reason=None,
        simulated_requests=max(ALONE_REQUESTS, CLOSED_ROUNDS * best),
    )

"""Routers and prefix caches in words: what the router of a plan is worth, and what the caches behind it find."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tonnage.report.numbers import counted, number, percent

if TYPE_CHECKING:
    from tonnage.plan.fleet import BehindRouter
    from tonnage.plan.limit import Limit
    from tonnage.plan.sensitivity import PrefixCache
    from tonnage.results.metrics import Latencies
    from tonnage.spec.deployment import LimitMetric, Statistic

NAMES = {"random": "random choice", "round-robin": "round robin", "session": "session affinity"}


def router_text(rows: Sequence[BehindRouter], limits: Sequence[Limit], systems: int) -> str:
    """What the router of the plan saves: "behind least-outstanding, which every deployment needs; a plain … would need 14 systems …".

    Args:
        rows: the choice behind its router and behind others; none give "".
        limits: those that count; the first one on TTFT, or the first, says which latency is named.
        systems: of the plan, without spare ones.
    """
    service = next((row for row in rows[1:] if row.router == "random"), None)
    if service is None:
        return routers_text(rows, limits, systems)
    text, plain = f"behind {_named(rows[0].router)}, which every deployment needs; ", "a plain Kubernetes service (random choice)"
    if service.systems is None:
        return f"{text}behind {plain} no number of systems holds the limits"
    if service.systems != systems:
        return f"{text}{plain} would need {counted(service.systems, 'system')} in place of {systems:,}"
    name = _metric(limits)
    return f"{text}{plain} needs as many systems, at {_name(name)} {_value(service, name)} in place of {_value(rows[0], name)}"


def routers_text(rows: Sequence[BehindRouter], limits: Sequence[Limit], systems: int) -> str:
    """Such as "random choice, TTFT p95 150 ms at the peak; behind least-outstanding 132 ms (4 systems would do), behind round robin 78 ms".

    Arguments as of ``router_text``.
    """
    if not rows:
        return ""
    name, (first, *others) = _metric(limits), rows
    said = [f"{_named(row.router)} {_value(row, name)}{_systems(systems, row)}" for row in others]
    own = f"{_named(first.router)}, {_name(name)} {_value(first, name)} at the peak{_systems(systems, first)}"
    return f"{own}; behind {', behind '.join(said)}" if said else own


Metric = tuple["LimitMetric", "Statistic"]


def _metric(limits: Sequence[Limit]) -> Metric:
    """The latency that routers are compared by."""
    limit = next((one for one in limits if one.metric == "ttft"), None) or (limits[0] if limits else None)
    return ("ttft", "p95") if limit is None else (limit.metric, limit.statistic)


def _name(metric: Metric) -> str:
    return f"{metric[0].upper()} {metric[1]}"


def _value(row: BehindRouter, metric: Metric) -> str:
    values: Latencies = getattr(row, f"{metric[0]}_ms")
    return f"{number(values.value(metric[1]))} ms"


def _named(router: str) -> str:
    return NAMES.get(router, router)


def _systems(planned: int, row: BehindRouter) -> str:
    if row.systems is None:
        return " (no number of systems holds the limits)"
    if row.systems == planned:
        return ""
    count = counted(row.systems, "system")
    return f" (it takes {count})" if row.systems > planned else f" ({count} would do)"


def prefix_cache_text(found: PrefixCache | None, systems: int) -> str:
    """Such as "62% of prompt tokens come from the cache behind session; behind random choice 31%; without a cache 5 systems in place of 3".

    Args:
        found: of a plan; None gives "".
        systems: of the plan.
    """
    if found is None:
        return ""
    shown = ""
    if found.instances > 1:
        some = found.simulated_instances < found.instances
        shown = f" behind {_named(found.router)}" + (
            f" ({found.simulated_instances} of {found.instances} instances simulated)" if some else ""
        )
    said = [f"{percent(found.hit_rate)} of prompt tokens come from the cache{shown}"]
    if found.other_hit_rate is not None:
        said.append(f"behind {_named(found.other_router)} {percent(found.other_hit_rate)}")
    return "; ".join([*said, _without(found, systems)])


def _without(found: PrefixCache, systems: int) -> str:
    if found.without_systems is None:
        return "without a cache no number of systems of this deployment would hold the limits"
    if found.without_systems == systems:
        return f"without a cache as many, {counted(systems, 'system')}"
    return f"without a cache {counted(found.without_systems, 'system')} of this deployment in place of {systems}"

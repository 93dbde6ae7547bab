"""How near the deployments come to limits that none of them meets, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tonnage.report.wording.deployments import deployment_text
from tonnage.units import format_duration

if TYPE_CHECKING:
    from tonnage.plan.reachable import Reachable, Reached


def reachable_text(found: Reachable) -> str:
    """The best values, and by which deployment each is reached; then the deployment that comes nearest to all limits, if it is another."""
    best = "; ".join(map(_each, _by_deployment(found.best)))
    who = {one.deployment for one in found.best}
    nearest = "" if who == {found.nearest[0].deployment} else f"; nearest to all limits: {_each(found.nearest)}"
    inside = all(one.value_ms <= one.asked_ms for one in found.nearest)
    alone = ", so the limits hold with one request at a time, and at no load above that" if inside else ""
    return best + nearest + alone


def _by_deployment(values: Sequence[Reached]) -> list[list[Reached]]:
    found: dict[object, list[Reached]] = {}
    for one in values:
        found.setdefault(one.deployment, []).append(one)
    return list(found.values())


def _each(values: Sequence[Reached]) -> str:
    """Such as "TTFT p95 35.2 ms (asked: 1 ms) by h100-sxm-80gb fp8 TP 8 vllm-0.32"."""
    return f"{', '.join(map(_value, values))} by {deployment_text(values[0].deployment)}"


def _value(one: Reached) -> str:
    name = "one request" if one.limit is None else f"{one.limit.metric.upper()} {one.limit.statistic}"
    return f"{name} {format_duration(one.value_ms / 1e3)} (asked: {format_duration(one.asked_ms / 1e3)})"

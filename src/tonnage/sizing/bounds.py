"""Which deployments need no simulation: closed forms say that another on the same GPU beats them.

A deployment is left out only where one on the same GPU, so at the same price, was simulated to carry more
requests per GPU than the closed form allows this one, and answers faster in an empty engine. Otherwise it
stays, however slow: a slower deployment may be the one with the lower latency.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tonnage.plan.reason import FarBehind, Outdone
from tonnage.results.metrics import summarize
from tonnage.sizing.instance import middle
from tonnage.sizing.limits import breach, worst_limit

if TYPE_CHECKING:
    from tonnage.sizing.capacity import Capacity
    from tonnage.sizing.search_space import Ready

MARGIN = 1.1
"""Factor on the closed form of saturation. Without a front end, simulated saturations are 0.93 to 1.04 times the closed form; where
the front end limits, they are lower (tests/sizing)."""

FASTER = 1.02
"""A deployment counts as no slower than another when its latencies in an empty engine are at most this many times the other's."""

FAR = 3.0
"""A deployment is not searched further when it breaks a limit at this fraction of another's requests per GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """A simulated deployment that meets the limits."""

    ready: Ready
    capacity: Capacity

    @property
    def rate_per_gpu(self) -> float:
        """Requests per second and GPU inside the limits."""
        return self.capacity.rate / self.ready.trial.deployment.parallelism.gpus


def bound_per_gpu(ready: Ready) -> float:
    """Requests per second and GPU that the deployment cannot exceed, whatever the limits."""
    return MARGIN * ready.instance.saturation_estimate() / ready.trial.deployment.parallelism.gpus


def beaten(ready: Ready, others: list[Carried]) -> Outdone | None:
    """Why the deployment needs no simulation; None where it does.

    Args:
        ready: the deployment.
        others: those simulated on the same GPU.
    """
    bound, ttft, tpot = bound_per_gpu(ready), ready.instance.unloaded_ttft_s(), ready.instance.unloaded_tpot_s()
    for other in others:
        instance = other.ready.instance
        slower = instance.unloaded_ttft_s() > FASTER * ttft or instance.unloaded_tpot_s() > FASTER * tpot
        if not slower and other.rate_per_gpu > bound:
            return Outdone(at_most_per_gpu=bound, other=other.ready.trial.identity, other_per_gpu=other.rate_per_gpu)
    return None


def far_behind(ready: Ready, others: list[Carried]) -> FarBehind | None:
    """Why one run at a fraction of the best rate on the same GPU ends the search of the deployment; None where it is searched on."""
    best = max(others, key=lambda other: other.rate_per_gpu, default=None)
    if best is None:
        return None
    instance, gpus = ready.instance, ready.trial.deployment.parallelism.gpus
    rate = best.rate_per_gpu * gpus / FAR
    if rate >= instance.saturation_estimate():
        return None
    requests = instance.open(rate, instance.count(rate) // 2, instance.asked.seed)
    summary = summarize(middle(requests))
    broken = worst_limit(summary, instance.asked.slo)
    if broken is None:
        return None
    return FarBehind(
        breach=breach(summary, broken),
        requests_per_second=rate,
        per_gpu=rate / gpus,
        other=best.ready.trial.identity,
        other_per_gpu=best.rate_per_gpu,
    )

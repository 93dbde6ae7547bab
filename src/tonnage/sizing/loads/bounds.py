"""Which deployments need no simulation: closed forms say that another on the same GPU beats them.

A deployment is left out only where one on the same GPU, so at the same price, was simulated to carry more
requests per GPU than the closed form allows this one, and answers faster in an empty engine. Otherwise it
stays, however slow: a slower deployment may be the one with the lower latency.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tonnage.plan.reason import BrokenEarly, FarBehind, Outdone

if TYPE_CHECKING:
    from tonnage.sizing.loads.capacity import Capacity
    from tonnage.sizing.loads.ready import Ready

MARGIN = 1.1
"""Factor on the closed form of saturation. Without a front end, simulated saturations are 0.93 to 1.04 times the closed form; where
the front end limits, they are lower (tests/sizing)."""

FASTER = 1.02
"""A deployment counts as no slower than another when its latencies in an empty engine are at most this many times the other's."""

FAR = 3.0
"""A deployment is not searched further when it breaks a limit at this fraction of another's requests per GPU."""

NEAR = 1.02
"""A search ends within one step of its lattice above the load that is to be exceeded."""


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


def far_behind(ready: Ready, others: list[Carried], capacity: Capacity, far: float = FAR) -> FarBehind | None:
    """Why a search that ended at ``exceeded`` leaves the deployment out; None where that is not why it ended."""
    best = _best(others)
    if best is None or not isinstance(capacity.reason, BrokenEarly):
        return None
    if capacity.reason.requests_per_second > NEAR * exceeded(ready, others, far):
        return None
    rate = capacity.reason.requests_per_second
    return FarBehind(
        breach=capacity.reason.breach,
        requests_per_second=rate,
        per_gpu=rate / ready.trial.deployment.parallelism.gpus,
        other=best.ready.trial.identity,
        other_per_gpu=best.rate_per_gpu,
    )


def exceeded(ready: Ready, others: list[Carried], far: float = FAR) -> float:
    """Requests per second that the deployment must exceed to be searched on: the best rate on the same GPU over ``far``."""
    best = _best(others)
    return 0.0 if best is None else best.rate_per_gpu * ready.trial.deployment.parallelism.gpus / far


def _best(others: list[Carried]) -> Carried | None:
    return max(others, key=lambda other: other.rate_per_gpu, default=None)

"""A deployment to try, and one that fits and is ready to be put under load."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tonnage.perf.step import batch_seconds, context_seconds
from tonnage.perf.step_terms import ATTENTION
from tonnage.plan.candidate import Identity
from tonnage.plan.reason import Reason, Rejected, rejected
from tonnage.sizing.loads.instance import Instance
from tonnage.sizing.loads.two_pools import TwoPools
from tonnage.spec.deployment import Deployment, Slo
from tonnage.spec.hardware import System


def runs_on(deployment: Deployment) -> str:
    """The engine with its version, and its speculative decoding, such as "vllm-0.32 + eagle
    k=3".
    """
    speculation = deployment.speculation
    return deployment.engine + (f" + {speculation.label}" if speculation is not None else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One deployment to try, and the system that it would be bought in."""

    deployment: Deployment
    system: System

    @property
    def name(self) -> str:
        """Such as "h100-sxm-80gb fp8 TP 4 tensorrt-llm-1.2"."""
        d = self.deployment
        p = d.parallelism
        return f"{d.gpu.name} {d.precision.name} {p} {runs_on(d)}"

    @property
    def identity(self) -> Identity:
        """What the plan calls it."""
        d = self.deployment
        p = d.parallelism
        split = {"tp": p.tp, "pp": p.pp, "dp": p.dp, "ep": p.ep}
        return Identity(
            gpu=d.gpu.name,
            precision=d.precision.name,
            **split,
            engine=runs_on(d),
            engine_preset=d.engine,
        )

    def rejected(self, reason: Reason) -> Rejected:
        """This trial, with why it cannot be."""
        return rejected(self.identity, reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A trial that fits, with its step model.

    Attributes:
        trial: as it is now: its knobs may have been tuned.
        instance: it, with its step model and memory.
        place: among all trials.
        first: the trial as the search began with it.
    """

    trial: Trial
    instance: Instance
    place: int
    first: Trial


# What closed forms say that an instance cannot exceed, whatever a simulation would show.


MARGIN = 1.12
"""Factor on the closed forms. Simulated saturations are 0.93 to 1.04 times them without a front
end, and lower where one limits; loads inside a limit on the time per token at most 1.06 times
(``./benchmark pruning``)."""

STABLE = 0.98
"""Share of the measured saturation up to which a queue is assumed to settle."""

WAITS = 1.5
"""How many times as many sessions an instance may carry as it would if none of them were slowed
down by the others."""

SKEWED = ("p50",)
"""Statistics of a time per token that can be below what a full step takes, as most requests meet
fewer prompts than the mean."""

SHARED = 0.9
"""From this share of requests on, the limits of joint attainment bound a load as percentiles do."""


def rate_bound(instance: Instance, slo: Slo) -> float:
    """Requests per second that an instance cannot exceed inside the limits.

    The time from one token to the next grows with the requests that decode at once, and so with the
    load: what a limit on it, or on the whole answer, leaves of the batch bounds the load. Prompts
    may be spread over all steps or come in their own steps: what costs less counts. Of two pools it
    is that of all of their instances.
    """
    if isinstance(instance, TwoPools):
        return MARGIN * instance.most(token_limit(instance, slo))
    # what conversations saturate at is the closed form itself
    margin = STABLE if instance.follows else MARGIN
    margin *= WAITS if instance.recorded_sessions is not None else 1.0
    whole = min(margin * instance.steady_estimate(), MARGIN * instance.budget_estimate())
    max_token_s = token_limit(instance, slo)
    if (
        instance.step.drafting is not None
        or instance.knobs.scheduler == "static"
        or not math.isfinite(max_token_s)
    ):
        return whole
    low, high = 1, instance.batch + 1
    while high - low > 1:
        half = (low + high) // 2
        low, high = (half, high) if _token_seconds(instance, half) <= max_token_s else (low, half)
    osl = instance.traffic.osl.mean
    return min(
        whole,
        MARGIN
        * instance.deployment.parallelism.dp
        * low
        / (osl * min(_token_seconds(instance, low), max_token_s)),
    )


def token_limit(instance: Instance, slo: Slo) -> float:
    """The longest mean time from one token to the next that the limits leave, in seconds."""
    longest = math.inf
    joint = (
        replace(limit, metric=m, seconds=factor * limit.seconds)
        for limit in slo
        if (limit.share or 0) >= SHARED
        for m, factor in limit.parts
    )
    for limit in (*slo, *joint):
        if limit.metric == "tpot" and limit.statistic not in SKEWED:
            longest = min(longest, limit.seconds)
        elif limit.metric == "e2e" and limit.statistic not in SKEWED:
            longest = min(
                longest,
                (limit.seconds - instance.unloaded_ttft_s())
                / max(instance.traffic.osl.mean - 1, 1),
            )
    return max(longest, 1e-9)


def _token_seconds(instance: Instance, batch: int) -> float:
    """Seconds from one token to the next where so many requests decode, with prompts where they
    cost least.
    """
    c, isl, osl, new = (
        instance.step.coefficients,
        instance.traffic.isl.mean,
        instance.traffic.osl.mean,
        instance.computed,
    )
    decode = batch_seconds(c, batch, batch) + context_seconds(c, batch) * batch * (isl + osl / 2)
    apart = decode + batch / osl * new * (
        instance.least_token_s + 0.5 * (2 * isl - new) * float(c[ATTENTION])
    )
    return min(apart, instance.token_seconds(batch))

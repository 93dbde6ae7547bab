"""What a search learned of deployments, for other questions about the same ones, which then make
fewer runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tonnage.plan.reason import Behind
from tonnage.sizing.loads.confidence import Slowdown
from tonnage.sizing.search.deployment_capacity import Contender, Sized
from tonnage.spec.deployment import Deployment

Shares = tuple[tuple["Deployment", float], ...]
"""Deployments with the share that they were found to carry of what closed forms allow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """The capacities that a search has found, for other questions about the same deployments.

    Attributes:
        shares: of what closed forms allow, the part that deployments were found to carry: where
            searches begin, and which come first.
        most: the part that they carry at most; in a question that differs little, one that is
            behind by ``MARGIN`` is left out.
        relief: the strain on a limit with other knobs over that with a deployment's own; in a
            question that differs little, a setting that leaves the limit broken by ``MARGIN`` is
            left out.
    """

    shares: Shares = ()
    most: Mapping[Deployment, float] = field(default_factory=dict)
    relief: Mapping[Deployment, float] = field(default_factory=dict)


def shares_of(deployments: Sequence[Sized]) -> Shares:
    """The shares of deployments that were sized."""
    return tuple((sized.ready.trial.deployment, sized.contender.share) for sized in deployments)


def expecting(contender: Contender, shares: Shares) -> Contender:
    """The contender with the share of its nearest relative; with none where no relative is
    known.
    """
    if not shares:
        return contender
    d = contender.ready.trial.deployment
    alike, share = max((_alike(d, deployment), share) for deployment, share in shares)
    share = share if alike[0] else 0.0
    return contender if share == contender.share else replace(contender, share=share)


def _alike(deployment: Deployment, base: Deployment) -> tuple[bool, ...]:
    """The properties that two deployments share, beginning with what changes the share most."""
    a, b = deployment.parallelism, base.parallelism
    same = (
        deployment.engine == base.engine,
        a == b,
        deployment.precision == base.precision,
        deployment.gpu == base.gpu,
    )
    return ((a.dp > 1, a.pp > 1) == (b.dp > 1, b.pp > 1), *same)


FORESEEN = ("tpot", "e2e")
"""Metrics whose limits closed forms turn into a load; how steep others are where they nearly break
is not known."""

FURTHER = 1.3
"""By how much another metric breaks, for the load to be too much also where an input is a fifth
lower: that is as a limit 1.25 times as loose."""


def most_of(contender: Contender, outcome: Sized | Behind, slowdown: Slowdown) -> float:
    """The share of what closed forms allow that a deployment carries at most, also in a question
    that differs little; 1 if not known.

    A load that breaks a limit s-fold is more than it carries where limits are s times as loose.
    """
    if isinstance(outcome, Sized):
        limit = None if outcome.capacity.binds is None else outcome.capacity.binds.limit
        return (
            outcome.capacity.rate / contender.bound(slowdown)
            if limit is None or limit.metric in FORESEEN
            else 1.0
        )
    times = max((outcome.breach.value_ms or 0.0) / outcome.breach.limit.milliseconds, 1.0)
    if times < FURTHER and outcome.breach.limit.metric not in FORESEEN:
        return 1.0
    looser = tuple(
        replace(limit, seconds=times * limit.seconds) for limit in contender.question.slo
    )
    return outcome.requests_per_second / replace(
        contender, question=replace(contender.question, slo=looser)
    ).bound(slowdown)

"""GPUs, and cost where it is known, against latency: which candidates nobody can beat on both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields

from tonnage.plan.candidate import Candidate, mean_latency
from tonnage.plan.pool import Identity
from tonnage.spec.typed_values import strict


@strict
class ParetoPoint(Identity):
    """One candidate, in the order of ``Plan.candidates``.

    Attributes:
        systems, gpus: bought for the peak.
        cost_per_year: in USD; None where it is not known.
        ttft_ms, e2e_ms: means in milliseconds at the asked peak, or at the highest load of the candidate inside the limits where no
            peak is known; None where not measured.
        front_gpus: no other candidate has at most as many GPUs and a lower mean E2E (TTFT where E2E was not measured).
        front_cost: the same with cost per year in place of GPUs; False where cost is not known.
        chosen: whether it is the plan's choice.
    """

    systems: int
    gpus: int
    cost_per_year: float | None
    ttft_ms: float | None
    e2e_ms: float | None
    front_gpus: bool
    front_cost: bool
    chosen: bool


def pareto(candidates: Sequence[Candidate], costs: Mapping[int, float] | None = None) -> tuple[ParetoPoint, ...]:
    """Every candidate with its place on the two fronts.

    Args:
        candidates: best first; the first is the choice.
        costs: cost per year by place in ``candidates``, where known.
    """
    known = costs or {}
    latency = [mean_latency(c) for c in candidates]
    by_gpus = _front([(float(c.gpus), late) for c, late in zip(candidates, latency, strict=True)])
    by_cost = _front([(known.get(i, math.inf), late) for i, late in enumerate(latency)])
    return tuple(
        ParetoPoint(
            **{part.name: getattr(c, part.name) for part in fields(Identity)},
            systems=c.systems,
            gpus=c.gpus,
            cost_per_year=known.get(i),
            ttft_ms=(c.at_peak or c).ttft_ms.mean,
            e2e_ms=(c.at_peak or c).e2e_ms.mean,
            front_gpus=i in by_gpus,
            front_cost=i in by_cost and i in known,
            chosen=i == 0,
        )
        for i, c in enumerate(candidates)
    )


def _front(points: Sequence[tuple[float, float]]) -> set[int]:
    """Places of the points that no other beats on one number without losing on the other; of equals, the first."""
    front: set[int] = set()
    best = math.inf
    for index in sorted(range(len(points)), key=lambda i: (*points[i], i)):
        if math.isfinite(points[index][0]) and points[index][1] < best:
            best = points[index][1]
            front.add(index)
    return front

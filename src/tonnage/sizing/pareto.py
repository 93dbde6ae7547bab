"""GPUs, and cost where it is known, against latency: which candidates nobody can beat on both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tonnage.plan.former_candidate import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoPoint:
    """One candidate as a trade of hardware against latency.

    Attributes:
        gpu, precision, tp, pp, dp, ep, engine: the deployment.
        systems, gpus: bought for the peak.
        cost_per_year: in the plan's currency; None where it is not known.
        ttft_ms, e2e_ms: means in milliseconds at the highest load of the candidate inside the limits; None where not measured.
        front_gpus: no other candidate has at most as many GPUs and a lower mean E2E (TTFT where E2E was not measured).
        front_cost: the same with cost per year in place of GPUs; False where cost is not known.
        chosen: the plan's choice.
    """

    gpu: str
    precision: str
    tp: int
    pp: int
    engine: str
    systems: int
    gpus: int
    cost_per_year: float | None
    ttft_ms: float | None
    e2e_ms: float | None
    front_gpus: bool
    front_cost: bool
    chosen: bool
    dp: int = 1
    ep: int = 1


def pareto(candidates: Sequence[Candidate], costs: Mapping[int, float] | None = None) -> tuple[ParetoPoint, ...]:
    """Every candidate with its place on the two fronts.

    Args:
        candidates: best first; the first is the choice.
        costs: cost per year by place in ``candidates``, where known.
    """
    known = costs or {}
    latency = [_latency(c) for c in candidates]
    by_gpus = _front([(float(c.gpus), late) for c, late in zip(candidates, latency, strict=True)])
    by_cost = _front([(known.get(i, math.inf), late) for i, late in enumerate(latency)])
    return tuple(
        ParetoPoint(
            gpu=c.gpu,
            precision=c.precision,
            tp=c.tp,
            pp=c.pp,
            engine=c.engine,
            systems=c.systems,
            gpus=c.gpus,
            cost_per_year=known.get(i),
            ttft_ms=c.ttft_ms.get("mean"),
            e2e_ms=c.e2e_ms.get("mean"),
            front_gpus=i in by_gpus,
            front_cost=i in by_cost and i in known,
            chosen=i == 0,
            dp=c.dp,
            ep=c.ep,
        )
        for i, c in enumerate(candidates)
    )


def _latency(candidate: Candidate) -> float:
    value = candidate.e2e_ms.get("mean")
    value = candidate.ttft_ms.get("mean") if value is None else value
    return math.inf if value is None else value


def _front(points: Sequence[tuple[float, float]]) -> set[int]:
    """Places of the points that no other beats on one number without losing on the other; of equals, the first."""
    front: set[int] = set()
    best = math.inf
    for index in sorted(range(len(points)), key=lambda i: (*points[i], i)):
        if math.isfinite(points[index][0]) and points[index][1] < best:
            best = points[index][1]
            front.add(index)
    return front

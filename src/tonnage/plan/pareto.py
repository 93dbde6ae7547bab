"""One candidate as a trade of hardware, and cost where it is known, against latency."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.plan.identity import Identity
from tonnage.spec.typed_values import FORBID


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoPoint(Identity):
    """One candidate, in the order of ``Plan.candidates``.

    Attributes:
        systems, gpus: bought for the peak.
        cost_per_year: in USD; None where it is not known.
        ttft_ms, e2e_ms: means in milliseconds at the highest load of the candidate inside the limits; None where not measured.
        front_gpus: no other candidate has at most as many GPUs and a lower mean E2E (TTFT where E2E was not measured).
        front_cost: the same with cost per year in place of GPUs; False where cost is not known.
        chosen: whether it is the plan's choice.
    """

    __pydantic_config__ = FORBID

    systems: int
    gpus: int
    cost_per_year: float | None
    ttft_ms: float | None
    e2e_ms: float | None
    front_gpus: bool
    front_cost: bool
    chosen: bool

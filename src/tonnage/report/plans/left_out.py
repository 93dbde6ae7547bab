"""GPUs that were asked for and of which no deployment is inside the limits: each with the reason that came nearest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.plan import reason as why
from tonnage.report.wording.deployments import deployment_text
from tonnage.report.wording.reasons import reason_text

if TYPE_CHECKING:
    from tonnage.plan.plan import Plan
    from tonnage.plan.rejected import Rejected

NEVER = (why.VendorUnsupported, why.PrecisionUnsupported, why.WiderThanSystem, why.TooManyStages, why.DoesNotDivide)
"""Reasons that no limit and no memory would change: told only where there is no other."""


def left_out_texts(plan: Plan) -> tuple[str, ...]:
    """Such as "l40s: TTFT p95 612 ms > 500 ms at any load (fp8 TP 8 vllm-0.32)"."""
    inside = {pool.gpu for candidate in plan.candidates for pool in candidate.pools}
    found = []
    for gpu in plan.scenario.gpus:
        refused = [one for one in plan.rejected if one.gpu == gpu]
        if gpu not in inside and refused:
            nearest = min(refused, key=_far)
            which = "" if isinstance(nearest.reason, NEVER) else f" ({deployment_text(nearest).removeprefix(gpu).strip()})"
            found.append(f"{gpu}: {reason_text(nearest.reason)}{which}")
    return tuple(found)


def _far(refused: Rejected) -> tuple[int, float]:
    """How far a deployment is from an answer: what it costs or takes first, limits by their factor, then memory, then what never works."""
    reason = refused.reason
    if isinstance(reason, why.OverBudget | why.OverPower | why.OverRacks):
        return -1, 0.0
    if isinstance(reason, NEVER):
        return 2, 0.0
    if isinstance(reason, why.CannotRun):
        return 1, 0.0
    breach = getattr(reason, "breach", None)
    value = None if breach is None else breach.value_ms
    return 0, float("inf") if breach is None or value is None else value / breach.limit.milliseconds

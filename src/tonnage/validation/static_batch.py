"""A static batch in closed form, equal to what the simulator gives."""

from __future__ import annotations

from tonnage.perf.step import StepModel, batch_seconds, context_seconds, step_seconds
from tonnage.units import PS_PER_S, to_ps


def static_latencies_s(step: StepModel, batch: int, isl: int, osl: int) -> tuple[float, float]:
    """TTFT and end-to-end seconds of one static batch of equal requests without streaming, in closed form.

    One step takes all prompts, and ``osl − 1`` decode steps follow, whose contexts grow by one token each. The results equal those of
    the simulator to the picosecond.
    """
    c = step.coefficients
    prefill = to_ps(step_seconds(c, batch * isl, batch, 0, batch * isl * isl, 0))
    steps = osl - 1
    context = batch * (steps * isl + steps * (steps + 1) // 2)
    decode = steps * round(batch_seconds(c, batch, batch) * PS_PER_S) + round(context_seconds(c, batch) * PS_PER_S) * context
    first = to_ps(step.frontend_s) + prefill
    return first / PS_PER_S, (first + decode) / PS_PER_S

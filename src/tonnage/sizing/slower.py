"""A step model whose steps take longer by a factor: what an error of the model would do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tonnage.perf.step import COEFFICIENTS, EXPERT_MISS, EXPERT_REST, EXPERT_UNEVEN, LIMITS, NORM, WAVE, StepModel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PURE_NUMBERS = (NORM, EXPERT_MISS, EXPERT_REST, EXPERT_UNEVEN, WAVE, *LIMITS)
"""Places of the coefficient array that are no seconds."""


def slower(step: StepModel, factor: float) -> StepModel:
    """Every second of the step times ``factor``; the front end is not the step's."""
    if factor == 1.0:
        return step
    drafting = step.drafting
    drafted = None if drafting is None else replace(drafting, coefficients=_scaled(drafting.coefficients, factor))
    return replace(step, coefficients=_scaled(step.coefficients, factor), drafting=drafted, response_s=step.response_s * factor)


def _scaled(c: NDArray[np.float64], factor: float) -> NDArray[np.float64]:
    scaled = c * factor
    for place in PURE_NUMBERS:
        scaled[place] = c[place]
    scaled[COEFFICIENTS::2] = c[COEFFICIENTS::2]
    return scaled

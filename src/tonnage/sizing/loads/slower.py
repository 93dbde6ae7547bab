"""A step model whose steps take longer by a factor, to see what an error of the step model would change."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tonnage.perf.step import StepModel
from tonnage.perf.step_terms import COEFFICIENTS, DURATIONS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def slower(step: StepModel, factor: float) -> StepModel:
    """The step model with every duration of a step multiplied by ``factor``; the front end is no part of a step and stays as it is."""
    if factor == 1.0:
        return step
    drafting = step.drafting
    drafted = None if drafting is None else replace(drafting, coefficients=_scaled(drafting.coefficients, factor))
    return replace(step, coefficients=_scaled(step.coefficients, factor), drafting=drafted, response_s=step.response_s * factor)


def _scaled(c: NDArray[np.float64], factor: float) -> NDArray[np.float64]:
    """The array with all its durations, those of a table behind it included, times ``factor``."""
    scaled = c.copy()
    scaled[list(DURATIONS)] *= factor
    scaled[COEFFICIENTS + 1 :: 2] *= factor
    return scaled

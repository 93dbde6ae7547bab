"""Guesses of a drafter."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.simulator.reference.examples import TICK
from tests.strategies import coefficient_array
from tonnage.perf.step import Drafting, StepModel

if TYPE_CHECKING:
    import numpy as np

NOTHING = coefficient_array(norm=1.0)


def drafting(
    tokens: int, acceptance: float, passes: int = 0, coefficients: np.ndarray = NOTHING
) -> Drafting:
    return Drafting(tokens=tokens, acceptance=acceptance, passes=passes, coefficients=coefficients)


def guessing(tokens: int, acceptance: float) -> StepModel:
    """Steps of 1 ms with guesses that cost nothing."""
    return replace(TICK, drafting=drafting(tokens, acceptance))

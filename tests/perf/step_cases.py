"""What the tests of step share with others."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tonnage.perf import step_terms as at
from tonnage.perf.step_terms import COEFFICIENTS

tokens = st.integers(1, 50_000)

ALWAYS = {
    at.NORM: 1.0,
    at.EXPERT_BYTES: 1e-30,
    at.EXPERT_MISS: 0.9,
    at.EXPERT_REST: 1.0,
    at.WAVE: 0.3,
}
"""Coefficients without which others would have no effect on the step."""

SWITCHES: dict[int, dict[int, float]] = {
    at.HOST_LEAST_SEQUENCE: {at.HOST_LEAST: 1e-15},
    at.COMM_STEP: {at.ONE_SHOT_TO: 1e6},
    at.COMM_SMALL: {at.ONE_SHOT_TO: 1e6},
    at.STARVED: {at.STARVED_TO: 1e6},
    at.COMM_SLOW: {at.SLOW_TO: 1e6},
    at.HEADS: {at.GROUPED_FROM: 1e6},
    at.SPARSE: {at.SPARSE_MOST: 1e6},
    at.SPARSE_MOST: {at.SPARSE: 1e6},
}
"""The limits inside which a duration is taken."""


def alone(place: int, seconds: float = 1e-3) -> np.ndarray:
    """A step model in which nothing but one duration takes time."""
    c = np.zeros(COEFFICIENTS)
    for other, value in {**ALWAYS, **SWITCHES.get(place, {}), place: seconds}.items():
        c[other] = value
    return c

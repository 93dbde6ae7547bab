"""Nonlinear least squares in numpy: Levenberg–Marquardt as a trust region, for the few dozen residuals of a calibration.

The method is that of Moré, "The Levenberg-Marquardt algorithm: implementation and theory" (1978). Every step minimises the
linearised residuals inside a ball whose radius grows where the linear model predicts well and shrinks where it does not. A
singular value decomposition of the Jacobian gives the step for any damping, and Newton's method finds the damping whose step
has the length of the radius. Priors need no code of their own here: the caller appends them as further residuals.
``tests/evidence/test_least_squares.py`` compares the solutions with those of ``scipy.optimize.least_squares``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Residuals = Callable[[Floats], Floats]


TOLERANCE = 1e-8
"""The search ends when the sum of squares, or the solution itself, changes by less than this share in one step."""

DIFFERENCE = float(np.sqrt(np.finfo(float).eps))
"""Step of the finite differences, relative to the size of a variable, of at least 1."""

POOR, GOOD = 0.25, 0.75
"""Actual over predicted decrease below which the radius shrinks, and above which it may grow."""

AT_THE_EDGE = 0.95
"""Share of the radius from which a step counts as one that the radius has cut short."""

RADIUS_ERROR, MOST_NEWTON_STEPS = 0.01, 20
"""How exactly a damped step has the length of the radius, and how many Newton steps may go into that."""

LEAST_DAMPING = 1e-3
"""Where the damping starts if some direction changes no residual, relative to the largest that can be needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """Where a search ended.

    Attributes:
        x: float64 (n,), the solution.
        residuals: float64 (m,), the residuals there.
        jacobian: float64 (m, n), their derivatives there.
        evaluations: how often the residuals were requested, those of the finite differences not counted.
        converged: False where the evaluations were used up before the tolerance was reached.
    """

    x: Floats
    residuals: Floats
    jacobian: Floats
    evaluations: int
    converged: bool

    @property
    def cost(self) -> float:
        """Half the sum of the squared residuals."""
        return 0.5 * float(self.residuals @ self.residuals)


def least_squares(residuals: Residuals, start: Floats, *, scale: Floats, evaluations: int, tolerance: float = TOLERANCE) -> Solution:
    """The vector that makes the sum of squared residuals smallest, searched from ``start``.

    Args:
        residuals: gives float64 (m,) for a float64 (n,), with m ≥ n and finite values at ``start``.
        start: where the search begins, float64 (n,).
        scale: the size of a typical move of each variable, float64 (n,), above 0: the radius is measured in it.
        evaluations: how often the residuals may be asked for, those of the finite differences not counted.
        tolerance: relative change of the sum of squares, or of the solution, at which the search ends.

    Returns:
        A local minimum, or the best vector so far where the evaluations were used up.

    Raises:
        ValueError: the residuals are not finite at ``start``.
    """
    x, found = start.astype(float), residuals(start)
    if not np.isfinite(found).all():
        raise ValueError("the residuals are not finite where the search begins")
    model = _Model(differences(residuals, x, found), found, scale)
    radius = float(np.linalg.norm(x / scale)) or 1.0
    used, converged = 1, False
    while used < evaluations and not converged:
        if np.abs(model.gradient).max() < tolerance:
            converged = True
            break
        step = model.step(radius)
        candidate = x + scale * step
        at_candidate = residuals(candidate)
        used += 1
        length = float(np.linalg.norm(step))
        if not np.isfinite(at_candidate).all():
            radius = POOR * length
            continue
        cost = 0.5 * float(found @ found)
        decrease, predicted = cost - 0.5 * float(at_candidate @ at_candidate), model.decrease(step)
        ratio = decrease / predicted if predicted > 0 else 0.0
        still = np.linalg.norm(scale * step) < tolerance * (tolerance + np.linalg.norm(x))
        converged = bool(still or (decrease < tolerance * cost and ratio > POOR))
        radius = _next_radius(radius, ratio, length)
        if decrease > 0:
            x, found = candidate, at_candidate
            model = _Model(differences(residuals, x, found), found, scale)
    return Solution(x=x, residuals=found, jacobian=model.jacobian, evaluations=used, converged=converged)


def differences(residuals: Residuals, x: Floats, at: Floats) -> Floats:
    """The Jacobian by forward differences, float64 (m, n), at ``x`` (n,), where the value is ``at`` (m,)."""
    columns = []
    for i, value in enumerate(x):
        moved = x.copy()
        moved[i] += DIFFERENCE * max(1.0, abs(value)) * (1.0 if value >= 0 else -1.0)
        columns.append((residuals(moved) - at) / (moved[i] - value))
    return np.array(columns).T


def _next_radius(radius: float, ratio: float, length: float) -> float:
    """The radius after a step of that length, whose decrease was ``ratio`` times the predicted one."""
    if ratio < POOR:
        return POOR * length
    if ratio > GOOD and length > AT_THE_EDGE * radius:
        return 2.0 * radius
    return radius


class _Model:
    """The residuals linearised around one point; steps are in scaled variables."""

    def __init__(self, jacobian: Floats, residuals: Floats, scale: Floats) -> None:
        self.jacobian, self.residuals, self.scaled = jacobian, residuals, jacobian * scale
        self.gradient = jacobian.T @ residuals
        left, self.singular, self.right = np.linalg.svd(self.scaled, full_matrices=False)
        self.along = left.T @ residuals

    def decrease(self, step: Floats) -> float:
        """By how much a step lowers half the sum of squares of the linear model."""
        change = self.scaled @ step
        return -float(change @ self.residuals + 0.5 * change @ change)

    def step(self, radius: float) -> Floats:
        """The step of at most the radius's length that lowers the linear model most."""
        s, pull = self.singular, self.singular * self.along
        low, high = 0.0, float(np.linalg.norm(pull)) / radius
        damping = LEAST_DAMPING * high
        if s[-1] > np.finfo(float).eps * len(self.residuals) * s[0]:
            free = self._damped(0.0)
            if np.linalg.norm(free) <= radius:
                return free
            damping = 0.0
        for _ in range(MOST_NEWTON_STEPS):
            damping = damping if low <= damping <= high else 0.5 * (low + high)
            lengths = pull / (s**2 + damping)
            length = float(np.linalg.norm(lengths))
            excess = length - radius
            if abs(excess) < RADIUS_ERROR * radius:
                break
            low, high = (damping, high) if excess > 0 else (low, damping)
            damping += excess / radius * length**2 / float(lengths**2 @ (1.0 / (s**2 + damping)))
        found = self._damped(damping)
        return np.asarray(found * (radius / np.linalg.norm(found)))

    def _damped(self, damping: float) -> Floats:
        """The minimum of the linear model plus damping times the squared length."""
        return np.asarray(-self.right.T @ (self.singular * self.along / (self.singular**2 + damping)))

"""Least squares with priors over rows whose residuals depend on a simulation, and the rounding of
what is found.

All rows are simulated ``ROUNDS`` times, and the residuals are evaluated at most ``EVALUATIONS``
times after each simulation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tonnage.evidence.rows import LoadedRows, Rows
from tools.fit.slopes import Slopes
from tools.fit.terms import Layout

ROUNDS, EVALUATIONS, LAST_EVALUATIONS = 2, 20, 40

Vector = NDArray[np.float64]


def solve(
    layout: Layout,
    parts: Sequence[tuple[float, Rows]],
    start: Vector,
    free: NDArray[np.int64],
    *,
    evaluations: tuple[int, int] = (EVALUATIONS, LAST_EVALUATIONS),
) -> Vector:
    """The vector that explains the rows best, while terms outside ``free`` are held at ``start``.

    ``evaluations`` are the most evaluations of the residuals after the first simulation and after
    the last.
    """
    from scipy.optimize import least_squares

    x = start.copy()
    loaded = any(isinstance(rows, LoadedRows) for _, rows in parts)
    for number in range(ROUNDS if loaded else 1):
        for _, rows in parts:
            rows.simulate(layout.terms(x))
        slopes = Slopes(layout, parts, x, free)
        last = not loaded or number == ROUNDS - 1
        scale, most = layout.spread[free], evaluations[1 if last else 0]
        found = least_squares(
            slopes.residuals, x[free], slopes.jacobian, x_scale=scale, max_nfev=most
        )
        x[free] = found.x
    return x


def rounded(values: Any) -> Any:
    """Nested groups with their numbers rounded to four digits and their names in order."""
    if isinstance(values, dict):
        return {name: rounded(value) for name, value in sorted(values.items())}
    if isinstance(values, str):
        return values
    return float(f"{values:.4g}")

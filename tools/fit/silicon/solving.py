"""The least-squares solution of dense rows of current engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tonnage.evidence.rows import Terms
from tools.fit.silicon import streaming
from tools.fit.silicon.dense_terms import SiliconLayout
from tools.fit.silicon.sample import Row
from tools.fit.silicon.silicon_rows import SiliconRows
from tools.fit.slopes import Slopes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ROUNDS, EVALUATIONS, TOLERANCE, SLOPE = 2, 15, 1e-4, 1e-5
"""The simulations of every row, the evaluations after each, the tolerance of the search, and the
step of the differences."""


def solve_silicon(layout: SiliconLayout, rows: Sequence[Row]) -> Terms:
    """The terms that explain the rows best."""
    solved, x = solution(layout, rows)
    return solved.terms(x)


def solution(
    layout: SiliconLayout, rows: Sequence[Row]
) -> tuple[SiliconLayout, NDArray[np.float64]]:
    """The vector that explains the rows best, and the layout that it belongs to, front ends
    included.
    """
    from scipy.optimize import least_squares

    parts, x = SiliconRows(rows), layout.start
    for number in range(ROUNDS):
        if number == ROUNDS - 1:
            layout = layout.streaming(streaming.seconds(rows, layout.terms(x)))
        parts.simulate(layout.terms(x))
        slopes = Slopes(layout, [(1.0, parts)], x, step=SLOPE)
        x = least_squares(
            slopes.residuals,
            x,
            slopes.jacobian,
            x_scale=layout.spread,
            ftol=TOLERANCE,
            xtol=TOLERANCE,
            max_nfev=EVALUATIONS,
        ).x
    return layout, x

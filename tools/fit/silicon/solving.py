"""The least-squares solution of dense rows of current engines, with a Jacobian that moves the corrections of all engines at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tonnage.calibration.residuals import Terms
from tonnage.spec.catalog import find_engine
from tools.fit.silicon import streaming
from tools.fit.silicon.dense_terms import ENGINES, SiliconLayout, terms_of
from tools.fit.silicon.sample import Row
from tools.fit.silicon.silicon_rows import SiliconRows
from tools.fit.terms import PRIOR_WEIGHT, Layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROUNDS, EVALUATIONS, TOLERANCE, SLOPE = 2, 15, 1e-4, 1e-5
"""The simulations of every row, the evaluations after each, the tolerance of the search, and the step of the differences."""


def solve_silicon(layout: SiliconLayout, rows: Sequence[Row]) -> Terms:
    """The terms that explain the rows best."""
    solved, x = solution(layout, rows)
    return solved.terms(x)


def solution(layout: SiliconLayout, rows: Sequence[Row]) -> tuple[SiliconLayout, NDArray[np.float64]]:
    """The vector that explains the rows best, and the layout that it belongs to, front ends included."""
    from scipy.optimize import least_squares

    parts, x = SiliconRows(rows), layout.start
    for number in range(ROUNDS):
        if number == ROUNDS - 1:
            layout = layout.streaming(streaming.seconds(rows, layout.terms(x)))
        parts.simulate(layout.terms(x))
        slopes = Slopes(layout, parts)
        x = least_squares(
            slopes.residuals, x, slopes.jacobian, x_scale=layout.spread, ftol=TOLERANCE, xtol=TOLERANCE, max_nfev=EVALUATIONS
        ).x
    return layout, x


class Slopes:
    """The residuals of rows and priors, and how they change with each term.

    The correction of an engine moves only the engine's own rows, so the same term of all engines is moved at once.
    """

    def __init__(self, layout: Layout, parts: SiliconRows) -> None:
        """Find the engine of each residual, and the terms that can be moved together."""
        self.layout, self.parts = layout, parts
        engines = np.array([terms_of(find_engine(point.deployment.engine).coefficients) for point in parts.points])
        self.engine = np.concatenate([engines[np.isfinite(values)] for values in parts.measured.values()])
        together: dict[str, list[tuple[int, str]]] = {}
        for place, name in enumerate(layout.names):
            owner, _, term = name.rpartition(".")
            engine = owner if owner in ENGINES else ""
            together.setdefault(f"own {term}" if engine else name, []).append((place, engine))
        self.groups = list(together.values())

    def residuals(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """The residuals of the rows, followed by those of the priors."""
        prior = PRIOR_WEIGHT * (x - self.layout.start) / self.layout.spread
        return np.concatenate([self.parts.residuals(self.layout.terms(x)), prior])

    def jacobian(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """The Jacobian by differences over ``SLOPE`` of each term's logarithm, float64 (residuals, terms)."""
        here, count = self.parts.residuals(self.layout.terms(x)), len(self.engine)
        found = np.zeros((count + len(x), len(x)))
        found[count + np.arange(len(x)), np.arange(len(x))] = PRIOR_WEIGHT / self.layout.spread
        for group in self.groups:
            moved = x.copy()
            moved[[place for place, _ in group]] += SLOPE
            change = (self.parts.residuals(self.layout.terms(moved)) - here) / SLOPE
            for place, engine in group:
                found[:count, place] = np.where(self.engine == engine, change, 0.0) if engine else change
        return found

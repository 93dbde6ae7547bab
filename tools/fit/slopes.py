"""The residuals of rows and priors, and how they change with each term, for the least-squares
search of every stage.

A residual costs a look at every deployment and at every bin of steps. Many terms reach few
deployments: the correction of one GPU, one engine, one kind of link. So terms that reach no
deployment in common are moved together, and rows that none of them reaches are not looked at. The
differences that come out are those of moving one term after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tonnage.evidence.rows import Rows
from tools.fit.terms import PRIOR_WEIGHT, Layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

STEP = float(np.sqrt(np.finfo(np.float64).eps))
"""The step of the differences, relative to a variable of at least 1, as scipy's two-point scheme
has it."""


class Slopes:
    """The residuals of some parts of the rows, each with its weight, followed by those of the
    priors, and their Jacobian.
    """

    def __init__(
        self,
        layout: Layout,
        parts: Sequence[tuple[float, Rows]],
        x: Floats,
        free: NDArray[np.int64] | None = None,
        *,
        step: float | None = None,
    ) -> None:
        """Find out which residuals each free term can change, and which terms can be moved
        together.

        Args:
            layout: the terms.
            parts: rows with their weights; rows under load have been simulated.
            x: where the terms outside ``free`` are held, float64 (terms,).
            free: the places of the terms that move; all if not given.
            step: by how much each term's logarithm is moved; ``STEP`` of its size if not given.
        """
        self.step = step
        self.layout, self.parts, self.held = layout, list(parts), x.copy()
        self.free = np.arange(len(layout.names)) if free is None else free
        self.reached: list[NDArray[np.bool_]] = []
        self.of: list[NDArray[np.int64]] = []
        for _, rows in self.parts:
            reached = [
                [layout.reaches(layout.names[place], d) for d in rows.deployments.unique]
                for place in self.free
            ]
            self.reached.append(np.array(reached, dtype=bool))
            self.of.append(
                np.concatenate(
                    [rows.deployments.of[np.isfinite(values)] for values in rows.measured.values()]
                )
            )
        self.together = _apart(np.concatenate(self.reached, axis=1))
        self._last: tuple[Floats, list[Floats]] = np.zeros(0), []

    def residuals(self, moved: Floats) -> Floats:
        """The residuals at a vector of the free terms."""
        prior = (
            PRIOR_WEIGHT * (moved - self.layout.start[self.free]) / self.layout.spread[self.free]
        )
        return np.concatenate([*self._by_part(moved), prior])

    def jacobian(self, moved: Floats) -> Floats:
        """The Jacobian there, by differences over the logarithm of each term; float64 (residuals,
        free terms).
        """
        here, ends = self._by_part(moved), np.cumsum([len(of) for of in self.of])
        found = np.zeros((int(ends[-1]) + len(moved), len(moved)))
        found[ends[-1] + np.arange(len(moved)), np.arange(len(moved))] = (
            PRIOR_WEIGHT / self.layout.spread[self.free]
        )
        relative = STEP * np.where(moved >= 0, 1.0, -1.0) * np.maximum(1.0, np.abs(moved))
        steps = relative if self.step is None else np.full(len(moved), self.step)
        for group in self.together:
            there = moved.copy()
            there[group] += steps[group]
            for number, (reached, of, end) in enumerate(
                zip(self.reached, self.of, ends, strict=True)
            ):
                acting = [place for place in group if reached[place].any()]
                if acting:
                    change = self._of_part(number, there) - here[number]
                    for place in acting:
                        column = np.where(
                            reached[place][of], change / (there[place] - moved[place]), 0.0
                        )
                        found[end - len(of) : end, place] = column
        return found

    def _by_part(self, moved: Floats) -> list[Floats]:
        """The weighted residuals of every part; the search asks for the slopes where it has just
        asked for the residuals.
        """
        if not np.array_equal(self._last[0], moved):
            self._last = (
                moved.copy(),
                [self._of_part(number, moved) for number in range(len(self.parts))],
            )
        return self._last[1]

    def _of_part(self, number: int, moved: Floats) -> Floats:
        """The weighted residuals of one part."""
        y = self.held.copy()
        y[self.free] = moved
        weight, rows = self.parts[number]
        return weight * rows.residuals(self.layout.terms(y))


def _apart(reached: NDArray[np.bool_]) -> list[list[int]]:
    """Groups of rows of a table in which no column is true twice; each row goes into the first
    group that it fits into.
    """
    groups: list[list[int]] = []
    taken: list[NDArray[np.bool_]] = []
    for place, mine in enumerate(reached):
        number = next(
            (number for number, others in enumerate(taken) if not (mine & others).any()),
            len(groups),
        )
        if number == len(groups):
            groups.append([])
            taken.append(np.zeros_like(mine))
        groups[number].append(place)
        taken[number] |= mine
    return groups

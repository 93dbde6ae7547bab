"""The first stage of the fit: GPUs, links and the engines up to TensorRT-LLM 0.15."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tonnage.evidence.rows import LoadedRows, Rows, StaticRows, Terms, errors
from tonnage.spec.catalog import find_model
from tools.fit.data import FILES, Row, curve_rows, group_of
from tools.fit.folds import Fold, Group
from tools.fit.prior_widths import Learned, learned
from tools.fit.processes import Processes
from tools.fit.residuals import HeldOut, held_out_rows
from tools.fit.solving import solve
from tools.fit.terms import CURRENT, NIM, STATIC, Layout

WEIGHTS = {STATIC: 0.35, NIM: 1.0, CURRENT: 1.0}
"""The weight of a residual by engine: the many static rows are strongly alike."""

Figures = dict[str, float]
Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """What a fold found.

    Attributes:
        x: the terms that were fitted without it.
        figures: its MAPE in percent by metric.
        errors: its errors one by one.
    """

    x: Vector
    figures: Figures
    errors: tuple[HeldOut, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """The rows of the stage and the terms that it moves.

    Attributes:
        rows: by engine.
        layout: the terms.
    """

    rows: dict[str, list[Row]]
    layout: Layout

    def everything(self) -> Vector:
        """The vector that explains all rows of all engines best."""
        parts = _parts(self.rows)
        parts.append((WEIGHTS[NIM], LoadedRows(curve_rows())))
        return solve(self.layout, parts, self.layout.start, self.layout.free(FILES))

    def without(self, fold: Fold) -> Vector:
        """The vector that explains best what a fold leaves to fit."""
        if fold.engine != CURRENT:
            return solve(
                self.layout, _parts(fold.train), self.layout.start, self.layout.free(fold.train)
            )
        rest = {engine: part for engine, part in self.rows.items() if engine != CURRENT}
        start = solve(self.layout, _parts(rest), self.layout.start, self.layout.free((STATIC, NIM)))
        return solve(self.layout, _parts(fold.train), start, self.layout.only(CURRENT))

    def held_out(self, fold: Fold) -> LeftOut:
        """The terms without a fold, and the errors of the rows that it leaves out."""
        x = self.without(fold)
        rows = rows_of(fold.engine, fold.test)
        found = errors(rows, self.layout.terms(x))
        held = held_out_rows(rows.points, found, unseen_gpu=fold.title.endswith("a GPU left out"))
        return LeftOut(x=x, figures=mape_of(found), errors=tuple(held))

    def calibrated(
        self, without: Mapping[tuple[Group, ...], Vector], processes: Processes
    ) -> Learned | None:
        """What calibrating NIM groups teaches that the terms have not seen.

        Args:
            without: the vector of each fold that leaves out groups of NIM, by these groups in
                order.
            processes: where to calibrate them.
        """
        groups: dict[Group, list[Row]] = {}
        for row in self.rows[NIM]:
            groups.setdefault(group_of(row), []).append(row)
        return learned(groups, {out: self.layout.terms(x) for out, x in without.items()}, processes)

    def in_sample(self, terms: Terms) -> dict[str, dict[str, Figures]]:
        """The MAPE of every file in percent with the final terms; dense models and experts also
        apart where a file has both.
        """
        found: dict[str, dict[str, Figures]] = {}
        for engine, rows in self.rows.items():
            families = {"all": rows}
            families |= {
                name: [r for r in rows if find_model(r["model"]).is_moe == moe]
                for name, moe in (("dense", False), ("moe", True))
            }
            found[FILES[engine]] = {
                name: mape(rows_of(engine, part), terms) for name, part in families.items() if part
            }
        return found


def rows_of(engine: str, rows: Sequence[Row]) -> Rows:
    """The rows of one engine as residuals."""
    return StaticRows(rows) if engine == STATIC else LoadedRows(rows)


def _parts(rows: dict[str, list[Row]]) -> list[tuple[float, Rows]]:
    return [(WEIGHTS[engine], rows_of(engine, part)) for engine, part in rows.items()]


def mape(rows: Rows, terms: Terms) -> Figures:
    """The mean absolute error of every measured metric with these terms, in percent."""
    return mape_of(errors(rows, terms))


def mape_of(found: dict[str, Vector]) -> Figures:
    """The mean absolute error of every metric in percent, from signed relative errors."""
    return {
        name: round(float(100 * np.nanmean(np.abs(values))), 2) for name, values in found.items()
    }

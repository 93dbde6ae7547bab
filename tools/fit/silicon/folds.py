"""What the fits of current engines leave out in turn, and the errors on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tonnage.evidence.predict import Point
from tonnage.evidence.rows import Terms, errors
from tonnage.spec.catalog import find_engine
from tools.fit.residuals import HeldOut, held_out_rows
from tools.fit.silicon.sample import Row
from tools.fit.silicon.silicon_rows import SiliconRows

if TYPE_CHECKING:
    from numpy.typing import NDArray

Figures = dict[str, float]

SCORED = ("itl_ms", "ttft_ms", "ttft_all_ms", "itl_median_ms")
"""The MAPE of TPOT, of TTFT where the KV cache holds all clients, of TTFT over all rows, and the
median signed error of TPOT, whose mean over folds is the mean of its magnitudes."""

TITLES = {"gpu": "a system", "model": "a model", "engine": "an engine"}
TITLE = "current engines, {} left out; TTFT where KV fits"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """One part of the rows that is left out: all rows with one value of a column."""

    title: str
    name: str
    column: str
    train: list[Row]
    test: list[Row]


def family(row: Row) -> str:
    """The engine family of a row, whatever its version."""
    return find_engine(row["engine"]).family


def folds(rows: Sequence[Row], title: str = TITLE) -> Iterable[Fold]:
    """The folds that leave out every system, model and engine family in turn."""
    for column, what in TITLES.items():
        part = {id(row): family(row) if column == "engine" else row[column] for row in rows}
        for name in sorted(set(part.values())):
            train, test = (
                [row for row in rows if (part[id(row)] == name) == out] for out in (False, True)
            )
            yield Fold(title=title.format(what), name=name, column=column, train=train, test=test)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Some rows beside their predictions.

    Attributes:
        rows: what was predicted.
        points: the rows as points.
        fits: whether the KV cache holds the longest request of every client at once.
        errors: the signed relative errors by metric.
    """

    rows: list[Row]
    points: list[Point]
    fits: NDArray[np.bool_]
    errors: dict[str, NDArray[np.float64]]

    def figures(self, of: Iterable[bool] | None = None) -> Figures:
        """The errors of ``SCORED`` in percent, over all rows or over some of them, of which each is
        told whether it counts.
        """
        mine = np.ones(len(self.rows), dtype=bool) if of is None else np.array(list(of), dtype=bool)
        tpot, fitting = self.errors["itl_ms"][mine], self.fits[mine]
        ttft = np.abs(self.errors["ttft_ms"][mine])
        values = (_mean(np.abs(tpot)), _mean(ttft[fitting]), _mean(ttft), float(np.median(tpot)))
        return {name: round(100 * value, 2) for name, value in zip(SCORED, values, strict=True)}

    def by(self, column: str) -> dict[str, Figures]:
        """The same for every value of a column."""
        return {
            name: self.figures(row[column] == name for row in self.rows)
            for name in sorted({row[column] for row in self.rows})
        }

    def held_out(self, without: str) -> list[HeldOut]:
        """The errors one by one, where the terms have not seen the value of a column at all; TTFT
        where the KV cache holds all clients.
        """
        errors_of = {
            "itl_ms": self.errors["itl_ms"],
            "ttft_ms": np.where(self.fits, self.errors["ttft_ms"], np.nan),
        }
        return held_out_rows(
            self.points,
            errors_of,
            current=True,
            unseen_gpu=without == "gpu",
            unseen_engine=without == "engine",
        )


def scored(rows: Sequence[Row], terms: Terms) -> Scored:
    """Predict rows with some terms."""
    parts = SiliconRows(rows)
    return Scored(
        rows=parts.rows,
        points=parts.points,
        fits=np.array(parts.cache_holds_all()),
        errors=errors(parts, terms),
    )


def _mean(values: NDArray[np.float64]) -> float:
    """The mean of the values that are known; NaN where none is."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else float("nan")


def add_means(tables: dict[str, dict[str, Figures]]) -> None:
    """Give every table a row "mean" over its folds; it is a mean of magnitudes, because errors of
    both signs would cancel.
    """
    for table in tables.values():
        table["mean"] = {
            name: round(float(np.nanmean([abs(each[name]) for each in table.values()])), 2)
            for name in SCORED
        }

"""What the fits of current engines leave out in turn, and the errors on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tonnage.calibration.residuals import Terms
from tonnage.calibration.rows import errors
from tonnage.spec.catalog import find_engine
from tools.fit.residuals import HeldOut, held_out_rows
from tools.fit.silicon.sample import Row
from tools.fit.silicon.silicon_rows import SiliconRows

if TYPE_CHECKING:
    from numpy.typing import NDArray

Figures = dict[str, float]

SCORED = ("itl_ms", "ttft_ms", "ttft_all_ms", "itl_median_ms")
"""The MAPE of TPOT, of TTFT where the KV cache holds all clients, of TTFT over all rows, and the median signed error of TPOT, whose
mean over folds is the mean of its magnitudes."""

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
            train, test = ([row for row in rows if (part[id(row)] == name) == out] for out in (False, True))
            yield Fold(title=title.format(what), name=name, column=column, train=train, test=test)


def figures(rows: Sequence[Row], terms: Terms, *, without: str = "", residuals: list[HeldOut] | None = None) -> Figures:
    """The errors of ``SCORED`` in percent.

    Args:
        rows: what is predicted.
        terms: the terms that predict it.
        without: the column whose value in these rows the terms have not seen at all, if there is one.
        residuals: a list to which the errors are appended.
    """
    parts = SiliconRows(rows)
    fits = np.array(parts.cache_holds_all())
    found = errors(parts, terms)
    if residuals is not None:
        errors_of = {"itl_ms": found["itl_ms"], "ttft_ms": np.where(fits, found["ttft_ms"], np.nan)}
        unseen = {"unseen_gpu": without == "gpu", "unseen_engine": without == "engine"}
        residuals += held_out_rows(parts.points, errors_of, current=True, **unseen)
    ttft = np.abs(found["ttft_ms"])
    values = (_mean(np.abs(found["itl_ms"])), _mean(ttft[fits]), _mean(ttft), float(np.median(found["itl_ms"])))
    return {name: round(100 * value, 2) for name, value in zip(SCORED, values, strict=True)}


def _mean(values: NDArray[np.float64]) -> float:
    """The mean of the values that are known; NaN where none is."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else float("nan")


def add_means(tables: dict[str, dict[str, Figures]]) -> None:
    """Give every table a row "mean" over its folds; it is a mean of magnitudes, because errors of both signs would cancel."""
    for table in tables.values():
        table["mean"] = {name: round(float(np.nanmean([abs(each[name]) for each in table.values()])), 2) for name in SCORED}

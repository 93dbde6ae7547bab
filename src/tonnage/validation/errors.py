"""How far predictions are off, in percent of the measured values, by metric."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tonnage.results.columns import MEASURES

SCORED = tuple(name for name in MEASURES if name not in ("request_rate", "window_s"))
"""The measured columns that are compared, in their order."""

Errors = dict[str, "ErrorOf"]
"""By the name of the measured column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorOf:
    """How far the predictions of one metric are off, in percent of the measured values.

    Attributes:
        mape: mean of the sizes of the errors.
        median_ape: median of these sizes.
        bias: mean of the errors with their signs.
        n: how many errors there are.
    """

    mape: float
    median_ape: float
    bias: float
    n: int

    def to_json(self) -> dict[str, float | int]:
        """By name."""
        return {"mape": self.mape, "median_ape": self.median_ape, "bias": self.bias, "n": self.n}


def errors_of(rows: Iterable[Mapping[str, float]]) -> Errors:
    """The errors over some rows by metric, in the order of the columns; a metric that no row has is absent.

    Args:
        rows: the signed relative errors of each row by column, in percent.
    """
    found: dict[str, list[float]] = {}
    for row in rows:
        for name, error in row.items():
            found.setdefault(name, []).append(error)
    return {
        name: ErrorOf(
            mape=statistics.fmean(map(abs, found[name])),
            median_ape=statistics.median(map(abs, found[name])),
            bias=statistics.fmean(found[name]),
            n=len(found[name]),
        )
        for name in SCORED
        if name in found
    }


def errors_json(errors: Errors) -> dict[str, dict[str, float | int]]:
    """The errors as JSON values."""
    return {name: error.to_json() for name, error in errors.items()}

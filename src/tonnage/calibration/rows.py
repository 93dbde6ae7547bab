"""Measured rows of either kind: static batches, or rows under load."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tonnage.calibration.loaded_rows import LoadedRows
from tonnage.calibration.residuals import Terms
from tonnage.calibration.static_rows import StaticRows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Rows = StaticRows | LoadedRows

Progress = Callable[[int, int, str], None]
"""Takes what is done, how much there is in all, and what was done last."""


def errors(rows: Rows, terms: Terms) -> dict[str, Floats]:
    """The signed relative errors of every measured metric with these terms; rows under load are simulated anew."""
    rows.simulate(terms)
    found = rows.predict(terms) if isinstance(rows, StaticRows) else {name: rows.simulated(name) for name in rows.measured}
    return {name: found[name] / measured - 1.0 for name, measured in rows.measured.items()}

"""Static batches as residuals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnage.calibration.deployments import Deployments
from tonnage.calibration.residuals import STATIC_SIGMA, Terms, column, robust
from tonnage.perf.vectorised_step import Steps, batch_seconds, context_seconds, step_seconds
from tonnage.validation.point import read_point

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


class StaticRows:
    """Static batches, of which TTFT and token latency are compared; both have a closed form of two steps."""

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        """Look up the rows and read what was measured."""
        self.rows = list(rows)
        self.points = [read_point(row).of_rank for row in rows]
        self.deployments = Deployments.among(self.points)
        self.batch = np.array([float(point.batch or 1) for point in self.points])
        self.isl, self.osl = (column(rows, name) for name in ("isl", "osl"))
        self.measured = {name: column(rows, name) for name in ("ttft_ms", "itl_ms")}

    def simulate(self, terms: Terms) -> None:
        """Do nothing, because the closed form needs no simulation."""

    def predict(self, terms: Terms) -> dict[str, Floats]:
        """Both metrics of every row with these terms, in ms."""
        c, front = self.deployments.coefficients(terms)
        k, b, isl, none = c[self.deployments.of].T, self.batch, self.isl, np.zeros(len(self.rows))
        prompts = Steps(
            prefill_tokens=b * isl, prefill_sequences=b, decode_sequences=none, attention_pairs_2=b * isl**2, context_tokens=none
        )
        first = step_seconds(k, prompts) + front[self.deployments.of]
        token = batch_seconds(k, b, b) + context_seconds(k, b) * b * (isl + self.osl / 2)
        return {"ttft_ms": 1e3 * first, "itl_ms": 1e3 * token}

    def residuals(self, terms: Terms) -> Floats:
        """The robust residuals of both metrics."""
        found = self.predict(terms)
        return np.concatenate([robust(np.log(found[n] / m) / STATIC_SIGMA) for n, m in self.measured.items()])

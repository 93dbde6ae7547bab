"""The deployments of measured rows, and what their steps take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tonnage.calibration.residuals import Terms
from tonnage.perf.efficiencies import resolve
from tonnage.perf.terms import coefficients
from tonnage.spec.catalog import find_engine
from tonnage.spec.deployment import Deployment
from tonnage.validation.point import Point

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Deployments:
    """The different deployments among some points, whose coefficients are computed once for all of their points.

    Attributes:
        unique: each deployment once.
        of: int64 (points,), the place in ``unique`` of each point's deployment.
    """

    unique: tuple[Deployment, ...]
    of: NDArray[np.int64]

    @classmethod
    def among(cls, points: Sequence[Point]) -> Deployments:
        """Find the deployments of the points."""
        found: dict[tuple[object, ...], int] = {}
        unique: list[Deployment] = []
        of = []
        for d in (point.deployment for point in points):
            key = (d.model.name, d.gpu.name, d.precision.name, d.parallelism, d.engine, d.knobs.graph_tokens)
            if key not in found:
                found[key] = len(unique)
                unique.append(d)
            of.append(found[key])
        return cls(tuple(unique), np.array(of))

    def coefficients(self, terms: Terms) -> tuple[Floats, Floats]:
        """The coefficients of a step, float64 (deployments, COEFFICIENTS), and the front-end seconds, float64 (deployments,)."""
        rows, fronts = [], []
        for d in self.unique:
            found = resolve(terms, d.model, d.gpu, d.precision, d.parallelism, find_engine(d.engine).coefficients)
            rows.append(coefficients(found, d.model, d.gpu, d.precision, d.parallelism, d.knobs))
            fronts.append(found.host.frontend_s)
        return np.array(rows), np.array(fronts)

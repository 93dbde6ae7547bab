"""The seconds in which an engine's front end streams one token, found by trying values, because a
queue is not linear in its service time.

One process turns the tokens of all sequences into text and sends them, one after another. While it
keeps up, it costs next to nothing. Where the engine makes tokens faster, clients wait at the front
end, the engine runs with fewer sequences than there are clients, and first tokens come late while
the tokens after them come fast. The rows whose engine could fill the front end tell its speed.
Engines without such rows have ``START``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tonnage.evidence.rows import Terms
from tonnage.spec.catalog import find_engine
from tools.fit.silicon.sample import Row
from tools.fit.silicon.silicon_rows import SiliconRows
from tools.fit.terms import PRIOR_WEIGHT

START, SPREAD = 50e-6, 0.5
"""20,000 tokens a second, about the most that any row without longer messages shows, and the spread
of the logarithm."""

TRIED = (30e-6, 40e-6, 50e-6, 60e-6, 70e-6, 80e-6, 90e-6, 100e-6, 110e-6, 125e-6)

BUSY = 0.5
"""A row tells where its engine, left to itself, would keep the slowest front end that is tried busy
for this share of the time."""


def seconds(rows: Sequence[Row], terms: Terms) -> dict[str, float]:
    """The best of ``TRIED`` for every engine about which rows tell."""
    telling = _telling(rows, terms)
    if not telling:
        return {}
    engines = [find_engine(row["engine"]).coefficients for row in telling]
    cost = {engine: [_prior(value) for value in TRIED] for engine in engines}
    for number, value in enumerate(TRIED):
        for engine, squares in zip(
            engines, _squares(telling, _streaming(terms, value)), strict=True
        ):
            cost[engine][number] += squares
    return {engine: TRIED[int(np.argmin(values))] for engine, values in cost.items()}


def _prior(value: float) -> float:
    return (PRIOR_WEIGHT * math.log(value / START) / SPREAD) ** 2


def _streaming(terms: Terms, value: float) -> Terms:
    """The terms with one front end for all engines that have one."""
    engines = {
        name: own | ({"stream_s": value} if "stream_s" in own else {})
        for name, own in terms["engines"].items()
    }
    return {**terms, "engines": engines}


def _telling(rows: Sequence[Row], terms: Terms) -> list[Row]:
    """The rows in which the front end could be the limit."""
    parts = SiliconRows(rows)
    parts.simulate(_streaming(terms, 0.0))
    clients = np.array([point.concurrency or 1 for point in parts.points])
    interval = np.array([point.deployment.knobs.stream_interval for point in parts.points])
    busy = clients * TRIED[-1] / interval / (parts.simulated("itl_ms") / 1e3)
    return [row for row, share in zip(rows, busy, strict=True) if share > BUSY]


def _squares(rows: Sequence[Row], terms: Terms) -> Sequence[float]:
    """The sum of the squared residuals of every row."""
    parts = SiliconRows(rows)
    parts.simulate(terms)
    return list(parts.squares(terms))

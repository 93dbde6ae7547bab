"""What predictions decide: the most clients inside a limit on the time per token, predicted over
measured, along each measured curve.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tonnage.perf.residuals import shipped_residuals
from tonnage.plan.candidate import CONFIDENCE
from tonnage.sizing.loads.confidence import StepErrors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.perf.residuals import Regime

LIMITS_MS = (10.0, 15.0, 20.0, 30.0, 40.0, 60.0, 80.0)
"""Limits on the time per token that are asked of a curve which crosses them."""

FEWEST_POINTS = 3
"""A curve has so many loads at least."""

WITHIN, TOO_MUCH = 0.2, 0.1
"""A decision is near within a fifth of the measured load, and promises too much beyond a tenth
above it."""

Load = tuple[Hashable, float, float, float]
"""The curve that a measured row is of, its clients, and its time per token in ms as measured and as
predicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a prediction says of a curve and a limit that it crosses.

    A measured curve answers between two of its loads: the largest that met the limit and the next
    one, which did not. What is between them is interpolated, and two loads may be further apart
    than a decision is to be near.
    """

    # the predicted load over the measured one; 0 where no load is predicted to meet the limit
    ratio: float
    same: bool  # whether the predicted load is between the same two measured ones
    broken: bool  # whether it is at or above one that was measured to exceed the limit


def decisions(rows: Iterable[Load]) -> list[Decision]:
    """The decision of each curve and each limit that it crosses."""
    curves: dict[Hashable, list[tuple[float, float, float]]] = defaultdict(list)
    for key, *row in rows:
        if all(math.isfinite(value) and value > 0 for value in row):
            curves[key].append((row[0], row[1], row[2]))
    made: list[Decision] = []
    for points in curves.values():
        clients = sorted({of for of, _, _ in points})
        if len(clients) < FEWEST_POINTS:
            continue
        measured, predicted = (
            _rising([float(np.median([p[place] for p in points if p[0] == of])) for of in clients])
            for place in (1, 2)
        )
        for limit in LIMITS_MS:
            if measured[0] <= limit < measured[-1]:
                above = bisect_right(measured, limit)
                promised = _most(clients, predicted, limit)
                same, broken = (
                    clients[above - 1] <= promised < clients[above],
                    promised >= clients[above],
                )
                made.append(
                    Decision(
                        ratio=promised / _most(clients, measured, limit), same=same, broken=broken
                    )
                )
    return made


def _rising(values: Sequence[float]) -> list[float]:
    """A curve that never falls: a load meets a limit only if all smaller ones do."""
    return [float(value) for value in np.maximum.accumulate(values)]


def _most(clients: Sequence[float], times: Sequence[float], limit: float) -> float:
    """The clients at which a rising curve reaches a limit: between its points on logarithmic
    scales, beyond the last in proportion.

    0 where every load exceeds it.
    """
    if times[0] > limit:
        return 0.0
    above = next((place for place, time in enumerate(times) if time > limit), None)
    if above is None:
        return clients[-1] * limit / times[-1]
    low, high = above - 1, above
    share = math.log(limit / times[low]) / math.log(times[high] / times[low])
    return float(clients[low] * (clients[high] / clients[low]) ** share)


def decided(
    loads: Sequence[Load], longer: Sequence[float], kinds: Sequence[Hashable] = ()
) -> dict[str, float]:
    """How many decisions there are, their median, and the shares that are near and that promise too
    much, in percent.

    "same" are those that are near or between the same two measured loads; "broken" those of too
    much that promise a load which was measured to exceed the limit.

    Args:
        loads: measured rows.
        longer: factors on their predicted times, with which these are what a plan counts on at its
            usual confidence.
        kinds: what each row is of, to tell which decisions are near once one factor for each kind
            has set its median right.
    """
    made = decisions(loads)
    if not made:
        return {"decisions": 0}
    surer = decisions(
        [(*row[:3], row[3] * factor) for row, factor in zip(loads, longer, strict=True)]
    )
    values, sure = _ratios(made), _ratios(surer)
    found = {
        "decisions": values.size,
        "median": round(float(np.median(values)), 2),
        "near": _near(values),
        "too much": _too_much(values),
        "sure median": round(float(np.median(sure)), 2),
        "sure too much": _too_much(sure),
        "same": round(
            100
            * float(
                np.mean([decision.same or abs(decision.ratio - 1.0) <= WITHIN for decision in made])
            ),
            0,
        ),
        "broken": _broken(made),
        "sure broken": _broken(surer),
    }
    return found | (
        {"near at level": _near(_ratios(decisions(_at_level(loads, kinds))))} if kinds else {}
    )


def _ratios(made: Sequence[Decision]) -> NDArray[np.float64]:
    return np.array([decision.ratio for decision in made])


def _at_level(loads: Sequence[Load], kinds: Sequence[Hashable]) -> list[Load]:
    """The rows with predicted times that are right in the median of each kind."""
    ratios: dict[Hashable, list[float]] = defaultdict(list)
    for (_, _, measured, predicted), kind in zip(loads, kinds, strict=True):
        ratios[kind].append(measured / predicted)
    return [
        (*row[:3], row[3] * float(np.nanmedian(ratios[kind])))
        for row, kind in zip(loads, kinds, strict=True)
    ]


def _broken(made: Sequence[Decision]) -> float:
    return round(
        100
        * float(
            np.mean([decision.broken and decision.ratio > 1.0 + TOO_MUCH for decision in made])
        ),
        0,
    )


def _near(values: NDArray[np.float64]) -> float:
    return round(100 * float(np.mean(np.abs(values - 1.0) <= WITHIN)), 0)


def _too_much(values: NDArray[np.float64]) -> float:
    return round(100 * float(np.mean(values > 1.0 + TOO_MUCH)), 0)


def surely(regime: Regime) -> float:
    """By which factor a plan takes the time per token to be longer than predicted, at the
    confidence that it has where none is asked.
    """
    return StepErrors(metric="itl_ms", regime=regime, residuals=shipped_residuals()).factor(
        CONFIDENCE
    )

"""What predictions decide: the most clients inside a limit on the time per token, predicted over measured, along each measured curve."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

import numpy as np

LIMITS_MS = (10.0, 15.0, 20.0, 30.0, 40.0, 60.0, 80.0)
"""Limits on the time per token that are asked of a curve which crosses them."""

FEWEST_POINTS = 3
"""A curve has so many loads at least."""

WITHIN, TOO_MUCH = 0.2, 0.1
"""A decision is near within a fifth of the measured load, and promises too much beyond a tenth above it."""

Load = tuple[Hashable, float, float, float]
"""The curve that a measured row is of, its clients, and its time per token in ms as measured and as predicted."""


def decisions(rows: Iterable[Load]) -> list[float]:
    """For each curve and each limit that it crosses, the predicted load over the measured one; 0 where no load is predicted to meet it."""
    curves: dict[Hashable, list[tuple[float, float, float]]] = defaultdict(list)
    for key, *row in rows:
        if all(math.isfinite(value) and value > 0 for value in row):
            curves[key].append((row[0], row[1], row[2]))
    found: list[float] = []
    for points in curves.values():
        clients = sorted({of for of, _, _ in points})
        if len(clients) < FEWEST_POINTS:
            continue
        measured, predicted = (_rising([float(np.median([p[place] for p in points if p[0] == of])) for of in clients]) for place in (1, 2))
        for limit in LIMITS_MS:
            if measured[0] <= limit < measured[-1]:
                found.append(_most(clients, predicted, limit) / _most(clients, measured, limit))
    return found


def _rising(values: Sequence[float]) -> list[float]:
    """A curve that never falls: a load meets a limit only if all smaller ones do."""
    return [float(value) for value in np.maximum.accumulate(values)]


def _most(clients: Sequence[float], times: Sequence[float], limit: float) -> float:
    """The clients at which a rising curve reaches a limit: between its points on logarithmic scales, beyond the last in proportion.

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


def decided(ratios: Sequence[float]) -> dict[str, float]:
    """How many decisions there are, their median, and the shares that are near and that promise too much, in percent."""
    if not ratios:
        return {"decisions": 0}
    values = np.array(ratios)
    return {
        "decisions": len(ratios),
        "median": round(float(np.median(values)), 2),
        "near": round(100 * float(np.mean(np.abs(values - 1.0) <= WITHIN)), 0),
        "too much": round(100 * float(np.mean(values > 1.0 + TOO_MUCH)), 0),
    }

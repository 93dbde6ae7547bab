"""Capacity with slower steps, read from runs with the steps as they are.

An instance whose every step takes f times as long is the same instance with a slower clock: at a rate r it does what the
instance itself does at r·f, and takes f times as long for it. So the highest rate inside a limit is that at which the
instance strains the limit by 1/f, divided by f, and the runs that found the capacity have shown that strain at many rates.
Front end and turnaround, which are no steps, are stretched along: a few milliseconds on the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from tonnage.sizing.capacity import STABLE

if TYPE_CHECKING:
    from tonnage.sizing.capacity import Capacity


def stretched_rates(capacity: Capacity, trail: Mapping[float, float], factors: Sequence[float]) -> list[float]:
    """The highest rate inside the limits with every step so many times as long, for each of several factors.

    Args:
        capacity: of the instance as it is.
        trail: strain on the limits (largest value over its limit) by rate; 0 requests/s stands for a single client.
        factors: on the duration of every step.

    Returns:
        Requests per second; 0 where a single client exceeds the limits.
    """
    most = max(capacity.saturation * STABLE, capacity.rate)
    points = _rising(trail)
    here = _rate_at(points, 1.0, most)
    if here <= 0.0:
        return [capacity.rate / factor for factor in factors]
    return [capacity.rate * _rate_at(points, 1.0 / factor, most) / here / factor for factor in factors]


def _rising(trail: Mapping[float, float]) -> list[tuple[float, float]]:
    """Rates in order, with the largest strain up to each: noise of the runs makes no rate easier than a lower one."""
    found: list[tuple[float, float]] = []
    for rate, strain in sorted(trail.items()):
        found.append((rate, max(strain, found[-1][1] if found else 0.0)))
    return found


def _rate_at(points: Sequence[tuple[float, float]], strain: float, most: float) -> float:
    """The highest rate at which the strain is at most that, no more than ``most``; linear between runs in the strain's logarithm."""
    if not points or points[0][1] > strain:
        return 0.0
    for (low, below), (high, above) in pairwise(points):
        if above > strain:
            share = math.log(strain / below) / math.log(above / below) if below > 0 else (strain - below) / (above - below)
            return min(low + share * (high - low), most)
    return most

"""The peak of a Poisson count."""

from __future__ import annotations

import math

from tonnage.errors import InputError

MOST_ARRIVALS = 1e9
"""Largest mean that ``poisson_peak`` takes; its work grows with the square root."""

_NEGLIGIBLE = 1e-30
"""Weight, relative to the mode's, below which the tail of a Poisson distribution is cut."""


def poisson_peak(mean: float, percentile: float) -> int:
    """The least count k with P(X ≤ k) ≥ percentile for a Poisson count X: 64 at 95 % gives 77.

    Sums the probabilities outwards from the mode, relative to it, so that nothing over- or
    underflows, and divides by their total. NVIDIA's course on sizing LLM inference takes it as the
    peak of the requests that arrive in one second.

    Args:
        mean: mean arrivals in the interval, 0 to 10⁹.
        percentile: above 0 and below 100.

    Raises:
        InputError: an argument outside its range.
    """
    if not 0 <= mean <= MOST_ARRIVALS:
        raise InputError(f"mean arrivals of {mean:g} cannot be; write a number from 0 to {MOST_ARRIVALS:g}")
    if not 0 < percentile < 100:
        raise InputError(f"a percentile of {percentile:g} cannot be; write a number above 0 and below 100, such as 95")
    mode = math.floor(mean)
    below = _weights_below(mean, mode)
    above = _weights_above(mean, mode)
    wanted = percentile / 100 * (math.fsum(below) + 1.0 + math.fsum(above))
    count, reached = mode - len(below), 0.0
    for weight in [*reversed(below), 1.0, *above]:
        reached += weight
        if reached >= wanted:
            return count
        count += 1
    return count


def _weights_below(mean: float, mode: int) -> list[float]:
    """P(k) / P(mode) for k = mode − 1, mode − 2, … until negligible."""
    weights: list[float] = []
    weight = 1.0
    for count in range(mode, 0, -1):
        weight *= count / mean
        if weight < _NEGLIGIBLE:
            break
        weights.append(weight)
    return weights


def _weights_above(mean: float, mode: int) -> list[float]:
    """P(k) / P(mode) for k = mode + 1, mode + 2, … until negligible."""
    weights: list[float] = []
    weight, count = 1.0, mode
    while True:
        count += 1
        weight *= mean / count
        if weight < _NEGLIGIBLE:
            return weights
        weights.append(weight)

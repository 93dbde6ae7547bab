"""Arrivals whose rate changes: a Poisson process by the hours of a profile, or of two states; and
the classes of the requests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tonnage.units import PS_PER_S, to_ps

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.spec.workload import Trace


HOUR_S = 3600.0

SPREAD = 8.0  # Standard deviations by which more gaps are drawn than are expected


@dataclass(frozen=True, slots=True, kw_only=True)
class HourlyArrivals:
    """Open-loop arrivals over a profile, once from its first hour to its last."""

    hours: tuple[float, ...]  # requests per second in each hour; within one the rate is constant

    @property
    def rate(self) -> float:
        """Mean requests per second."""
        return math.fsum(self.hours) / len(self.hours)

    @property
    def process(self) -> str:
        """The kind of arrivals, in a word."""
        return "profile"

    @property
    def expected(self) -> int:
        """Requests that are expected, rounded up."""
        return math.ceil(math.fsum(self.hours) * HOUR_S)

    @property
    def most(self) -> int:
        """More requests than will ever be drawn."""
        return math.ceil(self.expected + SPREAD * math.sqrt(self.expected) + SPREAD)

    def at_mean(self, rate: float) -> HourlyArrivals:
        """Scale the profile to another mean, in requests per second."""
        return HourlyArrivals(hours=tuple(hour * rate / self.rate for hour in self.hours))

    def due_ps(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """When the requests come, in picoseconds: gaps of mean 1 in the expected number of
        requests, which time is read from.
        """
        import numpy as np

        reached = rng.standard_exponential(self.most).cumsum()
        expected = np.append(0.0, np.cumsum(np.array(self.hours) * HOUR_S))
        reached = reached[: int(np.searchsorted(reached, expected[-1]))]
        hours = np.interp(reached, expected, np.arange(len(expected)) * HOUR_S)
        due: NDArray[np.int64] = np.rint(hours * PS_PER_S).astype(np.int64)
        return due


# A Markov-modulated Poisson process of two states: traffic that is calm for a while and busy for a
# while. Requests come as a Poisson process whose rate is that of the state; the time in a state is
# exponential. With rates r1 and r2, mean stays T1 and T2, s = 1/T1 + 1/T2 and p1 = T1/(T1 + T2),
# the mean rate is r = p1·r1 + p2·r2 (W. Fischer and K. Meier-Hellstern, "The Markov-modulated
# Poisson process (MMPP) cookbook", Performance Evaluation 18(2), 1993).


DRAWN = 256  # Stays that are drawn at once


@dataclass(frozen=True, slots=True, kw_only=True)
class ModulatedArrivals:
    """Open-loop arrivals of two states."""

    rates: tuple[float, float]  # requests per second in each state; one of them may be 0
    stays_s: tuple[float, float]  # mean time in each state, in seconds

    @property
    def share(self) -> float:
        """Share of the time that is spent in the first state."""
        return self.stays_s[0] / (self.stays_s[0] + self.stays_s[1])

    @property
    def rate(self) -> float:
        """Mean requests per second."""
        return self.share * self.rates[0] + (1 - self.share) * self.rates[1]

    @property
    def process(self) -> str:
        """The kind of arrivals, in a word."""
        return "mmpp"

    def at_mean(self, rate: float) -> ModulatedArrivals:
        """The same states with rates that have another mean, in requests per second; the stays
        remain as they are.
        """
        factor = rate / self.rate
        return replace(self, rates=(self.rates[0] * factor, self.rates[1] * factor))

    def due_ps(self, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """When ``count`` requests come, in picoseconds: the states begin in equilibrium.

        Gaps of mean 1 are drawn in the expected number of requests, and time is read from the
        states by interpolation.
        """
        import numpy as np

        states = rng.spawn(1)[0]
        reached = rng.standard_exponential(count).cumsum()
        state = 0 if states.random() < self.share else 1
        expected, seconds = [np.zeros(1)], [np.zeros(1)]
        while expected[-1][-1] < reached[-1]:
            alternate = (state + np.arange(DRAWN)) % 2
            lasts = states.standard_exponential(DRAWN) * np.array(self.stays_s)[alternate]
            seconds.append(seconds[-1][-1] + lasts.cumsum())
            expected.append(expected[-1][-1] + (lasts * np.array(self.rates)[alternate]).cumsum())
        due: NDArray[np.float64] = (
            np.interp(reached, np.concatenate(expected), np.concatenate(seconds)) * PS_PER_S
        )
        return due


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficClass:
    """Some of the requests. Of several classes the one that is named first has the highest priority
    (0).
    """

    name: str  # in one word
    share: float  # of the requests, above 0; those of all classes sum to 1
    # the time to first token that its requests should have, in seconds; None for none
    ttft_s: float | None = None


def with_classes(trace: Trace, classes: Sequence[TrafficClass], seed: int) -> Trace:
    """A trace whose requests have classes, drawn independently of one another, of arrivals and of
    lengths; the same without any.
    """
    import numpy as np

    if not classes:
        return trace
    # the streams before it draw gaps and lengths
    rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(4)[3])
    bounds = np.cumsum([traffic_class.share for traffic_class in classes])[:-1]
    places = np.searchsorted(bounds, rng.random(len(trace)), side="right").astype(np.int64)
    limits = np.array(
        [
            -1 if traffic_class.ttft_s is None else to_ps(traffic_class.ttft_s)
            for traffic_class in classes
        ],
        np.int64,
    )
    return replace(trace, priority=places, ttft_ps=limits[places])

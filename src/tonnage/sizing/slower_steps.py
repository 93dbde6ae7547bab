"""What one instance carries when every step takes longer, read from the runs that found its capacity.

An instance whose every step takes f times as long is the same instance with a slower clock. At a rate r it does what the instance itself
does at r·f, and takes f times as long for it. So the highest rate inside a limit is the rate at which the instance strains the limit by
1/f, divided by f. Front end and turnaround are no steps but are stretched as well, which is a few milliseconds on the safe side. Of a
recording that is replayed, a rate stands for the number of instances that share it; its bursts are not stretched, but their load is.
Of a job that is long beside one request, f times the time means an f-th of the queue.

Where the runs at hand lie too far apart to say at which rate that is, a few more are made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from tonnage.sizing.capacity import STABLE
from tonnage.sizing.trace_capacity import noted_replay

if TYPE_CHECKING:
    from tonnage.sizing.bounds import Carried
    from tonnage.sizing.question import Question

NEAR = 0.05
"""Width of the bracket around a rate, relative to it, within which no further run is made."""

PROBES = 4
"""Most further runs for one factor."""

EDGE = 0.2
"""A further run keeps this share of the bracket away from its ends."""

LEAST = 0.02
"""A rate below this share of the predicted one counts as none: there the limits are those of a single client, and nothing is certain."""


class SlowerSteps:
    """The load of one instance inside its limits, by the factor on the duration of its steps."""

    def __init__(self, question: Question, carried: Carried) -> None:
        """``carried`` is the instance with its capacity, under the loads of the question."""
        self.question, self.capacity, self.instance = question, carried.capacity, carried.ready.instance
        self.most = max(self.capacity.saturation * STABLE, self.capacity.rate)

    def rate(self, factor: float) -> float:
        """Requests per second with steps so many times as long; 0 where hardly any load is inside the limits."""
        capacity = self.capacity
        if self.question.offline:
            return capacity.rate / factor
        points = rising(self.instance.trail)
        here = rate_at(points, 1.0, self.most)
        if here <= 0.0:
            return capacity.rate / factor
        share = rate_at(points, 1.0 / factor, self.most) / here / factor
        return capacity.rate * share if share >= LEAST else 0.0

    def sharpen(self, factors: Sequence[float]) -> None:
        """Make the runs that are needed to know the rates at these factors."""
        if self.question.offline or self.question.load == "closed":
            return
        if 0.0 not in self.instance.trail:  # other knobs than the engine's own were tried at one load alone
            self.instance.alone()
        for factor in factors:
            for _ in range(PROBES):
                rate = self._unknown(1.0 / factor)
                if rate is None or not self._probed(rate):
                    break

    def _unknown(self, strain: float) -> float | None:
        """The rate at which a further run would tell most of where the limits are strained so much; None where that is known."""
        points = rising(self.instance.trail)
        if not points or points[0][1] > strain:
            return None
        for (low, below), (high, above) in pairwise(points):
            if above > strain:
                if high - low <= NEAR * high:
                    return None
                share = min(max(_share(below, above, strain), EDGE), 1 - EDGE)
                return low + share * (high - low)
        return self.most if points[-1][0] < (1 - NEAR) * self.most else None

    def _probed(self, rate: float) -> bool:
        """Simulate that rate; False where nothing new can be learnt from it."""
        known = len(self.instance.trail)
        recording = self.question.recording
        if recording is None:
            self.instance.measured(rate)
        else:
            noted_replay(self.instance, recording, max(1, round(recording.mean_rps / rate)), self.question.replays_lengths)
        return len(self.instance.trail) > known


def rising(trail: Mapping[float, float]) -> list[tuple[float, float]]:
    """Rates in order, with the largest strain up to each: noise of the runs makes no rate easier than a lower one.

    Args:
        trail: strain on the limits (largest value over its limit) by rate; 0 requests/s stands for a single client.
    """
    found: list[tuple[float, float]] = []
    for rate, strain in sorted(trail.items()):
        found.append((rate, max(strain, found[-1][1] if found else 0.0)))
    return found


def rate_at(points: Sequence[tuple[float, float]], strain: float, most: float) -> float:
    """The highest rate at which the strain is at most that, no more than ``most``; linear between runs in the strain's logarithm."""
    if not points or points[0][1] > strain:
        return 0.0
    for (low, below), (high, above) in pairwise(points):
        if above > strain:
            return min(low + _share(below, above, strain) * (high - low), most)
    return most


def _share(below: float, above: float, strain: float) -> float:
    """How far between two strains a third lies."""
    return math.log(strain / below) / math.log(above / below) if below > 0 else (strain - below) / (above - below)

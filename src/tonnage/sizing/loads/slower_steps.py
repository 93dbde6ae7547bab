"""What one instance carries when every step takes longer, read from the runs that found its capacity.

An instance whose every step takes f times as long is the same instance with a slower clock. At a rate r it does what the instance itself
does at r·f, and takes f times as long for it. So the highest rate inside a limit is the rate at which the instance strains the limit by
1/f, divided by f. Front end and turnaround are no steps but are stretched as well, which is a few milliseconds on the safe side. Of a
recording that is replayed, a rate stands for the number of instances that share it; its bursts are not stretched, but their load is.
Of a job that is long beside one request, f times the time means an f-th of the queue.

The rates at the factors that a plan names are those of the scan of the load under limits so many times as tight; between them, and for
closed loops and recordings, they are interpolated. Where runs of a recording lie too far apart to say at which rate that is, a few more
are made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from tonnage.sizing.loads.capacity import STABLE, scan_of
from tonnage.sizing.loads.limits import strain
from tonnage.sizing.loads.load_scan import QUICK, SURE, Care
from tonnage.sizing.loads.trace_capacity import noted_replay

if TYPE_CHECKING:
    from tonnage.plan.limit import Bound
    from tonnage.sizing.loads.bounds import Carried
    from tonnage.sizing.question import Question
    from tonnage.spec.deployment import Limit, LimitMetric, Slo

METRICS: dict[LimitMetric, str] = {"ttft": "ttft_ms", "itl": "itl_ms", "tpot": "itl_ms", "e2e": "e2e_ms"}
"""Whose errors stand for the step factor, by the metric of a limit; those of requests/s at saturation."""

NEAR = 0.05
"""Width of the bracket around a rate, relative to it, within which no further run is made."""

PROBES = 4
"""Most further runs for one factor."""

EDGE = 0.2
"""A further run keeps this share of the bracket away from its ends."""

LEAST = 0.02
"""A rate below this share of the predicted one counts as none: there the limits are those of a single client, and nothing is certain."""


def metric_of(binds: Bound | None) -> str:
    """The metric whose errors count where that ends the load."""
    return "requests_s" if binds is None or binds.limit is None else METRICS[binds.limit.metric]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowdown:
    """By which factors times are longer than predicted.

    Attributes:
        steps: of every step.
        latencies: of the latencies in all, by the metric whose errors they have; no less than ``steps``. Those that are not named are as
            slow as the steps.
    """

    steps: float
    latencies: Mapping[str, float] = field(default_factory=dict)

    def of(self, limit: Limit) -> float:
        """Of the latency that a limit is on."""
        return self.latencies.get(METRICS[limit.metric], self.steps)

    def tightened(self, slo: Slo) -> Slo:
        """The limits that an instance as predicted has to meet for one with these times to meet ``slo``."""
        return tuple(replace(limit, seconds=limit.seconds / self.of(limit)) for limit in slo)


AS_PREDICTED = Slowdown(steps=1.0)


class SlowerSteps:
    """The load of one instance inside its limits, by the factor on the duration of its steps."""

    def __init__(self, question: Question, carried: Carried) -> None:
        """``carried`` is the instance with its capacity, under the loads of the question."""
        self.question, self.capacity, self.instance = question, carried.capacity, carried.ready.instance
        self.most = max(self.capacity.saturation * STABLE, self.capacity.rate)

    @property
    def _scanned(self) -> bool:
        """Whether a scan of the load tells the rates."""
        return not self.question.offline and self.question.load == "open" and self.question.recording is None

    @property
    def known(self) -> bool:
        """Whether the duration of the steps alone tells the rate: the limits have been looked at for it."""
        return self.question.offline or (self._scanned and bool(self.instance.slower))

    def rate(self, slowdown: Slowdown) -> float:
        """Requests per second with times so much longer; 0 where hardly any load is inside the limits."""
        capacity, steps = self.capacity, slowdown.steps
        if self.question.offline:
            return capacity.rate / steps
        if self._scanned:
            known = self.instance.slower
            if not known:
                self.sharpen(slowdown, decisive=True)
            return known[steps] if steps in known else between({1.0: capacity.rate, **known}, steps)
        points = rising(self.instance.trail)
        here = rate_at(points, 1.0, self.most)
        if here <= 0.0:
            return capacity.rate / steps
        share = rate_at(points, 1.0 / self._worst(slowdown), self.most) / here / steps
        return capacity.rate * share if share >= LEAST else 0.0

    def sharpen(self, slowdown: Slowdown, *, decisive: bool) -> None:
        """Make the runs that are needed to know the rate; those of a ``decisive`` one are as long as the capacity's."""
        if self.question.offline or self.question.load == "closed":
            return
        if self._scanned:
            care = self.capacity.care if decisive else QUICK
            if _named(slowdown, care) not in self.instance.sharpened:
                self.know(slowdown, self._scan(slowdown, care), care)
            return
        for _ in range(PROBES):
            probe = self._unknown(1.0 / self._worst(slowdown))
            if probe is None or not self._probed(probe):
                break

    def know(self, slowdown: Slowdown, rate: float, care: Care = SURE) -> None:
        """Take requests per second with times so much longer as they were found by a scan of the load."""
        self.instance.slower[slowdown.steps] = rate
        self.instance.sharpened.add(_named(slowdown, care))

    def _scan(self, slowdown: Slowdown, care: Care) -> float:
        """The rate by the scan of the load under limits as many times as tight."""
        instance = self.instance
        tighter = slowdown.tightened(instance.asked.slo)
        if tighter and strain(instance.alone(), tighter) > 1.0:
            return 0.0
        scan = scan_of(instance)
        rate = (scan.rate_within(tighter) if care == SURE else scan.reached(tighter)) / slowdown.steps
        return rate if rate >= LEAST * self.capacity.rate else 0.0

    def _worst(self, slowdown: Slowdown) -> float:
        """The factor of the metric that binds, where only the strain on all limits together is known."""
        return slowdown.latencies.get(metric_of(self.capacity.binds), slowdown.steps)

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
        """Simulate the recording at that rate; False where nothing new can be learnt from it."""
        known, recording = len(self.instance.trail), self.question.recording
        if recording is not None:
            noted_replay(self.instance, recording, max(1, round(recording.mean_rps / rate)), self.question.replays_lengths)
        return len(self.instance.trail) > known


def _named(slowdown: Slowdown, care: Care) -> tuple[object, ...]:
    """What a rate was found for."""
    return (slowdown.steps, *sorted(slowdown.latencies.items()), care)


def between(known: Mapping[float, float], factor: float) -> float:
    """The rate at a factor between known ones, linear in the logarithms of both; beyond them in proportion to 1/factor.

    Args:
        known: requests per second by factor; where noise has them rise with the factor, they are taken as level.
        factor: on the duration of every step.
    """
    points: list[tuple[float, float]] = []
    for at, rate in sorted(known.items()):
        points.append((at, min(rate, points[-1][1]) if points else rate))
    if factor <= points[0][0]:
        return points[0][1] * points[0][0] / factor
    for (low, more), (high, fewer) in pairwise(points):
        if factor <= high:
            if fewer <= 0.0:
                return more if factor == low else 0.0
            share = math.log(factor / low) / math.log(high / low)
            return float(more * (fewer / more) ** share)
    return points[-1][1] * points[-1][0] / factor


def rising(trail: Mapping[float, float]) -> list[tuple[float, float]]:
    """Rates in order, with the largest strain up to each: noise of the runs makes no rate easier than a lower one.

    Args:
        trail: strain on the limits (largest value over its limit) by rate; 0 requests/s stands for a single client.
    """
    found: list[tuple[float, float]] = []
    for rate, used in sorted(trail.items()):
        found.append((rate, max(used, found[-1][1] if found else 0.0)))
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

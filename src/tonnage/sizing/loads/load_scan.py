"""The latencies of one instance at the loads of a fixed lattice, and the highest load up to which every scanned load is inside the limits.

Which loads may be run, the random numbers of each run and its length depend on the deployment, the lengths and the seed, and never on
the limits. What one limit makes of the runs is therefore comparable with what another makes of them: a looser limit never carries less.
Every run is made once, when it is first asked for.

The scan goes upwards from half of saturation, in steps of a quarter of an octave (a factor of 1.19); where that load breaks a limit, it
goes downwards in steps of half an octave (1.41). Between the last load before the first one that breaks a limit and that one, the way is
halved until one step of the lattice (1.1 %) is left. A load is run for longer and longer until a run is clear; the longest decides as it
is, and the load that is found holds in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from tonnage.results.metrics import Summary, summarize
from tonnage.sizing.loads.instance import Instance, middle
from tonnage.sizing.loads.limits import statistic_s, strain, worst_limit

if TYPE_CHECKING:
    from tonnage.spec.deployment import Limit, Slo

Care = Literal[1, 2]
"""The last place of ``LENGTHS`` that is used: 1 to compare deployments, 2 for the best few."""

QUICK: Care = 1
SURE: Care = 2

LENGTHS = (0.5, 2.0, 8.0)
"""Lengths of the runs at a load, in times ``Instance.count``."""

HOLDS, BREAKS = (1 / 1.4, 1 / 1.15), (2.0, 1.15)
"""A run that is not the longest decides where the strain on the limits is below the first or above the second; near saturation the
shortest never says that the limits hold, as queues build up over more requests than it has."""

PER_OCTAVE = 64
"""Loads of the lattice from one to the double: 1.1 % apart."""

STRIDE, SPARSE = 16, 32
"""Steps of the lattice between two loads of the scan, beyond half of saturation and below it."""

WIDTH: dict[Care, int] = {QUICK: 2, SURE: 1}
"""Steps of the lattice between the load that is found and the next that breaks a limit."""

ROUGH = 8
"""The same where loads in between are read off the latencies at both ends: 9 %."""

LOWEST = 1 / 2
"""Share of saturation at which the scan begins; where a limit breaks there, it goes down instead."""

DESCENTS = 22
"""Most loads below the first one: the last is 1/2048 of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Highest:
    """The highest load up to which every scanned load holds.

    Attributes:
        rate: requests per second.
        summary: the metrics at that load.
        requests: simulated in that run.
        limit: what the next load breaks; None where that is saturation.
    """

    rate: float
    summary: Summary
    requests: int
    limit: Limit | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """No load was found, or none above the one that was to be exceeded: the lowest load seen to break a limit."""

    rate: float
    summary: Summary
    limit: Limit


class LoadScan:
    """The runs of one instance, by length and place on the lattice; the last place stands for ``most``."""

    def __init__(self, instance: Instance, most: Callable[[], float]) -> None:
        """A scan without any run so far.

        Args:
            instance: the deployment.
            most: gives the requests per second above which a queue is not assumed to settle; called when they are needed.
        """
        self.instance, self._most = instance, most
        self._runs: dict[tuple[int, int], Summary] = {}
        self._probes: dict[tuple[int, int], Summary] = {}

    @cached_property
    def most(self) -> float:
        """The highest load that is scanned, in requests per second."""
        return self._most()

    @cached_property
    def last(self) -> int:
        """The place that stands for ``most``."""
        return math.ceil(PER_OCTAVE * math.log2(self.most))

    @cached_property
    def first(self) -> int:
        """Where the upward scan begins."""
        return SPARSE * math.floor((self.last + PER_OCTAVE * math.log2(LOWEST)) / SPARSE)

    def upward(self) -> Iterator[int]:
        """The places of the upward scan, ``last`` included."""
        dense = SPARSE * math.ceil((self.last - PER_OCTAVE) / SPARSE)
        yield from range(self.first, dense, SPARSE)
        yield from range(dense, self.last, STRIDE)
        yield self.last

    def rate(self, place: int) -> float:
        """Requests per second of a place."""
        return self.most if place >= self.last else on_lattice(place)

    def highest(self, slo: Slo, above: float = 0.0, care: Care = QUICK) -> Highest | Broken:
        """The highest load up to which every scanned load holds.

        Args:
            slo: limits; all must hold.
            above: requests per second; the search ends once it is certain that the load found is no higher.
            care: how long the longest runs are.
        """
        if (early := self.no_higher(slo, above, care)) is not None:
            return early
        end = self._end(slo, care)
        low = self._below(end, slo, care)
        if low is None:
            return self._broken(end, slo)
        low, high = self._halved(low, min(self._above(low), end), slo, care, WIDTH[care])
        lowest = self.first - DESCENTS * SPARSE
        while strain(self.summary(low, care), slo) > 1.0:  # a shorter run was clear about it, and wrong
            low, high = low - 1, low
            if low < lowest:
                return self._broken(high, slo)
        return self._found(low, high, slo, care)

    def rate_within(self, slo: Slo, above: float = 0.0) -> float:
        """Requests per second of ``highest`` by the longest runs; 0 where none is found above that rate."""
        found = self.highest(slo, above, SURE)
        return found.rate if isinstance(found, Highest) else 0.0

    def reached(self, slo: Slo, care: Care = QUICK) -> float:
        """The load of ``highest`` from fewer runs: between two loads ``ROUGH`` steps apart by the logarithm of the limited latencies.

        Returns:
            Requests per second; 0 where none holds.
        """
        end = self._end(slo, care)
        low = self._below(end, slo, care)
        if low is None:
            return 0.0
        low, high = self._halved(low, min(self._above(low), end), slo, care, ROUGH)
        if high > self.last:
            return self.rate(low)
        share = min(_share(self.summary(low, care), self.summary(high, care), limit) for limit in slo)
        return float(self.rate(low) * (self.rate(high) / self.rate(low)) ** share)

    def no_higher(self, slo: Slo, above: float, care: Care) -> Broken | None:
        """Why the load found would be no higher than ``above``: every load breaks a limit that the halving would meet above it."""
        if above <= 0 or above >= self.most or not slo:
            return None
        reached = place_of(above)
        low = STRIDE * (reached // STRIDE)
        high = min(low + STRIDE, self.last)
        while not self.holds(high, slo, care):
            half = (low + high) // 2
            while low < half <= reached:
                low, half = half, (half + high) // 2
            if high - low <= 1:
                return self._broken(high, slo)
            high = half
        return None

    def holds(self, place: int, slo: Slo, care: Care) -> bool:
        """Whether a load is inside the limits: what the shortest run says that is clear, or the longest.

        The shortest of all are left out between two loads of the scan, where the limits are near and they are not clear.
        """
        if not slo:
            return True
        for level in range(0 if place % STRIDE == 0 or place >= self.last else 1, care):
            used = strain(self.summary(place, level), slo)
            if used < HOLDS[level] and (level > 0 or place < self.last - SPARSE):
                return True
            if used > BREAKS[level]:
                return False
        return strain(self.summary(place, care), slo) <= 1.0

    def surely_no_higher(self, slo: Slo, above: float) -> bool:
        """Whether ``no_higher`` would say so, from runs above ``above`` alone: saturation need not be known for it.

        A load beyond saturation breaks limits as well, and where saturation is below ``above``, so is everything else. Where the load
        just above clearly breaks a limit, higher ones do.
        """
        reached = place_of(above)
        if not slo:
            return False
        for level in range(SURE):
            used = strain(self.probe(reached + 1, level), slo)
            if used > BREAKS[level]:
                return True
            if used < HOLDS[level]:
                return False
        low = STRIDE * (reached // STRIDE)
        high = low + STRIDE
        while self._breaks(high, slo):
            half = (low + high) // 2
            while low < half <= reached:
                low, half = half, (half + high) // 2
            if high - low <= 1:
                return True
            high = half
        return False

    def _breaks(self, place: int, slo: Slo) -> bool:
        """Whether a load above another that is to be exceeded breaks a limit, by the longest runs where shorter ones are not clear."""
        for level in range(0 if place % STRIDE == 0 else 1, SURE):
            used = strain(self.probe(place, level), slo)
            if used > BREAKS[level]:
                return True
            if used < HOLDS[level] and level > 0:
                return False
        return strain(self.probe(place, SURE), slo) > 1.0

    def probe(self, place: int, level: int) -> Summary:
        """As ``summary``, of a load that may lie beyond saturation, which need not be known."""
        if (level, place) not in self._probes:
            self._probes[level, place] = self._simulated(on_lattice(place), level)
        return self._probes[level, place]

    def summary(self, place: int, level: int) -> Summary:
        """The metrics at a load, by a run of one of the ``LENGTHS``."""
        if (level, place) not in self._runs:
            rate, probed = self.rate(place), self._probes.get((level, place))
            self._runs[level, place] = self._simulated(rate, level) if probed is None or place >= self.last else probed
            if level > 0:
                self.instance.noted(rate, self._runs[level, place])
        return self._runs[level, place]

    def _simulated(self, rate: float, level: int) -> Summary:
        return summarize(middle(self.instance.open(rate, self._length(rate, level), self.instance.asked.seed)))

    def _below(self, end: int, slo: Slo, care: Care) -> int | None:
        """The highest load of the scan below ``end`` that holds; None where none does, ``DESCENTS`` lower ones included."""
        places = [place for place in self.upward() if place < end]
        lower = [self.first - SPARSE * step for step in range(1, DESCENTS + 1)]
        return next((place for place in (*reversed(places), *lower) if place < end and self.holds(place, slo, care)), None)

    def _end(self, slo: Slo, care: Care) -> int:
        """The first load of the upward scan that breaks a limit."""
        return next((place for place in self.upward() if not self.holds(place, slo, care)), self.last + 1)

    def _above(self, low: int) -> int:
        """The next load of the scan."""
        return next((place for place in self.upward() if place > low), self.last + 1) if low >= self.first else low + SPARSE

    def _halved(self, low: int, high: int, slo: Slo, care: Care, width: int) -> tuple[int, int]:
        """The way between a load that holds and one that does not, halved until no more than ``width`` is left."""
        while high - low > width:
            half = (low + high) // 2
            low, high = (half, high) if self.holds(half, slo, care) else (low, half)
        return low, high

    def _found(self, low: int, high: int, slo: Slo, care: Care) -> Highest:
        summary = self.summary(low, care)
        limit = None if high > self.last else worst_limit(self._seen(high), slo)
        return Highest(rate=self.rate(low), summary=summary, requests=self._count(low, care), limit=limit)

    def _broken(self, place: int, slo: Slo) -> Broken:
        summary = self._seen(place)
        return Broken(rate=self.rate(place), summary=summary, limit=worst_limit(summary, slo) or slo[0])

    def _seen(self, place: int) -> Summary:
        """The metrics of the longest run made at a load."""
        return self.summary(place, max((level for level, at in self._runs if at == place), default=0))

    def _count(self, place: int, level: int) -> int:
        return self._length(self.rate(place), level)

    def _length(self, rate: float, level: int) -> int:
        return round(LENGTHS[level] * self.instance.count(rate))


def _share(below: Summary, above: Summary, limit: Limit) -> float:
    """How far a limit lies between its latencies at two loads, from 0 to 1; 1 where it is not reached."""
    low, high = statistic_s(below, limit), statistic_s(above, limit)
    if not high > limit.seconds:
        return 1.0
    return math.log(limit.seconds / low) / math.log(high / low) if 0 < low < limit.seconds else 0.0


def on_lattice(place: int) -> float:
    """The load of a place, in requests per second."""
    return float(2.0 ** (place / PER_OCTAVE))


def place_of(rate: float) -> int:
    """The highest place whose load is no higher than ``rate``, in requests per second."""
    return math.floor(PER_OCTAVE * math.log2(rate) + 1e-6)

"""The highest load at which instances behind a router are inside the limits, from runs at the loads
of a fixed lattice.

Which loads may be run, the random numbers of each run and its length depend on the deployment, the
traffic and the seed, and never on the limits. What one limit makes of the runs is therefore
comparable with what another makes of them: a looser limit never carries less.

A search begins at a closed form, or at the load that is to be exceeded, goes up or down by more and
more steps until one load is inside the limits and a higher one is not, and halves the way between
them. Short runs say what is clear; the two loads at the end are decided by the longest runs, and
the load at which a limit is just used up is read between them from the logarithm of the latencies:
with the same random numbers at every load, these rise evenly. The places of the two loads divide by
their distance, so that a load is read between the same two, wherever the search began.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tonnage.plan.limit import Bound, Breach, limit_of
from tonnage.sizing.loads.instance import QUICK, SHORT, SURE, Care, Instance, Length
from tonnage.sizing.loads.trial import STABLE, rate_bound

if TYPE_CHECKING:
    from tonnage.results.metrics import Summary
    from tonnage.sizing.loads.runs import Runs, Seen
    from tonnage.spec.deployment import Limit, Slo


# The limits of a question next to the metrics of a run: how far each is used, which one breaks.


def statistic_s(summary: Summary, limit: Limit) -> float:
    """The summary's value of the limited statistic, in the unit of its ``seconds``; NaN where it is
    undefined.
    """
    return summary.limit_s(limit)


def strain(summary: Summary, slo: Slo) -> float:
    """The largest ratio of a value to its limit: above 1 a limit is broken; 0 without limits (an
    undefined value holds).
    """
    ratios = (statistic_s(summary, limit) / limit.seconds for limit in slo)
    return max((ratio for ratio in ratios if not math.isnan(ratio)), default=0.0)


def worst_limit(summary: Summary, slo: Slo) -> Limit | None:
    """The limit that is exceeded by the largest factor, or None when all hold (an undefined value
    holds).
    """
    ratios = [statistic_s(summary, limit) / limit.seconds for limit in slo]
    over = [ratio for ratio in ratios if ratio > 1.0]
    return slo[ratios.index(max(over))] if over else None


def breach(summary: Summary, limit: Limit) -> Breach:
    """The limit with the value that breaks it."""
    return Breach(limit=limit_of(limit), value_ms=1e3 * statistic_s(summary, limit))


def binding_limit(slo: Slo, binds: Bound | None) -> Limit | None:
    """The limit of the question that ends a load; None where something else does."""
    return next(
        (limit for limit in slo if binds is not None and binds.limit == limit_of(limit)), None
    )


SURELY = 0.8
"""Share of the closed form of saturation up to which a queue surely settles."""

WAITING = 4.0
"""The same of sessions, which wait for their answers: with limits, these say how many there may
be."""

CLEAR: tuple[tuple[Length, float, float], ...] = ((SHORT, 1 / 1.4, 2.0), (QUICK, 1 / 1.15, 1.15))
"""A run that is not the longest decides where the strain on the limits is below the first or above
the second; near saturation the shortest never says that the limits hold, as queues build up over
more requests than it has."""

PER_OCTAVE = 64
"""Loads of the lattice from one to the double: 1.1 % apart."""

STRIDE = 8
"""Steps of the lattice from the load where a search begins to the next; each further stride is
twice as long. All of them divide by ``WIDTH``."""

NEAR_SATURATION = 32
"""Steps of the lattice below saturation in which the shortest runs do not say that limits hold."""

RUNS: tuple[Length, ...] = (SHORT, QUICK, SURE)
"""From the shortest to the longest."""

WIDTH: dict[Care, int] = {QUICK: 8, SURE: 4}
"""Steps of the lattice between the two loads between which the answer is read: 9 % and 4 %."""

LOWEST = 12 * PER_OCTAVE
"""Steps of the lattice below the highest place at which a search ends: 1/4096 of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Highest:
    """The highest load inside the limits.

    Attributes:
        rate: requests per second of one instance.
        summary: the metrics at the highest simulated load that is no higher.
        limit: what breaks above; None where that is saturation.
    """

    rate: float
    summary: Summary
    limit: Limit | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """No load was found, or none above the one that was to be exceeded: the lowest load seen to
    break a limit; None for saturation.
    """

    rate: float
    summary: Summary
    limit: Limit | None


class LoadScan:
    """A number of instances of one deployment, at the loads of the lattice."""

    def __init__(self, runs: Runs, instance: Instance, instances: int = 1) -> None:
        """``instances`` are simulated together, behind the router of the traffic."""
        self.runs, self.instance, self.instances = runs, instance, instances

    @property
    def most(self) -> float:
        """The highest load at which a queue settles, in requests per second of one instance."""
        return STABLE * self.runs.saturation(self.instance)

    @cached_property
    def top(self) -> int:
        """The highest place at which a search begins: what closed forms say of saturation."""
        return place_of(rate_bound(self.instance, ())) // STRIDE * STRIDE

    def start(self, slo: Slo) -> int:
        """Where a search begins: what closed forms say of the limits on the time per token."""
        return min(self.top, place_of(self.instance.USUAL * rate_bound(self.instance, slo)))

    def highest(
        self, slo: Slo, above: float = 0.0, care: Care = QUICK, near: float = 0.0
    ) -> Highest | Broken:
        """The highest load inside the limits; ends once it is certain to be no higher than
        ``above``.

        ``care``: how long the runs are; ``near``: the load where it is expected, 0 for what closed
        forms say.
        """
        bracket = self._bracket(slo, above, care, near)
        if isinstance(bracket, Broken):
            return bracket
        low, high = bracket
        while high - low > WIDTH[care]:
            half = between(low, high)
            low, high = (half, high) if self.holds(half, slo, care) else (low, half)
        return self._read(low, high, slo, above, care)

    def seen(self, place: int, length: Length) -> Seen:
        """What a run at a load showed."""
        return self.runs.open(self.instance, self.instances, on_lattice(place), length)

    def settles(self, place: int) -> bool:
        """Whether a queue settles at a load; saturation is measured only where the closed form
        leaves that open.
        """
        rate = on_lattice(place)
        if self.instance.recorded_sessions is not None:
            return rate <= WAITING * self.instance.saturation_estimate()
        return rate <= SURELY * self.instance.saturation_estimate() or rate <= self.most

    def holds(self, place: int, slo: Slo, care: Care) -> bool:
        """Whether a load is inside the limits: what the shortest run says that is clear, or the
        longest.
        """
        if not slo and self.instance.traffic.sharing is None:
            return self.settles(place)
        if self._known_unsettled(place):
            return False
        for length, holds, breaks in CLEAR[:care]:
            observed = self.seen(place, length)
            used = strain(observed.summary, slo)
            if (
                used < holds
                and observed.growth <= 1.0
                and (length > SHORT or place < self.top - NEAR_SATURATION)
            ):
                return self.settles(place)
            if max(used, observed.growth) > breaks:
                return False
        return used_at(self.seen(place, care), slo) <= 1.0 and self.settles(place)

    def _known_unsettled(self, place: int) -> bool:
        """Whether no queue settles at a load by what is known without a further run."""
        free = self.instance.follows or self.runs.knows_saturation(self.instance)
        return free and not self.settles(place)

    def _surely_unsettled(self, place: int) -> bool:
        """Whether a closed form alone says that no queue settles at a load, as it does of
        conversations.
        """
        return self.instance.follows and not self.settles(place)

    def _bracket(self, slo: Slo, above: float, care: Care, near: float) -> tuple[int, int] | Broken:
        """A load that holds, and a higher one that does not."""
        expected = min(self.top, place_of(near)) if near > 0.0 else self.start(slo)
        start = (expected if above <= 0.0 else place_of(above)) // WIDTH[care] * WIDTH[care]
        low, high, step = start, start, STRIDE
        if self.holds(start, slo, care) and (above <= 0.0 or self._lasts(start, slo, care)):
            while self.holds(high := low + step, slo, care):
                low, step = high, 2 * step
            return low, high
        while above <= 0.0 and low > self.top - LOWEST:
            low, high, step = max(low - step, self.top - LOWEST), low, 2 * step
            if self.holds(low, slo, care):
                return low, high
        return self._broken(low, slo, care)

    def _lasts(self, place: int, slo: Slo, care: Care) -> bool:
        """Whether the limits hold to the end of the longest run, where caches lose conversations
        too slowly for shorter ones to see it.
        """
        return (
            care == QUICK
            or not self.instance.follows
            or used_at(self.seen(place, care), slo) <= 1.0
        )

    def _read(self, low: int, high: int, slo: Slo, above: float, care: Care) -> Highest | Broken:
        """The load between two places at which the limits are just used up, as the longest runs see
        both.
        """
        # a shorter run was clear about it, and wrong
        while used_at(below := self.seen(low, care), slo) > 1.0:
            low, high = low - WIDTH[care], low
            if low < self.top - LOWEST or on_lattice(high) <= above:
                return self._broken(high, slo, care)
        while self.settles(high) and used_at(self.seen(high, care), slo) <= 1.0:
            low, high, below = high, high + WIDTH[care], self.seen(high, care)
        over, top = self._next(high, care)
        rate, limit = top, None
        if used_at(over, slo) > 1.0:
            share = (
                min(_share(below.summary, over.summary, compared_limit) for compared_limit in slo)
                if over.growth <= 1.0
                else 0.0
            )
            least = self.instance.held_rate(on_lattice(low))
            rate, limit = least * (top / least) ** share, worst_limit(over.summary, slo)
        if rate <= above:
            return self._broken(high, slo, care)
        return Highest(rate=rate, summary=below.summary, limit=limit)

    def _next(self, high: int, care: Care) -> tuple[Seen, float]:
        """What the load above showed, and its requests per second: the highest that settles where
        that is lower.
        """
        if self.settles(high):
            return self.seen(high, care), self.instance.held_rate(on_lattice(high))
        return self.runs.open(self.instance, self.instances, self.most, care), self.most

    def _broken(self, place: int, slo: Slo, care: Care) -> Broken:
        """The load as one that breaks a limit, by the shortest run that says so."""
        for length in RUNS[: care + 1]:
            summary = self.seen(place, length).summary
            if worst_limit(summary, slo) is not None or self._surely_unsettled(place):
                break
        return Broken(rate=on_lattice(place), summary=summary, limit=worst_limit(summary, slo))


def used_at(latencies: Seen, slo: Slo) -> float:
    """The largest share of a limit that a run used; without end where it was not steady."""
    return strain(latencies.summary, slo) if latencies.growth <= 1.0 else math.inf


def between(low: int, high: int) -> int:
    """The place between two others that divides by the highest power of two: the same one,
    whichever way a search came.
    """
    power = 1 << (high - low).bit_length()
    while (low // power + 1) * power >= high:
        power //= 2
    return (low // power + 1) * power


def _share(below: Summary, above: Summary, limit: Limit) -> float:
    """How far a limit is between its latencies at two loads, from 0 to 1; 1 where it is not
    reached.
    """
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

"""What deployments compete for: the fewest GPUs for a load, the most load on systems that exist, or
the shortest answers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from tonnage.plan.plan import MOST_GPUS
from tonnage.plan.reason import NeedsMoreGpus, Reason
from tonnage.sizing.loads.capacity import Capacity
from tonnage.sizing.loads.confidence import Slowdown
from tonnage.sizing.loads.instance import QUICK, Care
from tonnage.sizing.search.deployment_capacity import Contender, Sized

Key = tuple[float, ...]
"""What deployments are sorted by, the best first."""


class Aim(Protocol):
    """The objective that deployments compete for."""

    def at_best(self, contender: Contender, bound: float) -> Key:
        """The key that a deployment cannot go below, as one of its instances carries at most
        ``bound`` requests per second.
        """

    def rate_to_beat(self, contender: Contender, best: Sized) -> float:
        """Requests per second that an instance has to carry to do better than another deployment;
        infinite where nothing helps.
        """

    def rate_to_save(self, contender: Contender, best: Sized) -> float:
        """The load that would save a system for a difference that other knobs are worth; infinite
        where none would.
        """

    def key(self, sized: Sized) -> Key:
        """The key of a deployment that was sized."""


@dataclass(frozen=True, slots=True)
class FewestGpus:
    """The fewest whole GPUs for a load, then the fewest exactly."""

    def at_best(self, contender: Contender, bound: float) -> Key:
        """The bound in whole systems, and exactly."""
        size = contender.ready.trial.system.gpus
        return (
            contender.layout.carrying(contender.load, bound).systems * size,
            size * contender.layout.exactly(contender.load, bound),
        )

    def rate_to_beat(self, contender: Contender, best: Sized) -> float:
        """Fewer whole GPUs, or as many with fewer exactly."""
        size, layout = contender.ready.trial.system.gpus, contender.layout
        equal = layout.of(max(best.gpus // size - contender.question.spare, 0))
        if best.gpus % size or not equal.instances:
            return self.rate_to_save(contender, best)
        exactly = layout.exactly(contender.load, 1.0) * size / best.gpus_exact
        return min(
            self.rate_to_save(contender, best), max(contender.load / equal.instances, exactly)
        )

    def rate_to_save(self, contender: Contender, best: Sized) -> float:
        """Fewer whole GPUs."""
        size, layout = contender.ready.trial.system.gpus, contender.layout
        span = layout.systems_per_instance
        fewer = layout.of(
            (math.ceil(best.gpus / size) - 1 - contender.question.spare) // span * span
        )
        return contender.load / fewer.instances if fewer.systems > 0 else math.inf

    def key(self, sized: Sized) -> Key:
        """Sort by whole GPUs, then by the exact number."""
        return (sized.gpus, sized.gpus_exact)


@dataclass(frozen=True, slots=True)
class MostLoad:
    """The most requests per second on a number of systems."""

    systems: int

    def at_best(self, contender: Contender, bound: float) -> Key:
        """The load of all instances at the bound."""
        return (-bound * contender.layout.of(self.systems).instances,)

    def rate_to_beat(self, contender: Contender, best: Sized) -> float:
        """The load of the other, over the instances."""
        instances = contender.layout.of(self.systems).instances
        return -self.key(best)[0] / instances if instances else math.inf

    def rate_to_save(self, contender: Contender, best: Sized) -> float:
        """The load that would save a system, as ``Aim.rate_to_save``."""
        return self.rate_to_beat(contender, best)

    def sized(
        self, contender: Contender, slowdown: Slowdown, above: float, care: Care
    ) -> tuple[int, Capacity] | Reason:
        """The systems, and what each instance on them carries in runs of that care; or why it is
        left out: it carries at most ``above``.
        """
        capacity = contender.capacity(
            contender.layout.of(self.systems).instances, slowdown, above=above, care=care
        )
        return (self.systems, capacity) if capacity.reason is None else capacity.reason

    def key(self, sized: Sized) -> Key:
        """The load of all instances."""
        return (-sized.instances * sized.capacity.rate,)


@dataclass(frozen=True, slots=True)
class ShortestAnswers:
    """The lowest mean E2E at the peak, on the fewest systems that meet the limits there, of those
    on at most so many GPUs.
    """

    fewest: Sized

    def at_best(self, contender: Contender, bound: float) -> Key:
        """The latency of an empty engine."""
        return (contender.instance.alone_e2e_s,)

    def rate_to_beat(self, contender: Contender, best: Sized) -> float:
        """Any rate will do, unless an empty engine, or the most GPUs that count, are slower than
        the other at its peak.
        """
        shortest, slower = self.key(best)[0], contender.question.step_factor
        if contender.instance.alone_e2e_s * slower >= shortest:
            return math.inf
        most_systems = (
            math.floor(MOST_GPUS * self.fewest.gpus / contender.ready.trial.system.gpus)
            - contender.question.spare
        )
        most_systems = (
            most_systems
            // contender.layout.systems_per_instance
            * contender.layout.systems_per_instance
        )
        return (
            0.0
            if most_systems > 0 and self._e2e_s(contender, most_systems) < shortest
            else math.inf
        )

    def rate_to_save(self, contender: Contender, best: Sized) -> float:
        """Return no rate: no knob is tried for a shorter answer."""
        return math.inf

    def counted(
        self, contender: Contender, slowdown: Slowdown, sizing: tuple[int, Capacity], care: Care
    ) -> tuple[int, Capacity] | Reason:
        """The fewest systems and the capacity that runs of that care gave, where they are in doubt
        those of the longest; or why they do not count: they are too many GPUs.
        """
        needed: tuple[int, Capacity] | Reason = sizing
        if care == QUICK and contender.in_doubt(sizing[0], sizing[1].rate):
            # one system more or less makes another answer the shortest
            needed = contender.needed(slowdown)
        if not isinstance(needed, tuple):
            return needed
        gpus = (needed[0] + contender.question.spare) * contender.ready.trial.system.gpus
        if gpus <= MOST_GPUS * self.fewest.gpus:
            return needed
        exactly, identity = (
            contender.layout.exactly(contender.load, needed[1].rate),
            self.fewest.ready.trial.identity,
        )
        return NeedsMoreGpus(
            gpus=gpus, systems_exact=exactly, other=identity, other_gpus=self.fewest.gpus
        )

    def key(self, sized: Sized) -> Key:
        """Seconds of an answer at the peak, then GPUs."""
        return (self._e2e_s(sized.contender, sized.systems), sized.gpus, sized.gpus_exact)

    def _e2e_s(self, contender: Contender, systems: int) -> float:
        """Mean seconds of an answer of so many systems at the peak."""
        return 1e-3 * contender.at_peak().seen(systems).summary.statistic_ms("e2e", "mean")

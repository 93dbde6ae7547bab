"""Systems of several kinds behind one router: the whole fleet simulated, each instance with its own
engine.

The router gives every instance requests by its weight: what the instance holds where its limits
end. So instances of unlike speed
reach their limits together. Each kind is as slow as the confidence allows for at its own prediction
errors, all of them at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tonnage.errors import InputError
from tonnage.results.metrics import Summary
from tonnage.results.requests import Requests
from tonnage.simulator.kernel.fleet import run_fleet
from tonnage.sizing.loads.fleet_check import (
    LEAST_IN_ALL,
    LEAST_REQUESTS,
    LIFETIMES,
    MOST_INSTANCES,
    SEED_STEP,
    FleetAtPeak,
)
from tonnage.sizing.loads.instance import WITHIN_S, burst_factor, middle
from tonnage.sizing.loads.runs import Seen
from tonnage.sizing.loads.shared_load import balanced_trace
from tonnage.sizing.loads.trial import STABLE
from tonnage.spec.workload import OpenLoop, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedAtPeak(FleetAtPeak):
    """Systems of several kinds at a peak; ``instance``, ``layout`` and ``saturation`` are those of
    the first.

    Attributes:
        kinds: each kind alone, and how many systems of it there are.
        weights: of one instance of each kind, to the router.
    """

    kinds: tuple[tuple[FleetAtPeak, int], ...]
    weights: tuple[float, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """Instances of each kind."""
        return tuple(kind.instances(systems) for kind, systems in self.kinds)

    def instances(self, systems: int) -> int:
        """Instances of all kinds, whatever the number of systems."""
        return sum(self.counts)

    def could_carry(self, systems: int) -> bool:
        """Whether they complete the load within ``STABLE`` of saturation."""
        capacity = math.fsum(
            count * kind.saturation
            for count, (kind, _) in zip(self.counts, self.kinds, strict=True)
        )
        return self.rate <= STABLE * capacity * (1 + 1e-6)

    def simulated(self, systems: int) -> int:
        """How many of the instances are simulated."""
        return sum(self._shown())

    def seen(self, systems: int, router: str = "", seed: int = 0) -> Seen:
        """What the fleet does; arguments as of ``FleetAtPeak.seen``."""

        def made() -> Seen:
            record, _, simulated = self.record(router, seed)
            return Seen(summary=self.runs.summary(record), requests=simulated)

        return self.runs.once((*self._key, router or self.instance.traffic.router, seed), made)

    def of_kinds(self) -> tuple[tuple[float, Summary], ...]:
        """The share of the requests that the router gives each kind, and what they see."""

        def made() -> tuple[tuple[float, Summary], ...]:
            record, bounds, _ = self.record()
            parts = []
            for first, end in pairwise(bounds):
                rows = ((record.instance >= first) & (record.instance < end)).nonzero()[0]
                parts.append((len(rows) / len(record), self.runs.summary(record.some(rows))))
            return tuple(parts)

        return self.runs.once((*self._key, "kinds"), made)

    def record(self, router: str = "", seed: int = 0) -> tuple[Requests, tuple[int, ...], int]:
        """The requests that count, the first instance of each kind with the end of all, and how
        many were simulated.
        """
        shown, whole = self._shown(), sum(self.counts)
        first, traffic = self.instance, self.instance.traffic
        rate = self.rate * sum(shown) / whole
        least = max(
            LEAST_REQUESTS, burst_factor(traffic.process, traffic.cv) * LEAST_IN_ALL / sum(shown)
        )
        requests = math.fsum(
            count * max(least, LIFETIMES * kind.instance.in_flight_at(self.rate * share))
            for count, (kind, _), share in zip(shown, self.kinds, self._shares(), strict=True)
        )
        requests = min(requests, max(WITHIN_S * rate, 1.0))
        arriving = OpenLoop(rate=rate, process=traffic.process, cv=traffic.cv)
        trace = balanced_trace(
            first.workload(arriving, round(requests)), arriving, traffic.seed + SEED_STEP + seed
        )
        routed = self.routed(trace, shown, router)
        bounds = tuple(sum(shown[:place]) for place in range(len(shown) + 1))
        return middle(routed), bounds, len(routed)

    def routed(self, trace: Trace, shown: Sequence[int] = (), router: str = "") -> Requests:
        """A run of these requests on ``shown`` instances of each kind (default: all of them)."""
        members = [
            (kind.instance.engine, weight)
            for count, (kind, _), weight in zip(
                shown or self.counts, self.kinds, self.weights, strict=True
            )
            for _ in range(count)
        ]
        engines, weights = zip(*members, strict=True)
        traffic = self.instance.traffic
        return run_fleet(
            trace, engines, router or traffic.router, seed=traffic.seed, weight=weights
        ).requests

    @property
    def _key(self) -> tuple[object, ...]:
        kinds = tuple(
            (kind.instance, count) for (kind, _), count in zip(self.kinds, self.counts, strict=True)
        )
        return ("mixed", kinds, self.weights, self.rate)

    def _shown(self) -> tuple[int, ...]:
        """Simulated instances of each kind: all, or of a large fleet so many in their shares."""
        whole = sum(self.counts)
        if whole <= MOST_INSTANCES:
            return self.counts
        return tuple(max(1, round(count * MOST_INSTANCES / whole)) for count in self.counts)

    def _shares(self) -> tuple[float, ...]:
        """About what share of all requests comes to one instance of each kind: in proportion to
        what it completes when busy.
        """
        whole = math.fsum(
            count * kind.saturation
            for count, (kind, _) in zip(self.counts, self.kinds, strict=True)
        )
        return tuple(kind.saturation / whole for kind, _ in self.kinds)


def at_peak(kinds: Sequence[tuple[FleetAtPeak, int]], weights: Sequence[float]) -> FleetAtPeak:
    """Systems of one kind or of several at the peak of the first, with each limit at the tightest
    of any kind.

    Raises InputError: attention ranks among unlike instances.
    """
    first = kinds[0][0]
    if len(kinds) == 1:
        return first
    if any(kind.instance.deployment.parallelism.dp > 1 for kind, _ in kinds):
        raise InputError(
            "a fleet: attention ranks are simulated on one kind of system; leave them out"
        )
    slo = tuple(
        min(limits, key=lambda limit: limit.seconds)
        for limits in zip(*(kind.slo for kind, _ in kinds), strict=True)
    )
    return MixedAtPeak(
        runs=first.runs,
        instance=first.instance,
        layout=first.layout,
        rate=first.rate,
        saturation=first.saturation,
        asked=first.asked,
        slo=slo,
        kinds=tuple((replace(kind, rate=first.rate), count) for kind, count in kinds),
        weights=tuple(weights),
    )

"""The instances of a plan over a day, a week or a trace: all of them all the time, or as many as a controller's rule holds.

Where a profile brings more requests than ``MOST_REQUESTS``, fewer instances are simulated with their share of the load, but never fewer
than ``FEWEST``: a small fleet is scaled in larger steps than a large one, so that what is found is on the safe side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tonnage.plan.autoscaling import Held, LimitOverHours, OverHours
from tonnage.plan.limit import limit_of
from tonnage.results.metrics import summarize, violations
from tonnage.simulator.changes import NO_CHANGES, Changes
from tonnage.simulator.kernel.fleet import run_fleet
from tonnage.sizing.loads.limits import statistic_s
from tonnage.spec.arrivals import HOUR_S, HourlyArrivals
from tonnage.spec.workload import TraceArrivals

if TYPE_CHECKING:
    from tonnage.results.requests import Requests
    from tonnage.simulator.autoscaler import Autoscale
    from tonnage.simulator.kernel.memory import Machine
    from tonnage.sizing.loads.instance import Instance
    from tonnage.spec.deployment import Limit
    from tonnage.spec.recording import Recording
    from tonnage.spec.workload import Trace

MOST_REQUESTS = 2_000_000
FEWEST = 4
"""Fewest instances that are simulated, where there are as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a run.

    Attributes:
        run: as the plan states it, in instances of the whole fleet.
        broken_hours: of each limit, in the order of the limits; of one on single gaps 1 where it is broken over the whole run.
        hours: of the run.
    """

    run: OverHours
    broken_hours: tuple[int, ...]
    hours: int


@dataclass(frozen=True, kw_only=True)
class FleetOverHours:
    """A fleet under the load of many hours.

    Attributes:
        instance: one of its instances, with steps as slow as the asked confidence allows for.
        limits: as they were asked.
        slo: those that are held, in the same order: tighter by what latencies are off beyond the steps.
        instances: of the fixed fleet.
        profile: requests per second of each hour, in all; empty where a recording is replayed.
        recording, lengths: traffic that is replayed in their place, with its own lengths or without.
    """

    instance: Instance
    limits: tuple[Limit, ...]
    slo: tuple[Limit, ...]
    instances: int
    profile: tuple[float, ...] = ()
    recording: Recording | None = None
    lengths: bool = True

    @cached_property
    def simulated(self) -> int:
        """Instances that are simulated."""
        requests = math.fsum(self.profile) * HOUR_S
        if requests <= MOST_REQUESTS:
            return self.instances
        return min(self.instances, max(FEWEST, round(self.instances * MOST_REQUESTS / requests)))

    @cached_property
    def whole(self) -> Trace:
        """The requests of all hours."""
        return self._trace(self.profile)

    @cached_property
    def hardest(self) -> Trace:
        """Those of the hours in which a rule is searched; all of them where a recording is replayed."""
        return self._trace(hardest_hours(self.profile)) if self.profile else self.whole

    def _trace(self, profile: tuple[float, ...]) -> Trace:
        instance, seed = self.instance, self.instance.traffic.seed
        if self.recording is not None:
            arrivals = TraceArrivals(recording=self.recording, lengths=self.lengths)
            return instance.workload(arrivals, len(self.recording)).trace(seed)
        share = self.simulated / self.instances
        hourly = HourlyArrivals(hours=tuple(rate * share for rate in profile))
        return instance.workload(hourly, hourly.most).trace(seed)

    @cached_property
    def machine(self) -> Machine:
        """One of the engines."""
        return self.instance.engine

    def run(self, trace: Trace, rule: Autoscale | None) -> Outcome:
        """The fleet under some of the hours, by a rule over the simulated instances; None for all of them all the time."""
        traffic, count = self.instance.traffic, self.simulated if rule is None else rule.instances
        changes = NO_CHANGES if rule is None else Changes(autoscale=rule)
        routed = run_fleet(trace, [self.machine] * count, traffic.router, seed=traffic.seed, changes=changes)
        kept = self._limits(routed.requests)
        times = self.instances / self.simulated
        held = tuple(
            Held(instances=round(each * times), hours=float(seconds) / HOUR_S)
            for each, seconds in sorted(routed.changed.held_seconds.items())
            if seconds > 0
        )
        broken = iter(kept)
        hours = tuple(
            self._broken_gaps(routed.requests, i) if self._of_gaps(i) else next(broken).broken_hours for i in range(len(self.slo))
        )
        return Outcome(run=OverHours(held=held, limits=kept), broken_hours=hours, hours=max((one.hours for one in kept), default=1))

    def _of_gaps(self, place: int) -> bool:
        return self.slo[place].metric == "itl"

    def _broken_gaps(self, requests: Requests, place: int) -> int:
        """1 where a limit on single gaps, which are not known by the hour, is broken over the whole run."""
        limit = self.slo[place]
        return int(statistic_s(summarize(requests), limit) > limit.seconds)

    def _limits(self, requests: Requests) -> tuple[LimitOverHours, ...]:
        """What became of the limits that are known by request, under the names that they were asked by."""
        named = [limit_of(limit) for limit in self.limits if limit.metric != "itl"]
        return tuple(
            LimitOverHours(
                limit=limit,
                share=one.share,
                broken_hours=one.broken_hours,
                hours=one.hours,
                worst_hour=one.worst_hour,
                worst_share=one.worst_share,
            )
            for limit, one in zip(named, violations(requests, self.slo), strict=True)
        )


def hardest_hours(profile: tuple[float, ...]) -> tuple[float, ...]:
    """The busiest hour of a profile with the one after it, and then the steepest rise: the hour before it and two from it on.

    So that they join where the load falls, and no rise is steeper than those of the profile. Where both overlap they are told once.
    """
    hours = len(profile)
    busiest = profile.index(max(profile))
    rise = max(range(hours), key=lambda hour: (profile[hour] - profile[hour - 1], -hour))
    apart = (busiest - rise) % hours
    if apart <= 2:
        return tuple(profile[(rise + shift) % hours] for shift in range(-1, apart + 2))
    return tuple(profile[hour % hours] for hour in (busiest, busiest + 1, rise - 1, rise, rise + 1))

"""Instances, systems and GPUs: how many whole systems a load needs, standby ones, the simulated
fleet, racks, and autoscaling.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from tonnage.plan.document import Shown
from tonnage.plan.limit import RACK_KW, Breach, Limit
from tonnage.results.metrics import Attained, Latencies
from tonnage.spec.typed_values import strict


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Whole systems, fully populated with instances of one deployment. An instance that is wider
    than a system takes whole systems.
    """

    systems: int
    # gpus_per_instance, gpus_per_system: whole GPUs
    gpus_per_instance: int
    gpus_per_system: int

    @property
    def instances_per_system(self) -> int:
        """Instances that share one system; 1 where an instance spans several."""
        return max(1, self.gpus_per_system // self.gpus_per_instance)

    @property
    def systems_per_instance(self) -> int:
        """Systems that one instance spans; 1 where several instances share one."""
        return math.ceil(self.gpus_per_instance / self.gpus_per_system)

    @property
    def instances(self) -> int:
        """Instances on all of the systems."""
        return self.systems // self.systems_per_instance * self.instances_per_system

    @property
    def gpus(self) -> int:
        """GPUs of all of the systems."""
        return self.systems * self.gpus_per_system

    def of(self, systems: int) -> Fleet:
        """Put the same deployment on another number of systems."""
        return replace(self, systems=systems)

    def holding(self, instances: int) -> Fleet:
        """The fewest whole systems that hold ``instances``."""
        return self.of(-(-instances // self.instances_per_system) * self.systems_per_instance)

    def carrying(self, load: float, per_instance: float) -> Fleet:
        """The fewest whole systems, at least those of one instance, that carry a load; what divides
        evenly is not rounded up.
        """
        groups = max(1, math.ceil(round(load / (per_instance * self.instances_per_system), 9)))
        return self.of(groups * self.systems_per_instance)

    def exactly(self, load: float, per_instance: float) -> float:
        """The systems that a load takes, before rounding up."""
        return load / per_instance / self.instances_per_system * self.systems_per_instance

    def utilisation(self, load: float, per_instance: float) -> float:
        """A load over what all instances carry."""
        return load / (per_instance * self.instances)


def fleet(gpus_per_instance: int, gpus_per_system: int, systems: int = 0) -> Fleet:
    """A fleet of ``systems``, in which each instance takes ``gpus_per_instance`` GPUs."""
    return Fleet(
        systems=systems, gpus_per_instance=gpus_per_instance, gpus_per_system=gpus_per_system
    )


Unit = Literal["system", "instance"]

HOURS_PER_YEAR = 8_760.0


@strict
class Standby:
    """Units that fail one by one, and how many of them there are beyond the need of the peak."""

    unit: Unit  # what fails at once: a whole system, or one instance
    needed: int  # units that carry the peak inside the limits
    standing: int  # units that there are
    extra_systems: int = 0  # systems that were added for failures, beyond the requested spare ones
    # mtbf_hours, repair_hours: mean time between failures of one unit, and until it works again;
    # None where not given
    mtbf_hours: float | None = None
    repair_hours: float | None = None
    # repairs that go on at once; None for as many as there are failures
    repairers: int | None = None
    asked: float | None = None  # the requested probability; None where none was
    # probability that at least ``needed`` units work; None where no times are given
    availability: float | None = None

    @property
    def short_hours_per_year(self) -> float | None:
        """Hours of a year in which fewer units work than the peak needs; None where no times are
        given.
        """
        return None if self.availability is None else (1 - self.availability) * HOURS_PER_YEAR


@strict
class FleetRun:
    """A simulation of all instances together behind one router."""

    # systems, instances: that served; spare systems are left out
    systems: int
    instances: int
    simulated_instances: int  # how many of them were simulated, with their share of the load
    router: str  # what gave requests to the instances, a name of ``simulator.router``
    requests: int  # simulated over all instances
    holds: bool  # whether every limit holds over the pooled requests
    worst: Breach | None  # the limit exceeded most; None where all hold
    # ttft_ms, itl_ms, tpot_ms, e2e_ms: over the pooled requests, in milliseconds
    ttft_ms: Latencies
    itl_ms: Latencies
    tpot_ms: Latencies
    e2e_ms: Latencies


@strict
class FleetCheck:
    """The final check of the chosen number of systems."""

    by_division: int  # systems from load over capacity, rounded up, without spare
    systems: int  # systems after the check, without spare
    runs: tuple[FleetRun, ...]  # what was simulated, in order

    @property
    def holds(self) -> bool:
        """Whether some number of systems that was tried holds every limit."""
        return any(run.holds for run in self.runs)


@strict
class BehindRouter:
    """The choice behind one router."""

    router: str  # a name of ``simulator.router``
    # the fewest, without spare ones, that hold the limits behind it at the asked confidence; None
    # where no number does
    systems: int | None
    # ttft_ms, itl_ms, tpot_ms, e2e_ms: latencies of the systems of the plan at the peak, as
    # predicted, in milliseconds
    ttft_ms: Latencies
    itl_ms: Latencies
    tpot_ms: Latencies
    e2e_ms: Latencies


BTU_PER_HOUR = 3412.14  # heat of one kW in BTU per hour (1 BTU = 1,055.06 J)

KW_PER_TON = 3.51685  # one ton of refrigeration, 12,000 BTU per hour, in kW


@strict
class Footprint:
    """The power, cooling and racks that systems need at their highest power."""

    systems: int
    kw: float  # of all of them; ``kw_from`` says where the power of one comes from
    kw_from: str
    # by power alone, ``per_rack`` systems in each; a system that is itself a rack, or draws more
    # than one, takes one
    racks: int
    per_rack: int
    rack_kw: float = RACK_KW  # kW that one rack can feed and cool
    building_kw: float  # with the power usage effectiveness of the building

    @property
    def btu_per_hour(self) -> float:
        """Heat to be taken away: all of the power becomes heat."""
        return self.kw * BTU_PER_HOUR

    @property
    def cooling_tons(self) -> float:
        """The cooling in tons of refrigeration."""
        return self.kw / KW_PER_TON


def footprint(
    systems: int, watts: float, watts_from: str, *, rack_kw: float = RACK_KW, pue: float = 1.0
) -> Footprint:
    """The footprint of ``systems`` that draw ``watts`` each."""
    per_rack = max(1, math.floor(rack_kw / (watts / 1e3) + 1e-9))
    kw, racks = systems * watts / 1e3, math.ceil(systems / per_rack)
    return Footprint(
        systems=systems,
        kw=kw,
        kw_from=watts_from,
        racks=racks,
        per_rack=per_rack,
        rack_kw=rack_kw,
        building_kw=kw * pue,
    )


@strict
class AtPeak(Shown):
    """A deployment under the asked peak, on its number of systems, by the prediction as it is;
    spare systems are on standby.
    """

    WHERE_ASKED = ("attained", "sure")

    requests_per_second_per_instance: float  # the share of one instance
    # ttft_ms, itl_ms, tpot_ms, e2e_ms: latencies in milliseconds
    ttft_ms: Latencies
    itl_ms: Latencies
    tpot_ms: Latencies
    e2e_ms: Latencies
    utilisation: float  # the peak over what these instances carry inside the limits
    # how many were simulated together: the whole fleet of the choice, one instance under its share
    # elsewhere
    instances: int
    # shares of the requests that meet joint limits there; None without such a limit
    attained: tuple[Attained, ...] | None = None
    # the same shares where times are as much longer as the asked confidence allows for
    sure: tuple[float, ...] | None = None


# By which rule a controller scales the fleet of a plan over its day, week or trace, and what that
# saves.


# What a controller looks at: requests in flight at the instances that serve, or requests that come
# in a second
Metric = Literal["outstanding", "rate"]

# Why there is no proposal: one instance serves the peak; a controller is not simulated over
# attention ranks; or no rule that was tried holds the limits
WhyNot = Literal["one-instance", "attention-ranks", "no-rule"]


@strict
class LimitOverHours:
    """The attainment of one limit, hour by hour."""

    limit: Limit
    share: float  # of all requests that took longer than the limit's time
    # hours in which the limit's statistic, over the requests that were due in them, was above it
    broken_hours: int
    hours: int  # those in which a request was due
    worst_hour: int  # the one with the largest share of such requests, counted from 0
    worst_share: float


@strict
class Held:
    """The hours of the run for which each number of instances was held."""

    instances: int
    hours: float


@strict
class OverHours(Shown):
    """The fleet over the whole day, week or trace."""

    DERIVED: ClassVar[tuple[str, ...]] = ("instance_hours",)

    # instances that were held, with starting, standby and leaving ones, the fewest first
    held: tuple[Held, ...]
    limits: tuple[LimitOverHours, ...]  # what became of each limit but those on single gaps

    @property
    def instance_hours(self) -> float:
        """Instances that were held times hours."""
        return math.fsum(period.instances * period.hours for period in self.held)

    def rented_hours(self, at_once: int) -> float:
        """Rented hours, where ``at_once`` instances are rented together."""
        return math.fsum(-(-period.instances // at_once) * period.hours for period in self.held)


@strict
class Proposal:
    """A rule by which a controller scales the fleet, and what came of it."""

    # metric, target: what the controller looks at, and what it aims at for one instance
    metric: Metric
    target: float
    # least, most: instances that serve
    least: int
    most: int
    warm: int  # further instances that are kept started
    start_s: float  # seconds from the decision until a new instance takes requests
    # seconds for which the highest number asked for is kept; the scale-down stabilization window of
    # Kubernetes
    hold_s: float
    interval_s: float  # seconds between two looks
    run: OverHours  # over the whole day, week or trace


@strict
class AutoscalingCost:
    """Cloud GPUs for a year at this pace, in USD."""

    fixed_usd_per_year: float  # all instances all the time
    scaled_usd_per_year: float  # the cost of instances that the first proposal holds
    offer: str  # what is rented, in words


@strict
class Autoscaling(Shown):
    """The proposed autoscaling of a plan."""

    DERIVED: ClassVar[tuple[str, ...]] = ("saved_share",)

    hours: float  # length of the day, week or trace
    instances: int  # of the fixed fleet, without spare ones
    simulated_instances: int  # how many of them were simulated, with their share of the load
    requests: int  # that were simulated in each run over all hours
    # of the hours, in which limits may be broken, as asked. Hours in which the fixed fleet breaks a
    # limit too do not count.
    broken_hours_share: float
    fixed: OverHours | None  # the fixed fleet over the same hours
    # one for each metric that holds the limits, the fewest instance-hours first
    proposals: tuple[Proposal, ...] = ()
    tried: int = 0  # runs of the search
    reason: WhyNot | None = None  # why there is no proposal; None where there is one
    # at the cloud's price; None where that is not known, or nothing is proposed
    cost: AutoscalingCost | None = None

    @property
    def best(self) -> Proposal | None:
        """The proposal with the fewest instance-hours."""
        return self.proposals[0] if self.proposals else None

    @property
    def saved_share(self) -> float | None:
        """Share of the fixed fleet's instance-hours that the first proposal saves; None without
        one.
        """
        if self.best is None or self.fixed is None or self.fixed.instance_hours == 0:
            return None
        return 1.0 - self.best.run.instance_hours / self.fixed.instance_hours

    def by(self, metric: Metric) -> Proposal | None:
        """The proposal for a metric."""
        return next((proposal for proposal in self.proposals if proposal.metric == metric), None)

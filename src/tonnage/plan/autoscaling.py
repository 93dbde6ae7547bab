"""How a controller scales the fleet of a plan over its day, week or trace, and what that saves."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from tonnage.plan.document import Shown
from tonnage.plan.limit import Limit
from tonnage.spec.typed_values import strict

Metric = Literal["outstanding", "rate"]
"""What a controller looks at: requests in flight at the instances that serve, or requests that come in a second."""

WhyNot = Literal["one-instance", "attention-ranks", "no-rule"]
"""Why there is no proposal: one instance serves the peak; a controller is not simulated over attention ranks; or no rule that was tried
holds the limits."""


@strict
class LimitOverHours:
    """What became of one limit, hour by hour."""

    limit: Limit
    share: float  # of all requests, those that took longer than the limit's time
    broken_hours: int  # hours in which the limit's statistic, over the requests that were due in them, was above it
    hours: int  # those in which a request was due
    worst_hour: int  # the one with the largest share of such requests, counted from 0
    worst_share: float


@strict
class Held:
    """For how many hours of the run so many instances were held."""

    instances: int
    hours: float


@strict
class OverHours(Shown):
    """The fleet over the whole day, week or trace."""

    DERIVED: ClassVar[tuple[str, ...]] = ("instance_hours",)

    held: tuple[Held, ...]  # instances that were held, with those that start, stand by and leave, the fewest first
    limits: tuple[LimitOverHours, ...]  # what became of each limit but those on single gaps

    @property
    def instance_hours(self) -> float:
        """Instances that were held times hours."""
        return math.fsum(each.instances * each.hours for each in self.held)

    def rented_hours(self, at_once: int) -> float:
        """Hours of what is rented, where so many instances are rented at once."""
        return math.fsum(-(-each.instances // at_once) * each.hours for each in self.held)


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
    hold_s: float  # seconds for which the highest number asked for is kept; the scale-down stabilization window of Kubernetes
    interval_s: float  # seconds between two looks
    run: OverHours  # over the whole day, week or trace


@strict
class AutoscalingCost:
    """Cloud GPUs for a year at this pace, in USD."""

    fixed_usd_per_year: float  # all instances all the time
    scaled_usd_per_year: float  # those that the first proposal holds
    offer: str  # what is rented, in words


@strict
class Autoscaling(Shown):
    """What is proposed for a plan."""

    DERIVED: ClassVar[tuple[str, ...]] = ("saved_share",)

    hours: float  # length of the day, week or trace
    instances: int  # of the fixed fleet, without spare ones
    simulated_instances: int  # how many of them were simulated, with their share of the load
    requests: int  # that were simulated in each run over all hours
    # of the hours, in which limits may be broken, as asked. Hours in which the fixed fleet breaks a limit too do not count.
    broken_hours_share: float
    fixed: OverHours | None  # the fixed fleet over the same hours
    proposals: tuple[Proposal, ...] = ()  # one for each metric that holds the limits, the fewest instance-hours first
    tried: int = 0  # runs of the search
    reason: WhyNot | None = None  # why there is no proposal; None where there is one
    cost: AutoscalingCost | None = None  # at the cloud's price; None where that is not known, or nothing is proposed

    @property
    def best(self) -> Proposal | None:
        """The proposal with the fewest instance-hours."""
        return self.proposals[0] if self.proposals else None

    @property
    def saved_share(self) -> float | None:
        """Share of the fixed fleet's instance-hours that the first proposal saves; None without one."""
        if self.best is None or self.fixed is None or self.fixed.instance_hours == 0:
            return None
        return 1.0 - self.best.run.instance_hours / self.fixed.instance_hours

    def by(self, metric: Metric) -> Proposal | None:
        """The proposal for a metric."""
        return next((one for one in self.proposals if one.metric == metric), None)

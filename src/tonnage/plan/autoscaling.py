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
    """What became of one limit, hour by hour.

    Attributes:
        limit: as asked.
        share: of all requests, those that took longer than the limit's time.
        broken_hours: hours in which the limit's statistic, over the requests that were due in them, was above it.
        hours: those in which a request was due.
        worst_hour: the one with the largest share of such requests, counted from 0.
        worst_share: that share.
    """

    limit: Limit
    share: float
    broken_hours: int
    hours: int
    worst_hour: int
    worst_share: float


@strict
class Held:
    """For how many hours of the run so many instances were held."""

    instances: int
    hours: float


@strict
class OverHours(Shown):
    """The fleet over the whole day, week or trace.

    Attributes:
        held: instances that were held, with those that start, stand by and leave, the fewest first.
        limits: what became of each limit but those on single gaps.
    """

    DERIVED: ClassVar[tuple[str, ...]] = ("instance_hours",)

    held: tuple[Held, ...]
    limits: tuple[LimitOverHours, ...]

    @property
    def instance_hours(self) -> float:
        """Instances that were held times hours."""
        return math.fsum(each.instances * each.hours for each in self.held)

    def rented_hours(self, at_once: int) -> float:
        """Hours of what is rented, where so many instances are rented at once."""
        return math.fsum(-(-each.instances // at_once) * each.hours for each in self.held)


@strict
class Proposal:
    """A rule by which a controller scales the fleet, and what came of it.

    Attributes:
        metric, target: what the controller looks at, and what it aims at for one instance.
        least, most: instances that serve.
        warm: further instances that are kept started.
        start_s: seconds from the decision until a new instance takes requests.
        hold_s: seconds for which the highest number asked for is kept; the scale-down stabilization window of Kubernetes.
        interval_s: seconds between two looks.
        run: over the whole day, week or trace.
    """

    metric: Metric
    target: float
    least: int
    most: int
    warm: int
    start_s: float
    hold_s: float
    interval_s: float
    run: OverHours


@strict
class AutoscalingCost:
    """Cloud GPUs for a year at this pace, in USD.

    Attributes:
        fixed_usd_per_year: all instances all the time.
        scaled_usd_per_year: those that the first proposal holds.
        offer: what is rented, in words.
    """

    fixed_usd_per_year: float
    scaled_usd_per_year: float
    offer: str


@strict
class Autoscaling(Shown):
    """What is proposed for a plan.

    Attributes:
        hours: length of the day, week or trace.
        instances: of the fixed fleet, without spare ones.
        simulated_instances: how many of them were simulated, with their share of the load.
        requests: that were simulated in each run over all hours.
        broken_hours_share: of the hours, in which limits may be broken, as asked. Hours in which the fixed fleet breaks a limit
            too do not count.
        fixed: the fixed fleet over the same hours.
        proposals: one for each metric that holds the limits, the fewest instance-hours first.
        tried: runs of the search.
        reason: why there is no proposal; None where there is one.
        cost: at the cloud's price; None where that is not known, or nothing is proposed.
    """

    DERIVED: ClassVar[tuple[str, ...]] = ("saved_share",)

    hours: float
    instances: int
    simulated_instances: int
    requests: int
    broken_hours_share: float
    fixed: OverHours | None
    proposals: tuple[Proposal, ...] = ()
    tried: int = 0
    reason: WhyNot | None = None
    cost: AutoscalingCost | None = None

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

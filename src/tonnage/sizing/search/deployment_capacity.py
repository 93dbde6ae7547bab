"""One deployment and the question: what it carries at a confidence, and how many systems of it the
load needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from tonnage.plan.fleet import Fleet, fleet
from tonnage.plan.limit import Breach, bound_by, limit_of
from tonnage.plan.reason import BrokenAtAnyLoad, BrokenEarly, BrokenOnManyInstances, NotSure, Reason
from tonnage.sizing.loads.capacity import (
    Capacity,
    broken_alone,
    find_capacity,
    offline_capacity,
    replay_capacity,
)
from tonnage.sizing.loads.confidence import (
    AS_PREDICTED,
    Slowdown,
    StepErrors,
    factors_at,
    step_errors,
)
from tonnage.sizing.loads.fleet_check import FleetAtPeak, Replayed
from tonnage.sizing.loads.instance import QUICK, SURE, Care, Instance
from tonnage.sizing.loads.load_scan import statistic_s, worst_limit
from tonnage.sizing.loads.trial import MARGIN, Ready, rate_bound

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.plan.candidate import Role
    from tonnage.results.metrics import Summary
    from tonnage.sizing.loads.runs import Runs, Seen
    from tonnage.sizing.question import Question
    from tonnage.spec.deployment import Limit, Slo

USUAL = 0.85 / MARGIN
"""Share of what closed forms allow an instance that it usually carries, to know of how many
instances to begin with."""

DOUBT, MANY = 0.04, 8
"""Share by which the load that short runs find may be off, twice its scatter; and from how many
systems on a few do not matter."""

HAIR = 1 - 1e-9
"""Rounding that is left out of account where a load divides evenly."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A deployment under the load of a question.

    Attributes:
        question: load, limits and what may be bought.
        ready: the deployment.
        runs: the memory of the search.
        share: of what closed forms allow, the part that an instance is expected to carry; 0 where
            nothing is known. It says where a search for a load begins, never what it finds.
    """

    question: Question
    ready: Ready
    runs: Runs
    share: float = 0.0

    @property
    def instance(self) -> Instance:
        """One of its instances."""
        return self.ready.instance

    @property
    def running(self) -> Instance:
        """The same with its steps as slow as was requested."""
        return self.behind(steps=self.question.step_factor)

    @property
    def load(self) -> float:
        """Requests per second in all that the question is sized for."""
        return self.question.demand.sizing_requests_per_second

    @cached_property
    def layout(self) -> Fleet:
        """How its instances are in systems."""
        trial = self.ready.trial
        return fleet(trial.deployment.parallelism.gpus, trial.system.gpus)

    @cached_property
    def errors(self) -> dict[str, StepErrors]:
        """The errors of its predictions."""
        clients = self.capacity(1).concurrency if self.question.load == "closed" else None
        return step_errors(self.question, self.ready.trial.deployment, clients)

    def slowdown(self, level: float) -> Slowdown:
        """The factors by which times are longer at a confidence."""
        key = (self.instance, "factors", level, self.question.load, self.question.limits)
        return self.runs.once(key, lambda: self._factors(level)).times(self.question.step_factor)

    def _factors(self, level: float) -> Slowdown:
        """The same without the requested factor; few deployments are of another regime."""
        errors = self.errors
        key = ("factors", tuple(errors), errors["requests_s"].regime, level)
        return self.runs.once(key, lambda: factors_at(errors, level))

    @property
    def as_asked(self) -> Slowdown:
        """Times as predicted, or longer by the requested factor."""
        return AS_PREDICTED.times(self.question.step_factor)

    def bound(self, slowdown: Slowdown) -> float:
        """Requests per second of one instance that closed forms allow."""
        slo = slowdown.tightened(self.question.limits)
        return (
            self.runs.once((self.instance, "bound", slo), lambda: rate_bound(self.instance, slo))
            / slowdown.steps
        )

    def capacity(
        self,
        instances: int,
        slowdown: Slowdown | None = None,
        *,
        above: float = 0.0,
        care: Care = SURE,
        router: str = "",
        near: float = 0.0,
    ) -> Capacity:
        """What each of so many instances carries, with times ``slowdown`` as long; the other
        arguments are those of ``find_capacity``.
        """
        question, slower = self.question, self.as_asked if slowdown is None else slowdown
        demand, slo = question.demand, slower.tightened(question.limits)
        if demand.offline_requests is not None and demand.offline_seconds is not None:
            return slower_capacity(
                offline_capacity(self.instance, demand.offline_requests, demand.offline_seconds),
                slower.steps,
            )
        recording = question.recording
        instance = self.behind(router)
        if recording is not None:
            instance = self.behind(router, slower.steps)
            slo = slower.beyond_steps(question.limits)
        broken = broken_alone(instance.single_client(), slo)
        if broken is not None:
            return self._as_asked(broken, slower, slo)
        if recording is not None:
            replayed = Replayed(recording=recording, lengths=question.replays_lengths)
            return self._as_asked(replay_capacity(self.runs, instance, slo, replayed), slower, slo)
        together = instance.standing_for(instances)
        above, near = above * slower.steps, (near or self.share * self.bound(slower)) * slower.steps
        capacity = find_capacity(
            self.runs, instance, slo, instances=together, above=above, care=care, near=near
        )
        return self._as_asked(slower_capacity(capacity, slower.steps), slower, slo)

    def _as_asked(self, capacity: Capacity, slower: Slowdown, slo: Slo) -> Capacity:
        """The capacity with the limits as asked in place of the tighter ones, and latencies as much
        longer.
        """
        original_limits = {
            limit_of(tighter): limit
            for tighter, limit in zip(slo, self.question.limits, strict=True)
        }
        binds, reason = capacity.binds, capacity.reason
        if binds is not None and binds.limit is not None:
            binds = bound_by(original_limits[binds.limit])
        if isinstance(reason, BrokenAtAnyLoad | BrokenEarly | BrokenOnManyInstances):
            limit, value = original_limits[reason.breach.limit], reason.breach.value_ms
            longer = (
                slower.of(limit)
                if self.question.recording is None
                else slower.of(limit) / slower.steps
            )
            breach = Breach(
                limit=limit_of(limit), value_ms=None if value is None else value * longer
            )
            reason = replace(reason, breach=breach)
            if (
                isinstance(reason, BrokenAtAnyLoad)
                and slower.steps > self.as_asked.steps
                and self.meets_alone(self.as_asked)
            ):
                reason = NotSure(breach=breach, step_factor=slower.steps / self.as_asked.steps)
        return replace(capacity, binds=binds, reason=reason)

    def alone(self) -> Summary:
        """A single client: what no load can beat."""
        return self.instance.single_client()

    def alone_at(self, slowdown: Slowdown) -> Breach:
        """The limit that a single client comes nearest to, or breaks most, with times so much
        longer, and the value there.
        """
        alone, limits = self.alone(), self.question.limits
        values = [(1e3 * statistic_s(alone, limit) * slowdown.of(limit), limit) for limit in limits]
        value, nearest = max(
            ((v, limit) for v, limit in values if not math.isnan(v)),
            key=lambda pair: pair[0] / pair[1].seconds,
        )
        return Breach(limit=limit_of(nearest), value_ms=value)

    def meets_alone(self, slowdown: Slowdown) -> bool:
        """Whether a single client is inside the limits, with times so much longer."""
        return worst_limit(self.alone(), slowdown.tightened(self.question.limits)) is None

    def without(self, limit: Limit, instances: int) -> Capacity:
        """What each of so many instances would carry by the prediction as it is, if the question
        had all limits but one.
        """
        rest = tuple(other_limit for other_limit in self.question.slo if other_limit != limit)
        return replace(self, question=replace(self.question, slo=rest)).capacity(
            instances, care=QUICK
        )

    def behind(self, router: str = "", steps: float = 1.0) -> Instance:
        """The instance behind a router, with slower steps."""
        traffic = self.instance.traffic
        if router in ("", traffic.router) and steps == 1.0:
            return self.instance
        router = router or traffic.router
        changed = replace(
            traffic, router=router, step_factor=steps, sharing=self.question.sharing_behind(router)
        )
        return self.runs.instance(self.instance.deployment, changed)

    def needed(
        self,
        slowdown: Slowdown | None = None,
        *,
        above: float = 0.0,
        care: Care = SURE,
        router: str = "",
    ) -> tuple[int, Capacity] | Reason:
        """The fewest systems, spare ones left out, that carry the load, and what one of their
        instances carries; or why none do.

        More instances carry as much each as fewer do, or more. So what a number of systems carries
        says how many to look at next; short runs say where to begin, and leave a deployment out
        that carries less than ``above`` by more than their scatter. Arguments as of ``capacity``.
        """
        slower = self.as_asked if slowdown is None else slowdown
        guess = self.layout.carrying(self.load, (self.share or USUAL) * self.bound(slower))
        doubt = 1 - DOUBT if care == SURE else 1.0
        quick = self.capacity(
            guess.instances, slower, above=doubt * above, care=QUICK, router=router
        )
        if quick.reason is not None and (care == QUICK or above > 0.0):
            return quick.reason
        low, systems = 0, self.layout.carrying(self.load, quick.rate or self.bound(slower)).systems
        best: tuple[int, Capacity] | None = None
        while True:
            instances = self.layout.of(systems).instances
            capacity = self.capacity(
                instances, slower, above=above, care=care, router=router, near=quick.rate
            )
            if capacity.reason is not None:
                return best or capacity.reason
            needed = self.layout.carrying(self.load, capacity.rate).systems
            if needed <= systems:
                best = systems, capacity
                if needed == systems or needed <= low:
                    return best
                systems = needed
            elif best is not None and needed >= best[0]:
                return best
            else:
                low, systems = systems, needed

    def in_doubt(self, systems: int, rate: float) -> bool:
        """Whether the scatter of short runs could change a number of systems; where there are many,
        a few more do not matter.
        """
        return systems <= MANY * self.layout.systems_per_instance and any(
            self.layout.carrying(self.load, rate * factor).systems != systems
            for factor in (1 - DOUBT, 1 + DOUBT)
        )

    def settled(self, slowdown: Slowdown, *, router: str = "") -> int | None:
        """The systems of ``needed``, from short runs where these leave no doubt; None where no
        number does.
        """
        needed = self.needed(slowdown, care=QUICK, router=router)
        if isinstance(needed, tuple) and self.in_doubt(needed[0], needed[1].rate):
            needed = self.needed(slowdown, router=router)
        return needed[0] if isinstance(needed, tuple) else None

    def roles(self, instances: int) -> tuple[tuple[Role, int], ...]:
        """What so many instances do, and how many of them."""
        return (("serve", instances),)

    def settled_on(self, systems: int, slowdown: Slowdown) -> Contender:
        """The same as it was found to carry the load on so many systems."""
        return self

    def standing_for(self, instances: int) -> int:
        """How many instances are simulated to know what each of so many carries."""
        return self.instance.standing_for(instances)

    def seen(self, instances: int, rate: float, care: Care) -> Seen:
        """A run of the instances that represent so many, at ``rate`` requests per second for each,
        by the prediction as it is.
        """
        return self.runs.open(*self.simulated(instances, rate), care)

    def simulated(self, instances: int, rate: float) -> tuple[Instance, int, float]:
        """What is simulated to see so many instances at ``rate`` for each: an instance, how many,
        and the requests/s for each of these.
        """
        return self.running, self.standing_for(instances), rate

    def recorded(
        self, capacity: Capacity, most_requests: int
    ) -> tuple[Instance, float, NDArray[np.int64]]:
        """An instance that ends the load of ``capacity``, the requests per second that come to it,
        and its steps, at most so many.
        """
        instance, rate = self.running, capacity.rate
        requests = instance.requests_of(rate, QUICK)
        key = (instance, "steps", rate, requests, most_requests)
        steps = self.runs.once(key, lambda: instance.recorded(rate, requests, most_requests).steps)
        return instance, rate, steps

    def saturation(self, slowdown: Slowdown | None = None) -> float:
        """Requests per second that one instance completes when always busy."""
        return (
            self.runs.saturation(self.instance)
            / (self.as_asked if slowdown is None else slowdown).steps
        )

    def at_peak(self, slowdown: Slowdown | None = None) -> FleetAtPeak:
        """Simulate the whole fleet at the load that is sized for."""
        question, slower = self.question, self.as_asked if slowdown is None else slowdown
        recording = question.recording
        return FleetAtPeak(
            runs=self.runs,
            instance=self.behind(steps=slower.steps),
            layout=self.layout,
            rate=self.load,
            saturation=self.saturation(slower),
            asked=question.limits,
            slo=slower.beyond_steps(question.limits),
            replayed=None
            if recording is None
            else Replayed(recording=recording, lengths=question.replays_lengths),
        )


def slower_capacity(capacity: Capacity, steps: float) -> Capacity:
    """The capacity of an instance whose times are so much longer than those of the one that was
    simulated.
    """
    if steps == 1.0:
        return capacity
    reason = capacity.reason
    if isinstance(reason, BrokenEarly):
        reason = replace(reason, requests_per_second=reason.requests_per_second / steps)
    return replace(capacity, rate=capacity.rate / steps, reason=reason)


@dataclass(frozen=True, kw_only=True)
class Sized:
    """A deployment at the fewest systems that carry the load.

    Attributes:
        contender: the deployment.
        level: the confidence with which they do; None where only the prediction as it is holds.
        systems: how many, spare ones left out.
        capacity: of one of their instances at that confidence.
        care: how long the runs were that decided.
        checked: whether the whole fleet was seen to hold at that number.
    """

    contender: Contender
    level: float | None
    systems: int
    capacity: Capacity
    care: Care = SURE
    checked: bool = False

    @property
    def ready(self) -> Ready:
        """The deployment."""
        return self.contender.ready

    @property
    def instances(self) -> int:
        """Instances that carry load."""
        return self.contender.layout.of(self.systems).instances

    @property
    def in_doubt(self) -> bool:
        """Whether the scatter of short runs could change the number of systems."""
        return self.contender.in_doubt(self.systems, self.rate)

    @property
    def slowdown(self) -> Slowdown:
        """The factors by which times are longer at the level."""
        return (
            self.contender.as_asked if self.level is None else self.contender.slowdown(self.level)
        )

    @property
    def gpus(self) -> int:
        """GPUs of whole systems, spare ones included."""
        return (self.systems + self.contender.question.spare) * self.ready.trial.system.gpus

    @cached_property
    def rate(self) -> float:
        """Requests per second of one instance that the number of systems counts on.

        Where the whole fleet asked for more systems than what an instance carries, it is the most
        that agrees with them.
        """
        contender = self.contender
        if contender.layout.carrying(contender.load, self.capacity.rate).systems >= self.systems:
            return self.capacity.rate
        fewer = contender.layout.of(self.systems - contender.layout.systems_per_instance).instances
        return (
            min(self.capacity.rate, contender.load / fewer * HAIR) if fewer else self.capacity.rate
        )

    @property
    def gpus_exact(self) -> float:
        """GPUs that the load takes, before rounding up to systems."""
        contender = self.contender
        return contender.layout.exactly(contender.load, self.rate) * self.ready.trial.system.gpus

    @cached_property
    def as_predicted(self) -> Capacity:
        """The load that one instance carries by the prediction as it is."""
        return self.contender.capacity(self.instances, care=self.care)

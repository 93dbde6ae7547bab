"""A rule by which a controller scales the fleet of a plan: the fewest instance-hours inside the
limits, found by simulation.

The target of a rule is what one instance sees at a share of the load that it carries at the
confidence of the plan: that rate, or the requests that are then in flight. Instance-hours fall and
latencies grow with the share, so that the highest one that holds the limits is found by halving a
fixed lattice, in the hours with the busiest load and the steepest rise. Then other holds, warm
instances and a higher minimum are tried, each with that share and higher ones. The best is run over
all hours, with a lower share where it breaks a limit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property

from tonnage.perf.pipeline import start_seconds
from tonnage.plan.candidate import Candidate
from tonnage.plan.fleet import Autoscaling, Held, LimitOverHours, OverHours, Proposal
from tonnage.plan.limit import limit_of
from tonnage.plan.plan import Plan
from tonnage.results.breakdown import violations
from tonnage.results.metrics import summarize
from tonnage.results.requests import Requests
from tonnage.simulator.autoscaler import Autoscale
from tonnage.simulator.autoscaler import Metric as Look
from tonnage.simulator.changes import NO_CHANGES, Changes
from tonnage.simulator.kernel.fleet import run_fleet
from tonnage.simulator.kernel.memory import Machine
from tonnage.sizing.loads.instance import QUICK, Instance
from tonnage.sizing.loads.load_scan import statistic_s
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.progress import parallel
from tonnage.sizing.question import Question
from tonnage.sizing.search.search import alone
from tonnage.spec.arrivals import HOUR_S, HourlyArrivals
from tonnage.spec.deployment import Limit
from tonnage.spec.recording import Recording
from tonnage.spec.workload import Trace, TraceArrivals

# The instances of a plan over a day, a week or a trace: all of them all the time, or as many as a
# controller's rule holds. Where a profile brings more requests than ``MOST_REQUESTS``, fewer
# instances are simulated with their share of the load, but never fewer than ``FEWEST``: a small
# fleet is scaled in larger steps than a large one, so that what is found is on the safe side.


MOST_REQUESTS = 2_000_000
FEWEST = 4
"""Fewest instances that are simulated, where there are as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a run.

    Attributes:
        run: as the plan states it, in instances of the whole fleet.
        broken_hours: of each limit, in the order of the limits; of one on single gaps 1 where it is
            broken over the whole run.
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
        limits: as asked.
        slo: the held limits, in the same order: tighter by what latencies are off beyond the steps.
        instances: of the fixed fleet.
        profile: requests per second of each hour, in all; empty where a recording is replayed.
        recording, lengths: traffic that is replayed in their place, with its own lengths or
            without.
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
        """Those of the hours in which a rule is searched; all of them where a recording is
        replayed.
        """
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
        """The fleet under some of the hours, by a rule over the simulated instances; None for all
        of them all the time.
        """
        traffic, count = self.instance.traffic, self.simulated if rule is None else rule.instances
        changes = NO_CHANGES if rule is None else Changes(autoscale=rule)
        routed = run_fleet(
            trace, [self.machine] * count, traffic.router, seed=traffic.seed, changes=changes
        )
        limits = self._limits(routed.requests)
        times = self.instances / self.simulated
        hours_by_instances = tuple(
            Held(instances=round(simulated_count * times), hours=float(seconds) / HOUR_S)
            for simulated_count, seconds in sorted(routed.changed.held_seconds.items())
            if seconds > 0
        )
        broken = iter(limits)
        hours = tuple(
            self._broken_gaps(routed.requests, i) if self._of_gaps(i) else next(broken).broken_hours
            for i in range(len(self.slo))
        )
        return Outcome(
            run=OverHours(held=hours_by_instances, limits=limits),
            broken_hours=hours,
            hours=max((limit.hours for limit in limits), default=1),
        )

    def _of_gaps(self, place: int) -> bool:
        return self.slo[place].metric == "itl"

    def _broken_gaps(self, requests: Requests, place: int) -> int:
        """1 where a limit on single gaps, which are not known by the hour, is broken over the whole
        run.
        """
        limit = self.slo[place]
        return int(statistic_s(summarize(requests), limit) > limit.seconds)

    def _limits(self, requests: Requests) -> tuple[LimitOverHours, ...]:
        """What became of the limits that are known by request, under the names in the question."""
        named = [limit_of(limit) for limit in self.limits if limit.metric != "itl"]
        pairs = zip(named, violations(requests, self.slo), strict=True)
        return tuple(
            LimitOverHours(**asdict(violation) | {"limit": limit}) for limit, violation in pairs
        )


def hardest_hours(profile: tuple[float, ...]) -> tuple[float, ...]:
    """The busiest hour of a profile with the one after it, and then the steepest rise: the hour
    before it and two from it on.

    So that they join where the load falls, and no rise is steeper than those of the profile. Where
    both overlap they are reported once.
    """
    hours = len(profile)
    busiest = profile.index(max(profile))
    rise = max(range(hours), key=lambda hour: (profile[hour] - profile[hour - 1], -hour))
    apart = (busiest - rise) % hours
    if apart <= 2:
        return tuple(profile[(rise + shift) % hours] for shift in range(-1, apart + 2))
    return tuple(profile[hour % hours] for hour in (busiest, busiest + 1, rise - 1, rise, rise + 1))


SHARES = tuple(step / 10 for step in range(3, 12))
"""Loads of an instance that its target stands for, as shares of what it carries, from 0.3 to
1.1."""

HOLD_S = 300.0
HOLDS_S = (60.0, 900.0)
"""The hold that Kubernetes has by default, and others that are tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A rule but for its target."""

    hold_s: float = HOLD_S
    warm: int = 0
    least: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A rule that holds the limits in a part of the hours, with the place of its target in
    ``SHARES``.
    """

    kind: Kind
    place: int
    outcome: Outcome

    @property
    def hours(self) -> float:
        """Instance-hours."""
        return self.outcome.run.instance_hours


class Search:
    """The search for a rule for one metric.

    Attributes:
        runs: how many were made.
    """

    def __init__(
        self,
        fleet: FleetOverHours,
        metric: Look,
        *,
        targets: Sequence[float],
        carries: float,
        start_s: float,
        broken_share: float,
    ) -> None:
        """``targets`` are those of ``SHARES``, ``carries`` the requests per second of one
        instance.
        """
        self.fleet, self.metric, self.targets, self.carries = fleet, metric, targets, carries
        self.start_s, self.broken_share, self.runs = start_s, broken_share, 0
        self.fixed: dict[int, Outcome] = {}

    def rule(self, kind: Kind, place: int, trace: Trace) -> Autoscale:
        """The rule over the simulated instances."""
        simulated = self.fleet.simulated
        return Autoscale(
            metric=self.metric,
            target=self.targets[place],
            least=kind.least,
            most=simulated,
            start_s=self.start_s,
            hold_s=kind.hold_s,
            warm=kind.warm,
            first=min(
                simulated,
                max(kind.least, math.ceil(first_load(trace) / self.carries / SHARES[place])),
            ),
        )

    def run(self, kind: Kind, place: int, trace: Trace) -> Tried | None:
        """The rule over a part of the hours; None where it breaks a limit in more hours than it
        may.
        """
        self.runs += 1
        fixed, outcome = self.as_fixed(trace), self.fleet.run(trace, self.rule(kind, place, trace))
        allowed = math.floor(self.broken_share * outcome.hours + 1e-9)
        holds = all(
            hours <= allowed + fixed_hours
            for hours, fixed_hours in zip(outcome.broken_hours, fixed.broken_hours, strict=True)
        )
        return Tried(kind=kind, place=place, outcome=outcome) if holds else None

    def as_fixed(self, trace: Trace) -> Outcome:
        """All instances all the time over a part of the hours."""
        if id(trace) not in self.fixed:
            self.fixed[id(trace)] = self.fleet.run(trace, None)
        return self.fixed[id(trace)]

    def best(self) -> Tried | None:
        """The rule with the fewest instance-hours over all hours."""
        best_rule = self.highest(Kind())
        for kind in self.kinds():
            best_rule = self.better(kind, best_rule)
        return None if best_rule is None else self.over_all(best_rule)

    def kinds(self) -> list[Kind]:
        """What is tried next to the usual rule."""
        simulated = self.fleet.simulated
        kinds = [Kind(hold_s=hold) for hold in HOLDS_S] + [Kind(warm=1)]
        return kinds + [
            Kind(least=least)
            for least in dict.fromkeys((2, math.ceil(simulated / 2)))
            if 1 < least < simulated
        ]

    def highest(self, kind: Kind) -> Tried | None:
        """The rule of a kind with the highest target that holds."""
        highest_rule: Tried | None = None
        low, high = -1, len(SHARES)
        while high - low > 1:
            middle = (low + high) // 2
            tried = self.run(kind, middle, self.fleet.hardest)
            low, high, highest_rule = (
                (low, middle, highest_rule) if tried is None else (middle, high, tried)
            )
        return highest_rule

    def better(self, kind: Kind, rule: Tried | None) -> Tried | None:
        """The rule of another kind where it holds with fewer instance-hours than what was found."""
        if rule is None:
            return self.highest(kind)
        place = rule.place if kind.hold_s < rule.kind.hold_s else rule.place + 1
        while place < len(SHARES):
            tried = self.run(kind, place, self.fleet.hardest)
            if tried is None or tried.hours >= rule.hours:
                break
            rule, place = tried, place + 1
        return rule

    def over_all(self, rule: Tried) -> Tried | None:
        """The rule over all hours, its target lowered until it holds; None where it does not hold
        with fewer instance-hours than fixed.
        """
        if self.fleet.whole is self.fleet.hardest:
            return rule if rule.hours < self.as_fixed(self.fleet.whole).run.instance_hours else None
        for place in range(rule.place, -1, -1):
            tried = self.run(rule.kind, place, self.fleet.whole)
            if tried is not None:
                return (
                    tried
                    if tried.hours < self.as_fixed(self.fleet.whole).run.instance_hours
                    else None
                )
        return None


def first_load(trace: Trace) -> float:
    """Requests per second of the first hour, or of all of a shorter trace."""
    from tonnage.units import PS_PER_S

    hour = int(HOUR_S * PS_PER_S)
    first = int((trace.due_ps < hour).sum())
    return first * PS_PER_S / min(hour, max(int(trace.due_ps[-1]), 1))


def autoscaling(
    question: Question,
    plan: Plan,
    *,
    broken_share: float = 0.0,
    start_s: float | None = None,
    workers: int | None = None,
) -> Autoscaling | None:
    """What is proposed for a plan's choice; None where the plan chose nothing.

    Limits may be broken in ``broken_share`` of the hours; ``start_s`` is None for the seconds of
    ``perf.pipeline.start_seconds``.
    """
    choice = plan.choice
    if choice is None:
        return None
    demand = question.demand
    hours = (
        demand.source.trace_seconds / 3600
        if demand.source.trace_seconds
        else float(len(demand.profile or ()))
    )
    spare = question.spare + (0 if choice.standby is None else choice.standby.extra_systems)
    serving, load = (
        choice.pool.fleet.of(choice.systems - spare).instances,
        demand.sizing_requests_per_second,
    )
    instances = min(serving, math.ceil(round(load / choice.sized_rate, 9)))
    base = Autoscaling(
        hours=hours,
        instances=instances,
        simulated_instances=0,
        requests=0,
        broken_hours_share=broken_share,
        fixed=None,
    )
    if choice.dp > 1:
        return replace(base, reason="attention-ranks")
    if instances == 1:
        return replace(base, reason="one-instance")
    runs = Runs()
    fleet = _fleet(question, choice, instances, runs)
    if fleet is None:
        return replace(base, reason="no-rule")
    start_s = start_seconds(fleet.instance.deployment) if start_s is None else start_s
    return _proposed(base, fleet, runs, carries=choice.sized_rate, start_s=start_s, workers=workers)


def _fleet(
    question: Question, choice: Candidate, instances: int, runs: Runs
) -> FleetOverHours | None:
    """The choice as a fleet over the hours of the question; None where it does not meet the limits
    by itself.
    """
    sized, demand = alone(question, choice, runs), question.demand
    if sized is None:
        return None
    profile = demand.profile or ()
    room = demand.sizing_requests_per_second / max(profile) if profile else 1.0
    return FleetOverHours(
        instance=sized.contender.behind(steps=sized.slowdown.steps),
        limits=question.limits,
        slo=sized.slowdown.beyond_steps(question.limits),
        instances=instances,
        profile=()
        if question.recording is not None
        else tuple(rate * max(room, 1.0) for rate in profile),
        recording=question.recording,
        lengths=question.replays_lengths,
    )


def _proposed(
    base: Autoscaling,
    fleet: FleetOverHours,
    runs: Runs,
    *,
    carries: float,
    start_s: float,
    workers: int | None,
) -> Autoscaling:
    """The rules that were found for each metric, the fewest instance-hours first."""
    rates = [share * carries for share in SHARES]
    in_flight = dict(
        parallel(
            lambda rate: (
                rate * (runs.open(fleet.instance, 1, rate, QUICK).summary.e2e_ms.mean or 0.0) / 1e3
            ),
            rates,
            workers,
        )
    )
    whole, _ = fleet.whole, (fleet.hardest, fleet.machine)  # made once, before threads share them
    looks: tuple[tuple[Look, list[float]], ...] = (
        ("outstanding", [in_flight[rate] for rate in rates]),
        ("rate", rates),
    )
    searches = [
        Search(
            fleet,
            metric,
            targets=targets,
            carries=carries,
            start_s=start_s,
            broken_share=base.broken_hours_share,
        )
        for metric, targets in looks
    ]
    fixed = searches[0].as_fixed(whole)
    for search in searches:
        search.fixed = {id(whole): fixed}
    best_rules = dict(parallel(Search.best, searches, workers))
    proposals = [
        _proposal(search, best) for search in searches if (best := best_rules[search]) is not None
    ]
    return replace(
        base,
        simulated_instances=fleet.simulated,
        requests=len(whole),
        fixed=fixed.run,
        proposals=tuple(sorted(proposals, key=lambda proposal: proposal.run.instance_hours)),
        tried=sum(search.runs for search in searches),
        reason=None if proposals else "no-rule",
    )


def _proposal(search: Search, tried_rule: Tried) -> Proposal:
    """What was found, in instances of the whole fleet."""
    fleet = search.fleet
    rule, times = (
        search.rule(tried_rule.kind, tried_rule.place, fleet.whole),
        fleet.instances / fleet.simulated,
    )
    return Proposal(
        metric=rule.metric,
        target=rule.target,
        least=math.ceil(rule.least * times),
        most=fleet.instances,
        warm=math.ceil(rule.warm * times),
        start_s=rule.start_s,
        hold_s=rule.hold_s,
        interval_s=rule.interval_s,
        run=tried_rule.outcome.run,
    )

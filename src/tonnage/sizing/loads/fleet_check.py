"""The whole fleet simulated at its peak: one stream of arrivals to all instances behind the router
of the question.

The number of systems comes from what each of at most ``instance.TOGETHER`` instances carries; here
all of them are simulated, up to ``MOST_INSTANCES``, with other random numbers. The number of
systems of a plan is one that was seen to hold here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tonnage.plan.fleet import Fleet, FleetCheck, FleetRun
from tonnage.plan.limit import Breach, limit_of
from tonnage.plan.reason import BrokenOnManyInstances
from tonnage.sizing.loads.instance import QUICK, WITHIN_S, Instance, burst_factor, middle
from tonnage.sizing.loads.load_scan import statistic_s
from tonnage.sizing.loads.runs import Runs, Seen
from tonnage.sizing.loads.session_load import (
    ANSWERS,
    MOST_TOGETHER,
    session_fleet,
    session_requests,
    session_run,
)
from tonnage.sizing.loads.shared_load import balanced_trace
from tonnage.sizing.loads.shared_load import replayed as recorded
from tonnage.sizing.loads.trial import STABLE
from tonnage.spec.workload import OpenLoop, TraceArrivals

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tonnage.results.metrics import Summary
    from tonnage.results.requests import Requests
    from tonnage.spec.deployment import Limit, Slo
    from tonnage.spec.recorded_sessions import RecordedSessions
    from tonnage.spec.recording import Recording


MOST_INSTANCES = 256
"""Most engines that are simulated; of a larger fleet this many are, with their share of the load,
and the plan says so."""

FILLED, FEWEST_FILLED = 60_000, 8
"""Requests that the caches of simulated instances take to fill, in all, and how many instances are
simulated whatever they take."""

LEAST_REQUESTS, LEAST_IN_ALL = 200, 16_000
"""Fewest requests of one instance, and of all of them together."""

LIFETIMES = 8
"""Length of the run of one instance, in times the requests that it has in flight."""

MOST_TIMES = 4
"""The check goes up to this many times the systems that the search asks for."""

SEED_STEP = 2
"""Added to the seed of the question, which the search used."""

SESSION_SEEDS = (0, 1, 2)
"""``FleetAtPeak.seeds`` of recorded sessions."""

FURTHER = 2.18
"""Standard deviations of three draws above their mean below which a further one is with a
probability of 90 %: the quantile of Student's t with two degrees of freedom, times the root of 1 +
1/3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """Recorded traffic, with its own lengths or only its arrivals."""

    recording: Recording
    lengths: bool = True


def simulated_of(instance: Instance, instances: int, rate: float) -> int:
    """How many of the instances are simulated at that load of all: each attention rank is an
    engine, and each cache has to fill.
    """
    if instance.recorded_sessions is not None:
        return min(instances, MOST_TOGETHER)
    limit = max(MOST_INSTANCES // instance.deployment.parallelism.dp, 1)
    warm = 0 if instance.shared is None else instance.shared.warm(rate / instances)
    return min(instances, limit, max(FILLED // warm, FEWEST_FILLED) if warm else limit)


def fleet_seen(
    runs: Runs,
    instance: Instance,
    rate: float,
    instances: int,
    router: str = "",
    *,
    replayed: Replayed | None = None,
    seed: int = 0,
) -> Seen:
    """The metrics of a fleet and the requests simulated; ``seed`` is added to that of the check,
    other arguments as of ``fleet_record``.
    """
    stretched = () if replayed is None else (replayed.recording.mean_rps, replayed.lengths)

    def made() -> Seen:
        record, simulated = fleet_record(
            instance, rate, instances, router, replayed=replayed, seed=seed, runs=runs
        )
        return Seen(summary=runs.summary(record), requests=simulated)

    return runs.once(
        (instance, "fleet", rate, instances, router or instance.traffic.router, seed, *stretched),
        made,
    )


def fleet_record(
    instance: Instance,
    rate: float,
    instances: int,
    router: str = "",
    *,
    replayed: Replayed | None = None,
    seed: int = 0,
    runs: Runs | None = None,
) -> tuple[Requests, int]:
    """The requests of a fleet that count, and how many were simulated.

    ``rate`` is of all; statistics leave out ramp and drain, but for ``replayed`` traffic, all of
    which counts. ``seed`` is added. ``runs`` is the memory of the search, which keeps the runs of
    single instances with recorded sessions.
    """
    router, traffic = router or instance.traffic.router, instance.traffic
    if (recorded_sessions := instance.recorded_sessions) is not None:
        record, simulated = session_fleet(
            runs_of(instance, recorded_sessions, seed, runs), recorded_sessions, rate, instances
        )
        return middle(record), simulated
    if replayed is not None:
        recording = replayed.recording
        requests = instance.requests_of(recording.mean_rps / instances, QUICK, instances)
        if traffic.sharing is not None and traffic.sharing.recording is not None:
            whole = recorded(
                replace(traffic.sharing, recording=recording),
                recording.mean_rps,
                traffic.seed,
                requests,
            )
        else:
            recording = recording.repeated(requests)
            arrivals = TraceArrivals(recording=recording, lengths=replayed.lengths)
            whole = instance.workload(arrivals, len(recording)).trace(traffic.seed)
        return instance.together(whole, instances, router), len(whole)
    shown = simulated_of(instance, instances, rate)
    share = rate / instances
    in_flight = instance.in_flight_at(share)
    burst = burst_factor(traffic.process, traffic.cv)
    requests_each = min(
        max(LEAST_REQUESTS, LIFETIMES * in_flight, burst * LEAST_IN_ALL / shown),
        max(WITHIN_S * share, 1.0),
    )
    drawn = traffic.seed + SEED_STEP + seed
    if instance.shared is not None:
        load = replace(instance.shared, sharing=replace(instance.shared.sharing, fleet_rate=rate))
        warm, count = shown * load.warm(share), round(requests_each * shown)
        trace = load.trace(share * shown, count + warm, drawn, router=router, whole=True)
        record = instance.together(trace, shown, router)
        return middle(load.counted(record, share * shown, warm, count)), len(record)
    arriving = OpenLoop(rate=share * shown, process=traffic.process, cv=traffic.cv)
    trace = balanced_trace(
        instance.workload(arriving, round(requests_each * shown)), arriving, drawn
    )
    record = instance.together(trace, shown, router)
    return middle(record), len(record)


def runs_of(
    instance: Instance, sessions: RecordedSessions, seed: int, runs: Runs | None
) -> Callable[[int, int], Requests]:
    """What happens to so many recorded sessions on one instance of a fleet, for each place in it:
    other sessions at other seeds.
    """

    def run(clients: int, place: int) -> Requests:
        drawn = instance.traffic.seed + SEED_STEP + MOST_TOGETHER * seed + place
        requests = session_requests(sessions, clients * sessions.pace, len(ANSWERS) - 1)

        def made() -> Requests:
            return session_run(
                instance.tiered, sessions, clients, requests, seed=drawn, alone_ns=instance.alone_ns
            )

        return made() if runs is None else runs.once((instance, "sessions", clients, drawn), made)

    return run


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetAtPeak:
    """A deployment at a peak, for any number of systems.

    Attributes:
        runs: the memory of the search.
        instance: one of its instances, with its steps as slow as they are to be.
        layout: how instances are in systems.
        rate: requests per second in all.
        saturation: requests per second that one instance completes when always busy.
        asked: the limits as asked.
        slo: the limits that are held, tighter than ``asked`` by the error of the predictions beyond
            that of the steps.
        replayed: a recording in place of drawn arrivals.
    """

    runs: Runs
    instance: Instance
    layout: Fleet
    rate: float
    saturation: float
    asked: Slo
    slo: Slo
    replayed: Replayed | None = None

    def instances(self, systems: int) -> int:
        """Instances on a number of systems."""
        return self.layout.of(systems).instances

    @property
    def seeds(self) -> tuple[int, ...]:
        """Draws with each of which, and a further one, a fleet has to hold: several of recorded
        sessions, of which an instance has few.
        """
        return (0,) if self.instance.recorded_sessions is None else SESSION_SEEDS

    def could_carry(self, systems: int) -> bool:
        """Whether so many systems complete the load within ``STABLE`` of saturation."""
        count = self.instances(systems)
        return count > 0 and self.rate / count <= STABLE * self.saturation * (1 + 1e-6)

    def simulated(self, systems: int) -> int:
        """How many of the instances are simulated."""
        count = self.instances(systems)
        return count if self.replayed is not None else simulated_of(self.instance, count, self.rate)

    def seen(self, systems: int, router: str = "", seed: int = 0) -> Seen:
        """What a number of systems does; ``router`` in place of the requested one, ``seed`` added
        to that of the check.
        """
        return fleet_seen(
            self.runs,
            self.instance,
            self.rate,
            self.instances(systems),
            router,
            replayed=self.replayed,
            seed=seed,
        )

    def run(self, systems: int, router: str = "", seeds: Sequence[int] = ()) -> FleetRun:
        """A number of systems under the load, with each draw (or with ``seeds``) up to the first
        that breaks a limit.
        """
        count, instance, values = self.instances(systems), self.instance, []
        for seed in seeds or self.seeds:
            observed = self.seen(systems, router, seed)
            summary = observed.summary
            values.append([value for _, value in self.latencies_s(summary)])
            further = [_of_a_further(draws) for draws in zip(*values, strict=True)]
            if (worst := self._worst(values[-1]) or self._worst(further)) is not None:
                break
        return FleetRun(
            systems=systems,
            instances=count,
            simulated_instances=self.simulated(systems),
            router=router or instance.traffic.router,
            requests=observed.requests,
            holds=worst is None and self.could_carry(systems),
            worst=worst,
            ttft_ms=summary.ttft_ms,
            itl_ms=summary.itl_ms,
            tpot_ms=summary.tpot_ms,
            e2e_ms=summary.e2e_ms,
        )

    def latencies_s(self, summary: Summary) -> tuple[tuple[Limit, float], ...]:
        """Every limit as asked, with its latency in seconds at the asked confidence: longer by as
        much as the limit is tighter.
        """
        pairs = zip(self.asked, self.slo, strict=True)
        return tuple(
            (limit, statistic_s(summary, tighter) * limit.seconds / tighter.seconds)
            for limit, tighter in pairs
        )

    def _worst(self, values: Sequence[float]) -> Breach | None:
        """The limit that its value exceeds by the largest factor; None where all hold (an undefined
        value holds).
        """
        over = [
            (value / limit.seconds, limit, value)
            for limit, value in zip(self.asked, values, strict=True)
            if value > limit.seconds
        ]
        if not over:
            return None
        _, limit, value = max(over, key=lambda excess: excess[0])
        return Breach(limit=limit_of(limit), value_ms=1e3 * value)


def _of_a_further(draws: Sequence[float]) -> float:
    """What a further draw than three stays below with a probability of 90 %; of fewer draws, the
    least of it whatever the others show.
    """
    mean = math.fsum(draws) / len(draws)
    if len(draws) < 3:
        return mean + (max(draws) - min(draws)) / 2 * math.sqrt(FURTHER**2 - 1 / 3)
    return mean + FURTHER * math.sqrt(
        math.fsum((draw - mean) ** 2 for draw in draws) / (len(draws) - 1)
    )


def check(
    fleet: FleetAtPeak, needed: int, worth: Callable[[int], bool] = lambda _: True
) -> FleetCheck:
    """The fleet at the number of systems that the search asks for, and at more where a limit
    breaks, up to ``MOST_TIMES`` as many.

    ``FleetCheck.holds`` is false where these do not hold either, or where further ones are not
    ``worth`` a simulation: ``FleetCheck.systems`` then is the number that would be next.
    """
    runs, systems = [fleet.run(needed)], needed
    while not runs[-1].holds and systems < MOST_TIMES * needed:
        systems += (
            max(1, systems // fleet.layout.systems_per_instance // 64)
            * fleet.layout.systems_per_instance
        )
        if not worth(systems):
            break
        runs.append(fleet.run(systems))
    return FleetCheck(by_division=needed, systems=systems, runs=tuple(runs))


def never_holds(verdict: FleetCheck) -> BrokenOnManyInstances:
    """The limit that breaks on the largest fleet that was simulated."""
    largest = max(
        (run for run in verdict.runs if run.worst is not None), key=lambda run: run.systems
    )
    return BrokenOnManyInstances(breach=largest.worst, instances=largest.instances)  # type: ignore[arg-type]

"""The whole fleet simulated once at its peak: whether the limits hold at the chosen number of systems.

One stream of arrivals at the peak comes to all instances behind the router of the question, and the statistics are over the requests
of all of them together. What one instance carries was found under Poisson arrivals of its own, which is what random choice leaves it;
a router that looks does better, and its fleet decides. The number of systems of a plan is one that was seen to hold here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tonnage.plan.fleet import fleet
from tonnage.plan.fleet_check import FleetCheck, FleetRun
from tonnage.plan.limit import Breach, limit_of
from tonnage.results.metrics import summarize
from tonnage.sizing.loads.balanced import balanced_trace
from tonnage.sizing.loads.capacity import STABLE
from tonnage.sizing.loads.instance import LOADED, Instance, burst_factor, middle
from tonnage.sizing.loads.limits import statistic_s
from tonnage.sizing.loads.shared_load import replayed as recorded
from tonnage.spec.workload import OpenLoop, TraceArrivals

if TYPE_CHECKING:
    from tonnage.results.metrics import Summary
    from tonnage.results.requests import Requests
    from tonnage.sizing.loads.bounds import Carried
    from tonnage.spec.deployment import Limit, Slo
    from tonnage.spec.recording import Recording


MOST_INSTANCES = 256
"""Most engines that are simulated; of a larger fleet this many are, with their share of the load, and the plan says so."""

FILLED, FEWEST_FILLED = 60_000, 8
"""Requests that the caches of simulated instances take to fill, in all, and how many instances are simulated whatever they take."""

LEAST_REQUESTS, LEAST_IN_ALL = 200, 12_000
"""Fewest requests of one instance, and of all of them together."""

LIFETIMES = 12
"""Length of the run of one instance, in times the requests that it has in flight."""

MOST_TIMES = 8
"""The check goes up to this many times the systems that the division asks for."""

ONE_BY_ONE = 24
"""Numbers of systems that are tried one after another; of more than a hundred systems, steps are 0.8 to 1.6 % of them."""

FINE, COARSE = 64, 4
"""Parts of an octave that these steps are, and the steps after them."""

SEED_STEP = 2
"""Added to the seed of the question, as the search used that seed and the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """Recorded traffic, with its own lengths or only its arrivals."""

    recording: Recording
    lengths: bool = True


def simulated_of(instance: Instance, instances: int, rate: float) -> int:
    """How many of the instances are simulated at that load of all: each attention rank is an engine, and each cache has to fill."""
    most = max(MOST_INSTANCES // instance.deployment.parallelism.dp, 1)
    warm = 0 if instance.shared is None else instance.shared.warm(rate / instances)
    return min(instances, most, max(FILLED // warm, FEWEST_FILLED) if warm else most)


def fleet_summary(
    instance: Instance, rate: float, instances: int, router: str = "", replayed: Replayed | None = None
) -> tuple[Summary, int]:
    """The metrics of a fleet, and the requests simulated; a fleet under drawn arrivals is simulated once.

    The arguments are those of ``fleet_record``.
    """
    router = router or instance.asked.router
    if replayed is not None:
        record, simulated = fleet_record(instance, rate, instances, router, replayed)
        return summarize(record), simulated
    asked = (instance.asked.step_factor, rate, instances, router)
    if asked not in instance.fleets:
        record, simulated = fleet_record(instance, rate, instances, router)
        instance.fleets[asked] = summarize(record), simulated
    found: tuple[Summary, int] = instance.fleets[asked]
    return found


def fleet_record(
    instance: Instance, rate: float, instances: int, router: str = "", replayed: Replayed | None = None
) -> tuple[Requests, int]:
    """The requests of a fleet that count, and how many were simulated.

    Args:
        instance: one of them.
        rate: requests per second in all; the statistics leave out ramp and drain.
        instances: how many.
        router: in place of the one that was asked for.
        replayed: traffic in place of ``rate``; all of its requests count.
    """
    router = router or instance.asked.router
    if replayed is not None:
        arrivals = TraceArrivals(recording=replayed.recording, lengths=replayed.lengths)
        sharing = instance.asked.sharing
        if sharing is not None and sharing.recording is not None:
            whole = recorded(replace(sharing, recording=replayed.recording), replayed.recording.mean_rps, instance.asked.seed)
        else:
            whole = instance.workload(arrivals, len(replayed.recording)).trace(instance.asked.seed)
        return instance.together(whole, instances, router), len(whole)
    shown = simulated_of(instance, instances, rate)
    share = rate / instances
    in_flight = min(instance.in_flight, LOADED * share * instance.alone_e2e_s)
    burst = burst_factor(instance.asked.process, instance.asked.cv)
    each = burst * max(LEAST_REQUESTS, LIFETIMES * in_flight, LEAST_IN_ALL / shown)
    seed = instance.asked.seed + SEED_STEP
    if instance.shared is not None:
        warm, count = shown * instance.shared.warm(share), round(each * shown)
        trace = instance.shared.trace(share * shown, count + warm, seed, router=router, whole=True)
        record = instance.together(trace, shown, router)
        return middle(instance.shared.counted(record, share * shown, warm, count)), len(record)
    drawn = OpenLoop(rate=share * shown, process=instance.asked.process, cv=instance.asked.cv)
    trace = balanced_trace(instance.workload(drawn, round(each * shown)), drawn, seed)
    record = instance.together(trace, shown, router)
    return middle(record), len(record)


class FleetAtPeak:
    """A deployment at a peak, for any number of systems."""

    def __init__(
        self, carried: Carried, rate: float, recording: Recording | None = None, lengths: bool = True, asked: Slo | None = None
    ) -> None:
        """``rate`` in requests per second, or a recording that is replayed, with its lengths or without.

        ``asked`` are the limits as they were asked, where those of ``carried`` are tighter by the error of the predictions.
        """
        trial = carried.ready.trial
        self.carried, self.rate = carried, rate
        self.asked = carried.ready.instance.asked.slo if asked is None else asked
        self.replayed = None if recording is None else Replayed(recording=recording, lengths=lengths)
        self.layout = fleet(trial.deployment.parallelism.gpus, trial.system.gpus)

    @property
    def span(self) -> int:
        """Systems by which the fleet grows: those of one instance where it spans several, otherwise 1."""
        return self.layout.systems_per_instance

    def instances(self, systems: int) -> int:
        """Instances on a number of systems."""
        return self.layout.of(systems).instances

    def could_carry(self, systems: int, share: float = STABLE) -> bool:
        """Whether so many systems complete the load within that share of saturation."""
        count = self.instances(systems)
        return count > 0 and self.rate / count <= share * self.carried.capacity.saturation * (1 + 1e-6)

    def summary(self, systems: int, router: str = "") -> tuple[Summary, int]:
        """The metrics of a number of systems, and the requests simulated; ``router`` in place of the one that was asked for."""
        return fleet_summary(self.carried.ready.instance, self.rate, self.instances(systems), router, self.replayed)

    def run(self, systems: int, router: str = "") -> FleetRun:
        """A number of systems, simulated under the load."""
        count, instance = self.instances(systems), self.carried.ready.instance
        summary, requests = self.summary(systems, router)
        worst = self._worst(summary)
        return FleetRun(
            systems=systems,
            instances=count,
            simulated_instances=count if self.replayed is not None else simulated_of(instance, count, self.rate),
            router=router or instance.asked.router,
            requests=requests,
            holds=worst is None and self.could_carry(systems),
            worst=worst,
            ttft_ms=summary.ttft_ms,
            itl_ms=summary.itl_ms,
            tpot_ms=summary.tpot_ms,
            e2e_ms=summary.e2e_ms,
        )

    def latencies_s(self, summary: Summary) -> tuple[tuple[Limit, float], ...]:
        """Every limit as it was asked, with its latency in seconds at the asked confidence: longer by as much as the limit is tighter."""
        pairs = zip(self.asked, self.carried.ready.instance.asked.slo, strict=True)
        return tuple((asked, statistic_s(summary, tighter) * asked.seconds / tighter.seconds) for asked, tighter in pairs)

    def _worst(self, summary: Summary) -> Breach | None:
        """The limit that is exceeded by the largest factor; None where all hold (an undefined value holds)."""
        over = [(value / limit.seconds, limit, value) for limit, value in self.latencies_s(summary) if value > limit.seconds]
        if not over:
            return None
        _, limit, value = max(over, key=lambda each: each[0])
        return Breach(limit=limit_of(limit), value_ms=1e3 * value)


def check(deployed: FleetAtPeak, by_division: int, router: str = "") -> FleetCheck:
    """The least number of systems, from ``by_division`` on, that is seen to hold the limits behind the router.

    Numbers are tried upwards until one holds, ``ONE_BY_ONE`` of them in the finest steps. Beyond, steps are wider, and the way back from
    the first that holds is halved. ``FleetCheck.holds`` is false where ``MOST_TIMES`` as many systems do not hold either.
    """
    runs = [deployed.run(by_division, router)]
    spans = by_division // deployed.span
    for tried in range(MOST_TIMES * spans):
        if runs[-1].holds:
            break
        below, spans = spans, _next(spans, FINE if tried < ONE_BY_ONE else COARSE)
        if spans > MOST_TIMES * by_division // deployed.span:
            break
        runs.append(deployed.run(spans * deployed.span, router))
        if runs[-1].holds and tried >= ONE_BY_ONE:
            runs += _halved(deployed, below, spans, router)
    systems = min((run.systems for run in runs if run.holds), default=by_division)
    return FleetCheck(by_division=by_division, systems=systems, runs=tuple(runs))


def _halved(deployed: FleetAtPeak, low: int, high: int, router: str) -> list[FleetRun]:
    """The runs between a number of spans that breaks a limit and one that holds."""
    runs: list[FleetRun] = []
    while high - low > 1:
        half = (low + high) // 2
        runs.append(deployed.run(half * deployed.span, router))
        low, high = (low, half) if runs[-1].holds else (half, high)
    return runs


def _next(number: int, parts: int) -> int:
    """The next multiple of so many parts of an octave, at least 1."""
    step = max(1, (1 << number.bit_length() - 1) // parts)
    return (number // step + 1) * step

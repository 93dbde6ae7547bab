"""Recorded sessions on the choice: what they are like, what keeping the cache of one that waits
buys, how many a system holds at each speed and time to first token, and admission by session.

The table is read from runs with ever more sessions on one instance. A latency that nine sessions in
ten see is a quantile of some two hundred of them, and scatters by a tenth from one number of
sessions to the next; a line through the logarithms of the runs around each number scatters half as
much (``_smooth``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tonnage.plan.demand import (
    Admission,
    HeldSessions,
    HeldTier,
    HowKept,
    KeptCache,
    SessionTiers,
    SpeedTier,
)
from tonnage.results.metrics import Summary, summarize
from tonnage.sizing.loads.instance import SURE, Instance, middle
from tonnage.sizing.loads.load_scan import WAITING, statistic_s
from tonnage.sizing.loads.session_load import WARM
from tonnage.spec.deployment import Limit
from tonnage.spec.kv_tiers import OFF, KvTiers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.sizing.search.deployment_capacity import Contender, Sized
    from tonnage.spec.recorded_sessions import RecordedSessions

    Floats = NDArray[np.float64]

SLOWDOWNS = (1.2, 1.5, 2.0, 3.0)
"""Speeds of the table: how many times as long as alone the answers of nine sessions in ten take at
most."""

FIRST_TOKENS_S = (2.0, 5.0, 10.0)
"""Its times to the first token of a further request, in seconds, at the 95th percentile."""

FURTHER = 1.15
"""Sessions of the next run of the table over those of the one before, at least."""

NEAR = 0.65
"""Distance, in logarithms of sessions, within which runs count for a number of sessions."""

PLACES = 400
"""Numbers of sessions at which the line through the runs is read."""

SURELY = 1.2816
"""Standard deviations on either side of a cell within which the recorded service is with a
probability of 80 %."""

DRAWS = 100
"""Recordings that are drawn from the recorded sessions, to know how far these are by chance."""

OVER = (1.25, 1.5)
"""Sessions that want to run at once, over the number that the limits allow."""


def held_sessions(best: Sized) -> HeldSessions | None:
    """What sessions are like at the load that the plan counts on; None where the load is none of
    recorded sessions.
    """
    contender, question = best.contender, best.contender.question
    instance, source = contender.running, question.demand.source
    recorded = instance.recorded_sessions
    if recorded is None or source.trace_requests is None:
        return None
    requests, seed = instance.requests_of(best.rate, SURE), instance.traffic.seed
    record = middle(
        contender.runs.once(
            (instance, "sessions", best.rate, requests),
            lambda: instance.open(best.rate, requests, seed),
        )
    )
    session_latencies = summarize(record).sessions
    hits = float(record.cached_tokens.sum() / record.isl.sum())
    prompts = float(recorded.isl.sum()) / len(recorded)
    slowdown = None if session_latencies is None else session_latencies.slowdown_ms
    return HeldSessions(
        at_once=source.sessions or 0.0,
        per_instance=best.rate / recorded.pace,
        per_system=best.rate / recorded.pace * best.instances / best.systems,
        requests=recorded.requests,
        input_tokens=prompts,
        computed_tokens=prompts * (1 - hits),
        output_tokens=float(recorded.osl.sum()) / len(recorded),
        hit_rate=hits,
        seconds=float(recorded.lasts_s.mean()),
        slowdown_p50=None if slowdown is None or slowdown.p50 is None else slowdown.p50 / 1e3,
        slowdown_p90=None if slowdown is None or slowdown.p90 is None else slowdown.p90 / 1e3,
        first_ttft_p95_ms=None
        if session_latencies is None
        else session_latencies.first_ttft_ms.p95,
        further_ttft_p95_ms=None
        if session_latencies is None
        else session_latencies.further_ttft_ms.p95,
        left_out=1 - len(recorded.isl) / source.trace_requests,
        source=recorded.source,
        offloader=instance.below[0].name,
        tiers=_tiers(best),
        kept=_kept_caches(best, recorded),
    )


def _tiers(best: Sized) -> tuple[HeldTier, ...]:
    """What the GPUs' KV cache holds alone, and with each memory below it; empty without any."""
    contender, memory = best.contender, best.contender.instance.memory
    rules, tiers = contender.instance.below
    recorded, gpus = (
        contender.instance.recorded_sessions,
        contender.ready.trial.deployment.parallelism.gpus,
    )
    if recorded is None or not tiers:
        return ()
    pace, density = recorded.pace, best.instances / best.systems
    cache = HeldTier(
        name="KV cache",
        bytes_per_instance=memory.kv_budget_bytes * gpus,
        per_system=None,
        systems=None,
    )
    below = [
        HeldTier(
            name=tier.name,
            bytes_per_instance=tier.size or 0,
            bytes_per_second=tier.speed,
            latency_seconds=tier.latency_s,
            per_system=best.rate / pace * density,
            systems=best.systems,
        )
        for tier in tiers
    ]
    held_tiers = []
    for count, held_tier in enumerate((cache, *below[:-1])):
        fewer = KvTiers(tiers=tiers[:count], offloader=rules.name) if count else OFF
        rate = _rate(best, with_tiers(contender, fewer)) or None
        systems = None if rate is None else contender.layout.carrying(contender.load, rate).systems
        held_tiers.append(
            replace(
                held_tier,
                per_system=None if rate is None else rate / pace * density,
                systems=systems,
            )
        )
    return (*held_tiers, below[-1])


def with_tiers(contender: Contender, tiers: KvTiers) -> Contender:
    """The same deployment with other memories below its KV cache."""
    question, ready = contender.question, contender.ready
    if question.sharing is None or ready.instance.traffic.sharing is None:
        raise ValueError("tiers of a question whose prompts share nothing")
    traffic = replace(
        ready.instance.traffic, sharing=replace(ready.instance.traffic.sharing, tiers=tiers)
    )
    other = replace(question, sharing=replace(question.sharing, tiers=tiers))
    return replace(
        contender,
        question=other,
        ready=replace(ready, instance=contender.runs.instance(ready.trial.deployment, traffic)),
    )


def _kept_caches(best: Sized, recorded: RecordedSessions) -> tuple[KeptCache, ...]:
    """What becomes of the cache of a session that waits, and the sessions of a system then."""
    contender = best.contender
    memory, largest = contender.instance.memory, recorded.isl + recorded.osl
    # at any moment sessions are met in proportion to the time that they last
    context = np.average(
        np.maximum.reduceat(largest, recorded.starts[:-1]), weights=recorded.lasts_s
    )
    deployment, cached = contender.instance.deployment, with_tiers(contender, OFF)
    dropping = replace(deployment, knobs=replace(deployment.knobs, prefix_caching=False))
    computing = contender.runs.instance(dropping, cached.instance.traffic)
    ways: dict[HowKept, Contender] = {
        "recompute": replace(cached, ready=replace(cached.ready, instance=computing)),
        "cache": cached,
    }
    rates = {how: _rate(best, way) for how, way in ways.items()}
    if contender.instance.below[1]:
        rates["offload"] = best.rate
    ranks = deployment.parallelism.dp
    rates["pin"] = min(
        rates["cache"], ranks * math.floor(memory.tokens / float(context)) * recorded.pace
    )
    return tuple(
        KeptCache(
            how=how,
            per_system=_per_system(best, rates[how]),
            systems=_systems(best, rates[how]),
            alone=None if rates[how] or how == "pin" else ways[how].alone_at(best.slowdown),
        )
        for how in ("recompute", "pin", "cache", "offload")
        if how in rates
    )


def _rate(best: Sized, contender: Contender) -> float:
    """Requests per second that an instance carries where something of the choice is taken away, at
    the same confidence; no more than the choice, and 0 where no load is inside the limits.
    """
    needed = contender.needed(best.slowdown, care=best.care)
    return min(best.rate, needed[1].rate) if isinstance(needed, tuple) else 0.0


def session_tiers(best: Sized) -> SessionTiers | None:
    """The table of a deployment, and admission; None without recorded sessions."""
    recorded = best.contender.instance.recorded_sessions
    if recorded is None:
        return None
    curve, question = curve_of(best), best.contender.question
    # the checked fleet of the choice may carry less than its instances by themselves: the cell of
    # the question's limits is the choice
    whole = curve.within(best.slowdown.tightened(question.limits))[0]
    checked = best.rate / recorded.pace * best.slowdown.steps
    share = checked / whole if 0.0 < whole < math.inf else 1.0
    errors = sampling_errors(recorded, best.contender.instance)
    speeds = []
    for seconds in FIRST_TOKENS_S:
        for slowdown in SLOWDOWNS:
            limits = best.slowdown.tightened(tier_limits(slowdown, seconds))
            rate, lower, upper = (
                share * sessions / best.slowdown.steps * recorded.pace
                for sessions in curve.between(limits, *errors)
            )
            speeds.append(
                SpeedTier(
                    slowdown_p90=slowdown,
                    further_ttft_p95_ms=1e3 * seconds,
                    per_system=_per_system(best, rate),
                    least=_per_system(best, lower),
                    most=_per_system(best, upper),
                    systems=_systems(best, rate),
                )
            )
    return SessionTiers(speeds=tuple(speeds), admission=_admission(best, recorded))


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Latencies of one instance by the sessions at once on it, in order of these.

    Attributes:
        sessions: float64 (runs,).
        summaries: the metrics of each run.
    """

    sessions: Floats
    summaries: tuple[Summary, ...]

    @property
    def largest(self) -> float:
        """The most sessions that were simulated."""
        return float(self.sessions[-1])

    def within(self, limits: tuple[Limit, ...]) -> tuple[float, float]:
        """Sessions up to which the limits hold, 0 where the fewest break them and infinite where
        the most do not; and the standard error of its logarithm, from the runs left out in turn.
        """
        latencies = np.array([[statistic_s(s, limit) for limit in limits] for s in self.summaries])
        sessions = self._within(latencies, limits, np.ones(len(self.summaries), bool))
        count = len(self.summaries)
        without = np.array(
            [self._within(latencies, limits, np.arange(count) != run) for run in range(count)]
        )
        without = without[(without > 0) & np.isfinite(without)]
        if len(without) < 2:
            return sessions, 0.0
        return sessions, math.sqrt(len(without) - 1) * float(np.log(without).std())

    def between(
        self, limits: tuple[Limit, ...], busy: float, prompts: float
    ) -> tuple[float, float, float]:
        """Sessions up to which the limits hold, no more than were simulated, and between which
        numbers that is with a probability of 80 %; errors are those of ``sampling_errors``.
        """
        sessions, runs = self.within(limits)
        sessions = min(sessions, self.largest)
        if not sessions:
            return 0.0, 0.0, 0.0
        apart = SURELY * math.hypot(runs, busy)
        lower, upper = (
            min(self.within(_stretched(limits, math.exp(by * prompts)))[0], self.largest)
            for by in (-SURELY, SURELY)
        )
        fewer = (
            sessions * math.exp(-math.hypot(apart, math.log(sessions / lower))) if lower else 0.0
        )
        return sessions, fewer, sessions * math.exp(math.hypot(apart, math.log(upper / sessions)))

    def _within(
        self, latencies: Floats, limits: tuple[Limit, ...], rows: NDArray[np.bool_]
    ) -> float:
        """The same from some of the runs; ``latencies`` is (runs, limits), and an undefined one
        holds.
        """
        counts = self.sessions[rows]
        return min(
            (
                crossing(counts, latencies[rows, place], limit.seconds)
                for place, limit in enumerate(limits)
                if not np.isnan(latencies[:, place]).any()
            ),
            default=math.inf,
        )


def _stretched(limits: tuple[Limit, ...], factor: float) -> tuple[Limit, ...]:
    return tuple(
        limit if limit.is_ratio else replace(limit, seconds=limit.seconds * factor)
        for limit in limits
    )


def crossing(sessions: Floats, latencies: Floats, limit: float) -> float:
    """The number of sessions at which a latency that rises with it reaches a limit: 0 where the
    fewest exceed it, infinite where the most do not.

    The latency is that of a line through the logarithms of the runs around a number of sessions,
    those nearby with more weight (Cleveland's tricube).
    """
    places = np.linspace(math.log(sessions[0]), math.log(sessions[-1]), PLACES)
    apart = np.log(sessions)[None] - places[:, None]
    weight = np.clip(1 - np.abs(apart / NEAR) ** 3, 0.0, None) ** 3
    logarithm = np.log(latencies)
    total, first, second = ((weight * apart**power).sum(axis=1) for power in range(3))
    mean, slope = weight @ logarithm, (weight * apart) @ logarithm
    spread = total * second - first**2
    several = spread > 1e-9 * total**2
    line = np.interp(places, np.log(sessions), logarithm)  # where fewer than two runs are near
    line[several] = (second * mean - first * slope)[several] / spread[several]
    line = np.maximum.accumulate(line)
    place = int(np.searchsorted(line, math.log(limit), side="right"))
    if place == 0:
        return 0.0
    return math.inf if place == PLACES else float(math.exp(places[place]))


def curve_of(best: Sized) -> Curve:
    """Runs of an instance with ever more sessions: from where the tightest cell holds that a
    single client is inside, to where the loosest breaks.
    """
    contender = best.contender
    recorded, alone = contender.instance.recorded_sessions, contender.alone()
    if recorded is None:
        raise ValueError("a curve without recorded sessions")
    cells = [
        best.slowdown.tightened(tier_limits(slowdown, seconds))
        for slowdown in SLOWDOWNS
        for seconds in FIRST_TOKENS_S
    ]
    attainable = [cell for cell in cells if not _broken(alone, cell)] or cells[-1:]
    summaries: dict[int, Summary] = {}

    def run(sessions: int) -> Summary:
        rate = sessions * recorded.pace
        summaries[sessions] = contender.runs.open(contender.instance, 1, rate, SURE).summary
        return summaries[sessions]

    begin = max(1, round(best.rate * best.slowdown.steps / recorded.pace))
    settling = WAITING * contender.instance.saturation_estimate() / recorded.pace
    sessions, broken = begin, 0
    while broken < 2 and sessions <= max(settling, begin):
        broken += _broken(run(sessions), attainable[-1])
        sessions = max(sessions + 1, math.ceil(FURTHER * sessions))
    sessions, holding = min(begin - 1, math.floor(begin / FURTHER)), 0
    while holding < 2 and sessions >= 1:
        holding += not _broken(run(sessions), attainable[0])
        sessions = min(sessions - 1, math.floor(sessions / FURTHER))
    return Curve(
        sessions=np.array(sorted(summaries), float),
        summaries=tuple(summaries[count] for count in sorted(summaries)),
    )


def _broken(summary: Summary, limits: tuple[Limit, ...]) -> bool:
    return any(statistic_s(summary, limit) > limit.seconds for limit in limits)


def sampling_errors(recorded: RecordedSessions, instance: Instance) -> tuple[float, float]:
    """How well so few recorded sessions say what all are like, as standard errors of logarithms: of
    the seconds that a session keeps an instance busy in each second that it lasts, and of the time
    to first token that their prompts take alone, at the 95th percentile.

    The first is a ratio of means (Cochran, Sampling Techniques, 6.4); the second is that of
    ``DRAWS`` recordings of as many sessions, drawn from these with repetition (Efron's bootstrap).
    """
    busy = np.add.reduceat(instance.alone_ns, recorded.starts[:-1]) / 1e9
    lasts, count = recorded.lasts_s, len(recorded)
    apart = busy - busy.sum() / lasts.sum() * lasts
    error = math.sqrt((apart**2).sum() * count / max(count - 1, 1)) / busy.sum()
    record = instance.alone()
    if record.turns is None:
        return float(error), 0.0
    further = np.flatnonzero(~record.turns.first)
    waits = (record.first_token_ns - record.due_ns)[further]
    order = np.argsort(waits)
    waits, session = waits[order], record.turns.session[further][order]
    draws = np.random.default_rng(instance.traffic.seed).multinomial(
        count, np.full(count, 1 / count), size=DRAWS
    )
    upto = draws[:, session].cumsum(axis=1)
    places = (upto < 0.95 * upto[:, -1:]).sum(axis=1)
    return float(error), float(np.log(waits[np.minimum(places, len(waits) - 1)]).std())


def tier_limits(slowdown: float, seconds: float) -> tuple[Limit, Limit]:
    """The limits of a cell of the table."""
    return (
        Limit(metric="further_ttft", statistic="p95", seconds=seconds),
        Limit(metric="slowdown", statistic="p90", seconds=slowdown),
    )


def _per_system(best: Sized, rate: float) -> float:
    recorded = best.contender.instance.recorded_sessions
    pace = 1.0 if recorded is None else recorded.pace
    return rate / pace * best.instances / best.systems


def _systems(best: Sized, rate: float) -> int | None:
    """Systems that carry the sessions of the question; None where an instance carries none."""
    contender = best.contender
    return contender.layout.carrying(contender.load, rate).systems if rate else None


def _admission(best: Sized, recorded: RecordedSessions) -> tuple[Admission, ...]:
    """What more sessions than the limits allow see without admission, and with it how long one
    waits and how many end in an hour.
    """
    steps = best.slowdown.steps
    clients = max(1, math.floor(best.rate * steps / recorded.pace))
    admitted = _ended(best, recorded, clients)[1]
    further_ttft, slowdown = tier_limits(1.0, 1.0)
    admissions = []
    for over in OVER:
        wanting = max(clients + 1, round(over * clients))
        summary, ended = _ended(best, recorded, wanting)
        slower = statistic_s(summary, slowdown)
        first_s = statistic_s(summary, further_ttft) * best.slowdown.of(further_ttft)
        admissions.append(
            Admission(
                over=wanting / clients,
                slowdown_p90=None if math.isnan(slower) else slower,
                further_ttft_p95_ms=None if math.isnan(first_s) else 1e3 * first_s,
                wait_seconds=(wanting - clients) / admitted,
                per_hour=3600 * ended / steps,
                per_hour_admitted=3600 * admitted / steps,
            )
        )
    return tuple(admissions)


def _ended(best: Sized, recorded: RecordedSessions, clients: int) -> tuple[Summary, float]:
    """The metrics of an instance with so many sessions at once, and how many of them end in a
    second.
    """
    instance, rate = best.contender.instance, clients * recorded.pace
    run = best.contender.runs.open(instance, 1, rate, SURE)
    # at the recorded pace the run would have had so many
    requests = (1 - WARM) * instance.requests_of(rate, SURE)
    return run.summary, rate / recorded.requests * run.requests / requests

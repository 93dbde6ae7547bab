"""A running deployment next to its plan, as values: what a table shows and a script reads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from tonnage.formats.prometheus import Buckets, together
from tonnage.formats.table import latency_column
from tonnage.perf.residuals import SHARE
from tonnage.plan.plan import Plan
from tonnage.spec.deployment import LimitMetric, Statistic
from tonnage.watch.expected import (
    BROKEN,
    STAGES,
    Advice,
    Counts,
    Expected,
    Predictor,
    Reading,
    Stage,
    advice,
)

ROWS: tuple[tuple[LimitMetric, tuple[Statistic, ...]], ...] = (
    ("ttft", ("mean", "p50", "p95", "p99")),
    ("itl", ("mean", "p50", "p95", "p99")),
    ("tpot", ("mean",)),
    ("e2e", ("mean", "p95")),
)
"""What is shown next to the statistics that have a limit."""

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
FEW = 30  # Fewer observations than this in a stretch say nothing about a limit or an interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """One statistic of a latency, in milliseconds; NaN where it is not known."""

    metric: LimitMetric  # and statistic: such as "ttft" and "p95"
    statistic: Statistic
    measured: float  # by the engine's histogram
    # and high: bounds of the bucket that a percentile is in, its resolution; both are the value
    # itself of a mean
    low: float
    high: float
    predicted: float  # of the plan's deployment under the present load
    expected: tuple[float, float]  # the interval of the prediction
    limit: float  # of the plan; the strictest
    slower: float  # share of the observations above the limit
    enough: bool  # whether the stretch has enough observations of the metric to judge

    @property
    def broken(self) -> bool:
        """Whether the limit is broken."""
        return self.enough and self.measured > self.limit

    @property
    def place(self) -> str:
        """Next to the interval: "inside", "above", "below", "" where unknown; a percentile is
        outside only where its whole bucket is.
        """
        low, high = self.expected
        if not self.enough or math.isnan(low) or math.isnan(self.measured):
            return ""
        return "above" if self.low > high else "below" if self.high < low else "inside"

    def to_json(self) -> dict[str, Any]:
        """The values as JSON has them, by name; None for what is not known."""
        numbers = {
            "measured_ms": self.measured,
            "predicted_ms": self.predicted,
            "limit_ms": self.limit,
            "slower_than_limit": self.slower,
        }
        pairs = {"bucket_ms": (self.low, self.high), "interval_ms": self.expected}
        return {
            "metric": self.metric,
            "statistic": self.statistic,
            **{name: _finite(value) for name, value in numbers.items()},
            **{
                name: None if math.isnan(pair[0]) else [_finite(value) for value in pair]
                for name, pair in pairs.items()
            },
            "limit_broken": self.broken,
            "beside_interval": self.place or None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """One look at a deployment."""

    plan: Plan  # that it is laid next to
    present: Present  # what was measured
    expected: Expected  # what was predicted for the same load
    latencies: tuple[Latency, ...]  # statistics, those with a limit among them
    instances: int  # that answer, and so share the present load
    # where the mean TTFT goes; empty where the engine does not say it, or of too few requests
    ttft: tuple[TtftPart, ...] = ()
    # joint attainment of the plan's limits, as far as histograms of single metrics tell it
    attained: tuple[AttainedBounds, ...] = ()
    # requests per second of one instance inside the limits, if every step takes as much longer as
    # was measured; None where the measurement agrees with the prediction
    at_measured_speed: float | None = None
    advice: Advice | None = None  # to calibrate, or to look for a fault; None for none

    @property
    def missed(self) -> tuple[AttainedBounds, ...]:
        """Joint limits that cannot have been met, whatever the metrics have to do with each
        other.
        """
        return tuple(bounds for bounds in self.attained if bounds.high < bounds.asked)

    @property
    def uneven(self) -> tuple[str, ...]:
        """Instances that get another share of the requests than the plan's router would send them,
        in words.
        """
        return uneven(self.plan.scenario.router, self.present)

    @property
    def capacity(self) -> float:
        """Requests per second that the instances carry inside the limits with the present lengths,
        by simulation.
        """
        return self.expected.capacity * self.instances

    @property
    def headroom(self) -> float | None:
        """The additional load that they carry, as a share of the present one; None without load."""
        return (
            self.capacity / self.present.requests_per_second - 1
            if self.present.requests_per_second
            else None
        )

    @property
    def broken(self) -> tuple[Latency, ...]:
        """The limits that are broken."""
        return tuple(latency for latency in self.latencies if latency.broken)

    def to_json(self) -> dict[str, Any]:
        """The values as JSON has them, by name; None for what is not published or not known."""
        p = self.present
        choice = self.plan.candidates[0]
        names = (
            "seconds",
            "requests",
            "requests_per_second",
            "output_tokens_per_second",
            "running",
            "waiting",
            "kv_used",
            "error_share",
        )
        measured = {
            name: getattr(p, name)
            for name in (*names, "mean_isl", "mean_osl", "gpu_use", "gpu_watts")
        }
        slower = self.at_measured_speed
        return {
            **measured,
            "instances": {"answering": p.answering, "asked": p.asked, "plan": choice.instances},
            "latencies": [latency.to_json() for latency in self.latencies],
            "ttft_parts": [
                asdict(ttft_part) | {"off": ttft_part.off, "text": ttft_part.text or None}
                for ttft_part in self.ttft
            ],
            "share_of_intervals": SHARE,
            "plan": {
                "requests_per_second": self.plan.demand.sizing_requests_per_second,
                "counted_on_per_instance": choice.sized_rate,
                "isl": self.plan.scenario.mean_isl,
                "osl": self.plan.scenario.mean_osl,
            },
            "simulated": {
                "isl": self.expected.isl,
                "osl": self.expected.osl,
                "capacity_per_instance": self.expected.capacity,
            },
            "capacity": self.capacity,
            "headroom": self.headroom,
            "capacity_at_measured_speed": None if slower is None else slower * self.instances,
            "attained": [asdict(bounds) for bounds in self.attained],
            "requests_by_instance": dict(p.by_instance),
            "split_not_the_plans": list(self.uneven),
            "limits_broken": [
                *(f"{latency.metric} {latency.statistic}" for latency in self.broken),
                *(bounds.limits for bounds in self.missed),
            ],
            "advice": None if self.advice is None else self.advice.to_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class AttainedBounds:
    """Between which shares of the requests meet joint limits: histograms of single metrics do not
    say who missed several of them.
    """

    limits: str  # in words
    asked: float  # the share that the plan asks for
    low: float  # where every miss is another request's (Bonferroni)
    high: float  # where all misses are the same requests'


def attained_bounds(plan: Plan, present: Present) -> Iterator[AttainedBounds]:
    """Each joint limit of the plan, of a stretch that has enough requests."""
    for limit in plan.scenario.limits_that_count:
        if limit.share is None or limit.parts is None:
            continue
        pairs = [(present.latencies.get(metric), factor) for metric, factor in limit.parts]
        slower = [
            buckets.slower(factor / 1e3)
            for buckets, factor in pairs
            if buckets is not None and buckets.count >= FEW
        ]
        if len(slower) == len(pairs):
            yield AttainedBounds(
                limits=str(limit),
                asked=limit.share,
                low=max(0.0, 1 - math.fsum(slower)),
                high=1 - max(slower),
            )


def latencies(plan: Plan, present: Present, expected: Expected) -> Iterator[Latency]:
    """Every statistic that is shown, measured next to predicted."""
    limits: dict[tuple[LimitMetric, Statistic], float] = {}
    for limit in plan.scenario.limits_that_count:
        key = (limit.metric, limit.statistic)
        limits[key] = min(limit.milliseconds, limits.get(key, math.inf))
    for metric, statistics in ROWS:
        buckets = present.latencies.get(metric)
        if buckets is None:
            continue
        more = [
            statistic
            for name, statistic in limits
            if name == metric and statistic not in statistics
        ]
        for statistic in (*statistics, *more):
            share = QUANTILES.get(statistic)
            value = buckets.mean if share is None else buckets.quantile(share)
            low, high = (value, value) if share is None else buckets.bracket(share)
            limit_ms = limits.get((metric, statistic), math.nan)
            yield Latency(
                metric=metric,
                statistic=statistic,
                measured=1e3 * value,
                low=1e3 * low,
                high=1e3 * high,
                predicted=(
                    math.nan
                    if expected.summary is None
                    else expected.summary.statistic_ms(metric, statistic)
                ),
                expected=expected.intervals.get(
                    latency_column(metric, statistic), (math.nan, math.nan)
                ),
                limit=limit_ms,
                slower=math.nan if math.isnan(limit_ms) else buckets.slower(limit_ms / 1e3),
                enough=buckets.count >= FEW,
            )


Part = Literal["front end", "queue", "prefill", "front end and prefill"]

CAUSES: dict[Part, str] = {
    "front end": (
        "tokenising or the API server takes longer; calibrate fits it (frontend_s), a further API"
        " server relieves it"
    ),
    "queue": "burstier load, slower steps, or fewer slots and KV blocks than planned",
    "prefill": (
        "prompts are computed more slowly, share steps with more requests, or hit the prefix cache"
        " less"
    ),
    "front end and prefill": "calibrate tells the front end (at one client) from the steps",
}
"""Usual causes of a part of the TTFT that is longer than expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TtftPart:
    """A part of the mean TTFT, measured next to predicted, in milliseconds."""

    part: Part
    measured_ms: float
    predicted_ms: float
    # how much less and more than predicted: by which the whole TTFT would leave its interval
    less_ms: float
    more_ms: float

    @property
    def off(self) -> bool:
        """Whether this part by itself takes the mean TTFT out of its interval."""
        return not -self.less_ms <= self.measured_ms - self.predicted_ms <= self.more_ms

    @property
    def text(self) -> str:
        """The difference and its usual causes in one sentence; "" for a part that is not off."""
        if not self.off:
            return ""
        finding = (
            f"of the mean TTFT the {self.part} is {self.measured_ms:.3g} ms, expected"
            f" {self.predicted_ms:.3g}"
        )
        return (
            f"{finding}: {CAUSES[self.part]}."
            if self.measured_ms > self.predicted_ms
            else f"{finding}."
        )


def parts_of_ttft(present: Present, expected: Expected) -> tuple[TtftPart, ...]:
    """Divide the mean TTFT, as far as the engine publishes it; the rest is one part."""
    ttft, stages, planned = present.latencies.get("ttft"), present.stages, expected.ttft
    if (
        ttft is None
        or planned is None
        or "queue" not in stages
        or min(ttft.count, stages["queue"].count) < FEW
    ):
        return ()
    steps = planned.prefill_ms + planned.shared_ms
    predicted = planned.front_end_ms + planned.queue_ms + steps
    low, high = expected.intervals.get("ttft_ms", (predicted, predicted))
    parts: dict[Part, tuple[float, float]] = {
        "queue": (1e3 * stages["queue"].mean, planned.queue_ms)
    }
    if "prefill" in stages:
        parts["prefill"] = 1e3 * stages["prefill"].mean, steps
    rest: Part = "front end" if "prefill" in stages else "front end and prefill"
    rest_ms = 1e3 * ttft.mean - sum(measured for measured, _ in parts.values())
    parts = {rest: (max(rest_ms, 0.0), predicted - sum(of for _, of in parts.values())), **parts}
    allowed = {"less_ms": max(predicted - low, 0.0), "more_ms": max(high - predicted, 0.0)}
    return tuple(
        TtftPart(part=part, measured_ms=now, predicted_ms=plan, **allowed)
        for part, (now, plan) in parts.items()
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Watcher:
    """The settings that stay the same between looks."""

    plan: Plan  # of the deployment
    predictor: Predictor  # of its choice
    urls: tuple[str, ...]  # that are watched
    plan_file: str  # path of the plan, for the commands of the advice

    def look(self, before: Reading, now: Reading) -> Watched:
        """The deployment between two readings, next to its plan."""
        stretch = present(before, now)
        instances = max(1, stretch.answering)
        lengths = (stretch.mean_isl, stretch.mean_osl) if stretch.requests >= FEW else (None, None)
        share = stretch.requests_per_second / instances
        expected = self.predictor.at(share, isl=lengths[0], osl=lengths[1])
        advice = self._advice(stretch, expected)
        slower = None
        if advice is not None:
            slower = self.predictor.at(
                0.0, isl=lengths[0], osl=lengths[1], slower=round(advice.ratio, 2) or 0.01
            ).capacity
        return Watched(
            plan=self.plan,
            present=stretch,
            expected=expected,
            latencies=tuple(latencies(self.plan, stretch, expected)),
            ttft=parts_of_ttft(stretch, expected),
            instances=instances,
            attained=tuple(attained_bounds(self.plan, stretch)),
            at_measured_speed=slower,
            advice=advice,
        )

    def _advice(self, present: Present, expected: Expected) -> Advice | None:
        """Mean gaps are in for the TPOT of an engine that does not publish it."""
        if expected.summary is None or "tpot_ms" not in expected.intervals:
            return None
        metric: LimitMetric = "tpot" if "tpot" in present.latencies else "itl"
        if metric not in present.latencies or present.latencies[metric].count < FEW:
            return None
        measured = present.latencies[metric].mean
        return advice(
            measured=1e3 * measured,
            predicted=expected.summary.statistic_ms("tpot", "mean"),
            interval=expected.intervals["tpot_ms"],
            metric=metric.upper(),
            model=self.plan.candidates[0].pool.model,
            urls=self.urls,
            plan=self.plan_file,
            lengths=f"--isl {expected.isl:.0f} --osl {expected.osl:.0f}",
        )


METRICS: tuple[LimitMetric, ...] = ("ttft", "itl", "tpot", "e2e")


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """A stretch of time, over all instances that answered at both of its ends."""

    seconds: float  # how long it is
    answering: int  # and asked: instances
    asked: int
    requests: float  # that ended in it
    # and output_tokens_per_second: over all instances; None for tokens where they are not published
    requests_per_second: float
    output_tokens_per_second: float | None
    # and waiting: requests with a slot and in the queue at its end, over all instances; None where
    # they are not published
    running: float | None
    waiting: float | None
    # share of the KV cache in use at its end, the mean of the instances; None where it is not
    # published
    kv_used: float | None
    # of the requests that ended, the failed ones: by the gateway where there is one, else by the
    # engines' responses; None where nobody says it
    error_share: float | None
    # and mean_osl: tokens of the requests that ended; None where they are not published, or none
    # ended
    mean_isl: float | None
    mean_osl: float | None
    latencies: Mapping[LimitMetric, Buckets]  # histograms of seconds, by metric
    # of the time before a first token, likewise
    stages: Mapping[Stage, Buckets] = field(default_factory=dict)
    # share of the time in which a GPU worked, the mean; None where nobody says it
    gpu_use: float | None
    gpu_watts: float | None  # power of all GPUs; None where nobody says it
    # requests that ended in it, by the instance's address
    by_instance: Mapping[str, float] = field(default_factory=dict)


EVEN = ("round-robin", "random", "least-outstanding", "power-of-two", "least-tokens", "least-kv")
"""Routers that share requests evenly among equal instances, unlike routers by prompt or session."""

# Share of an even part by which an instance's requests must differ before the split counts as
# another than the plan's
UNEVEN = 0.25


def uneven(router: str, present: Present) -> tuple[str, ...]:
    """Instances whose requests are so many or so few that the plan's router cannot have sent them;
    four standard deviations of random.
    """
    total, count = math.fsum(present.by_instance.values()), len(present.by_instance)
    if router not in EVEN or count < 2 or total < FEW * count:
        return ()
    part = total / count
    spread = 4 * math.sqrt(part * (1 - 1 / count))
    off = {
        url: ended
        for url, ended in present.by_instance.items()
        if abs(ended - part) > max(spread, UNEVEN * part)
    }
    return tuple(f"{url} got {ended / total:.0%} of the requests" for url, ended in off.items())


def present(before: Reading, now: Reading) -> Present:
    """The traffic between two readings."""
    pairs = [
        (before.instances[url], counts)
        for url, counts in now.instances.items()
        if url in before.instances
    ]
    seconds = now.at_s - before.at_s
    latencies = {
        metric: together([_since(then.histograms, now.histograms, metric) for then, now in pairs])
        for metric in METRICS
    }
    stages = {
        stage: together([_since(then.stages, now.stages, stage) for then, now in pairs])
        for stage in STAGES
    }
    latencies = {metric: buckets for metric, buckets in latencies.items() if buckets.bounds}
    requests = latencies["e2e"].count if "e2e" in latencies else 0.0
    prompt = _grown((then.prompt_tokens, counts.prompt_tokens) for then, counts in pairs)
    output = _grown((then.output_tokens, counts.output_tokens) for then, counts in pairs)
    instance_counts = list(now.instances.values())
    used = [counts.kv_used for counts in instance_counts if counts.kv_used is not None]
    return Present(
        seconds=seconds,
        answering=len(instance_counts),
        asked=len(now.asked),
        requests=requests,
        requests_per_second=requests / seconds,
        output_tokens_per_second=None if output is None else output / seconds,
        running=_sum(counts.running for counts in instance_counts),
        waiting=_sum(counts.waiting for counts in instance_counts),
        kv_used=sum(used) / len(used) if used else None,
        error_share=_error_share(before, now, pairs),
        mean_isl=None if prompt is None or not requests else prompt / requests,
        mean_osl=None if output is None or not requests else output / requests,
        latencies=latencies,
        stages={stage: buckets for stage, buckets in stages.items() if buckets.bounds},
        gpu_use=sum(now.use) / len(now.use) if now.use else None,
        gpu_watts=math.fsum(now.watts) if now.watts else None,
        by_instance={
            url: (
                _since(before.instances[url].histograms, now.instances[url].histograms, "e2e").count
            )
            for url in now.instances
            if url in before.instances
        },
    )


def _since(then: Mapping[Any, Buckets], now: Mapping[Any, Buckets], name: str) -> Buckets:
    return now.get(name, Buckets()).since(then.get(name, Buckets()))


def _sum(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return math.fsum(numbers) if numbers else None


def _grown(pairs: Iterable[tuple[float | None, float | None]]) -> float | None:
    """The growth of counters; one that is smaller than before began again."""
    return _sum(
        None if now is None else now - then if then is not None and now >= then else now
        for then, now in pairs
    )


def _error_share(before: Reading, now: Reading, pairs: list[tuple[Counts, Counts]]) -> float | None:
    if now.ended and before.ended:
        grown = {
            outcome: max(0.0, count - before.ended.get(outcome, 0.0))
            for outcome, count in now.ended.items()
        }
        total, broken = math.fsum(grown.values()), math.fsum(grown[outcome] for outcome in BROKEN)
    else:
        counted = _grown((then.responses, counts.responses) for then, counts in pairs)
        failed = _grown((then.failures, counts.failures) for then, counts in pairs)
        if counted is None or failed is None:
            return None
        total, broken = counted, failed
    return broken / total if total else None

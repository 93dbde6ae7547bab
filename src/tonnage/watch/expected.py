"""What the simulator makes of the load that a deployment has at present, and how much more load it
would carry.

The load is read off the metrics pages of all instances at one moment, of the gateway before them
and of the exporters of their GPUs.
"""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal
from urllib.parse import urlsplit

from tonnage.bench.scrape import fetch
from tonnage.errors import DoesNotFit, InputError, option
from tonnage.formats.prometheus import SIGNALS, Buckets, Page, Signals, buckets_of
from tonnage.formats.table import latency_column
from tonnage.perf.prediction_error import intervals_of, regime_of
from tonnage.plan.plan import Plan
from tonnage.results.metrics import Summary, TtftParts
from tonnage.simulator.first_token import ttft_parts
from tonnage.sizing.loads.capacity import find_capacity
from tonnage.sizing.loads.instance import QUICK, Traffic, middle
from tonnage.sizing.loads.runs import Runs
from tonnage.spec.deployment import Deployment, LimitMetric, Statistic
from tonnage.spec.lengths import Lengths, parse_lengths
from tonnage.spec.workload import Process

Stage = Literal["queue", "prefill"]
STAGES: tuple[Stage, ...] = ("queue", "prefill")  # Of a TTFT, as ``Signals`` names them

FAILED = "5xx"  # The status under which vLLM counts responses that failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What one instance has done since it started, and what it holds at this moment, read off its
    metrics page.
    """

    # and waiting: requests with a slot and in the queue; None where the engine does not publish
    # them
    running: float | None = None
    waiting: float | None = None
    kv_used: float | None = None  # share of the KV cache in use; None where it is not published
    # and output_tokens: since its start; None where they are not published
    prompt_tokens: float | None = None
    output_tokens: float | None = None
    # and failures: HTTP responses since its start, and those with a status of 500 or more; None
    # where they are not published
    responses: float | None = None
    failures: float | None = None
    histograms: Mapping[LimitMetric, Buckets] = field(default_factory=dict)  # of seconds, by metric
    # of seconds of a request before its first token
    stages: Mapping[Stage, Buckets] = field(default_factory=dict)


def signals_on(page: Page) -> Signals | None:
    """The engine whose metrics a page has; None for an unknown one."""
    return next(
        (signals for signals in SIGNALS.values() if f"{signals.histograms['e2e']}_count" in page),
        None,
    )


def counts_of(page: Page, signals: Signals) -> Counts:
    """Read the counters of a page by an engine's names."""

    def total(name: str) -> float | None:
        return page.total(name) if name and name in page else None

    used = page.values(signals.kv_used) if signals.kv_used else ()
    answered = [
        sample
        for sample in page.of(signals.responses)
        if sample.labels.get("handler", "/v1/").startswith("/v1/")
    ]
    return Counts(
        running=total(signals.running),
        waiting=total(signals.waiting),
        kv_used=sum(used) / len(used) if used else None,
        prompt_tokens=total(signals.prompt_tokens),
        output_tokens=total(signals.output_tokens),
        responses=sum(sample.value for sample in answered) if answered else None,
        failures=(
            sum(sample.value for sample in answered if sample.labels.get("status") == FAILED)
            if answered
            else None
        ),
        histograms={
            metric: buckets_of(page, histogram)
            for metric, histogram in signals.histograms.items()
            if f"{histogram}_count" in page
        },
        stages={
            stage: buckets_of(page, name)
            for stage in STAGES
            if (name := getattr(signals, stage)) and f"{name}_count" in page
        },
    )


GATEWAY_UP = "tonnage_gateway_up"
GATEWAY_REQUESTS = "tonnage_gateway_requests_total"
BROKEN = ("error", "cut", "failed")
# How requests end that a gateway passed on, as it counts them (``gateway.server.OUTCOMES``)
ENDED = ("ok", *BROKEN)

HAPROXY_UP, HAPROXY_RESPONSES = "haproxy_server_status", "haproxy_backend_http_responses_total"
"""Of HAProxy's exporter, whose servers have their addresses for names (``gateway.haproxy``)."""

USE = ("DCGM_FI_DEV_GPU_UTIL", "gpu_gfx_activity", "nv_gpu_utilization", "nvml:utilization_percent")
WATTS = ("DCGM_FI_DEV_POWER_USAGE", "gpu_package_power", "nv_gpu_power_usage", "nvml:power_w")
"""Of NVIDIA's DCGM exporter, of AMD's, of Triton, and of this machine's driver (names recalled,
2026-11-22)."""

SHARES = ("nv_gpu_utilization",)  # Triton publishes a share where the others publish per cent


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The counters at one moment."""

    at_s: float  # seconds of a clock that never goes back
    instances: Mapping[str, Counts]  # what each instance that answered says, by its address
    asked: tuple[str, ...]  # the addresses
    # requests that a gateway has passed on, by how they ended; empty without one
    ended: Mapping[str, float]
    # share of the time in which each GPU worked, one value a GPU; empty where nobody says it
    use: tuple[float, ...] = ()
    watts: tuple[float, ...] = ()  # power of each GPU


def backends_on(page: Page) -> tuple[str, ...]:
    """The addresses of the backends of a gateway or of HAProxy; none where a page is of neither."""
    names = [sample.labels.get("backend") for sample in page.of(GATEWAY_UP)] + [
        sample.labels.get("server") for sample in page.of(HAPROXY_UP)
    ]
    return tuple(dict.fromkeys(f"http://{name}" for name in names if name))


def reading(
    at_s: float, instances: Mapping[str, Page], other_pages: Sequence[Page] = ()
) -> Reading:
    """One moment of a clock that never goes back; the page of an instance is empty where it did not
    answer.
    """
    counts: dict[str, Counts] = {}
    for url, page in instances.items():
        signals = signals_on(page)
        if signals is not None:
            counts[url] = counts_of(page, signals)
    pages = (*instances.values(), *other_pages)
    ended = {
        outcome: 0.0
        for page in other_pages
        if GATEWAY_UP in page or HAPROXY_UP in page
        for outcome in ENDED
    }
    for gateway_sample in (sample for page in other_pages for sample in page.of(GATEWAY_REQUESTS)):
        if gateway_sample.labels.get("outcome") in ended:
            ended[gateway_sample.labels["outcome"]] += gateway_sample.value
    for sample in (sample for page in other_pages for sample in page.of(HAPROXY_RESPONSES)):
        ended["error" if sample.labels.get("code") == "5xx" else "ok"] += sample.value
    return Reading(
        at_s=at_s,
        instances=counts,
        asked=tuple(instances),
        ended=ended,
        use=tuple(
            gpu_use if name in SHARES else gpu_use / 100
            for page in pages
            for name in USE
            for gpu_use in page.values(name)
        ),
        watts=tuple(value for page in pages for name in WATTS for value in page.values(name)),
    )


PATH = "/metrics"
AT_ONCE = 16


class Pages:
    """The metrics pages of a deployment: of its instances, of the gateway before them, of the
    exporters of its GPUs.
    """

    def __init__(self, urls: Sequence[str], *, gpus: Sequence[str] = (), path: str = PATH) -> None:
        """Note the addresses, without fetching; a gateway's backends are watched in its place.
        Raises InputError: something that is no address.
        """
        self.urls = tuple(dict.fromkeys(_address(url, "url") for url in urls))
        self._gpus = tuple(_with_path(_address(url, "gpu_metrics"), PATH) for url in gpus)
        self._path = path

    def read(self) -> Reading:
        """Read all pages at this moment."""
        with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
            first = dict(zip(self.urls, pool.map(self._page, self.urls), strict=True))
            instances = {url: page for url, page in first.items() if not backends_on(page)}
            behind = [
                url for page in first.values() for url in backends_on(page) if url not in instances
            ]
            instances |= dict(zip(behind, pool.map(self._page, behind), strict=True))
            pages = [page for page in first.values() if backends_on(page)]
            pages += map(Page, pool.map(fetch, self._gpus))
            at_s = time.monotonic()
        return reading(at_s, instances, pages)

    def _page(self, url: str) -> Page:
        """An instance's page: where its engine publishes it, or where engines usually do."""
        text = fetch(_with_path(url, self._path))
        return Page(text or (fetch(_with_path(url, PATH)) if self._path != PATH else ""))


def _with_path(url: str, path: str) -> str:
    return url if urlsplit(url).path.strip("/") else url.rstrip("/") + path


def _address(text: str, name: str) -> str:
    url = text if "://" in text else f"http://{text}"
    parts = urlsplit(url)
    try:
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if not good:
        raise InputError(
            f"{option(name)}: '{text}' is no address; write one such as http://127.0.0.1:8000"
        )
    return url


# Mean lengths that differ by less than this share from the plan's count as the plan's: those of a
# short stretch vary
NEAR = 0.1
# Lengths are rounded to powers of this, so that the capacity is not searched again at every look
STEP = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The prediction."""

    # metrics of one instance under its share of the present load; None without load
    summary: Summary | None
    # in milliseconds, between which a measurement is with a probability of 80 %, by column
    # ("tpot_ms", "ttft_p95_ms")
    intervals: Mapping[str, tuple[float, float]]
    # requests per second that one instance carries inside the limits with the present lengths; 0
    # where it carries none
    capacity: float
    isl: float  # and osl: mean lengths that were simulated, in tokens
    osl: float
    ttft: TtftParts | None = None  # where the mean TTFT goes; None without load


class Predictor:
    """Predicts for one plan; searches of capacity are kept, since lengths change slowly."""

    def __init__(self, plan: Plan, deployment: Deployment, *, gpus_per_system: int) -> None:
        """Predict a plan's choice, with the plan's limits and lengths. Raises InputError: its
        lengths cannot be read again.
        """
        understood = plan.scenario
        process: Process = (
            "poisson"
            if understood.arrivals is None or understood.arrivals == "trace"
            else understood.arrivals
        )
        self._deployment = deployment
        self._isl = _lengths(understood.isl, understood.mean_isl)
        self._osl = _lengths(understood.osl, understood.mean_osl)
        self._slo = tuple(limit.asked for limit in understood.limits_that_count)
        self._runs = Runs(self._slo)
        self._traffic = Traffic(
            isl=self._isl,
            osl=self._osl,
            load="open",
            process=process,
            cv=understood.cv if understood.cv and understood.arrivals != "trace" else 1.0,
            seed=understood.seed or 0,
            step_factor=understood.step_factor,
            gpus_per_system=gpus_per_system,
            router=understood.router or "random",
        )
        self._instances = max(1, 0 if plan.choice is None else plan.choice.instances)
        self._capacity = lru_cache(maxsize=64)(self._searched)

    def at(
        self, rate: float, *, isl: float | None, osl: float | None, slower: float = 1.0
    ) -> Expected:
        """What is expected of one instance at a rate, with mean lengths (None: the plan's), where
        steps take ``slower`` times as long.
        """
        factors = _factor(isl, self._isl.mean), _factor(osl, self._osl.mean)
        traffic = self._with(*factors, slower)
        capacity = self._capacity(*factors, slower)
        summary, parts, intervals = None, None, dict[str, tuple[float, float]]()
        if rate > 0:
            instance = self._runs.instance(self._deployment, traffic)
            together = instance.standing_for(self._instances)
            record = middle(
                instance.open(
                    rate, instance.requests_of(rate, QUICK, together), traffic.seed, together
                )
            )
            parts = next(iter(ttft_parts(record, instance.spec)), None)
            summary = self._runs.open(instance, together, rate, QUICK).summary
            statistics: tuple[Statistic, ...] = ("mean", "p50", "p95", "p99")
            metrics: tuple[LimitMetric, ...] = ("ttft", "tpot", "e2e")
            values = {
                latency_column(m, s): summary.statistic_ms(m, s)
                for m in metrics
                for s in statistics
            }
            intervals = intervals_of(
                values, regime_of(self._deployment, isl=traffic.isl.mean, osl=traffic.osl.mean)
            )
        return Expected(
            summary=summary,
            intervals=intervals,
            capacity=capacity,
            isl=traffic.isl.mean,
            osl=traffic.osl.mean,
            ttft=parts,
        )

    def _with(self, isl: float, osl: float, slower: float) -> Traffic:
        traffic = self._traffic
        return replace(
            traffic,
            isl=self._isl.scaled(isl),
            osl=self._osl.scaled(osl),
            step_factor=traffic.step_factor * slower,
        )

    def _searched(self, isl: float, osl: float, slower: float) -> float:
        try:
            instance = self._runs.instance(self._deployment, self._with(isl, osl, slower))
            return find_capacity(
                self._runs,
                instance,
                self._slo,
                instances=instance.standing_for(self._instances),
                care=QUICK,
            ).rate
        except DoesNotFit:
            return 0.0


def _lengths(text: str, mean: float) -> Lengths:
    """The plan's lengths; of lengths from a file, their mean."""
    try:
        return parse_lengths(text, "")
    except InputError:
        return Lengths(mean=mean)


def _factor(measured: float | None, planned: float) -> float:
    """The factor on the plan's lengths; 1 where the present ones are near."""
    if measured is None or measured <= 0 or abs(measured / planned - 1) < NEAR:
        return 1.0
    return float(STEP ** round(math.log(measured / planned) / math.log(STEP)))


MOST = 1.5
"""Steps that take longer than so many times the prediction, or shorter than its inverse, are taken
for a fault before they are taken for an error of the step model. This is a judgement: calibrated
factors stay far below it (docs/calibrate.md)."""

LOADS = "--concurrency 1,2,4,8,16,24,32,48 --benchmark-duration 20s"
"""The benchmark that a calibration rests on: eight loads (docs/calibrate.md), for two minutes and a
half."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A finding, and the commands that answer it."""

    metric: str  # "TPOT", or "ITL" where the engine publishes no TPOT
    ratio: float  # the measured mean over the predicted
    # by how much the measurement is beyond the nearer bound of the interval, as a share of that
    # bound
    beyond: float
    # that measure, calibrate, and watch again; none where a fault is the likelier cause
    commands: tuple[str, ...]

    @property
    def text(self) -> str:
        """The finding in one line."""
        side = "above" if self.ratio > 1 else "below"
        finding = (
            f"measured {self.metric} is {self.beyond:.0%} {side} the plan's interval"
            f" ({self.ratio:.2f} times its prediction)"
        )
        finding = finding.replace("%", " %")
        if self.commands:
            return f"calibrate: {finding}"
        return (
            f"look for a fault: {finding}; more than a calibration should take up (throttled GPUs,"
            " other work, other settings)"
        )

    def to_json(self) -> dict[str, Any]:
        """The values as JSON has them, by name."""
        return {
            "text": self.text,
            "ratio": self.ratio,
            "beyond": self.beyond,
            "commands": list(self.commands),
        }


def advice(
    *,
    measured: float,
    predicted: float,
    interval: tuple[float, float],
    metric: str,
    model: str,
    urls: Sequence[str],
    plan: str,
    lengths: str,
) -> Advice | None:
    """The advice; None where the measured mean is in the interval (all in one unit). ``lengths``
    are flags of ``tonnage bench``.
    """
    low, high = interval
    if low <= measured <= high:
        return None
    bound = high if measured > high else low
    ratio = measured / predicted
    commands = _commands(model, urls, plan, lengths) if 1 / MOST < ratio < MOST else ()
    return Advice(metric=metric, ratio=ratio, beyond=abs(measured / bound - 1), commands=commands)


def _commands(model: str, urls: Sequence[str], plan: str, lengths: str) -> tuple[str, ...]:
    return (
        (
            f"tonnage bench --url {shlex.quote(urls[0])} --model {shlex.quote(model)} {lengths}"
            f" {LOADS} --artifact-dir runs"
        ),
        f"tonnage calibrate runs --plan {shlex.quote(plan)} --output calibrated.json",
        shlex.join(
            ["tonnage", "watch", *urls, "--plan", plan, "--coefficients", "calibrated.json"]
        ),
    )

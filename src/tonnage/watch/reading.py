"""All instances of a deployment at one moment, with the gateway before them and the exporters of their GPUs."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tonnage.bench.scrape import fetch
from tonnage.deploy.signals import SIGNALS, Signals
from tonnage.errors import InputError, option
from tonnage.spec.deployment import LimitMetric

# A page of Prometheus metrics as samples (text exposition format 0.0.4).


_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?$", re.ASCII)
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"', re.ASCII)
_ESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One line of a page.

    Attributes:
        name: of the series.
        labels: by name.
        value: of the moment.
    """

    name: str
    labels: Mapping[str, str]
    value: float


class Page:
    """The samples of one page, by name."""

    def __init__(self, text: str) -> None:
        """Read a page; lines that are no samples are passed over, and so are values that are no numbers."""
        self._by_name: dict[str, list[Sample]] = {}
        for one in _samples(text):
            self._by_name.setdefault(one.name, []).append(one)

    def __contains__(self, name: str) -> bool:
        """Whether the page has series of this name."""
        return name in self._by_name

    def of(self, name: str) -> tuple[Sample, ...]:
        """The samples of a name."""
        return tuple(self._by_name.get(name, ()))

    def total(self, name: str) -> float:
        """The sum of the samples of a name; 0 where there are none."""
        return math.fsum(one.value for one in self.of(name))

    def values(self, name: str) -> tuple[float, ...]:
        """The values of the samples of a name."""
        return tuple(one.value for one in self.of(name))

    def under(self, prefix: str) -> tuple[str, ...]:
        """The names of series that begin so."""
        return tuple(name for name in self._by_name if name.startswith(prefix))


def _samples(text: str) -> Iterator[Sample]:
    for line in text.splitlines():
        match = None if line.startswith("#") else _SAMPLE.match(line.strip())
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        if not math.isnan(value):
            labels = {name: re.sub(r'\\[\\"n]', lambda found: _ESCAPED[found[0]], text) for name, text in _LABEL.findall(match[2] or "")}
            yield Sample(name=match[1], labels=labels, value=value)


# A Prometheus histogram over a stretch of time: its mean, and its quantiles with the bucket that each is in.


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """Counts of observations, cumulated over upper bounds.

    Attributes:
        bounds: upper bounds in seconds, ascending, the last one infinite; empty where nothing was published.
        counts: observations up to each bound.
        total: sum of the observations in seconds.
    """

    bounds: tuple[float, ...] = ()
    counts: tuple[float, ...] = ()
    total: float = 0.0

    @property
    def count(self) -> float:
        """How many observations there are."""
        return self.counts[-1] if self.counts else 0.0

    @property
    def mean(self) -> float:
        """In seconds; NaN without observations."""
        return self.total / self.count if self.count else math.nan

    def since(self, before: Buckets) -> Buckets:
        """What came after an earlier state; everything, where the counters began again in between."""
        if before.bounds != self.bounds or before.count > self.count:
            return self
        counts = tuple(max(0.0, now - then) for now, then in zip(self.counts, before.counts, strict=True))
        return Buckets(bounds=self.bounds, counts=counts, total=self.total - before.total)

    def bracket(self, share: float) -> tuple[float, float]:
        """The bounds of the bucket in which the quantile lies, in seconds; NaN without observations."""
        if not self.count:
            return math.nan, math.nan
        rank = share * self.count
        place = next(place for place, count in enumerate(self.counts) if count >= rank)
        return (self.bounds[place - 1] if place else 0.0), self.bounds[place]

    def quantile(self, share: float) -> float:
        """The quantile in seconds, observations lying evenly in their bucket, as ``histogram_quantile`` of Prometheus takes them.

        Beyond the last finite bound it is that bound; NaN without observations.
        """
        low, high = self.bracket(share)
        if math.isnan(low) or math.isinf(high):
            return low
        place = self.bounds.index(high)
        before = self.counts[place - 1] if place else 0.0
        inside = self.counts[place] - before
        return low + (high - low) * ((share * self.count - before) / inside if inside else 1.0)

    def slower(self, seconds: float) -> float:
        """The share of observations above a limit, lying evenly in their bucket; NaN without observations."""
        if not self.count:
            return math.nan
        low, below = 0.0, 0.0
        for bound, count in zip(self.bounds, self.counts, strict=True):
            if bound >= seconds:
                inside = 0.0 if math.isinf(bound) else (count - below) * (seconds - low) / (bound - low)
                return 1 - (below + inside) / self.count
            low, below = bound, count
        return 0.0


def buckets_of(page: Page, name: str) -> Buckets:
    """A histogram on a page, summed over its other labels."""
    found: dict[float, float] = {}
    for one in page.of(f"{name}_bucket"):
        bound = float(one.labels.get("le", "nan"))
        if not math.isnan(bound):
            found[bound] = found.get(bound, 0.0) + one.value
    bounds = tuple(sorted(found))
    return Buckets(bounds=bounds, counts=tuple(found[bound] for bound in bounds), total=page.total(f"{name}_sum"))


def together(parts: Sequence[Buckets]) -> Buckets:
    """The histograms of several instances as one; those with other bounds than the first are left out."""
    some = [part for part in parts if part.bounds]
    if not some:
        return Buckets()
    same = [part for part in some if part.bounds == some[0].bounds]
    counts = tuple(math.fsum(column) for column in zip(*(part.counts for part in same), strict=True))
    return Buckets(bounds=some[0].bounds, counts=counts, total=math.fsum(part.total for part in same))


# What one instance has done since it started, and what it holds at this moment, read off its metrics page.


FAILED = "5xx"
"""The status under which vLLM counts responses that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """One instance.

    Attributes:
        running, waiting: requests with a slot and in the queue; None where the engine does not publish them.
        kv_used: share of the KV cache in use; None where it is not published.
        prompt_tokens, output_tokens: since its start; None where they are not published.
        responses, failures: HTTP responses since its start, and those with a status of 500 or more; None where they are not published.
        histograms: of seconds, by metric.
    """

    running: float | None = None
    waiting: float | None = None
    kv_used: float | None = None
    prompt_tokens: float | None = None
    output_tokens: float | None = None
    responses: float | None = None
    failures: float | None = None
    histograms: Mapping[LimitMetric, Buckets] = field(default_factory=dict)


def signals_on(page: Page) -> Signals | None:
    """The engine whose metrics a page has; None for none of those that are known."""
    return next((one for one in SIGNALS.values() if f"{one.histograms['e2e']}_count" in page), None)


def counts_of(page: Page, signals: Signals) -> Counts:
    """What a page says by the names of an engine."""

    def total(name: str) -> float | None:
        return page.total(name) if name and name in page else None

    used = page.values(signals.kv_used) if signals.kv_used else ()
    answered = [one for one in page.of(signals.responses) if one.labels.get("handler", "/v1/").startswith("/v1/")]
    return Counts(
        running=total(signals.running),
        waiting=total(signals.waiting),
        kv_used=sum(used) / len(used) if used else None,
        prompt_tokens=total(signals.prompt_tokens),
        output_tokens=total(signals.output_tokens),
        responses=sum(one.value for one in answered) if answered else None,
        failures=sum(one.value for one in answered if one.labels.get("status") == FAILED) if answered else None,
        histograms={metric: buckets_of(page, one) for metric, one in signals.histograms.items() if f"{one}_count" in page},
    )


GATEWAY_UP = "tonnage_gateway_up"
GATEWAY_REQUESTS = "tonnage_gateway_requests_total"
BROKEN = ("error", "cut", "failed")
ENDED = ("ok", *BROKEN)
"""How requests end that a gateway passed on, as it counts them (``gateway.backend.OUTCOMES``)."""

USE = ("DCGM_FI_DEV_GPU_UTIL", "gpu_gfx_activity", "nv_gpu_utilization", "nvml:utilization_percent")
WATTS = ("DCGM_FI_DEV_POWER_USAGE", "gpu_package_power", "nv_gpu_power_usage", "nvml:power_w")
"""Of NVIDIA's DCGM exporter, of AMD's, of Triton, and of this machine's driver (names recalled, 2026-11-22)."""

SHARES = ("nv_gpu_utilization",)
"""Triton publishes a share where the others publish per cent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One moment.

    Attributes:
        at_s: seconds of a clock that never goes back.
        instances: what each instance that answered says, by its address.
        asked: the addresses that were asked.
        ended: requests that a gateway has passed on, by how they ended; empty without one.
        use: share of the time in which each GPU worked, one value a GPU; empty where nobody says it.
        watts: power of each GPU.
    """

    at_s: float
    instances: Mapping[str, Counts]
    asked: tuple[str, ...]
    ended: Mapping[str, float]
    use: tuple[float, ...] = ()
    watts: tuple[float, ...] = ()


def backends_on(page: Page) -> tuple[str, ...]:
    """The addresses of the backends of a gateway; none where a page is no gateway's."""
    return tuple(f"http://{one.labels['backend']}" for one in page.of(GATEWAY_UP) if "backend" in one.labels)


def reading(at_s: float, instances: Mapping[str, Page], others: Sequence[Page] = ()) -> Reading:
    """One moment.

    Args:
        at_s: seconds of a clock that never goes back.
        instances: the page of each instance that was asked; an empty one where it did not answer.
        others: pages of a gateway and of exporters.
    """
    found: dict[str, Counts] = {}
    for url, page in instances.items():
        signals = signals_on(page)
        if signals is not None:
            found[url] = counts_of(page, signals)
    pages = (*instances.values(), *others)
    ended = {outcome: 0.0 for page in others if GATEWAY_UP in page for outcome in ENDED}
    for one in (sample for page in others for sample in page.of(GATEWAY_REQUESTS)):
        if one.labels.get("outcome") in ended:
            ended[one.labels["outcome"]] += one.value
    return Reading(
        at_s=at_s,
        instances=found,
        asked=tuple(instances),
        ended=ended,
        use=tuple(value for page in pages for value in _use(page)),
        watts=tuple(value for page in pages for name in WATTS for value in page.values(name)),
    )


def _use(page: Page) -> Iterator[float]:
    for name in USE:
        for value in page.values(name):
            yield value if name in SHARES else value / 100


# The metrics pages of a deployment, fetched: of its instances, of the gateway before them, of the exporters of its GPUs.


PATH = "/metrics"
AT_ONCE = 16


class Pages:
    """Where the pages are."""

    def __init__(self, urls: Sequence[str], *, gpus: Sequence[str] = (), path: str = PATH) -> None:
        """Nothing is fetched yet.

        Args:
            urls: of instances, or of a gateway, whose backends are then watched.
            gpus: of exporters.
            path: where the engine publishes its metrics, for URLs without one.

        Raises:
            InputError: something that is no address.
        """
        self.urls = tuple(dict.fromkeys(_address(url, "url") for url in urls))
        self._gpus = tuple(_with_path(_address(url, "gpu_metrics"), PATH) for url in gpus)
        self._path = path

    def read(self) -> Reading:
        """All of them, at this moment."""
        with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
            first = dict(zip(self.urls, pool.map(self._page, self.urls), strict=True))
            instances = {url: page for url, page in first.items() if not backends_on(page)}
            behind = [url for page in first.values() for url in backends_on(page) if url not in instances]
            instances |= dict(zip(behind, pool.map(self._page, behind), strict=True))
            others = [page for page in first.values() if backends_on(page)]
            others += map(Page, pool.map(fetch, self._gpus))
            at_s = time.monotonic()
        return reading(at_s, instances, others)

    def _page(self, url: str) -> Page:
        """An instance's page: where its engine publishes it, or where engines usually do."""
        own = fetch(_with_path(url, self._path))
        return Page(own or (fetch(_with_path(url, PATH)) if self._path != PATH else ""))


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
        raise InputError(f"{option(name)}: '{text}' is no address; write one such as http://127.0.0.1:8000")
    return url

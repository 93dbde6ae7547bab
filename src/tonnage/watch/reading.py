"""All instances of a deployment at one moment, with the gateway before them and the exporters of their GPUs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tonnage.bench.scrape import fetch
from tonnage.errors import InputError, option
from tonnage.formats.prometheus import SIGNALS, Buckets, Page, Signals, buckets_of
from tonnage.spec.deployment import LimitMetric

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
    """One moment of a clock that never goes back; the page of an instance is empty where it did not answer."""
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
        """Nothing is fetched yet; a gateway's backends are watched in its place. Raises InputError: something that is no address."""
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

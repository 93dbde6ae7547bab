"""Prometheus metrics under the names that vLLM gives them, so that a dashboard made for vLLM reads a simulated deployment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from prometheus_client import Metric

FIRST_TOKEN = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
GAP = (0.002, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
WHOLE = (0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0)
LATE = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one engine holds at a moment.

    Attributes:
        engine: its name.
        running, waiting: requests with a slot, and in the queue.
        kv_used: share of the KV cache in use, from 0 to 1.
    """

    engine: str
    running: int
    waiting: int
    kv_used: float


class Gauges(Collector):
    """What the engines hold at the moment of a scrape."""

    def __init__(self, loads: Callable[[], Iterable[Load]], model: str) -> None:
        """Ask ``loads`` at each scrape."""
        self._loads, self._model = loads, model

    def collect(self) -> Iterator[Metric]:
        """One gauge each for running, waiting and KV cache in use, by instance."""
        about = {
            "vllm:num_requests_running": "Requests that have a slot.",
            "vllm:num_requests_waiting": "Requests in the queue.",
            "vllm:kv_cache_usage_perc": "Share of the KV cache in use, from 0 to 1.",
        }
        gauges = [GaugeMetricFamily(name, text, labels=["model_name", "engine"]) for name, text in about.items()]
        for one in self._loads():
            for gauge, value in zip(gauges, (one.running, one.waiting, one.kv_used), strict=True):
                gauge.add_metric([self._model, one.engine], value)
        yield from gauges


class Metrics:
    """Counters and histograms of one server; each server has a registry of its own."""

    def __init__(self, loads: Callable[[], Iterable[Load]], model: str) -> None:
        """Count from 0.

        Args:
            loads: what each engine holds at this moment.
            model: the name that clients use.
        """
        self.registry = CollectorRegistry()
        self.registry.register(Gauges(loads, model))

        def histogram(name: str, about: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(name, about, ["model_name"], buckets=buckets, registry=self.registry).labels(model)

        def counter(name: str, about: str) -> Counter:
            return Counter(name, about, ["model_name"], registry=self.registry).labels(model)

        self._first = histogram("vllm:time_to_first_token_seconds", "From the request to its first token.", FIRST_TOKEN)
        self._gap = histogram("vllm:inter_token_latency_seconds", "Between two deliveries of a request.", GAP)
        self._mean_gap = histogram("vllm:request_time_per_output_token_seconds", "Mean gap of a request that ended.", GAP)
        self._whole = histogram("vllm:e2e_request_latency_seconds", "From the request to its last token.", WHOLE)
        self._prompt = counter("vllm:prompt_tokens", "Prompt tokens of requests that ended.")
        self._made = counter("vllm:generation_tokens", "Output tokens.")
        self._success = Counter(
            "vllm:request_success", "Requests that ended, by reason.", ["model_name", "finished_reason"], registry=self.registry
        )
        self._responses = Counter(
            "http_requests", "Responses, by path and class of status.", ["method", "handler", "status"], registry=self.registry
        )
        self._late = histogram("tonnage:delivery_lateness_seconds", "How far deliveries were behind the simulated engine.", LATE)
        self._model = model

    def tokens(self, before: int, tokens: int, since_begin_s: float, since_last_s: float) -> None:
        """Count tokens of a request that had ``before`` of them."""
        if before == 0:
            self._first.observe(since_begin_s)
        else:
            self._gap.observe(since_last_s)
        self._made.inc(tokens)

    def ended(self, finish: str, whole_s: float, decode_s: float, isl: int, osl: int) -> None:
        """Count a request that ended.

        Args:
            finish: how.
            whole_s, decode_s: from the request, and from its first token, to its last.
            isl, osl: prompt and output tokens.
        """
        self._success.labels(self._model, finish).inc()
        if finish != "abort":
            self._whole.observe(whole_s)
            self._prompt.inc(isl)
            if osl > 1:
                self._mean_gap.observe(decode_s / (osl - 1))

    def responded(self, handler: str, status: int) -> None:
        """Count a response, as vLLM's instrumentator does: by the class of its status, such as "5xx"."""
        self._responses.labels("POST", handler, f"{status // 100}xx").inc()

    def late(self, seconds: float) -> None:
        """Note how late a batch of deliveries was."""
        self._late.observe(seconds)

    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(self.registry)

"""Prometheus metrics under the names of an engine, so that a dashboard made for it reads a simulated deployment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import prometheus_client as client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from tonnage.serve import published as at

if TYPE_CHECKING:
    from prometheus_client import Metric


# What engines hold at the moment of a scrape, as Prometheus metrics under the names of an engine.


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one engine holds at a moment.

    Attributes:
        engine: its name.
        running, waiting: requests with a slot, and in the queue.
        kv_used: share of the KV cache in use, from 0 to 1.
        preemptions: requests that lost their blocks since the start, counted every time.
        kv: the KV cache as vLLM describes it, such as its ``block_size``; empty where it is not known.
    """

    engine: str
    running: int
    waiting: int
    kv_used: float
    preemptions: int = 0
    kv: Mapping[str, str] | None = None


class Present(Collector):
    """What the engines hold at the moment of a scrape."""

    def __init__(self, loads: Callable[[], Iterable[Load]], labels: Mapping[str, str], names: at.Published) -> None:
        """Ask ``loads`` at each scrape."""
        self._loads, self._labels, self._names = loads, labels, names

    def collect(self) -> Iterator[Metric]:
        """Gauges for running, waiting and KV cache in use, and the preemptions: by instance, or over all of them."""
        names, loads = self._names, list(self._loads())
        for kind, values in self._values(loads).items():
            keys = [*self._labels, *([names.instance] if names.instance else [])]
            family = GaugeMetricFamily(names.gauges[kind], at.ABOUT[kind], labels=keys)
            for engine, value in values.items():
                family.add_metric([*self._labels.values(), *([engine] if names.instance else [])], value)
            yield family
        if "preemptions" in names.counters:
            count = CounterMetricFamily(names.counters["preemptions"], at.ABOUT["preemptions"], labels=[*self._labels, names.instance])
            for one in loads:
                count.add_metric([*self._labels.values(), one.engine], one.preemptions)
            yield count
        if names is at.VLLM:
            for one in loads:
                if one.kv is not None:
                    info = GaugeMetricFamily("vllm:cache_config_info", "The KV cache.", labels=[*one.kv, names.instance])
                    info.add_metric([*one.kv.values(), one.engine], 1)
                    yield info
                    break

    def _values(self, loads: list[Load]) -> dict[at.Gauge, dict[str, float]]:
        if self._names.instance:
            return {
                "running": {one.engine: one.running for one in loads},
                "waiting": {one.engine: one.waiting for one in loads},
                "kv_used": {one.engine: one.kv_used for one in loads},
            }
        return {
            "running": {"": sum(one.running for one in loads)},
            "waiting": {"": sum(one.waiting for one in loads)},
            "kv_used": {"": sum(one.kv_used for one in loads) / max(len(loads), 1)},
        }


LATE = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
REASONS = ("stop", "length", "abort", "error")
FULL = "max_num_queued_reqs"
"""Why a request was not admitted, in vLLM's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A request that ended.

    Attributes:
        engine: which had it.
        finish: "stop", "length" or "abort".
        whole_s, decode_s: from the request, and from its first token, to its last.
        queue_s: until it had a slot; None where nobody knows.
        isl, osl, asked_osl: prompt and output tokens, and how many there might have been.
        choices: of its request.
        preemptions: how often it lost its blocks.
    """

    engine: str
    finish: str
    whole_s: float
    decode_s: float
    queue_s: float | None
    isl: int
    osl: int
    asked_osl: int
    choices: int
    preemptions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OfInstance:
    """The series of one instance, which are looked up once and not for every token.

    Attributes:
        histograms, counters: by what they are of, where the engine publishes them.
        ended: the counter of requests that ended, by how; one under "" where it does not say how.
    """

    histograms: dict[at.Histogram, client.Histogram]
    counters: dict[at.Counter, client.Counter]
    ended: dict[str, client.Counter]

    def observe(self, kind: at.Histogram, value: float) -> None:
        """Note a value."""
        if kind in self.histograms:
            self.histograms[kind].observe(value)

    def count(self, kind: at.Counter, amount: float) -> None:
        """Count on."""
        if kind in self.counters:
            self.counters[kind].inc(amount)


class Metrics:
    """Counters and histograms of one server; each server has its own registry."""

    def __init__(self, loads: Callable[[], Iterable[Load]], model: str, names: at.Published = at.VLLM) -> None:
        """Count from 0.

        Args:
            loads: what each engine holds at this moment.
            model: the name that clients use.
            names: under which everything is published.
        """
        self.registry = client.CollectorRegistry()
        self._labels = {"model_name": model, **names.labels}
        self._names = names
        self._instances: dict[str, OfInstance] = {}
        self.registry.register(Present(loads, self._labels, names))
        keys = [*self._labels, *([names.instance] if names.instance else [])]
        self._histograms = {
            kind: client.Histogram(name, at.ABOUT[kind], keys, buckets=bounds, registry=self.registry)
            for kind, (name, bounds) in names.histograms.items()
        }
        self._counters = {
            kind: self._counter(name, kind, [*keys, names.reason] if kind == "ended" and names.reason else keys)
            for kind, name in names.counters.items()
            if kind not in ("preemptions", "refused")
        }
        self._refused = None
        if "refused" in names.counters:
            self._refused = self._counter(names.counters["refused"], "refused", ["model_name", "reason"]).labels(model, FULL)
        self._responses = client.Counter(
            "http_requests", "Responses, by path and class of status.", ["method", "handler", "status"], registry=self.registry
        )
        about = "How far deliveries were behind the simulated engine."
        self._late = client.Histogram("tonnage:delivery_lateness_seconds", about, buckets=LATE, registry=self.registry)
        for one in loads():
            self._of(one.engine)

    def _counter(self, name: str, kind: at.Counter, keys: list[str]) -> client.Counter:
        return client.Counter(name, at.ABOUT[kind], keys, registry=self.registry)

    def _of(self, engine: str) -> OfInstance:
        """The series of an instance, which are published from 0 on."""
        if engine not in self._instances:
            own = {**self._labels, **({self._names.instance: engine} if self._names.instance else {})}
            reason, ended = self._names.reason, self._counters["ended"]
            self._instances[engine] = OfInstance(
                histograms={kind: histogram.labels(**own) for kind, histogram in self._histograms.items()},
                counters={kind: counter.labels(**own) for kind, counter in self._counters.items() if kind != "ended"},
                ended={one: ended.labels(**own, **{reason: one}) for one in REASONS} if reason else {"": ended.labels(**own)},
            )
        return self._instances[engine]

    def tokens(self, engine: str, before: int, tokens: int, since_begin_s: float, since_last_s: float) -> None:
        """Count tokens of a request that had ``before`` of them."""
        of = self._of(engine)
        if before == 0:
            of.observe("first", since_begin_s)
        else:
            of.observe("gap", since_last_s)
        of.count("output_tokens", tokens)

    def looked_up(self, engine: str, tokens: int, found: int) -> None:
        """Count the tokens of a prompt, of which the prefix cache had some."""
        self._of(engine).count("cache_queries", tokens)
        self._of(engine).count("cache_hits", found)

    def ended(self, one: Ended) -> None:
        """Count a request that ended."""
        of = self._of(one.engine)
        of.ended[one.finish if self._names.reason else ""].inc()
        if one.finish == "abort":
            return
        of.count("prompt_tokens", one.isl)
        spans: dict[at.Histogram, float] = {
            "whole": one.whole_s,
            "decode": one.decode_s,
            "isl": one.isl,
            "osl": one.osl,
            "max_osl": one.osl,
            "asked_osl": one.asked_osl,
            "choices": one.choices,
            "preempted": one.preemptions,
        }
        if one.osl > 1:
            spans["mean_gap"] = one.decode_s / (one.osl - 1)
        if one.queue_s is not None:
            spans |= {"queue": one.queue_s, "inference": one.whole_s - one.queue_s, "prefill": one.whole_s - one.queue_s - one.decode_s}
        for kind, value in spans.items():
            of.observe(kind, value)

    def refused(self) -> None:
        """Count a request that the queue had no room for."""
        if self._refused is not None:
            self._refused.inc()

    def responded(self, method: str, handler: str, status: int) -> None:
        """Count a response, as vLLM's instrumentator does: by the class of its status, such as "5xx"."""
        self._responses.labels(method, handler, f"{status // 100}xx").inc()

    def late(self, seconds: float) -> None:
        """Note how late a batch of deliveries was."""
        self._late.observe(seconds)

    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        return client.generate_latest(self.registry)

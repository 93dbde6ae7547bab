"""Prometheus metrics under the names of an engine, so that a dashboard made for it reads a simulated deployment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import prometheus_client as client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from tonnage.serve import published as at
from tonnage.serve.vllm_metrics import Http, State, VllmOnly, cache_config, prefills_of, steps_of

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
                    labels = cache_config(one.kv)
                    info = GaugeMetricFamily("vllm:cache_config_info", "The KV cache.", labels=[*labels, names.instance])
                    info.add_metric([*labels.values(), one.engine], 1)
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
KEPT_BACK = 4_096
"""Deliveries after which their metrics are brought up to date, if nobody scrapes them before."""

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
        gaps: times between deliveries that are not in their histogram yet: one look-up and lock for many.
        made: output tokens that are not in their counter yet.
    """

    histograms: dict[at.Histogram, client.Histogram]
    counters: dict[at.Counter, client.Counter]
    ended: dict[str, client.Counter]
    gaps: list[float] = field(default_factory=list)
    made: list[int] = field(default_factory=list)

    def flush(self) -> None:
        """Count on by what was kept back."""
        for gap in self.gaps:
            self.observe("gap", gap)
        self.count("output_tokens", sum(self.made))
        self.gaps.clear()
        self.made.clear()

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

    def __init__(self, loads: Callable[[], Iterable[Load]], model: str, names: at.Published = at.VLLM, *, max_context: int = 0) -> None:
        """Count from 0; ``loads`` says what each engine holds at this moment.

        vLLM has buckets of tokens up to ``max_context``, prompt plus output; 0 for all of them.
        """
        self.registry = client.CollectorRegistry()
        self._labels = {"model_name": model, **names.labels}
        self._names = names
        self._instances: dict[str, OfInstance] = {}
        self.registry.register(Present(loads, self._labels, names))
        keys = [*self._labels, *([names.instance] if names.instance else [])]

        def within(bounds: tuple[float, ...]) -> tuple[float, ...]:
            return tuple(one for one in bounds if bounds != at.TOKENS or not max_context or one <= max_context)

        self._histograms = {
            kind: client.Histogram(name, at.ABOUT[kind], keys, buckets=within(bounds), registry=self.registry)
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
        self.state, self.http = State(), Http(self.registry, model)
        self._of_vllm = names is at.VLLM
        if self._of_vllm:
            self.registry.register(VllmOnly(self.state, model, lambda: ((one.engine, one.waiting) for one in loads())))
            self._steps = steps_of(self.registry, keys)
            self._prefills = prefills_of(self.registry, keys, within(at.TOKENS))
        for collector in (client.ProcessCollector, client.PlatformCollector, client.GCCollector):
            collector(registry=self.registry)
        about = "How far deliveries were behind the simulated engine."
        self._late = client.Histogram("tonnage:delivery_lateness_seconds", about, buckets=LATE, registry=self.registry)
        for one in loads():
            self._of(one.engine)

    def _counter(self, name: str, kind: at.Counter, keys: list[str]) -> client.Counter:
        return client.Counter(name, at.ABOUT[kind], keys, registry=self.registry)

    def _own(self, engine: str) -> dict[str, str]:
        return {**self._labels, **({self._names.instance: engine} if self._names.instance else {})}

    def _of(self, engine: str) -> OfInstance:
        """The series of an instance, which are published from 0 on."""
        if engine not in self._instances:
            own = self._own(engine)
            if self._of_vllm:
                self._steps.labels(**own)
                self._prefills.labels(**own)
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
            of.gaps.append(since_last_s)
        of.made.append(tokens)
        if len(of.made) >= KEPT_BACK:
            of.flush()

    def looked_up(self, engine: str, tokens: int, found: int, *, received: bool = False) -> None:
        """Count the tokens of a prompt, of which the prefix cache had some, or which was received with its KV cache."""
        if received:
            self.state.of(engine).received += tokens
            return
        of = self._of(engine)
        of.count("cache_queries", tokens)
        of.count("cache_hits", found)
        self.state.of(engine).cached += found
        self.state.of(engine).computed += tokens - found
        if self._of_vllm:
            self._prefills.labels(**self._own(engine)).observe(tokens - found)

    def stepped(self, engine: str, tokens: Iterable[int]) -> None:
        """Count the tokens of steps."""
        if self._of_vllm:
            steps = self._steps.labels(**self._own(engine))
            for count in tokens:
                steps.observe(count)

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

    def late(self, seconds: float) -> None:
        """Note how late a batch of deliveries was."""
        self._late.observe(seconds)

    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        for of in self._instances.values():
            of.flush()
        return client.generate_latest(self.registry)

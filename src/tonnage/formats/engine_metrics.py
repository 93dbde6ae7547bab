"""What each engine publishes for Prometheus: names of metrics, and the upper bounds of the buckets of its histograms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tonnage.spec.deployment import LimitMetric

_FIRST = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0),
    640.0,
    2560.0,
)
_GAP = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_WHOLE = (*(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0), 1920.0, 7680.0)
_SGLANG_FIRST = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0)
_SGLANG_GAP = (
    *(0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8),
    *(1.0, 2.0, 4.0, 6.0, 8.0),
)
_SGLANG_WHOLE = (*_SGLANG_FIRST, 600.0, 1200.0, 1800.0, 2400.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """A histogram of seconds.

    Attributes:
        name: without the ending "_bucket".
        bounds: upper bounds of its buckets in seconds, ascending, without infinity.
    """

    name: str
    bounds: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """The metrics of one family of engines.

    Attributes:
        path: where they are.
        running, waiting: gauges of requests with a slot and in the queue; empty where there are none.
        kv_used: gauge of the share of the KV cache in use; empty where there is none.
        prompt_tokens, output_tokens: counters; empty where there are none.
        histograms: of the metrics that limits are set on; one that is missing is not published.
        responses: counter of HTTP responses with the label ``status``, in which "5xx" stands for failures; empty where there is none.
        source: where the names come from.
        isl, osl: histograms of the prompt and output tokens of single requests; empty where there are none.
        cache_queries, cache_hits: counters of the prompt tokens that a prefix cache was asked for, and had; empty where there are none.
        ended: counter of the requests that ended, where no histogram counts them.
    """

    path: str
    running: str
    waiting: str
    kv_used: str
    prompt_tokens: str
    output_tokens: str
    histograms: Mapping[LimitMetric, Histogram]
    responses: str
    source: str
    isl: str = ""
    osl: str = ""
    cache_queries: str = ""
    cache_hits: str = ""
    ended: str = ""

    @property
    def requests(self) -> str:
        """The counter of requests that ended."""
        return self.ended or f"{self.histograms['e2e'].name}_count"


SIGNALS: dict[str, Signals] = {
    "vllm": Signals(
        path="/metrics",
        running="vllm:num_requests_running",
        waiting="vllm:num_requests_waiting",
        kv_used="vllm:kv_cache_usage_perc",
        prompt_tokens="vllm:prompt_tokens_total",
        output_tokens="vllm:generation_tokens_total",
        histograms={
            "ttft": Histogram(name="vllm:time_to_first_token_seconds", bounds=_FIRST),
            "itl": Histogram(name="vllm:inter_token_latency_seconds", bounds=_GAP),
            "tpot": Histogram(name="vllm:request_time_per_output_token_seconds", bounds=_GAP),
            "e2e": Histogram(name="vllm:e2e_request_latency_seconds", bounds=_WHOLE),
        },
        responses="http_requests_total",
        source="vLLM 0.32.0 v1/metrics/loggers.py, v1/metrics/buckets.py and entrypoints/serve/instrumentator/metrics.py, read 2026-11-22",
        isl="vllm:request_prompt_tokens",
        osl="vllm:request_generation_tokens",
        cache_queries="vllm:prefix_cache_queries_total",
        cache_hits="vllm:prefix_cache_hits_total",
    ),
    "sglang": Signals(
        path="/metrics",
        running="sglang:num_running_reqs",
        waiting="sglang:num_queue_reqs",
        kv_used="sglang:token_usage",
        prompt_tokens="sglang:prompt_tokens_total",
        output_tokens="sglang:generation_tokens_total",
        histograms={
            "ttft": Histogram(name="sglang:time_to_first_token_seconds", bounds=_SGLANG_FIRST),
            "itl": Histogram(name="sglang:inter_token_latency_seconds", bounds=_SGLANG_GAP),
            "e2e": Histogram(name="sglang:e2e_request_latency_seconds", bounds=_SGLANG_WHOLE),
        },
        responses="",
        source="SGLang 0.5 metrics/collector.py (recalled, 2026-11-22)",
        isl="sglang:prompt_tokens_histogram",
        osl="sglang:generation_tokens_histogram",
        cache_queries="sglang:prompt_tokens_total",
        cache_hits="sglang:cached_tokens_total",
    ),
    "tensorrt-llm": Signals(
        path="/prometheus/metrics",
        running="",
        waiting="",
        kv_used="",
        prompt_tokens="trtllm_prompt_tokens_total",
        output_tokens="trtllm_generation_tokens_total",
        histograms={
            "ttft": Histogram(name="trtllm_time_to_first_token_seconds", bounds=_FIRST),
            "tpot": Histogram(name="trtllm_time_per_output_token_seconds", bounds=_GAP),
            "e2e": Histogram(name="trtllm_e2e_request_latency_seconds", bounds=_WHOLE),
        },
        responses="",
        source="TensorRT-LLM 1.x metrics/collector.py (names read in its documentation, bounds recalled, 2026-11-22)",
    ),
}
"""By family of engines that Tonnage deploys."""

HISTORIES: dict[str, Signals] = {
    **SIGNALS,
    "nim": Signals(
        path="/v1/metrics",
        running="num_requests_running",
        waiting="num_requests_waiting",
        kv_used="gpu_cache_usage_perc",
        prompt_tokens="prompt_tokens_total",
        output_tokens="generation_tokens_total",
        histograms={
            "ttft": Histogram(name="time_to_first_token_seconds", bounds=_FIRST),
            "itl": Histogram(name="time_per_output_token_seconds", bounds=_GAP),
            "e2e": Histogram(name="e2e_request_latency_seconds", bounds=_WHOLE),
        },
        responses="",
        source="NVIDIA NIM for LLMs, Observability (docs.nvidia.com), read 2026-11-25; the bounds are recalled",
        isl="request_prompt_tokens",
        osl="request_generation_tokens",
    ),
    "triton": Signals(
        path="/metrics",
        running="",
        waiting="nv_inference_pending_request_count",
        kv_used="",
        prompt_tokens="",
        output_tokens="",
        histograms={},
        responses="",
        source="Triton Inference Server user guide, Metrics (docs.nvidia.com), read 2026-11-25",
        ended="nv_inference_request_success",
    ),
}
"""By what a history can be of: those, and servers that Tonnage reads and does not name the metrics of in deployments."""

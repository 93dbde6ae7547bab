"""What each engine publishes for Prometheus, by what it is for; ``interfaces.yaml`` of the catalog says which of it a version has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tonnage.spec.catalog.interfaces import Interface
from tonnage.spec.deployment import LimitMetric


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """The metrics of one family of engines.

    Attributes:
        path: where they are.
        running, waiting: gauges of requests with a slot and in the queue; empty where there are none.
        kv_used: gauge of the share of the KV cache in use; empty where there is none.
        prompt_tokens, output_tokens: counters; empty where there are none.
        histograms: of seconds, of the metrics that limits are set on; one that is missing is not published.
        responses: counter of HTTP responses of vLLM's instrumentator, with the label ``status``, in which "5xx" stands for failures; empty
            where there is none.
        isl, osl: histograms of the prompt and output tokens of single requests; empty where there are none.
        cache_queries, cache_hits: counters of the prompt tokens that a prefix cache was asked for, and had; empty where there are none.
        ended: counter of the requests that ended, where no histogram counts them.
        failed: counter of the requests that failed, where ``responses`` does not tell; empty where there is none.
    """

    path: str
    running: str
    waiting: str
    kv_used: str
    prompt_tokens: str
    output_tokens: str
    histograms: Mapping[LimitMetric, str]
    responses: str
    isl: str = ""
    osl: str = ""
    cache_queries: str = ""
    cache_hits: str = ""
    ended: str = ""
    failed: str = ""

    @property
    def requests(self) -> str:
        """The counter of requests that ended."""
        return self.ended or f"{self.histograms['e2e']}_count"

    def of(self, interface: Interface) -> Signals:
        """The metrics of one version."""
        there = set(interface.metrics.split())
        kept = {metric: name for metric, name in self.histograms.items() if name in there}
        gauges = {
            part: name if (name := getattr(self, part)) in there else ""
            for part in ("running", "waiting", "kv_used", "prompt_tokens", "output_tokens")
        }
        return replace(self, histograms=kept, **gauges)


SIGNALS: dict[str, Signals] = {
    "vllm": Signals(
        path="/metrics",
        running="vllm:num_requests_running",
        waiting="vllm:num_requests_waiting",
        kv_used="vllm:kv_cache_usage_perc",
        prompt_tokens="vllm:prompt_tokens_total",
        output_tokens="vllm:generation_tokens_total",
        histograms={
            "ttft": "vllm:time_to_first_token_seconds",
            "itl": "vllm:inter_token_latency_seconds",
            "tpot": "vllm:request_time_per_output_token_seconds",
            "e2e": "vllm:e2e_request_latency_seconds",
        },
        responses="http_requests_total",
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
            "ttft": "sglang:time_to_first_token_seconds",
            "itl": "sglang:inter_token_latency_seconds",
            "e2e": "sglang:e2e_request_latency_seconds",
        },
        responses="",
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
            "ttft": "trtllm_time_to_first_token_seconds",
            "tpot": "trtllm_time_per_output_token_seconds",
            "e2e": "trtllm_e2e_request_latency_seconds",
        },
        responses="",
    ),
}
"""By family of engines that Tonnage deploys."""

HISTORIES: dict[str, Signals] = {
    **SIGNALS,
    "nim": Signals(  # NVIDIA NIM for LLMs, Observability (docs.nvidia.com), read 2026-11-25
        path="/v1/metrics",
        running="num_requests_running",
        waiting="num_requests_waiting",
        kv_used="gpu_cache_usage_perc",
        prompt_tokens="prompt_tokens_total",
        output_tokens="generation_tokens_total",
        histograms={
            "ttft": "time_to_first_token_seconds",
            "itl": "time_per_output_token_seconds",
            "e2e": "e2e_request_latency_seconds",
        },
        responses="",
        isl="request_prompt_tokens",
        osl="request_generation_tokens",
        failed="request_failure_total",
    ),
    "triton": Signals(  # Triton Inference Server user guide, Metrics (docs.nvidia.com), read 2026-11-25
        path="/metrics",
        running="",
        waiting="nv_inference_pending_request_count",
        kv_used="",
        prompt_tokens="",
        output_tokens="",
        histograms={},
        responses="",
        ended="nv_inference_request_success",
    ),
}
"""By what a history can be of: those, and servers that Tonnage reads and does not name the metrics of in deployments."""

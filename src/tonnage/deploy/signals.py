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
    """

    path: str
    running: str
    waiting: str
    kv_used: str
    prompt_tokens: str
    output_tokens: str
    histograms: Mapping[LimitMetric, str]
    responses: str

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
    ),
    "tensorrt-llm": Signals(
        path="/prometheus/metrics",
        running="",
        waiting="",
        kv_used="",
        prompt_tokens="",
        output_tokens="",
        histograms={
            "ttft": "trtllm_time_to_first_token_seconds",
            "tpot": "trtllm_time_per_output_token_seconds",
            "e2e": "trtllm_e2e_request_latency_seconds",
        },
        responses="",
    ),
}
"""By family of engines."""

"""Under which names engines publish what their servers count, for Prometheus: gauges, counters and
histograms by what they are of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Gauge = Literal["running", "waiting", "kv_used"]
Counter = Literal[
    "prompt_tokens",
    "output_tokens",
    "ended",
    "preemptions",
    "refused",
    "cache_queries",
    "cache_hits",
]
Histogram = Literal[
    "first",
    "gap",
    "mean_gap",
    "whole",
    "queue",
    "prefill",
    "decode",
    "inference",
    "isl",
    "osl",
    "max_osl",
    "asked_osl",
    "choices",
    "preempted",
]

_FIRST = (
    *(
        0.001,
        0.005,
        0.01,
        0.02,
        0.04,
        0.06,
        0.08,
        0.1,
        0.25,
        0.5,
        0.75,
        1.0,
        2.5,
        5.0,
        7.5,
        10.0,
        20.0,
        40.0,
        80.0,
        160.0,
    ),
    640.0,
    2560.0,
)
_GAP = (
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.3,
    0.4,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    20.0,
    40.0,
    80.0,
)
_FAST = (0.001, 0.002, 0.005)
"""Below the first bound of vLLM's gaps, which a small model on a fast GPU does not reach: a
simulated server has these as well."""
_WHOLE = (
    *(
        0.3,
        0.5,
        0.8,
        1.0,
        1.5,
        2.0,
        2.5,
        5.0,
        10.0,
        15.0,
        20.0,
        30.0,
        40.0,
        50.0,
        60.0,
        120.0,
        240.0,
        480.0,
        960.0,
    ),
    1920.0,
    7680.0,
)
_TRT_PREFILL = (
    0.001,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    20.0,
    40.0,
    80.0,
    160.0,
    640.0,
    2560.0,
)
_SGLANG_FIRST = (
    0.1,
    0.2,
    0.4,
    0.6,
    0.8,
    1.0,
    2.0,
    4.0,
    6.0,
    8.0,
    10.0,
    20.0,
    40.0,
    60.0,
    80.0,
    100.0,
    200.0,
    400.0,
)
_SGLANG_GAP = (
    *(
        0.002,
        0.004,
        0.006,
        0.008,
        0.01,
        0.015,
        0.02,
        0.025,
        0.03,
        0.035,
        0.04,
        0.06,
        0.08,
        0.1,
        0.2,
        0.4,
        0.6,
        0.8,
    ),
    *(1.0, 2.0, 4.0, 6.0, 8.0),
)
_SGLANG_WHOLE = (*_SGLANG_FIRST, 600.0, 1200.0, 1800.0, 2400.0)
TOKENS = tuple(float(digit * 10**power) for power in range(7) for digit in (1, 2, 5))
_SMALL = (1.0, 2.0, 5.0, 10.0, 20.0)
_PREEMPTED = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)

ABOUT: Mapping[Gauge | Counter | Histogram, str] = {
    "running": "Requests that have a slot.",
    "waiting": "Requests in the queue.",
    "kv_used": "Share of the KV cache in use, from 0 to 1.",
    "prompt_tokens": "Prompt tokens of requests that ended.",
    "output_tokens": "Output tokens.",
    "ended": "Requests that ended.",
    "preemptions": "Pre-emptions of requests.",
    "refused": "Requests that the queue had no room for.",
    "cache_queries": "Prompt tokens that were looked for in the prefix cache.",
    "cache_hits": "Prompt tokens that were found there.",
    "first": "From the request to its first token.",
    "gap": "Between two deliveries of a request.",
    "mean_gap": "Mean gap of a request that ended.",
    "whole": "From the request to its last token.",
    "queue": "From the request to its slot.",
    "prefill": "From the slot of a request to its first token.",
    "decode": "From the first token of a request to its last.",
    "inference": "From the slot of a request to its last token.",
    "isl": "Prompt tokens of a request.",
    "osl": "Output tokens of a request.",
    "max_osl": "Output tokens of the longest choice of a request.",
    "asked_osl": "Output tokens that a request asked for at most.",
    "choices": "Choices of a request.",
    "preempted": "How often a request was pre-empted.",
}
"""What each metric is, in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The metrics of one family of engines."""

    path: str  # where they are, next to ``/metrics``
    labels: Mapping[str, str]  # that every metric has next to the model's name, with their values
    # the label that tells instances apart; "" where they are one series, which holds their sum
    instance: str
    # and counters: names by what they are of; a counter's without the ending "_total" that
    # Prometheus' format adds
    gauges: Mapping[Gauge, str]
    counters: Mapping[Counter, str]
    # names and upper bounds of the buckets
    histograms: Mapping[Histogram, tuple[str, tuple[float, ...]]]
    source: str  # where the names come from, with the day
    # the label of the counter of requests that ended that says how; "" for none
    reason: str = "finished_reason"


VLLM = Published(
    path="/metrics",
    labels={},
    instance="engine",
    gauges={
        "running": "vllm:num_requests_running",
        "waiting": "vllm:num_requests_waiting",
        "kv_used": "vllm:kv_cache_usage_perc",
    },
    counters={
        "prompt_tokens": "vllm:prompt_tokens",
        "output_tokens": "vllm:generation_tokens",
        "ended": "vllm:request_success",
        "preemptions": "vllm:num_preemptions",
        "refused": "vllm:admission_rejections",
        "cache_queries": "vllm:prefix_cache_queries",
        "cache_hits": "vllm:prefix_cache_hits",
    },
    histograms={
        "first": ("vllm:time_to_first_token_seconds", _FIRST),
        "gap": ("vllm:inter_token_latency_seconds", (*_FAST, *_GAP)),
        "mean_gap": ("vllm:request_time_per_output_token_seconds", (*_FAST, *_GAP)),
        "whole": ("vllm:e2e_request_latency_seconds", _WHOLE),
        "queue": ("vllm:request_queue_time_seconds", _WHOLE),
        "prefill": ("vllm:request_prefill_time_seconds", _WHOLE),
        "decode": ("vllm:request_decode_time_seconds", _WHOLE),
        "inference": ("vllm:request_inference_time_seconds", _WHOLE),
        "isl": ("vllm:request_prompt_tokens", TOKENS),
        "osl": ("vllm:request_generation_tokens", TOKENS),
        "max_osl": ("vllm:request_max_num_generation_tokens", TOKENS),
        "asked_osl": ("vllm:request_params_max_tokens", TOKENS),
        "choices": ("vllm:request_params_n", _SMALL),
        "preempted": ("vllm:request_num_preemptions", _PREEMPTED),
    },
    source=(
        "vLLM 0.32.0 v1/metrics/loggers.py and v1/metrics/buckets.py, and its metrics page, read"
        " 2026-11-22"
    ),
)

NIM_1 = Published(
    path="/v1/metrics",
    labels={},
    instance="",
    gauges={
        "running": "num_requests_running",
        "waiting": "num_requests_waiting",
        "kv_used": "gpu_cache_usage_perc",
    },
    counters={
        "prompt_tokens": "prompt_tokens",
        "output_tokens": "generation_tokens",
        "ended": "request_success",
    },
    histograms={
        "first": ("time_to_first_token_seconds", _FIRST),
        "gap": ("time_per_output_token_seconds", (*_FAST, *_GAP)),
        "whole": ("e2e_request_latency_seconds", _WHOLE),
        "isl": ("request_prompt_tokens", TOKENS),
        "osl": ("request_generation_tokens", TOKENS),
    },
    source=(
        "NIM for LLMs 1.15, Observability (docs.nvidia.com), read 2026-11-25; the bounds are those"
        " of vLLM, recalled"
    ),
)

TENSORRT_LLM = Published(
    path="/prometheus/metrics",
    labels={"engine_type": "undefined"},
    instance="",
    gauges={
        "running": "trtllm_num_requests_running",
        "waiting": "trtllm_num_requests_waiting",
        "kv_used": "trtllm_kv_cache_utilization",
    },
    counters={
        "prompt_tokens": "trtllm_prompt_tokens",
        "output_tokens": "trtllm_generation_tokens",
        "ended": "trtllm_request_success",
    },
    histograms={
        "first": ("trtllm_time_to_first_token_seconds", _FIRST),
        "mean_gap": ("trtllm_time_per_output_token_seconds", _GAP),
        "whole": ("trtllm_e2e_request_latency_seconds", _WHOLE),
        "queue": ("trtllm_request_queue_time_seconds", _WHOLE),
        "prefill": ("trtllm_request_prefill_time_seconds", _TRT_PREFILL),
        "decode": ("trtllm_request_decode_time_seconds", _WHOLE),
        "inference": ("trtllm_request_inference_time_seconds", _WHOLE),
    },
    source=(
        "TensorRT-LLM tensorrt_llm/metrics/collector.py at 050f80de, and serve/openai_server.py for"
        " the labels, read 2026-11-22"
    ),
)

SGLANG = Published(
    path="/metrics",
    labels={"engine_type": "unified", "tp_rank": "0", "pp_rank": "0"},
    instance="dp_rank",
    gauges={
        "running": "sglang:num_running_reqs",
        "waiting": "sglang:num_queue_reqs",
        "kv_used": "sglang:token_usage",
    },
    counters={
        "prompt_tokens": "sglang:prompt_tokens",
        "output_tokens": "sglang:generation_tokens",
        "ended": "sglang:num_requests",
    },
    histograms={
        "first": ("sglang:time_to_first_token_seconds", _SGLANG_FIRST),
        "gap": ("sglang:inter_token_latency_seconds", _SGLANG_GAP),
        "whole": ("sglang:e2e_request_latency_seconds", _SGLANG_WHOLE),
    },
    source=(
        "SGLang 0.5 srt/metrics/collector.py and its page on production metrics, read 2026-11-22"
    ),
    reason="",
)

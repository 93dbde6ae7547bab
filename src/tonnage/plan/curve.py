"""One point of the latency–throughput curve of the choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tonnage.results.latencies import Latencies
from tonnage.spec.typed_values import FORBID

Mark = Literal["peak", "limit", ""]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """What requests see at one load.

    Attributes:
        mark: "peak" for the load of the plan at its peak, "limit" for the highest inside the limits, otherwise empty.
        requests_per_second_per_instance, requests_per_second_per_8_gpus, output_tokens_per_second_per_8_gpus: the load.
        concurrency_per_instance: requests in flight, mean; None where undefined.
        share_of_saturation: the load over what the instance completes when always busy.
        inside_limits: whether every limit holds there and at every lower load.
        ttft_ms, itl_ms, tpot_ms, e2e_ms: latencies in milliseconds.
    """

    __pydantic_config__ = FORBID

    mark: Mark
    requests_per_second_per_instance: float
    requests_per_second_per_8_gpus: float
    output_tokens_per_second_per_8_gpus: float
    concurrency_per_instance: float | None
    share_of_saturation: float
    inside_limits: bool
    ttft_ms: Latencies
    itl_ms: Latencies
    tpot_ms: Latencies
    e2e_ms: Latencies

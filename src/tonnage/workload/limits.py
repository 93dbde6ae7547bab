"""The lengths that an engine has to be built or started for, and the KV memory that this gains over the model's whole context.

An engine that reserves for the longest request that it admits, and any guarantee of how many requests run at once, pays for the
context that it is started with. Most traffic never comes near a context of 128k tokens; the 99th percentiles say what it needs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tonnage.workload.burstiness import Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """Lengths at the 99th percentile.

    Attributes:
        max_input_tokens, max_output_tokens: p99 of the prompts and of the outputs, rounded up.
        beyond: share of the requests that exceed one of them.
    """

    max_input_tokens: int
    max_output_tokens: int
    beyond: float

    @property
    def max_sequence_tokens(self) -> int:
        """Tokens of the longest sequence that the limits admit: vLLM's max_model_len, TensorRT-LLM's max_seq_len."""
        return self.max_input_tokens + self.max_output_tokens

    def to_json(self) -> dict[str, Any]:
        """The limits in tokens."""
        return {**asdict(self), "max_sequence_tokens": self.max_sequence_tokens}


@dataclass(frozen=True, slots=True, kw_only=True)
class KvGain:
    """What the limits gain on one instance.

    Attributes:
        model, gpu, precision, engine: the instance.
        gpus: GPUs of it.
        context: the model's longest sequence, in tokens.
        limit: the longest that the limits admit, which is no longer than the context.
        context_bytes, limit_bytes: KV memory of one such sequence, in bytes on each GPU.
        token_bytes: KV memory of one token, in bytes on all of its GPUs together.
        context_requests, limit_requests: how many of them fit at once, at most the engine's slots.
    """

    model: str
    gpu: str
    precision: str
    engine: str
    gpus: int
    context: int
    limit: int
    context_bytes: int
    limit_bytes: int
    token_bytes: int
    context_requests: int
    limit_requests: int

    @property
    def saved_bytes(self) -> int:
        """KV memory that a sequence needs less, in bytes on each GPU."""
        return self.context_bytes - self.limit_bytes

    def to_json(self) -> dict[str, Any]:
        """Sizes in bytes on each GPU."""
        return {**asdict(self), "saved_bytes": self.saved_bytes}


def engine_limits(isl: Spread, osl: Spread, pairs: Sequence[tuple[int, int]]) -> EngineLimits:
    """The limits at the 99th percentile, and the share of the requests beyond them."""
    most_in, most_out = math.ceil(isl.p99), math.ceil(osl.p99)
    beyond = sum(prompt > most_in or output > most_out for prompt, output in pairs)
    return EngineLimits(max_input_tokens=most_in, max_output_tokens=most_out, beyond=beyond / len(pairs))

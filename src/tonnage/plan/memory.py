"""Where the memory of one GPU goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tonnage.spec.typed_values import FORBID

MemoryUse = Literal["weights", "drafter", "activations", "reserve", "kv_cache", "unused"]
"""``reserve`` is the CUDA context, communication buffers and CUDA graphs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPart:
    """One use of the memory of each GPU, in bytes, and as a share of all of it."""

    __pydantic_config__ = FORBID

    part: MemoryUse
    bytes_per_gpu: int
    share: float

"""How a model is run by OpenVINO GenAI."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One instance.

    Attributes:
        model: a GGUF file, or a folder with a model in OpenVINO's format.
        max_batch_size: requests that share a step.
        max_num_tokens: tokens of a step; longer prompts are read in parts.
        kv_cache_gb: memory of the KV cache in GB.
        prefix_caching: whether blocks of equal prompt beginnings are shared.
        precision: of weights and KV cache in computation; "auto" is OpenVINO's choice for this processor.
        threads: CPU threads; 0 for OpenVINO's choice.
    """

    model: Path
    max_batch_size: int = 32
    max_num_tokens: int = 256
    kv_cache_gb: int = 1
    prefix_caching: bool = True
    precision: Literal["auto", "fp32"] = "auto"
    threads: int = 0

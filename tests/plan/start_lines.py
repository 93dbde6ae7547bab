"""Plans of drawn questions, and what an engine would refuse of their start commands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tonnage.api.question.deployment import deployment_of
from tonnage.api.sizing import ask
from tonnage.errors import InputError
from tonnage.perf.memory import memory_plan
from tonnage.plan.plan import Plan
from tonnage.sizing.planner import size
from tonnage.spec.catalog import find_engine
from tonnage.spec.catalog.interfaces import find_interface

MODELS = (
    *(
        "llama-3.1-8b",
        "llama-3-70b",
        "qwen3-32b",
        "gemma-3-27b",
        "mixtral-8x7b",
        "gpt-oss-120b",
        "qwen3-235b-a22b",
        "deepseek-v3",
    ),
    *(
        "qwen3.6-27b",
        "nemotron-3-super-120b-a12b",
        "glm-5.3-flash",
        "kimi-linear-48b-a3b",
        "qwen3-next-80b-a3b",
    ),
)
ENGINES = ("vllm", "vllm-0.19", "sglang", "tensorrt-llm")


def drawn_plan(place: int, engines: tuple[str, ...] = ENGINES) -> Plan | None:
    """The choice of the question at a place; None where the model has no such format, or nothing
    meets the limits."""
    random = np.random.default_rng([58, place])
    isl = int(random.choice([100, 500, 2_000, 8_000, 30_000]))
    asked: dict[str, Any] = {
        "model": str(random.choice(MODELS)),
        "gpu": str(random.choice(["h100", "h200", "b200", "a100", "l40s"])),
        "engine": str(random.choice(engines)),
        "isl": isl,
        "osl": int(random.choice([20, 200, 1_000])),
        "peak_rps": float(random.choice([0.2, 2.0, 20.0])),
        "ttft": None if random.random() < 0.5 else "p95<=5s",
        "itl": None if random.random() < 0.6 else "p99<=100ms",
        "max_num_tokens": None if random.random() < 0.7 else int(random.choice([256, 512, 2_048])),
        "max_batch_size": None if random.random() < 0.7 else int(random.choice([16, 300, 2_000])),
        "max_model_len": None if random.random() < 0.8 else 2 * isl + 2_000,
    }
    try:
        (drawn,) = ask(
            **{name: value for name, value in asked.items() if value is not None}
        ).questions
        plan = size(replace(drawn, deepen=False), rows=False)
    except InputError:
        return None
    return plan if plan.choice is not None and plan.choice.pool.launch else None


def faults(plan: Plan) -> Iterator[str]:
    """What the engine of a plan's choice would refuse of its command, by the plan's own pool."""
    assert plan.choice is not None
    pool = plan.choice.pool
    assert pool.knobs is not None
    preset = find_engine(pool.engine_preset or pool.engine)
    made = deployment_of(
        model=pool.model, gpu=pool.gpu, precision=pool.precision, tp=1, engine=preset.name
    )
    # of a pipeline's stage only the tokens are in a plan
    memory = (
        None
        if pool.parallelism.pp > 1
        else memory_plan(replace(made, parallelism=pool.parallelism, knobs=pool.knobs))
    )
    room = memory.room if memory is not None else pool.kv_tokens or 0
    interface, flags = (
        find_interface(preset.name),
        dict(zip(pool.launch, (*pool.launch[1:], ""), strict=True)),
    )
    if interface is not None and (fault := interface.fault(pool.launch, pool.launch_file)):
        yield fault
    if preset.family == "vllm":
        slots, tokens = int(flags["--max-num-seqs"]), int(flags["--max-num-batched-tokens"])
        context, graph = (
            int(flags["--max-model-len"]),
            int(flags.get("--max-cudagraph-capture-size", 0)),
        )
        if slots > tokens:
            yield f"{slots} sequences of {tokens} tokens a step"
        if (
            memory is not None
            and memory.state_bytes
            and slots > memory.blocks // memory.request_blocks(1)
        ):
            yield f"{slots} sequences, whose states do not fit"
        if context > room:
            yield f"a context of {context} tokens in a pool of {room}"
        if graph > tokens:
            yield f"graphs of {graph} tokens in steps of {tokens}"
        if "--no-enable-chunked-prefill" in flags and context > tokens:
            yield f"whole prompts of {context} tokens in steps of {tokens}"
    named = [word for word in pool.launch if word == pool.model]
    if named and not any("/" in word for word in pool.launch):
        yield f"{named[0]} is no repository"

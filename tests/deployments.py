"""Deployments by catalog names, with an engine's own knobs, and their coefficient arrays."""

import numpy as np

from tonnage.perf.terms import step_model
from tonnage.spec.catalog import find_engine, find_gpu, find_model
from tonnage.spec.deployment import Deployment, EngineKnobs, Parallelism
from tonnage.spec.engine import default_knobs
from tonnage.spec.precision import find_precision


def deployment(
    model: str = "llama-3-8b",
    gpu: str = "h100-sxm-80gb",
    precision: str = "fp16",
    tp: int = 1,
    engine: str = "nim",
) -> Deployment:
    spec, found = find_engine(engine), find_gpu(gpu)
    return Deployment(
        model=find_model(model),
        gpu=found,
        precision=find_precision(precision),
        parallelism=Parallelism(tp=tp),
        engine=spec.name,
        knobs=default_knobs(spec, found, ranks=1),
    )


def array(**what: object) -> np.ndarray:
    return step_model(deployment(**what)).coefficients


def knobs_of(
    slots: int, tokens: int, *, block: int = 16, scheduler: str = "vllm", **changed: object
) -> EngineKnobs:
    """An engine with so many slots, tokens of a step and tokens of a block; vLLM's prefills in
    chunks."""
    vllm = scheduler == "vllm"
    own = {
        "chunked_prefill": vllm,
        "kv_rule": "gpu_memory_utilization" if vllm else "free_gpu_memory_fraction",
        "kv_fraction": 0.9,
    }
    return EngineKnobs(
        scheduler=scheduler,
        max_batch_size=slots,
        max_num_tokens=tokens,
        tokens_per_block=block,
        **{**own, **changed},
    )

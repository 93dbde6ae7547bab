"""What fits in GPU memory: weights, activations, reserves, and what is left for the KV cache.

Every engine has its own rule for the KV cache. TensorRT-LLM takes a share of what is free once
weights and activations are loaded (``free_gpu_memory_fraction``); vLLM takes a share of all memory
and pays weights, activations and graphs out of it (``gpu_memory_utilization``); SGLang takes a share of all
memory for weights and KV cache, and activations and graphs live in the rest (``mem_fraction_static``). Sources: their
batch managers (``cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp``, ``vllm/v1/worker/gpu_worker.py``,
``sglang/srt/arg_groups/memory_hook.py``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tonnage.errors import DoesNotFit
from tonnage.perf.kv_cache import index_bytes_per_token, kv_bytes_per_token, state_bytes, window_bytes_per_token, window_tokens
from tonnage.perf.reserves import (
    activation_bytes_per_token,
    context_bytes,
    logit_bytes_per_sequence,
    reserve_bytes,
    step_activation_bytes,
)
from tonnage.perf.split import check_split
from tonnage.perf.weights import drafter_bytes, weight_bytes
from tonnage.spec.deployment import NO_WINDOWS, Deployment, Windows
from tonnage.units import format_gb

OF_ALL_MEMORY = ("gpu_memory_utilization", "mem_fraction_static")
"""KV rules whose share is one of the whole memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """How the memory of each GPU of an instance is used; all sizes are bytes per GPU.

    Attributes:
        deployment: what was planned.
        weight_bytes: the GPU's share of the weights.
        activation_bytes: set aside for activations, logits and sampling of a full step; 0 for static batches.
        reserve_bytes: CUDA context, communication buffers and CUDA graphs.
        kv_budget_bytes: what the engine gives to the KV cache.
        kv_bytes_per_token: one token of one request, on each GPU of its attention rank, in the layers without a sliding window.
        window_bytes_per_token: the same in the layers with one, for each of the last tokens that they keep.
        request_bytes: bytes per prompt token that a request of a static batch takes beside its KV cache; 0 where the pool is paged.
        logit_bytes: bytes that a request of a static batch takes for its logits; 0 where the pool is paged.
        drafter_bytes: the GPU's share of a drafter's weights; 0 without speculative decoding.
        window_tokens: the tokens that the layers with a window keep.
        index_bytes_per_token: what of ``kv_bytes_per_token`` the keys of indexers take.
        state_bytes: states of one sequence, however long, in layers of linear attention and state-space layers.
    """

    deployment: Deployment
    weight_bytes: int
    activation_bytes: int
    reserve_bytes: int
    kv_budget_bytes: int
    kv_bytes_per_token: int
    request_bytes: float = 0.0
    logit_bytes: float = 0.0
    drafter_bytes: int = 0
    window_bytes_per_token: int = 0
    window_tokens: int = 0
    index_bytes_per_token: int = 0
    state_bytes: int = 0

    @property
    def blocks(self) -> int:
        """KV-cache blocks."""
        return self.kv_budget_bytes // (self.kv_bytes_per_token * self.deployment.knobs.tokens_per_block)

    @property
    def tokens(self) -> int:
        """Tokens that the KV cache holds, over all requests."""
        return self.blocks * self.deployment.knobs.tokens_per_block

    @property
    def windows(self) -> Windows:
        """Blocks that a sequence holds for its sliding windows and its states; with states, from its first token on."""
        size = self.window_tokens * self.window_bytes_per_token + self.state_bytes
        if not size:
            return NO_WINDOWS
        block_bytes = self.kv_bytes_per_token * self.deployment.knobs.tokens_per_block
        return Windows(blocks=-(-size // block_bytes), tokens=1 if self.state_bytes else self.window_tokens)

    def request_blocks(self, tokens: int) -> int:
        """Blocks of a request that grows to ``tokens`` tokens, those of its sliding windows included."""
        return math.ceil(tokens / self.deployment.knobs.tokens_per_block) + self.windows.of(tokens)

    def concurrent_requests(self, isl: int, osl: int) -> int:
        """How many requests of ``isl`` prompt and ``osl`` output tokens fit at once, fully reserved; at most the engine's slots."""
        if self.deployment.knobs.scheduler == "static":
            windows = self.window_bytes_per_token * min(isl + osl, self.window_tokens) + self.state_bytes
            each = self.kv_bytes_per_token * (isl + osl) + windows + self.request_bytes * isl + self.logit_bytes
            fitting = int(self.kv_budget_bytes // each)
        else:
            guesses = 0 if self.deployment.speculation is None else self.deployment.speculation.tokens
            fitting = self.blocks // self.request_blocks(isl + osl + guesses)
        return min(fitting, self.deployment.knobs.max_batch_size)


def memory_plan(deployment: Deployment) -> MemoryPlan:
    """Plan the memory of one instance, by the rule of its engine.

    Raises:
        DoesNotFit: weights and reserves leave no room for one KV block.
        InputError: the model's heads cannot be split over ``tp`` GPUs, or ``pp`` is not 1.
    """
    plan = _unchecked(deployment)
    if plan.blocks < 1:
        raise DoesNotFit(_does_not_fit(plan))
    return plan


def _unchecked(deployment: Deployment) -> MemoryPlan:
    check_split(deployment)
    knobs, gpu = deployment.knobs, deployment.gpu
    weights = weight_bytes(deployment)
    static = knobs.scheduler == "static"
    left_out = static or knobs.kv_rule == "mem_fraction_static"
    activations = 0 if left_out else step_activation_bytes(deployment)
    reserve = reserve_bytes(deployment)
    drafter = drafter_bytes(deployment)
    taken = weights + drafter + activations + reserve
    if knobs.kv_rule in OF_ALL_MEMORY:
        budget = knobs.kv_fraction * gpu.memory_bytes - taken
    else:
        budget = knobs.kv_fraction * (gpu.memory_bytes - taken)
    return MemoryPlan(
        deployment=deployment,
        weight_bytes=weights,
        activation_bytes=activations,
        reserve_bytes=reserve,
        kv_budget_bytes=max(math.floor(budget), 0),
        kv_bytes_per_token=kv_bytes_per_token(deployment),
        request_bytes=activation_bytes_per_token(deployment) if static else 0.0,
        logit_bytes=logit_bytes_per_sequence(deployment.model) if static else 0.0,
        drafter_bytes=drafter,
        window_bytes_per_token=window_bytes_per_token(deployment),
        window_tokens=window_tokens(deployment),
        index_bytes_per_token=index_bytes_per_token(deployment),
        state_bytes=state_bytes(deployment),
    )


def static_peak_bytes(deployment: Deployment, batch: int, isl: int, osl: int) -> float:
    """Peak memory of one static batch in bytes per GPU: weights, KV cache, activations of its prefill, logits and reserves.

    The form and its constants were fitted to ``peak_gpu_memory_gb`` (decimal GB) of TensorRT-LLM 0.9; see ``coefficients/memory.json``.
    """
    check_split(deployment)
    windows = window_bytes_per_token(deployment) * min(isl + osl, window_tokens(deployment)) + state_bytes(deployment)
    kv = (kv_bytes_per_token(deployment) * (isl + osl) + windows) * batch
    activations = activation_bytes_per_token(deployment) * batch * isl
    logits = logit_bytes_per_sequence(deployment.model) * batch
    return weight_bytes(deployment) + kv + activations + logits + context_bytes(deployment)


def _does_not_fit(plan: MemoryPlan) -> str:
    gpu, gpus = plan.deployment.gpu, plan.deployment.parallelism.stage_gpus
    weights = format_gb((plan.weight_bytes + plan.drafter_bytes) * gpus)
    rest = format_gb((plan.activation_bytes + plan.reserve_bytes) * gpus)
    fraction = plan.deployment.knobs.kv_fraction
    share = f"{100 * fraction:.0f} % of " if plan.deployment.knobs.kv_rule in OF_ALL_MEMORY and fraction < 1 else ""
    return f"weights {weights} + {rest} do not fit {share}{gpus} × {gpu.memory_gb:g} GB"

"""What fits in GPU memory: weights, activations, reserves, and what is left for the KV cache.

Every engine has its own rule for the KV cache. TensorRT-LLM takes a share of what is free once
weights and activations are loaded (``free_gpu_memory_fraction``); vLLM takes a share of all memory
and pays weights, activations and graphs out of it (``gpu_memory_utilization``); SGLang takes a share of all
memory for weights and KV cache, and activations and graphs live in the rest (``mem_fraction_static``). Sources: their
batch managers (``cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp``, ``vllm/v1/worker/gpu_worker.py``,
``sglang/srt/arg_groups/memory_hook.py``).

Layers with sliding-window attention keep the last ``window`` tokens of a sequence. Blocks here are of the other layers, whose
cache grows; the windows of a sequence count as further blocks of that size from admission to release. So does vLLM, where
blocks of both kinds come from one pool (hybrid KV cache manager, ``docs/design/hybrid_kv_cache_manager.md``,
``SlidingWindowSpec`` of ``vllm/v1/kv_cache_interface.py``; left out: while a prompt is computed it may hold a whole step's tokens
more, a window takes one block more where it begins inside one, and groups of layers are filled up to equal size). TensorRT-LLM
has a pool per window size, with fixed shares of the memory; its PyTorch backend keeps windows only where
``max_attention_window`` is set, and releases whose shares are those of full attention gain little
(``calculateWindowSizeToShare`` of ``kvCacheManager.cpp``). SGLang has two pools too, that of windows of 0.8 as many tokens as the
other unless set (``swa_full_tokens_ratio``). All are treated alike here: as one pool, which is what theirs come to where they are
set to what the requests need. Models all of whose layers have windows (Mistral 7B v0.1) are counted in full, an upper bound.

What engines set aside beyond weights and KV was fitted to measured peaks: ``coefficients/memory.json``.
vLLM's pools follow from the same constants with smaller communication buffers: four pools printed by
running engines (Llama 3 8B on H100 SXM, H100 NVL and RTX 6000 Ada, Llama 3.3 70B FP8 on 2 × H100;
public logs, 2026-11-21) come out within 4 %.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from tonnage.errors import DoesNotFit, InputError, option
from tonnage.spec.catalog import find_engine
from tonnage.spec.deployment import NO_WINDOWS, Deployment, Parallelism, Windows
from tonnage.spec.model import Model
from tonnage.spec.precision import Precision
from tonnage.units import format_gb

OF_ALL_MEMORY = ("gpu_memory_utilization", "mem_fraction_static")
"""KV rules whose share is one of all memory."""

BYTES_16 = 2  # embeddings, output head, router and activations stay in 16 bits


@cache
def _fitted() -> dict[str, Any]:
    """The constants of ``coefficients/memory.json``."""
    text = resources.files("tonnage.perf").joinpath("coefficients/memory.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """How the memory of each GPU of an instance is used; all sizes are bytes per GPU.

    Attributes:
        deployment: what was planned.
        weight_bytes: the GPU's share of the weights.
        activation_bytes: set aside for activations, logits and sampling of a full step; 0 for static batches.
        reserve_bytes: CUDA context, communication buffers and CUDA graphs.
        kv_budget_bytes: what the engine gives to the KV cache.
        kv_bytes_per_token: one token of one request, on the GPUs of its attention rank, without layers with sliding windows.
        window_bytes_per_token: the same of those layers, for each of the last tokens that they keep.
        request_bytes: what a request of a static batch takes beside its KV cache, per prompt token; 0 where the pool is paged.
        logit_bytes: what a request of a static batch takes for its logits; 0 where the pool is paged.
        drafter_bytes: the GPU's share of a drafter's weights; 0 without speculative decoding.
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
        """Blocks that a sequence holds for its sliding windows."""
        if not self.window_bytes_per_token:
            return NO_WINDOWS
        tokens = self.deployment.model.window
        block_bytes = self.kv_bytes_per_token * self.deployment.knobs.tokens_per_block
        return Windows(blocks=-(-tokens * self.window_bytes_per_token // block_bytes), tokens=tokens)

    def request_blocks(self, tokens: int) -> int:
        """Blocks of a request that grows to so many tokens, those of its windows included."""
        return math.ceil(tokens / self.deployment.knobs.tokens_per_block) + self.windows.of(tokens)

    def concurrent_requests(self, isl: int, osl: int) -> int:
        """Requests of ``isl`` prompt and ``osl`` output tokens that fit at once, prompt and output reserved; at most the engine's slots."""
        if self.deployment.knobs.scheduler == "static":
            windows = self.window_bytes_per_token * min(isl + osl, self.deployment.model.window)
            each = self.kv_bytes_per_token * (isl + osl) + windows + self.request_bytes * isl + self.logit_bytes
            fitting = int(self.kv_budget_bytes // each)
        else:
            guesses = 0 if self.deployment.speculation is None else self.deployment.speculation.tokens
            fitting = self.blocks // self.request_blocks(isl + osl + guesses)
        return min(fitting, self.deployment.knobs.max_batch_size)

    def equations(self, isl: int = 0, osl: int = 0) -> list[str]:
        """The arithmetic as printable lines; the last line counts requests of ``isl`` + ``osl`` tokens, where these are given."""
        lines = [_weight_equation(self), *_drafter_equation(self), *_rest_equations(self), _budget_equation(self), *_token_equations(self)]
        if isl + osl > 0:
            count = self.concurrent_requests(isl, osl)
            lines.append(
                f"requests of {isl:,} + {osl:,} tokens at once = {count:,} (at most {self.deployment.knobs.max_batch_size:,} slots)"
            )
        return lines


def memory_plan(deployment: Deployment) -> MemoryPlan:
    """Plan the memory of one instance by the rule of its engine.

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
    activations = 0 if left_out else _step_activation_bytes(deployment)
    reserve = _reserve_bytes(deployment)
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
    )


def static_peak_bytes(deployment: Deployment, batch: int, isl: int, osl: int) -> float:
    """Peak memory in bytes per GPU of one static batch: weights, KV cache, activations of its prefill, logits, reserves.

    The form and its constants were fitted to ``peak_gpu_memory_gb`` (decimal GB) of TensorRT-LLM 0.9; see ``coefficients/memory.json``.
    """
    check_split(deployment)
    windows = window_bytes_per_token(deployment) * min(isl + osl, deployment.model.window)
    kv = (kv_bytes_per_token(deployment) * (isl + osl) + windows) * batch
    activations = activation_bytes_per_token(deployment) * batch * isl
    logits = logit_bytes_per_sequence(deployment.model) * batch
    return weight_bytes(deployment) + kv + activations + logits + _context_bytes(deployment)


def check_split(deployment: Deployment) -> None:
    """Refuse a parallelism that the model's heads do not allow.

    Raises:
        InputError: ``tp`` does not divide the query heads, or does not go into the key/value heads; ``pp`` is not 1.
    """
    model, tp, pp = deployment.model, deployment.parallelism.tp, deployment.parallelism.pp
    if pp != 1:
        raise InputError(f"{option('pp')}: pipeline parallelism of {pp} is not priced yet; use 1")
    _check_experts(model, deployment.parallelism)
    if tp >= 1 and _splits(model, tp):
        return
    right = ", ".join(str(n) for n in range(1, 17) if _splits(model, n))
    raise InputError(
        f"{option('tp')}: "
        f"{model.name} with {model.heads} query and {model.kv_heads} key/value heads cannot be split over {tp} GPUs; use {right}"
    )


def _check_experts(model: Model, parallelism: Parallelism) -> None:
    """Refuse degrees of attention data parallelism and expert parallelism that the model does not have."""
    dp, ep, gpus = parallelism.dp, parallelism.ep, parallelism.stage_gpus
    if dp < 1 or ep < 1:
        raise InputError(f"{option('dp' if dp < 1 else 'ep')}: must be 1 or more, not {min(dp, ep)}")
    if (dp > 1 or ep > 1) and not model.is_moe:
        name, what = ("dp", "replicate it instead") if dp > 1 else ("ep", f"use {option('tp')}")
        raise InputError(f"{option(name)}: {model.name} has no experts to spread over GPUs; {what}")
    if gpus % ep:
        right = ", ".join(str(n) for n in range(1, gpus + 1) if gpus % n == 0 and model.experts % n == 0)
        raise InputError(f"{option('ep')}: {ep} groups of experts do not divide TP {parallelism.tp} × DP {dp} = {gpus} GPUs; use {right}")
    if model.experts % ep:
        raise InputError(f"{option('ep')}: {model.experts} experts of {model.name} cannot be spread over {ep} groups evenly")
    if gpus > 1 and (dp > 1 or ep > 1) and model.ffn % parallelism.moe_tp:
        raise InputError(
            f"{option('ep')}: experts of width {model.ffn} cannot be split over {parallelism.moe_tp} GPUs; use a larger {option('ep')}"
        )


def _splits(model: Model, tp: int) -> bool:
    """Whether every GPU gets as many heads; a latent vector is on all of them."""
    whole = model.latent is not None or model.kv_heads % tp == 0 or tp % model.kv_heads == 0
    return model.heads % tp == 0 and whole


def weight_bytes(deployment: Deployment) -> int:
    """Bytes of weights on each GPU.

    Attention and MLP matrices are in the weight format (of a format for experts only, all others are in 16 bits) and split
    over the GPUs: routed experts over all, the others over those of an attention rank; embedding, output head and router
    are in 16 bits. The router is on every GPU; so is the embedding table where the engine replicates it
    (``EngineSpec.replicated_embedding``), and the head is always split.
    """
    model, tp = deployment.model, deployment.parallelism.tp
    narrow, wide = _matrices(model, deployment.precision)
    matrices = narrow * deployment.precision.weight_bytes / tp + wide * BYTES_16 / tp
    if deployment.parallelism.dp > 1:
        matrices -= expert_weights(model) * deployment.precision.weight_bytes * (1 / tp - 1 / deployment.parallelism.stage_gpus)
    table = model.head_parameters * BYTES_16
    embedding = table if find_engine(deployment.engine).replicated_embedding else table / tp
    head = 0 if model.tied_embeddings else table / tp
    return math.ceil(matrices + model.router_parameters * BYTES_16 + embedding + head)


def _matrices(model: Model, precision: Precision) -> tuple[int, int]:
    """Parameters of the layers' matrices in the weight format, and in 16 bits, without the router."""
    matrices = model.linear_parameters - model.router_parameters
    if not (precision.experts_only and model.is_moe):
        return matrices, 0
    experts = expert_weights(model)
    return experts, matrices - experts


def expert_weights(model: Model) -> int:
    """Weights of all routed experts; 0 for a dense model."""
    return model.experts * model.expert_parameters if model.is_moe else 0


def kv_bytes_per_token(deployment: Deployment) -> int:
    """Bytes of KV cache of one token on each GPU of its attention rank, a drafter's included, in layers without a window.

    With more GPUs than key/value heads each GPU keeps one, a latent vector all of them. A drafter's windows count in full.
    """
    asked, model, tp = deployment.speculation, deployment.model, deployment.parallelism.tp
    drafter = None if asked is None else asked.layers_of(model)
    elements = model.kv_elements_per_gpu(tp) * model.growing_layers / model.layers
    elements += 0 if drafter is None else drafter.kv_elements_per_gpu(tp)
    return math.ceil(elements * deployment.precision.kv_bytes)


def window_bytes_per_token(deployment: Deployment) -> int:
    """The same in layers with a sliding window, for each token that these keep; 0 where all layers grow or count as if they did."""
    model = deployment.model
    elements = model.kv_elements_per_gpu(deployment.parallelism.tp) * (model.layers - model.growing_layers) / model.layers
    return math.ceil(elements * deployment.precision.kv_bytes)


def drafter_bytes(deployment: Deployment) -> int:
    """Bytes of a drafter's weights on each GPU: layers as the model's, heads of its own in 16 bits; 0 without speculative decoding."""
    asked, model, split = deployment.speculation, deployment.model, deployment.parallelism
    if asked is None:
        return 0
    if asked.draft is not None:
        placed = split if asked.draft.is_moe else Parallelism(tp=split.tp)
        whole = replace(deployment, model=asked.draft, parallelism=placed, speculation=None)
        check_split(whole)
        return weight_bytes(whole)
    layers = asked.layers_of(model)
    narrow = asked.projection_parameters(model) + (0 if layers is None else layers.linear_parameters)
    experts = 0 if layers is None else expert_weights(layers)
    own = (narrow - experts) / split.tp + experts / split.stage_gpus
    return math.ceil(own * deployment.precision.weight_bytes + asked.head_parameters(model) * BYTES_16 / split.tp)


def activation_bytes_per_token(deployment: Deployment) -> float:
    """Peak bytes of activations per token of a prefill step, on each GPU.

    The larger of two moments: inside the MLP, where the inner tensors of width ``ffn / tp`` are
    alive, and around attention, where those of width ``hidden`` are. Activations below 16 bits keep a
    16-bit copy beside the narrow one. Mixture of experts: tokens are copied once per expert used.
    """
    model, fitted = deployment.model, _fitted()
    inner = model.inner / deployment.parallelism.tp
    if model.is_moe:
        return BYTES_16 * _vectors(fitted["activation_experts"], model.hidden, inner)
    copies = inner * 16 / deployment.gpu.executes(deployment.precision).activation_bits
    mlp = _vectors(fitted["activation_mlp"], model.hidden, inner)
    attention = _vectors(fitted["activation_attention"], model.hidden, copies)
    return BYTES_16 * max(mlp, attention)


def _vectors(weights: dict[str, float], hidden: int, inner: float) -> float:
    return weights["hidden"] * hidden + weights["ffn"] * inner


def logit_bytes_per_sequence(model: Model) -> float:
    """Bytes of logits and sampling buffers per sequence."""
    return float(_fitted()["logit_bytes_per_vocabulary_row"]) * model.vocab


def _step_activation_bytes(deployment: Deployment) -> int:
    """Bytes set aside on each GPU for the largest step that the engine may run."""
    engine, knobs, model = find_engine(deployment.engine), deployment.knobs, deployment.model
    logits = engine.logit_bytes_per_vocabulary_row * model.vocab * knobs.max_batch_size
    return math.ceil(_step_bytes_per_token(deployment) * knobs.max_num_tokens + logits)


def _step_bytes_per_token(deployment: Deployment) -> float:
    """Activations per token of a full step, with what the engine adds for narrow weights."""
    narrow = deployment.gpu.executes(deployment.precision).activation_bits < 16
    further = find_engine(deployment.engine).narrow_activation_bytes_per_hidden if narrow else 0.0
    return activation_bytes_per_token(deployment) + further * deployment.model.hidden


def _reserve_bytes(deployment: Deployment) -> int:
    return find_engine(deployment.engine).reserve_bytes + math.ceil(_context_bytes(deployment))


def _context_bytes(deployment: Deployment) -> float:
    """CUDA context, loaded kernels and the communication buffers of an instance's GPUs, in bytes."""
    fitted, gpu, tp = _fitted(), deployment.gpu, deployment.parallelism.stage_gpus
    context = fitted["context_gb"].get(gpu.arch, fitted["context_gb"]["Hopper"])
    if gpu.executes(deployment.precision).activation_bits < 16:
        context += fitted["fp8_gb"]
    if tp > 1:
        links = fitted["communication_gb"]
        kind = "nvlink-bridge" if gpu.link == "nvlink-bridge" else gpu.tp_link(tp)
        own = find_engine(deployment.engine).communication_bytes
        link = links.get(kind, links.get(f"{kind} {gpu.arch}", links["nvlink Hopper"])) if own is None else own / 1e9
        context += link * (tp - 1) ** fitted["communication_exponent"]
    return float(context) * 1e9


def _does_not_fit(plan: MemoryPlan) -> str:
    gpu, gpus = plan.deployment.gpu, plan.deployment.parallelism.stage_gpus
    weights = format_gb((plan.weight_bytes + plan.drafter_bytes) * gpus)
    rest = format_gb((plan.activation_bytes + plan.reserve_bytes) * gpus)
    fraction = plan.deployment.knobs.kv_fraction
    share = f"{100 * fraction:.0f} % of " if plan.deployment.knobs.kv_rule in OF_ALL_MEMORY and fraction < 1 else ""
    return f"weights {weights} + {rest} do not fit {share}{gpus} × {gpu.memory_gb:g} GB"


def _gb(size: float) -> str:
    return f"{size / 1e9:,.2f} GB"


def _weight_equation(plan: MemoryPlan) -> str:
    model, precision, tp = plan.deployment.model, plan.deployment.precision, plan.deployment.parallelism.tp
    narrow, wide = _matrices(model, precision)
    tables = model.embedding_parameters + model.router_parameters
    p = plan.deployment.parallelism
    split = f", {tp} GPUs" if tp > 1 else ""
    attention = f" + {wide:,} × {BYTES_16} B (attention)" if wide else ""
    if p.dp > 1:
        split = f", {expert_weights(model):,} of experts over {p.stage_gpus} GPUs, the rest over {tp}"
    whose = "embedding, head and router" if model.is_moe else "embedding and head"
    note = " (embedding on every GPU)" if tp > 1 and find_engine(plan.deployment.engine).replicated_embedding else ""
    return (
        f"weights = {narrow:,} × {precision.weight_bytes:g} B{attention} + {tables:,} × {BYTES_16} B ({whose}){split}{note} "
        f"= {_gb(plan.weight_bytes)} per GPU"
    )


def _drafter_equation(plan: MemoryPlan) -> list[str]:
    asked = plan.deployment.speculation
    return [] if asked is None else [f"drafter ({asked}) = {_gb(plan.drafter_bytes)} per GPU"]


def _rest_equations(plan: MemoryPlan) -> list[str]:
    knobs, model, engine = plan.deployment.knobs, plan.deployment.model, find_engine(plan.deployment.engine)
    reserve = f"context, communication and graphs = {_gb(plan.reserve_bytes)} per GPU"
    if knobs.scheduler == "static":
        each = f"{plan.request_bytes:,.0f} B per prompt token + {plan.logit_bytes:,.0f} B per request"
        return [f"activations and logits = {each}, as the batch needs", reserve]
    if knobs.kv_rule == "mem_fraction_static":
        return [f"activations and graphs = in the {100 * (1 - knobs.kv_fraction):.0f} % that mem_fraction_static leaves", reserve]
    tokens = f"{knobs.max_num_tokens:,} tokens × {_step_bytes_per_token(plan.deployment):,.0f} B"
    logits = f"{knobs.max_batch_size:,} slots × {model.vocab:,} × {engine.logit_bytes_per_vocabulary_row:g} B"
    return [f"activations = {tokens} + {logits} = {_gb(plan.activation_bytes)} per GPU", reserve]


def _budget_equation(plan: MemoryPlan) -> str:
    knobs, memory = plan.deployment.knobs, _gb(plan.deployment.gpu.memory_bytes)
    taken = " − ".join(_gb(size) for size in (plan.weight_bytes, plan.drafter_bytes, plan.activation_bytes, plan.reserve_bytes) if size)
    if knobs.kv_rule in OF_ALL_MEMORY:
        return f"KV cache = {knobs.kv_fraction:g} × {memory} − {taken} = {_gb(plan.kv_budget_bytes)} per GPU ({knobs.kv_rule})"
    return f"KV cache = {knobs.kv_fraction:g} × ({memory} − {taken}) = {_gb(plan.kv_budget_bytes)} per GPU (free_gpu_memory_fraction)"


def _token_equations(plan: MemoryPlan) -> list[str]:
    model, precision, tp = plan.deployment.model, plan.deployment.precision, plan.deployment.parallelism.tp
    if model.latent is None:
        width = f"2 × {model.growing_layers} layers × {max(1, model.kv_heads // tp)} KV heads × {model.head_dim}"
    else:
        width = f"{model.layers} layers × ({model.latent.kv_lora_rank} + {model.latent.qk_rope_head_dim}) latent"
    asked = plan.deployment.speculation
    drafter = None if asked is None else asked.layers_of(model)
    further = 0 if drafter is None else drafter.kv_elements_per_gpu(tp)
    token = f"({width} + {further:g} of the drafter) × {precision.kv_bytes:g} B" if further else f"{width} × {precision.kv_bytes:g} B"
    size = plan.deployment.knobs.tokens_per_block
    return [
        f"KV per token = {token} = {plan.kv_bytes_per_token:,} B per GPU",
        *_window_equation(plan),
        f"KV tokens = {plan.blocks:,} blocks × {size} = {plan.tokens:,}",
    ]


def _window_equation(plan: MemoryPlan) -> list[str]:
    model, windows = plan.deployment.model, plan.windows
    if not windows.blocks:
        return []
    kept = f"{model.layers - model.growing_layers} layers within {windows.tokens:,} tokens"
    size = f"{windows.tokens:,} × {plan.window_bytes_per_token:,} B"
    return [f"KV of windows = {kept} = {size} per GPU and request, {windows.blocks:,} blocks"]

"""What fits in GPU memory: weights, activations, reserves, and what is left for the KV cache.

Every engine has its own rule for the KV cache. TensorRT-LLM takes a share of what is free once
weights and activations are loaded (``free_gpu_memory_fraction``); vLLM takes a share of all memory
and pays weights, activations and graphs out of it (``gpu_memory_utilization``); SGLang takes a
share of all memory for weights and KV cache, and activations and graphs live in the rest
(``mem_fraction_static``). Sources: their batch managers
(``cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp``, ``vllm/v1/worker/gpu_worker.py``,
``sglang/srt/arg_groups/memory_hook.py``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

from tonnage.errors import DataErrors, DoesNotFit
from tonnage.perf import shipped_json
from tonnage.perf.images_and_adapters import adapter_bytes, encoder_bytes
from tonnage.perf.links import check_split
from tonnage.spec.catalog import find_engine, gpus
from tonnage.spec.deployment import NO_WINDOWS, Deployment, EngineKnobs, Parallelism, Windows
from tonnage.spec.model import Model
from tonnage.spec.precision import EXPERTS, TABLES
from tonnage.spec.typed_values import read_as, strict
from tonnage.units import format_gb

# Bytes of KV cache per token, and of states per sequence. Layers with sliding-window attention keep
# the last ``window`` tokens of a sequence; the cache of the other layers grows with every token.
# The windows of a sequence count as further blocks of the growing layers from admission to release.
# So does vLLM, where blocks of both kinds come from one pool (hybrid KV cache manager,
# ``docs/design/hybrid_kv_cache_manager.md``, ``SlidingWindowSpec`` of
# ``vllm/v1/kv_cache_interface.py``; left out: while a prompt is computed it may hold a whole step's
# tokens more, a window takes one block more where it begins inside one, and groups of layers are
# filled up to equal size). TensorRT-LLM has a pool per window size, with fixed shares of the
# memory; its PyTorch backend keeps windows only where ``max_attention_window`` is set, and releases
# whose shares are those of full attention gain little (``calculateWindowSizeToShare`` of
# ``kvCacheManager.cpp``). SGLang has two pools too, that of windows of 0.8 as many tokens as the
# other unless set (``swa_full_tokens_ratio``). All are treated alike here: as one pool, which is
# what theirs come to where they are set to what the requests need. Models all of whose layers have
# windows (Mistral 7B v0.1) are counted in full, which is an upper bound. States of linear attention
# and state-space layers are of one size however long the sequence is. They count as further blocks,
# too, from admission to release: vLLM keeps them in pages of the same pool (``MambaSpec``), SGLang
# and TensorRT-LLM in a pool next to it.


def kv_bytes_per_token(deployment: Deployment) -> int:
    """Bytes of KV cache that one token takes on each GPU of its attention rank, the drafter's
    included, in layers without a window.

    Keys of indexers count with it. With more GPUs than key/value heads each GPU keeps one head; a
    latent vector is kept by all GPUs. A drafter's windows count in full.
    """
    speculation, model, bits, tp = (
        deployment.speculation,
        deployment.model,
        deployment.precision.kv_bits,
        deployment.parallelism.tp,
    )
    drafter = None if speculation is None else speculation.layers_of(model)
    size = sum(layers * (cache.token + cache.index) for layers, cache in model.caches(bits, tp))
    if drafter is not None:
        size += sum(
            layers * (cache.token + cache.index + cache.window_token)
            for layers, cache in drafter.caches(bits, tp)
        )
    return math.ceil(size)


def index_bytes_per_token(deployment: Deployment) -> int:
    """What of it the keys of indexers take."""
    caches = deployment.model.caches(deployment.precision.kv_bits, deployment.parallelism.tp)
    return math.ceil(sum(layers * cache.index for layers, cache in caches))


def window_bytes_per_token(deployment: Deployment) -> int:
    """The same in layers with a sliding window, per token that they keep; 0 where all layers grow
    with the sequence or are counted so.
    """
    caches = deployment.model.caches(deployment.precision.kv_bits, deployment.parallelism.tp)
    return math.ceil(sum(layers * cache.window_token for layers, cache in caches))


def window_tokens(deployment: Deployment) -> int:
    """Tokens that the layers with a sliding window keep; where they differ, the most that any of
    them keeps.
    """
    caches = deployment.model.caches(deployment.precision.kv_bits, deployment.parallelism.tp)
    return max((cache.window for _, cache in caches if cache.window_token), default=0)


def state_bytes(deployment: Deployment) -> int:
    """Bytes of the states of one sequence on each GPU, in layers of linear attention and
    state-space layers.

    With speculative decoding a state is kept for every guess, so that the one after the last right
    guess can be taken up.
    """
    caches = deployment.model.caches(deployment.precision.kv_bits, deployment.parallelism.tp)
    states = 1 if deployment.speculation is None else deployment.speculation.tokens + 1
    return math.ceil(states * sum(layers * cache.sequence for layers, cache in caches))


# Bytes of the weights on each GPU, the drafter's included.


BYTES_16 = 2
"""Bytes of one number of embeddings, output head, router and activations, which stay in 16 bits."""


def weight_bytes(deployment: Deployment) -> int:
    """Bytes of weights on each GPU.

    Every group of matrices is in its own format (``Precision.forms``). Routed experts are split
    over all GPUs, the other matrices over the GPUs of an attention rank. Embedding and output head
    are in 16 bits where the format does not say otherwise, the router always. The router is on
    every GPU, and so is the embedding table where the engine replicates it
    (``EnginePreset.replicated_embedding``); the head is always split.
    """
    model, precision, tp = deployment.model, deployment.precision, deployment.parallelism.tp
    sizes = {
        group: count * precision.bits(group, model.is_moe) / 8
        for group, count in model.group_parameters.items()
    }
    matrices = sum(sizes.values()) / tp
    if deployment.parallelism.dp > 1:
        matrices -= sizes[EXPERTS] * (1 / tp - 1 / deployment.parallelism.stage_gpus)
    unquantised = precision.unquantised_bytes
    table, head = (
        model.head_parameters * precision.bits(group, model.is_moe) / 8 for group in TABLES
    )
    tables = table + model.further_embeddings * unquantised
    embedding = tables if find_engine(deployment.engine).replicated_embedding else tables / tp
    return math.ceil(
        matrices
        + model.router_parameters * unquantised
        + embedding
        + (0 if model.tied_embeddings else head / tp)
        + rotary_bytes(model)
    )


def rotary_bytes(model: Model) -> int:
    """Bytes of the table of a stretched rotary embedding, on every GPU
    (``LinearScalingRotaryEmbedding`` of vLLM: context × factor rows of a head's width in 16 bits).
    """
    return model.rotary_rows * model.head_dim * BYTES_16


def filling_bytes(deployment: Deployment) -> int:
    """Bytes on each GPU by which experts are larger with their widths filled up to the multiples
    that the engine's kernels take.
    """
    model, p, multiples = (
        deployment.model,
        deployment.parallelism,
        find_engine(deployment.engine).mxfp4_multiples,
    )
    if not model.is_moe or deployment.precision.weight_format != "mxfp4":
        return 0
    widths = model.hidden, model.ffn / p.moe_tp
    larger = math.prod(
        math.ceil(width / step) * step / width
        for width, step in zip(widths, multiples, strict=True)
    )
    return math.ceil(
        (larger - 1) * expert_weights(model) * deployment.precision.weight_bytes / p.stage_gpus
    )


def expert_weights(model: Model) -> int:
    """Parameters of all routed experts; 0 for a dense model."""
    return model.experts * model.expert_parameters if model.is_moe else 0


def drafter_bytes(deployment: Deployment) -> int:
    """Bytes of a drafter's weights on each GPU; 0 without speculative decoding.

    Its layers are in the model's format and split like the model's; its separate heads are in 16
    bits.
    """
    speculation, model, split = deployment.speculation, deployment.model, deployment.parallelism
    if speculation is None:
        return 0
    if speculation.draft is not None:
        placed = split if speculation.draft.is_moe else Parallelism(tp=split.tp)
        whole = replace(deployment, model=speculation.draft, parallelism=placed, speculation=None)
        check_split(whole)
        return weight_bytes(whole)
    layers = speculation.layers_of(model)
    narrow = speculation.projection_parameters(model) + (
        0 if layers is None else layers.linear_parameters
    )
    experts = 0 if layers is None else expert_weights(layers)
    gpu_parameters = (narrow - experts) / split.tp + experts / split.stage_gpus
    return math.ceil(
        gpu_parameters * deployment.precision.weight_bytes
        + speculation.head_parameters(model) * BYTES_16 / split.tp
    )


# GPU memory beyond weights and KV cache: activations, logits, the CUDA context and communication
# buffers. What engines set aside was fitted to measured peaks: ``coefficients/memory.json``. vLLM
# profiles itself: a step takes the same activations, and what sampling, communication and graphs
# take is of each version (``engines.yaml``), read from the parts that running engines printed
# (llm-d-planner issue
# 194: vLLM 0.15 to 0.19 on H100). ``./benchmark pools`` holds the pools against 39 such logs.


@strict
class Vectors:
    """Vectors of a token that are alive at once: of the model's width, and of the inner width."""

    hidden: float
    ffn: float


@strict
class MemoryConstants:
    """``memory.json`` as it is written."""

    # name, what, source, date: what was fitted to what, and when
    name: str
    what: str
    source: str
    date: str
    # rows, rows_left_out: how many rows, and which not
    rows: int
    rows_left_out: str
    # mape_percent, mape_percent_by_model: mean size of the relative error, in percent
    mape_percent: dict[str, float]
    mape_percent_by_model: dict[str, dict[str, float]]
    context_gb: dict[str, float]  # CUDA context and loaded kernels by GPU generation, in decimal GB
    fp8_gb: float  # what kernels of 8 bits add
    communication_gb: dict[str, float]  # buffers of two GPUs by the kind of their link
    communication_exponent: float  # how they grow with the further GPUs
    # activation_mlp, activation_attention, activation_experts: vectors alive in the MLP, around
    # attention, and with experts
    activation_mlp: Vectors
    activation_attention: Vectors
    activation_experts: Vectors
    # bytes of logits and sampling buffers per sequence and token of the vocabulary
    logit_bytes_per_vocabulary_row: float
    # memory of each GPU that its driver reports and CUDA does not give out, in decimal GB
    driver_gb: float


@cache
def memory_constants() -> MemoryConstants:
    """The constants of ``coefficients/memory.json``.

    Raises DataError: the file is missing, is no JSON, or holds what it may not; one line for each
    fault.
    """
    return constants_of(shipped_json("memory.json", "reinstall"), "perf/coefficients/memory.json")


def constants_of(document: object, where: str) -> MemoryConstants:
    """The constants of a document.

    Raises DataErrors: unknown or missing keys, GPU generations or links that nothing has, and
    values of another kind; one line each.
    """
    constants = read_as(MemoryConstants, document, where)
    generations = {gpu.arch for gpu in gpus()}
    links = {"nvlink-bridge", "pcie", *(f"nvlink {name}" for name in generations)}
    faults = [
        f"{where}: context_gb.{name}: no GPU is of this generation"
        for name in constants.context_gb
        if name not in generations
    ]
    faults += [
        f"{where}: communication_gb.{name}: no GPUs are joined so"
        for name in constants.communication_gb
        if name not in links
    ]
    DataErrors.raise_if(faults)
    return constants


def activation_bytes_per_token(deployment: Deployment) -> float:
    """Peak bytes of activations per token of a prefill step, on each GPU.

    It is the larger of two moments: inside the MLP, where the inner tensors of width ``ffn / tp``
    are alive, and around attention, where those of width ``hidden`` are. Activations of fewer than
    16 bits keep a 16-bit copy next to the narrow one. In a mixture of experts, tokens are copied
    once per expert used.
    """
    model, fitted = deployment.model, memory_constants()
    inner = model.inner / deployment.parallelism.tp
    if model.is_moe:
        return deployment.precision.unquantised_bytes * _vectors(
            fitted.activation_experts, model.hidden, inner
        )
    copies = inner * max(1.0, 16 / deployment.gpu.executes(deployment.precision).activation_bits)
    mlp = _vectors(fitted.activation_mlp, model.hidden, inner)
    attention = _vectors(fitted.activation_attention, model.hidden, copies)
    return deployment.precision.unquantised_bytes * max(mlp, attention)


def _vectors(weights: Vectors, hidden: int, inner: float) -> float:
    return weights.hidden * hidden + weights.ffn * inner


def logit_bytes_per_sequence(model: Model) -> float:
    """Bytes of logits and sampling buffers per sequence."""
    return float(memory_constants().logit_bytes_per_vocabulary_row) * model.vocab


def step_activation_bytes(deployment: Deployment) -> int:
    """Bytes set aside on each GPU for the largest step that the engine may run.

    An engine that profiles itself (``EnginePreset.profiled``) sets aside the larger of a full step
    and of sampling for all slots, which follow one another, and the workspace of the experts, which
    stays. The others are given both.
    """
    engine, knobs, model = find_engine(deployment.engine), deployment.knobs, deployment.model
    logits = engine.logit_bytes_per_vocabulary_row * model.vocab * knobs.max_batch_size
    step = step_bytes_per_token(deployment) * knobs.max_num_tokens
    peak = (
        max(step, logits) + expert_workspace_bytes(deployment) if engine.profiled else step + logits
    )
    return math.ceil(peak)


def expert_workspace_bytes(deployment: Deployment) -> int:
    """Bytes of the two buffers in which a GPU keeps the tokens of a full step for their experts,
    once for each expert of a token.

    Each is as wide as what is written to it: the inner tensors and the experts' outputs, and gate
    and up together and the experts' inputs (``workspace_shapes`` of
    ``vllm/model_executor/layers/fused_moe``). With data-parallel attention the tokens of all ranks
    are there.
    """
    model, p, engine = deployment.model, deployment.parallelism, find_engine(deployment.engine)
    if not model.is_moe or deployment.precision.weight_format in engine.without_workspace:
        return 0
    tokens, inner = deployment.knobs.max_num_tokens * p.dp, model.ffn // p.moe_tp
    width = max(inner, model.hidden) + max(2 * inner, model.hidden)
    return min(tokens, MOST_IN_EXPERTS) * model.experts_per_token * width * BYTES_16


# tokens that the experts of vLLM take at once (``VLLM_FUSED_MOE_CHUNK_SIZE``)
MOST_IN_EXPERTS = 32_768


def step_bytes_per_token(deployment: Deployment) -> float:
    """Bytes of activations per token of a full step, with what the engine adds for narrow
    weights.
    """
    narrow = deployment.gpu.executes(deployment.precision).activation_bits < 16
    further = find_engine(deployment.engine).narrow_activation_bytes_per_hidden if narrow else 0.0
    return activation_bytes_per_token(deployment) + further * deployment.model.hidden


def reserve_bytes(deployment: Deployment) -> int:
    """Bytes set aside on each GPU for the CUDA context, communication buffers and CUDA graphs.

    The context of an engine that profiles itself is there before it looks at the memory, and no
    part of its share.
    """
    engine = find_engine(deployment.engine)
    context = 0.0 if engine.profiled else context_bytes(deployment)
    return engine.reserve_bytes + math.ceil(context + communication_bytes(deployment))


def context_bytes(deployment: Deployment) -> float:
    """CUDA context and loaded kernels, in bytes."""
    fitted, gpu = memory_constants(), deployment.gpu
    narrow = gpu.executes(deployment.precision).activation_bits < 16
    return 1e9 * (
        fitted.context_gb.get(gpu.arch, fitted.context_gb["Hopper"])
        + (fitted.fp8_gb if narrow else 0.0)
    )


def communication_bytes(deployment: Deployment) -> float:
    """Buffers for the communication of an instance's GPUs, in bytes; 0 of a single one."""
    fitted, gpu, count, engine = (
        memory_constants(),
        deployment.gpu,
        deployment.parallelism.stage_gpus,
        find_engine(deployment.engine),
    )
    if count == 1:
        return 0.0
    links, kind = (
        fitted.communication_gb,
        "nvlink-bridge" if gpu.link == "nvlink-bridge" else gpu.tp_link(count),
    )
    measured = 1e9 * links.get(kind, links.get(f"{kind} {gpu.arch}", links["nvlink Hopper"]))
    by_engine = (engine.pcie_communication_bytes if kind == "pcie" else None) or (
        engine.communication_bytes
    )
    first = measured if by_engine is None else by_engine
    exponent = (
        fitted.communication_exponent
        if engine.communication_exponent is None
        else engine.communication_exponent
    )
    return float(first * (count - 1) ** exponent)


def shared_bytes(deployment: Deployment) -> int:
    """The memory of a GPU of which an engine has its share: what CUDA gives out to one that
    profiles itself, in bytes.
    """
    by_driver = (
        1e9 * memory_constants().driver_gb if find_engine(deployment.engine).profiled else 0.0
    )
    return deployment.gpu.memory_bytes - math.ceil(by_driver)


OF_ALL_MEMORY = ("gpu_memory_utilization", "mem_fraction_static")
"""KV rules whose share is one of the whole memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """How the memory of each GPU of an instance is used; all sizes are bytes per GPU."""

    deployment: Deployment  # what was planned
    weight_bytes: int  # the GPU's share of the weights
    # set aside for activations, logits and sampling of a full step; 0 for static batches
    activation_bytes: int
    reserve_bytes: int  # CUDA context, communication buffers and CUDA graphs
    kv_budget_bytes: int  # what the engine gives to the KV cache
    # one token of one request, on each GPU of its attention rank, in the layers without a sliding
    # window
    kv_bytes_per_token: int
    # bytes per prompt token that a request of a static batch takes next to its KV cache; 0 where
    # the pool is paged
    request_bytes: float = 0.0
    # bytes that a request of a static batch takes for its logits; 0 where the pool is paged
    logit_bytes: float = 0.0
    drafter_bytes: int = 0  # the GPU's share of a drafter's weights; 0 without speculative decoding
    # adapter_bytes, encoder_bytes: slots of LoRA adapters, and the GPU's share of the encoders of
    # images and sound; 0 without
    adapter_bytes: int = 0
    encoder_bytes: int = 0
    # bytes per token in the layers with a window, for each token that they keep
    window_bytes_per_token: int = 0
    window_tokens: int = 0  # the tokens that the layers with a window keep
    index_bytes_per_token: int = 0  # what of ``kv_bytes_per_token`` the keys of indexers take
    # states of one sequence, however long, in layers of linear attention and state-space layers
    state_bytes: int = 0

    @property
    def blocks(self) -> int:
        """KV-cache blocks."""
        return self.kv_budget_bytes // (
            self.kv_bytes_per_token * self.deployment.knobs.tokens_per_block
        )

    @property
    def tokens(self) -> int:
        """Tokens that the KV cache holds, over all requests."""
        return self.blocks * self.deployment.knobs.tokens_per_block

    @property
    def windows(self) -> Windows:
        """Blocks that a sequence holds for its sliding windows and its states; with states, from
        its first token on.
        """
        size = self.window_tokens * self.window_bytes_per_token + self.state_bytes
        if not size:
            return NO_WINDOWS
        block_bytes = self.kv_bytes_per_token * self.deployment.knobs.tokens_per_block
        return Windows(
            blocks=-(-size // block_bytes), tokens=1 if self.state_bytes else self.window_tokens
        )

    @property
    def room(self) -> int:
        """Tokens of the longest request that the KV cache holds, in whole blocks; 0 where the
        windows or states of one take all of it.
        """
        tokens = self.tokens
        return (
            max(0, self.blocks - self.windows.of(tokens) - self.prompt_blocks(tokens))
            * self.deployment.knobs.tokens_per_block
        )

    def prompt_blocks(self, isl: int) -> int:
        """Blocks that windows hold beyond their own while a step full of prompts of ``isl`` tokens
        is computed.

        In vLLM, layers with a window keep every token of a step until it is over
        (``SlidingWindowSpec.max_memory_usage_bytes`` of ``vllm/v1/kv_cache_interface.py``): beyond
        a window, a step of one prompt, or the rest of each of the prompts that fill it.
        """
        if self.deployment.knobs.scheduler != "vllm" or isl <= self.window_tokens:
            return 0
        beyond, step = isl - self.window_tokens, self.deployment.knobs.max_num_tokens
        tokens = min(beyond, step) if isl >= step else step * beyond / isl
        block_bytes = self.kv_bytes_per_token * self.deployment.knobs.tokens_per_block
        return math.ceil(tokens * self.window_bytes_per_token / block_bytes)

    def request_blocks(self, tokens: int) -> int:
        """Blocks of a request that grows to ``tokens`` tokens, those of its sliding windows
        included.
        """
        return math.ceil(tokens / self.deployment.knobs.tokens_per_block) + self.windows.of(tokens)

    def concurrent_requests(self, isl: int, osl: int) -> int:
        """How many requests of ``isl`` prompt and ``osl`` output tokens fit at once, fully
        reserved; at most the engine's slots.
        """
        if self.deployment.knobs.scheduler == "static":
            windows = (
                self.window_bytes_per_token * min(isl + osl, self.window_tokens) + self.state_bytes
            )
            bytes_per_request = (
                self.kv_bytes_per_token * (isl + osl)
                + windows
                + self.request_bytes * isl
                + self.logit_bytes
            )
            fitting = int(self.kv_budget_bytes // bytes_per_request)
        else:
            guesses = (
                0 if self.deployment.speculation is None else self.deployment.speculation.tokens
            )
            fitting = max(0, self.blocks - self.prompt_blocks(isl)) // self.request_blocks(
                isl + osl + guesses
            )
        return min(fitting, self.deployment.knobs.max_batch_size)


def startable(plan: MemoryPlan, knobs: EngineKnobs) -> EngineKnobs:
    """Knobs with which an engine starts on a deployment: no more slots than it has room for, and no
    larger graphs than steps.

    vLLM refuses more slots than tokens of a step, and more sequences than the pages of its pool
    have states for. A running sequence has a page in each group of layers with states, so that
    fewer run at once than vLLM accepts slots: as many as can run are set.
    """
    slots = [knobs.max_batch_size]
    if find_engine(plan.deployment.engine).slots_bounded:
        slots.append(knobs.max_num_tokens)
        slots += [max(1, plan.blocks // plan.request_blocks(1))] if plan.state_bytes else []
    return replace(
        knobs, max_batch_size=min(slots), graph_tokens=min(knobs.graph_tokens, knobs.max_num_tokens)
    )


def memory_plan(deployment: Deployment) -> MemoryPlan:
    """Plan the memory of one instance, by the rule of its engine.

    Raises DoesNotFit: weights and reserves leave no room for one KV block; InputError: the model's
    heads cannot be split over ``tp`` GPUs, or ``pp`` is not 1.
    """
    plan = unchecked_plan(deployment)
    if plan.blocks < 1:
        gpu, gpus = plan.deployment.gpu, plan.deployment.parallelism.stage_gpus
        weights = format_gb(
            (plan.weight_bytes + plan.drafter_bytes + plan.adapter_bytes + plan.encoder_bytes)
            * gpus
        )
        rest = format_gb((plan.activation_bytes + plan.reserve_bytes) * gpus)
        fraction = plan.deployment.knobs.kv_fraction
        share = (
            f"{100 * fraction:.0f} % of "
            if plan.deployment.knobs.kv_rule in OF_ALL_MEMORY and fraction < 1
            else ""
        )
        raise DoesNotFit(
            f"weights {weights} + {rest} do not fit {share}{gpus} × {gpu.memory_gb:g} GB"
        )
    return plan


def unchecked_plan(deployment: Deployment) -> MemoryPlan:
    """The same where the KV cache may have no block. Raises InputError: as ``memory_plan``."""
    check_split(deployment)
    knobs, gpu = deployment.knobs, deployment.gpu
    weights = weight_bytes(deployment) + filling_bytes(deployment)
    static = knobs.scheduler == "static"
    left_out = static or knobs.kv_rule == "mem_fraction_static"
    activations = 0 if left_out else step_activation_bytes(deployment)
    reserve = reserve_bytes(deployment)
    beside = {
        "drafter_bytes": drafter_bytes(deployment),
        "adapter_bytes": adapter_bytes(deployment),
        "encoder_bytes": encoder_bytes(deployment),
    }
    used_bytes = weights + sum(beside.values()) + activations + reserve
    if knobs.kv_rule in OF_ALL_MEMORY:
        budget = knobs.kv_fraction * shared_bytes(deployment) - used_bytes
    else:
        budget = knobs.kv_fraction * (gpu.memory_bytes - used_bytes)
    return MemoryPlan(
        deployment=deployment,
        weight_bytes=weights,
        activation_bytes=activations,
        reserve_bytes=reserve,
        kv_budget_bytes=max(math.floor(budget), 0),
        kv_bytes_per_token=kv_bytes_per_token(deployment),
        request_bytes=activation_bytes_per_token(deployment) if static else 0.0,
        logit_bytes=logit_bytes_per_sequence(deployment.model) if static else 0.0,
        **beside,
        window_bytes_per_token=window_bytes_per_token(deployment),
        window_tokens=window_tokens(deployment),
        index_bytes_per_token=index_bytes_per_token(deployment),
        state_bytes=state_bytes(deployment),
    )


def static_peak_bytes(deployment: Deployment, batch: int, isl: int, osl: int) -> float:
    """Peak memory of one static batch in bytes per GPU: weights, KV cache, activations of its
    prefill, logits and reserves.

    The form and its constants were fitted to ``peak_gpu_memory_gb`` (decimal GB) of TensorRT-LLM
    0.9; see ``coefficients/memory.json``.
    """
    check_split(deployment)
    windows = window_bytes_per_token(deployment) * min(
        isl + osl, window_tokens(deployment)
    ) + state_bytes(deployment)
    kv = (kv_bytes_per_token(deployment) * (isl + osl) + windows) * batch
    activations = activation_bytes_per_token(deployment) * batch * isl
    logits = logit_bytes_per_sequence(deployment.model) * batch
    return (
        weight_bytes(deployment)
        + kv
        + activations
        + logits
        + context_bytes(deployment)
        + communication_bytes(deployment)
    )

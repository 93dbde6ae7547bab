"""The arithmetic of a memory plan, as printable lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tonnage.perf.memory import (
    OF_ALL_MEMORY,
    MemoryPlan,
    expert_weights,
    expert_workspace_bytes,
    filling_bytes,
    kv_bytes_per_token,
    rotary_bytes,
    shared_bytes,
    step_bytes_per_token,
)
from tonnage.spec.attention_layers import FullAttention, LatentLayer
from tonnage.spec.catalog import find_engine
from tonnage.spec.layers import KINDS, Mixer
from tonnage.spec.model import Model
from tonnage.spec.precision import EXPERTS, TABLES, Precision


def equations(plan: MemoryPlan, isl: int = 0, osl: int = 0) -> list[str]:
    """One line for each part of the plan; where ``isl`` or ``osl`` is given, the last line counts
    requests of that many tokens.
    """
    lines = [
        _weight_equation(plan),
        *_beside_equations(plan),
        *_rest_equations(plan),
        _budget_equation(plan),
        *_token_equations(plan),
    ]
    if isl + osl > 0:
        count, slots = plan.concurrent_requests(isl, osl), plan.deployment.knobs.max_batch_size
        lines.append(
            f"requests of {isl:,} + {osl:,} tokens at once = {count:,} (at most {slots:,} slots)"
        )
    return lines


def _gb(size: float) -> str:
    return f"{size / 1e9:,.2f} GB"


def _weight_equation(plan: MemoryPlan) -> str:
    model, precision, tp = (
        plan.deployment.model,
        plan.deployment.precision,
        plan.deployment.parallelism.tp,
    )
    p = plan.deployment.parallelism
    split = f", {tp} GPUs" if tp > 1 else ""
    if p.dp > 1:
        split = (
            f", {expert_weights(model):,} of experts over {p.stage_gpus} GPUs, the rest over {tp}"
        )
    note = (
        " (embedding on every GPU)"
        if tp > 1 and find_engine(plan.deployment.engine).replicated_embedding
        else ""
    )
    products = " + ".join(_products(model, precision))
    filling = filling_bytes(plan.deployment)
    filled = f" + {_gb(filling)} that fill up experts" if filling else ""
    if rotary := rotary_bytes(model):
        filled += f" + {_gb(rotary)} for rotary positions"
    return f"weights = {products}{split}{note}{filled} = {_gb(plan.weight_bytes)} per GPU"


def _products(model: Model, precision: Precision) -> Iterator[str]:
    """Weights times bytes: of the matrices by format, and of the tables with the router, or apart
    where these are in their own formats.
    """
    groups: dict[float, list[str]] = {}
    for group, count in model.group_parameters.items():
        if count:
            groups.setdefault(precision.bits(group, model.is_moe), []).append(group)
    base = precision.bits(EXPERTS if model.is_moe else "mlp", model.is_moe)
    for bits in sorted(groups, key=lambda key: key != base):
        weights = sum(model.group_parameters[group] for group in groups[bits])
        words = "" if bits == base else f" ({', '.join(groups[bits])})"
        yield f"{weights:,} × {bits / 8:.6g} B{words}"
    width, tables = (
        precision.unquantised_bytes,
        {"router": model.router_parameters, "further embeddings": model.further_embeddings},
    )
    tables |= {
        "embedding": model.head_parameters,
        "head": 0 if model.tied_embeddings else model.head_parameters,
    }
    apart = {name: precision.bits(name, model.is_moe) / 8 for name in TABLES if tables[name]}
    apart = {name: size for name, size in apart.items() if size != width}
    for name, size in apart.items():
        yield f"{tables.pop(name):,} × {size:.6g} B ({name})"
    whose = [name for name in ("embedding", "head") if name not in apart] + (
        ["router"] if model.is_moe else []
    )
    named = f"{', '.join(whose[:-1])} and {whose[-1]}" if len(whose) > 1 else "".join(whose)
    if any(tables.values()):
        yield f"{sum(tables.values()):,} × {width} B ({named})"


def _beside_equations(plan: MemoryPlan) -> list[str]:
    d = plan.deployment
    encoder = f"{d.model.encoder_parameters:,} × 2 B" if plan.encoder_bytes else None
    beside = (
        ("drafter", d.speculation, plan.drafter_bytes),
        ("LoRA adapters", d.adapters, plan.adapter_bytes),
        ("encoders of images and sound", encoder, plan.encoder_bytes),
    )
    return [
        f"{what} ({feature}) = {_gb(size)} per GPU"
        for what, feature, size in beside
        if feature is not None
    ]


def _rest_equations(plan: MemoryPlan) -> list[str]:
    knobs, model, engine = (
        plan.deployment.knobs,
        plan.deployment.model,
        find_engine(plan.deployment.engine),
    )
    what = (
        "communication, graphs and what is outside of torch"
        if engine.profiled
        else "context, communication and graphs"
    )
    reserve = f"{what} = {_gb(plan.reserve_bytes)} per GPU"
    if knobs.scheduler == "static":
        per_request = (
            f"{plan.request_bytes:,.0f} B per prompt token + {plan.logit_bytes:,.0f} B per request"
        )
        return [f"activations and logits = {per_request}, as the batch needs", reserve]
    if knobs.kv_rule == "mem_fraction_static":
        return [
            (
                f"activations and graphs = in the {100 * (1 - knobs.kv_fraction):.0f} % that"
                " mem_fraction_static leaves"
            ),
            reserve,
        ]
    tokens = f"{knobs.max_num_tokens:,} tokens × {step_bytes_per_token(plan.deployment):,.0f} B"
    logits = (
        f"{knobs.max_batch_size:,} slots × {model.vocab:,} ×"
        f" {engine.logit_bytes_per_vocabulary_row:g} B"
    )
    workspace = expert_workspace_bytes(plan.deployment)
    experts = f" + {_gb(workspace)} for tokens of experts" if engine.profiled and workspace else ""
    peak = (
        f"the larger of {tokens} and {logits}{experts}"
        if engine.profiled
        else f"{tokens} + {logits}"
    )
    return [f"activations = {peak} = {_gb(plan.activation_bytes)} per GPU", reserve]


def _budget_equation(plan: MemoryPlan) -> str:
    knobs, memory = plan.deployment.knobs, _gb(shared_bytes(plan.deployment))
    deductions = " − ".join(_gb(size) for size in _taken(plan) if size)
    if knobs.kv_rule in OF_ALL_MEMORY:
        return (
            f"KV cache = {knobs.kv_fraction:g} × {memory} − {deductions} ="
            f" {_gb(plan.kv_budget_bytes)} per GPU ({knobs.kv_rule})"
        )
    return (
        f"KV cache = {knobs.kv_fraction:g} × ({memory} − {deductions}) ="
        f" {_gb(plan.kv_budget_bytes)} per GPU (free_gpu_memory_fraction)"
    )


def _taken(plan: MemoryPlan) -> tuple[int, ...]:
    beside = plan.drafter_bytes, plan.adapter_bytes, plan.encoder_bytes
    return plan.weight_bytes, *beside, plan.activation_bytes, plan.reserve_bytes


def _token_equations(plan: MemoryPlan) -> list[str]:
    model, precision, tp = (
        plan.deployment.model,
        plan.deployment.precision,
        plan.deployment.parallelism.tp,
    )
    cached_layers = [
        (layer_group.layers, layer_group.mixer)
        for layer_group in model.by_kind
        if layer_group.mixer.cache(precision.kv_bits, tp).token
    ]
    in_bytes = any(not isinstance(mixer, FullAttention | LatentLayer) for _, mixer in cached_layers)
    widths = " + ".join(
        _bytes(layers, mixer, precision.kv_bits, tp) if in_bytes else _elements(layers, mixer, tp)
        for layers, mixer in cached_layers
    )
    further = plan.kv_bytes_per_token - kv_bytes_per_token(
        replace(plan.deployment, speculation=None)
    )
    drafter = f"{further:,} B" if in_bytes else f"{further / precision.kv_bytes:g}"
    token = (
        f"({widths} + {drafter} of the drafter)"
        if further
        else widths
        if len(cached_layers) == 1
        else f"({widths})"
    )
    index = (
        f", {plan.index_bytes_per_token:,} B of it index keys" if plan.index_bytes_per_token else ""
    )
    size = plan.deployment.knobs.tokens_per_block
    return [
        (
            f"KV per token = {token}{'' if in_bytes else f' × {precision.kv_bytes:g} B'} ="
            f" {plan.kv_bytes_per_token:,} B per GPU{index}"
        ),
        *_window_equation(plan),
        *_state_equation(plan),
        f"KV tokens = {plan.blocks:,} blocks × {size} = {plan.tokens:,}",
    ]


def _elements(layers: int, mixer: Mixer, tp: int) -> str:
    """What some layers with full or latent attention keep per token, in elements."""
    if isinstance(mixer, LatentLayer):
        return (
            f"{layers} layers × ({mixer.widths.kv_lora_rank} + {mixer.widths.qk_rope_head_dim})"
            " latent"
        )
    full: Any = mixer
    factor = f"{layers} layers × {max(1, full.kv_heads // tp)} KV heads × "
    return (
        f"2 × {factor}{full.head_dim}"
        if full.value_dim in (0, full.head_dim)
        else f"{factor}({full.head_dim} + {full.value_dim})"
    )


def _bytes(layers: int, mixer: Mixer, kv_bits: int, tp: int) -> str:
    """The same in bytes, where an entry of any layer holds scales or index keys."""
    cache = mixer.cache(kv_bits, tp)
    return f"{layers} layers × {cache.token + cache.index:,.5g} B ({KINDS[mixer.kind]})"


def _window_equation(plan: MemoryPlan) -> list[str]:
    model = plan.deployment.model
    if not plan.window_bytes_per_token:
        return []
    layers = sum(layers for layers, cache in model.caches(16, 1) if cache.window_token)
    window_words = f"{layers} layers within {plan.window_tokens:,} tokens"
    size = f"{plan.window_tokens:,} × {plan.window_bytes_per_token:,} B"
    blocks = "" if plan.state_bytes else f", {plan.windows.blocks:,} blocks"
    return [f"KV of windows = {window_words} = {size} per GPU and request{blocks}"]


def _state_equation(plan: MemoryPlan) -> list[str]:
    if not plan.state_bytes:
        return []
    model = plan.deployment.model
    layers = sum(layers for layers, cache in model.caches(16, 1) if cache.sequence)
    as_tokens = plan.state_bytes / plan.kv_bytes_per_token
    line = (
        f"state = {layers} layers = {plan.state_bytes:,} B per GPU and sequence, as much as"
        f" {as_tokens:,.0f} tokens of the KV cache"
    )
    return [
        f"{line}, {plan.windows.blocks:,} blocks",
        f"sequences by their states alone = {plan.blocks // plan.windows.blocks:,}",
    ]

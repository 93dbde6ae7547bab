"""The arithmetic of a memory plan, as printable lines."""

from __future__ import annotations

from tonnage.perf.memory import OF_ALL_MEMORY, MemoryPlan
from tonnage.perf.reserves import step_bytes_per_token
from tonnage.perf.weights import BYTES_16, expert_weights, matrix_weights
from tonnage.spec.catalog import find_engine


def equations(plan: MemoryPlan, isl: int = 0, osl: int = 0) -> list[str]:
    """One line for each part of the plan; where ``isl`` or ``osl`` is given, the last line counts requests of that many tokens."""
    lines = [_weight_equation(plan), *_drafter_equation(plan), *_rest_equations(plan), _budget_equation(plan), *_token_equations(plan)]
    if isl + osl > 0:
        count, slots = plan.concurrent_requests(isl, osl), plan.deployment.knobs.max_batch_size
        lines.append(f"requests of {isl:,} + {osl:,} tokens at once = {count:,} (at most {slots:,} slots)")
    return lines


def _gb(size: float) -> str:
    return f"{size / 1e9:,.2f} GB"


def _weight_equation(plan: MemoryPlan) -> str:
    model, precision, tp = plan.deployment.model, plan.deployment.precision, plan.deployment.parallelism.tp
    narrow, wide = matrix_weights(model, precision)
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
    tokens = f"{knobs.max_num_tokens:,} tokens × {step_bytes_per_token(plan.deployment):,.0f} B"
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

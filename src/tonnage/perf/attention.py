"""What attention adds to a step: the token pairs of prompts, and the contexts that decoding reads.

Decode attention is limited by bandwidth where the kernel takes the query heads of a KV head together. The kernels of 2024
(TensorRT-LLM 0.9 and 0.10) did so for groups of eight heads and above a number of sequences; otherwise each query
head of each sequence was a block of its own, and blocks ran in waves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tonnage.perf import step_terms as at

if TYPE_CHECKING:
    from tonnage.perf.term_groups import TermGroups
    from tonnage.spec.hardware import Gpu
    from tonnage.spec.model import Model
    from tonnage.spec.precision import Precision

CONTEXT_NORM = 4.0
"""Exponent of the smooth maximum of KV bandwidth and query-head arithmetic."""

MULTIPROCESSORS = {"Volta": 80, "Turing": 40, "Ampere": 108, "Ada": 142, "Hopper": 132}
FEWER_MULTIPROCESSORS = {"a30-24gb": 56, "a10-24gb": 72, "a10g-24gb": 80, "l4": 58, "l20": 92, "h100-pcie-80gb": 114}
"""Streaming multiprocessors of a generation's data-centre cards, and of the cards that have fewer (datasheets, recalled)."""

ENOUGH_BLOCKS = 4
"""Kernels of 2024 take the heads of a KV head together from this share of the multiprocessors on: blocks · 4 ≥ multiprocessors
(``mayHavePerfGain`` of TensorRT-LLM's XQA runner); blocks are KV heads of the GPU times sequences."""

WALKED_DIM = 128
"""The head size that ``walk_s`` is for."""

NEVER = 1e9
"""More decode sequences than any engine runs."""

BITS_8 = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionTerms:
    """What attention reaches of the datasheet; all are fitted.

    Attributes:
        prefill: share of the 16-bit matrix rate in prefill attention.
        kv_bandwidth: share of the memory bandwidth in decode attention.
        head_arithmetic: decode attention of one query head after another, as a share of the 16-bit
            matrix rate; infinite where the kernel takes all heads of a KV head at once.
        walk_s: seconds per token and layer that one block takes to walk a context with heads 128 wide; 0 where contexts are split.
    """

    prefill: float
    kv_bandwidth: float
    head_arithmetic: float
    walk_s: float


def attention_terms(groups: TermGroups, model: Model, precision: Precision) -> AttentionTerms:
    """The terms of attention for a model, in a precision as the GPU executes it."""
    engine, latent = groups.engine, model.latent is not None
    kv = engine["kv_bandwidth"]
    kv *= engine["kv_8bit"] * engine.get(f"kv_8bit_{groups.kernels}", 1.0) if precision.kv_bits == BITS_8 else 1.0
    if latent:
        kv *= engine.get("latent_bandwidth", 1.0)
    elif model.kv_heads == model.heads:
        kv *= engine["kv_single"]
    return AttentionTerms(
        prefill=_prefill(groups) * (engine.get("latent_attention", 1.0) if latent else 1.0),
        kv_bandwidth=kv,
        head_arithmetic=_head_arithmetic(groups, model, precision),
        walk_s=engine["walk_s"],
    )


def _prefill(groups: TermGroups) -> float:
    """Share of the 16-bit matrix rate in prefill attention of full heads."""
    share: float = groups.shared["attention"] * groups.generation["attention"] * groups.engine.get("attention", 1.0)
    return share


def _head_arithmetic(groups: TermGroups, model: Model, precision: Precision) -> float:
    """Share of the 16-bit matrix rate in decode attention.

    Kernels of 2024 computed head by head where they did not take groups together (``_blocks``); later ones always take them
    together. Latent attention is arithmetic on the tensor cores in every engine; where no row says otherwise, it reaches the same
    share of their rate as prefill attention.
    """
    engine = groups.engine
    if model.latent is not None:
        return _prefill(groups) * engine.get("latent_arithmetic", 1.0)
    narrow = engine.get("head_8bit", 1.0) if precision.kv_bits == BITS_8 else 1.0
    return (engine["head_arithmetic"] or math.inf) * groups.generation["head_arithmetic"] * narrow


def add_attention(c: list[float], terms: AttentionTerms, model: Model, gpu: Gpu, precision: Precision, tp: int) -> None:
    """Put prefill attention, per token pair, and decode attention, per context token, into a coefficient array."""
    kv_bytes = model.kv_elements_per_gpu(tp) * precision.kv_bytes
    peak = gpu.fp16_tflops * 1e12
    read = kv_bytes / (gpu.memory_bandwidth_gb_s * 1e9 * terms.kv_bandwidth)
    heads = model.decode_flops_per_pair / tp / (peak * terms.head_arithmetic)
    together = model.latent is None and _eight(model)
    c[at.ATTENTION] = model.prefill_flops_per_pair / tp / (peak * terms.prefill)
    c[at.CONTEXT] = read if together else _joined(read, heads)
    c[at.WALK] = terms.walk_s * model.layers * model.head_dim / WALKED_DIM
    if terms.walk_s > 0.0:
        _blocks(c, terms, model, gpu, read, tp)
    if model.windowed_layers:
        _windows(c, model)


def _blocks(c: list[float], terms: AttentionTerms, model: Model, gpu: Gpu, read: float, tp: int) -> None:
    """Put the decode attention of 2024 into a coefficient array: one block per sequence and query head, in waves over the multiprocessors.

    While there are fewer blocks than multiprocessors, each walks its context at its own pace; one block more than a full
    wave takes as long as two waves. With many waves the arithmetic of the single heads decides. Groups of 8 heads are taken
    together once their blocks, which are fewer, fill a quarter of the multiprocessors.
    """
    multiprocessors = FEWER_MULTIPROCESSORS.get(gpu.name) or MULTIPROCESSORS.get(gpu.arch, MULTIPROCESSORS["Hopper"])
    c[at.HEADS] = _joined(read, model.decode_flops_per_pair / tp / (gpu.fp16_tflops * 1e12 * terms.head_arithmetic))
    c[at.WAVE] = model.heads / tp / multiprocessors
    kv_heads = max(model.kv_heads / tp, 1.0)
    c[at.GROUPED_FROM] = multiprocessors / ENOUGH_BLOCKS / kv_heads if _eight(model) else NEVER


def _joined(read: float, arithmetic: float) -> float:
    """A smooth maximum of two durations."""
    seconds: float = (read**CONTEXT_NORM + arithmetic**CONTEXT_NORM) ** (1 / CONTEXT_NORM)
    return seconds


def _eight(model: Model) -> bool:
    """Whether a KV head has the eight query heads that kernels of 2024 took together on the tensor cores."""
    return model.heads == 8 * model.kv_heads


def _windows(c: list[float], model: Model) -> None:
    """Count layers with a sliding window as reading one window per sequence and per new token; contexts are taken to be longer."""
    share = model.windowed_layers / model.layers
    c[at.ACTIVATION] += share * c[at.ATTENTION] * model.window
    c[at.HOST_SEQUENCE] += share * (c[at.CONTEXT] + c[at.WALK]) * model.window
    for place in (at.ATTENTION, at.CONTEXT, at.HEADS, at.WALK):
        c[place] *= 1.0 - share

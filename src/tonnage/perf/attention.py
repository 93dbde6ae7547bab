"""What the layers that mix tokens add to a step: the token pairs of prompts, the contexts that
decoding reads, and states.

``spec.layers`` counts the arithmetic and traffic of each kind of layer; here they become seconds,
by what each kind reaches of the datasheet. Kinds that read a bounded number of entries, or a state,
cost the same at any context (``step_terms.BOUNDED``).

Decode attention is limited by bandwidth where the kernel takes the query heads of a KV head
together. The kernels of 2024 (TensorRT-LLM 0.9 and 0.10) did so for groups of eight heads and above
a number of sequences; otherwise each query head of each sequence was a separate block, and blocks
ran in waves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tonnage.perf import step_terms as at
from tonnage.spec.attention_layers import FullAttention, LatentLayer, SlidingAttention, Work
from tonnage.spec.layers import WITH_LATENT, WITH_STATE, Layers, Mixer

if TYPE_CHECKING:
    from tonnage.perf.terms_file import TermGroups
    from tonnage.spec.hardware import Gpu
    from tonnage.spec.model import Model
    from tonnage.spec.precision import Precision

CONTEXT_NORM = 4.0
"""Exponent of the smooth maximum of KV bandwidth and query-head arithmetic."""

MULTIPROCESSORS = {"Volta": 80, "Turing": 40, "Ampere": 108, "Ada": 142, "Hopper": 132}
FEWER_MULTIPROCESSORS = {
    "a30-24gb": 56,
    "a10-24gb": 72,
    "a10g-24gb": 80,
    "l4": 58,
    "l20": 92,
    "h100-pcie-80gb": 114,
}
"""Streaming multiprocessors of a generation's data-centre cards, and of the cards that have fewer
(datasheets, recalled)."""

ENOUGH_BLOCKS = 4
"""Kernels of 2024 take the heads of a KV head together from this share of the multiprocessors on:
blocks · 4 ≥ multiprocessors (``mayHavePerfGain`` of TensorRT-LLM's XQA runner); blocks are KV heads
of the GPU times sequences."""

WALKED_DIM = 128
"""The head size that ``walk_s`` is for."""

NEVER = 1e9
"""More decode sequences than any engine runs."""

BITS_8 = 8

COMPRESSED_SEQUENCE_S = 0.15e-6
"""What a layer of compressed attention takes longer for each sequence that decodes than its traffic
and arithmetic: measured whole on B200 in vLLM, layers with an indexer take 0.25 µs a sequence with
16 heads on the GPU and 0.55 with 128, others 0.19 and 0.41 (source as of
``coefficients/kernels.json``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionTerms:
    """What the layers of one kind reach of the datasheet; all are fitted."""

    prefill: float  # share of the 16-bit matrix rate in prefill attention
    kv_bandwidth: float  # share of the memory bandwidth in decode attention
    # decode attention of one query head after another, as a share of the 16-bit matrix rate;
    # infinite where the kernel takes all heads of a KV head at once
    head_arithmetic: float
    # seconds per token and layer that one block takes to walk a context with heads 128 wide; 0
    # where contexts are split
    walk_s: float
    bounded: float  # share of the memory bandwidth in reading chosen entries, windows and states
    index: float  # share of the rate of 8-bit matrix products in an indexer's scores
    # share of the 16-bit matrix rate in the chunks of linear attention and state-space layers
    scan: float


def attention_terms(groups: TermGroups, mixer: Mixer, precision: Precision) -> AttentionTerms:
    """The terms of one kind of layer, in a precision as the GPU executes it."""
    engine, shared, latent = groups.engine, groups.shared, mixer.kind in WITH_LATENT
    kv = engine["kv_bandwidth"] * groups.generation.get("kv", 1.0)
    kv *= (
        engine["kv_8bit"] * engine.get(f"kv_8bit_{groups.kernels}", 1.0)
        if precision.kv_bits == BITS_8
        else 1.0
    )
    if latent:
        kv *= engine.get("latent_bandwidth", 1.0)
    elif isinstance(mixer, FullAttention | SlidingAttention) and mixer.kv_heads == mixer.heads:
        kv *= engine["kv_single"]
    bounded = kv if isinstance(mixer, SlidingAttention) else kv * shared["gathered"]
    return AttentionTerms(
        prefill=_prefill(groups) * (engine.get("latent_attention", 1.0) if latent else 1.0),
        kv_bandwidth=kv,
        head_arithmetic=_head_arithmetic(groups, mixer, precision),
        walk_s=engine["walk_s"],
        bounded=shared["state_bandwidth"] if mixer.kind in WITH_STATE else bounded,
        index=shared["index"],
        scan=shared["scan"],
    )


def _prefill(groups: TermGroups) -> float:
    """Share of the 16-bit matrix rate in prefill attention of full heads."""
    share: float = (
        groups.shared["attention"]
        * groups.generation["attention"]
        * groups.engine.get("attention", 1.0)
    )
    return share


def _head_arithmetic(groups: TermGroups, mixer: Mixer, precision: Precision) -> float:
    """Share of the 16-bit matrix rate in decode attention.

    Kernels of 2024 computed head by head where they did not take groups together (``_walks``);
    later ones always take them together. Latent attention is arithmetic on the tensor cores in
    every engine, and so are the kinds that came after it; where no row says otherwise, it reaches
    the same share of their rate as prefill attention.
    """
    engine = groups.engine
    if mixer.kind in WITH_LATENT:
        return _prefill(groups) * engine.get("latent_arithmetic", 1.0)
    if not isinstance(mixer, FullAttention | SlidingAttention):
        return _prefill(groups)
    narrow = engine.get("head_8bit", 1.0) if precision.kv_bits == BITS_8 else 1.0
    return (engine["head_arithmetic"] or math.inf) * groups.generation["head_arithmetic"] * narrow


def add_attention(
    c: list[float],
    terms: tuple[AttentionTerms, ...],
    model: Model,
    gpu: Gpu,
    precision: Precision,
    tp: int,
) -> None:
    """Put what mixes tokens into a coefficient array: per token pair, per context token, per token,
    and per sequence.

    Args:
        c: the array, with the matrices already in it.
        terms: of each kind of ``model.by_kind``.
        model, gpu, tp: what runs, on how many GPUs of a rank.
        precision: as the GPU executes it.
    """
    for layer_group, reached in zip(model.by_kind, terms, strict=True):
        work = layer_group.mixer.work(precision.kv_bits, tp)
        _prompts(c, layer_group, work, reached, gpu)
        _decodes(c, layer_group, work, reached, gpu)
        if reached.walk_s > 0.0:
            _walks(c, layer_group, reached, gpu, tp, work)


def _prompts(c: list[float], layers: Layers, work: Work, terms: AttentionTerms, gpu: Gpu) -> None:
    """Put prefill into the array; the work per token of a window counts for every token of a step,
    as attention does.
    """
    rate = gpu.fp16_tflops * 1e12
    pair = layers.layers * work.pair / (rate * terms.prefill)
    if work.pair_most > 0.0:
        c[at.SPARSE] += pair
        c[at.SPARSE_MOST] += layers.layers * work.pair_most / (rate * terms.prefill)
    else:
        c[at.ATTENTION] += pair
    c[at.ATTENTION] += layers.layers * work.index_pair / (_index_rate(gpu) * terms.index)
    if isinstance(layers.mixer, SlidingAttention):
        c[at.ACTIVATION] += layers.layers * work.token / (rate * terms.prefill)
    else:
        reached = terms.scan if layers.mixer.kind in WITH_STATE else terms.prefill
        c[at.SCAN] += layers.layers * work.token / (rate * reached)


def _decodes(c: list[float], layers: Layers, work: Work, terms: AttentionTerms, gpu: Gpu) -> None:
    """Put decodes into the array: what grows with the context, and what does not."""
    rate, bandwidth = gpu.fp16_tflops * 1e12, gpu.memory_bandwidth_gb_s * 1e9
    arithmetic = math.inf if _together(layers.mixer) else rate * terms.head_arithmetic
    scores = (
        work.index_bytes / (bandwidth * terms.kv_bandwidth),
        work.index / (_index_rate(gpu) * terms.index),
    )
    reads = work.context_bytes / (bandwidth * terms.kv_bandwidth), work.context / arithmetic
    fixed = work.sequence_bytes / (bandwidth * terms.bounded), work.sequence / arithmetic
    c[at.CONTEXT] += layers.layers * (_joined(*reads) + _joined(*scores))
    c[at.BOUNDED] += layers.layers * (
        _joined(*fixed) + (COMPRESSED_SEQUENCE_S if layers.mixer.kind == "compressed" else 0.0)
    )


def _walks(
    c: list[float], layers: Layers, terms: AttentionTerms, gpu: Gpu, tp: int, work: Work
) -> None:
    """Put what the kernels of 2024 add into the array, for the kinds that they knew: one block per
    sequence and query head, in waves over the multiprocessors.

    While there are fewer blocks than multiprocessors, each walks its context at its own pace; one
    block more than a full wave takes as long as two waves. With many waves the arithmetic of the
    single heads decides. Groups of 8 heads are taken together once their blocks, which are fewer,
    fill a quarter of the multiprocessors.
    """
    mixer = layers.mixer
    if not isinstance(mixer, FullAttention | SlidingAttention | LatentLayer):
        return
    walk = terms.walk_s * layers.layers * mixer.width / mixer.heads / WALKED_DIM
    if isinstance(mixer, SlidingAttention):
        c[at.BOUNDED] += walk * mixer.window
        return
    c[at.WALK] += walk
    multiprocessors = FEWER_MULTIPROCESSORS.get(gpu.name) or MULTIPROCESSORS.get(
        gpu.arch, MULTIPROCESSORS["Hopper"]
    )
    read = work.context_bytes / (gpu.memory_bandwidth_gb_s * 1e9 * terms.kv_bandwidth)
    c[at.HEADS] += layers.layers * _joined(
        read, work.context / (gpu.fp16_tflops * 1e12 * terms.head_arithmetic)
    )
    c[at.WAVE] = mixer.heads / tp / multiprocessors
    c[at.GROUPED_FROM] = NEVER
    if isinstance(mixer, FullAttention) and _together(mixer):
        c[at.GROUPED_FROM] = multiprocessors / ENOUGH_BLOCKS / max(mixer.kv_heads / tp, 1.0)


def _index_rate(gpu: Gpu) -> float:
    """FLOP/s of an indexer's scores by the datasheet, in FP8 where the GPU has it."""
    return (gpu.fp8_tflops or gpu.fp16_tflops) * 1e12


def _joined(read: float, arithmetic: float) -> float:
    """A smooth maximum of two durations."""
    seconds: float = (read**CONTEXT_NORM + arithmetic**CONTEXT_NORM) ** (1 / CONTEXT_NORM)
    return seconds


def _together(mixer: Mixer) -> bool:
    """Whether a KV head has the eight query heads that kernels of 2024 took together on the tensor
    cores.
    """
    return isinstance(mixer, FullAttention | SlidingAttention) and mixer.heads == 8 * mixer.kv_heads

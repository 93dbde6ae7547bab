"""Layers that mix tokens by attention: full, within a window, latent, to what an indexer chooses,
and to compressed stretches.

Every kind of layer, these and those with a state (``spec.layers``), says of one layer what the
weights of its projections are (``parameters``), what it keeps in memory (``cache``), what a step
costs beyond its matrices (``work``), and over how many GPUs it can be split (``splits``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tonnage.spec.typed_values import strict

BITS_8 = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """Bytes that one layer keeps on one GPU of an attention rank."""

    token: float = 0.0  # per token of the context
    index: float = 0.0  # per token of the context, for the keys of an indexer
    window_token: float = 0.0  # per token among the last ``window``
    window: int = 0  # tokens of the context that a window keeps
    sequence: float = 0.0  # per sequence, however long it is


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Arithmetic and traffic of one layer on one GPU beyond its matrices; arithmetic is in FLOP,
    traffic in bytes.
    """

    pair: float = 0.0  # prefill, per pair of a new token and a token that it attends to
    # prefill, per new token where attention is bounded: what ``pair`` comes to at most; 0 where
    # nothing bounds it
    pair_most: float = 0.0
    index_pair: float = 0.0  # prefill, per pair that an indexer scores
    # prefill, per new token whatever its context: scans of linear attention and state-space layers,
    # windows
    token: float = 0.0
    # context, context_bytes: decode, per token of the context
    context: float = 0.0
    context_bytes: float = 0.0
    # index, index_bytes: decode, per token of the context that an indexer scores
    index: float = 0.0
    index_bytes: float = 0.0
    # sequence, sequence_bytes: decode, per sequence: entries that were chosen, windows, states that
    # are read and written
    sequence: float = 0.0
    sequence_bytes: float = 0.0


def of_heads(heads: int, tp: int) -> float:
    """Heads on one of ``tp`` GPUs: at least one, which GPUs beyond the heads repeat."""
    return max(heads / tp, 1.0)


def go_into(heads: int, tp: int) -> bool:
    """Whether ``tp`` GPUs share heads evenly, several to a GPU or several GPUs to a head."""
    return heads % tp == 0 or tp % heads == 0


@strict
class Heads:
    """Query heads of one width, which GPUs share evenly."""

    kind: str
    heads: int
    head_dim: int

    @property
    def width(self) -> int:
        """Elements of the heads' outputs for one token."""
        return self.heads * self.head_dim

    def splits(self, tp: int) -> bool:
        """Whether ``tp`` GPUs get the same number of heads each."""
        return self.heads % tp == 0


@strict
class GroupedHeads:
    """Query heads that share key/value heads, of one width for keys and one for values."""

    kind: str
    heads: int  # query heads
    kv_heads: int  # key/value heads that they share
    head_dim: int  # width of a query or key head

    @property
    def _values(self) -> int:
        return self.head_dim

    @property
    def width(self) -> int:
        """Elements of the heads' outputs for one token."""
        return self.heads * self._values

    def splits(self, tp: int) -> bool:
        """Whether ``tp`` GPUs get the same number of heads each."""
        return self.heads % tp == 0 and go_into(self.kv_heads, tp)

    def _entry(self, kv_bits: int, tp: int) -> float:
        return of_heads(self.kv_heads, tp) * (self.head_dim + self._values) * kv_bits / 8


@strict
class FullAttention(GroupedHeads):
    """Every token attends to all before it (arXiv 1706.03762; grouped key/value heads: arXiv
    2305.13245).
    """

    kind: Literal["full"] = "full"
    value_dim: int = 0  # width of a value head; 0 where it is that of a key head
    # queries are projected twice, the second time to gate the output (Qwen3-Next)
    output_gate: bool = False
    # values are the keys before norm and position, so that there is one projection; both are cached
    # (Gemma 4)
    keys_are_values: bool = False
    # the layer has no keys and values and reads those of an earlier layer (Gemma 4 E2B and E4B)
    shared_cache: bool = False
    # keys and values are those of images: text alone passes the layer by, and nothing is cached of
    # it (Llama 3.2 Vision)
    cross: bool = False

    @property
    def _values(self) -> int:
        return self.value_dim or self.head_dim

    def parameters(self, hidden: int) -> int:
        """Weights of the projections of one layer."""
        queries = self.heads * self.head_dim * (2 if self.output_gate else 1)
        cached = self.kv_heads * (self.head_dim + (0 if self.keys_are_values else self._values))
        return hidden * (queries + (0 if self.shared_cache else cached) + self.width)

    def cache(self, kv_bits: int, tp: int) -> Cache:
        """Bytes of keys and values on each of ``tp`` GPUs."""
        return Cache() if self.shared_cache or self.cross else Cache(token=self._entry(kv_bits, tp))

    def work(self, kv_bits: int, tp: int) -> Work:
        """Arithmetic and traffic of one layer on each of ``tp`` GPUs."""
        if self.cross:
            return Work()
        pair = 2 * self.heads * (self.head_dim + self._values) / tp
        return Work(pair=pair, context=pair, context_bytes=self._entry(kv_bits, tp))


@strict
class SlidingAttention(GroupedHeads):
    """Every token attends to the last ``window`` tokens (arXiv 2004.05150); often mixed with layers
    that attend to all.
    """

    kind: Literal["sliding"] = "sliding"
    window: int  # tokens
    value_dim: int = 0  # width of a value head; 0 where it is that of a key head
    shared_cache: bool = False  # the layer reads the cache of an earlier layer of its kind
    output_gate: bool = False  # queries are projected twice, the second time to gate the output

    @property
    def _values(self) -> int:
        return self.value_dim or self.head_dim

    def parameters(self, hidden: int) -> int:
        """Weights of the projections of one layer."""
        cached = 0 if self.shared_cache else self.kv_heads * (self.head_dim + self._values)
        queries = self.heads * self.head_dim * (2 if self.output_gate else 1)
        return hidden * (queries + cached + self.width)

    def cache(self, kv_bits: int, tp: int) -> Cache:
        """Bytes of keys and values of the window on each of ``tp`` GPUs."""
        return (
            Cache()
            if self.shared_cache
            else Cache(window_token=self._entry(kv_bits, tp), window=self.window)
        )

    def work(self, kv_bits: int, tp: int) -> Work:
        """Arithmetic and traffic on each of ``tp`` GPUs; assumes contexts longer than the window,
        an upper bound.
        """
        pair = 2 * self.heads * (self.head_dim + self._values) / tp
        return Work(
            token=pair * self.window,
            sequence=pair * self.window,
            sequence_bytes=self._entry(kv_bits, tp) * self.window,
        )


@strict
class BlockSparseAttention(GroupedHeads):
    """Keys and values of all tokens are cached; a query attends to the ``topk_blocks`` best blocks,
    its own among them (MiniMax-M3).

    Source: ``minimax_m3_vl`` of transformers 5.23.0, read 2026-11-22.
    """

    kind: Literal["block-sparse"] = "block-sparse"
    # block, topk_blocks: tokens of a block, and blocks that a query attends to
    block: int
    topk_blocks: int
    # index_heads, index_dim: heads of the indexer, and the width of its keys
    index_heads: int
    index_dim: int

    def parameters(self, hidden: int) -> int:
        """Weights of the projections of one layer and of its indexer."""
        heads = self.heads * self.head_dim + 2 * self.kv_heads * self.head_dim + self.width
        return hidden * (heads + self.index_heads * self.index_dim + self.index_dim)

    def cache(self, kv_bits: int, tp: int) -> Cache:
        """Bytes of keys, values and index keys on each of ``tp`` GPUs."""
        return Cache(token=self._entry(kv_bits, tp), index=self.index_dim * kv_bits / 8)

    def work(self, kv_bits: int, tp: int) -> Work:
        """Arithmetic and traffic; assumes contexts longer than the choice, an upper bound."""
        pair, chosen = 4 * self.heads * self.head_dim / tp, self.block * self.topk_blocks
        scores = 2 * self.index_heads * self.index_dim
        return Work(
            pair=pair,
            pair_most=pair * chosen,
            index_pair=scores,
            index=scores,
            index_bytes=self.index_dim * kv_bits / 8,
            sequence=pair * chosen,
            sequence_bytes=self._entry(kv_bits, tp) * chosen,
        )


@strict
class LatentAttention:
    """The widths of multi-head latent attention (MLA).

    Source: DeepSeek-V2 (arXiv 2405.04434), section 2.1; the names are those of its ``config.json``.
    """

    q_lora_rank: int  # width to which queries are compressed; 0 where they are not
    kv_lora_rank: int  # width of the cached vector of keys and values
    qk_nope_head_dim: int  # width of a query or key head without position
    # width of the part with position, which all heads share in the cache; 0 where there is none
    qk_rope_head_dim: int
    v_head_dim: int  # width of a value head

    @property
    def cached(self) -> int:
        """Elements that one layer caches per token."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    def parameters(self, hidden: int, heads: int) -> int:
        """Weights of the projections of one layer."""
        query = heads * (self.qk_nope_head_dim + self.qk_rope_head_dim)
        queries = self.q_lora_rank * (hidden + query) if self.q_lora_rank else hidden * query
        expanded = self.kv_lora_rank * heads * (self.qk_nope_head_dim + self.v_head_dim)
        return queries + hidden * self.cached + expanded + heads * self.v_head_dim * hidden

    @property
    def prefill_width(self) -> int:
        """Products per head and pair of tokens where keys and values are expanded: query times key,
        weight times value.
        """
        return self.qk_nope_head_dim + self.qk_rope_head_dim + self.v_head_dim

    @property
    def decode_width(self) -> int:
        """The same where the expansion is absorbed into queries and output and the heads attend to
        the cached vector itself.
        """
        return 2 * self.kv_lora_rank + self.qk_rope_head_dim


@strict
class LatentHeads:
    """Query heads whose keys and values are cached together, as one vector for all of them."""

    kind: str
    heads: int  # query heads
    widths: LatentAttention  # of queries, keys and values

    @property
    def width(self) -> int:
        """Elements of the heads' outputs for one token."""
        return self.heads * self.widths.v_head_dim

    def splits(self, tp: int) -> bool:
        """Whether ``tp`` GPUs get the same number of heads each."""
        return self.heads % tp == 0


@strict
class LatentLayer(LatentHeads):
    """A layer with latent attention to the whole context. Its cache is one vector for all heads:
    tensor parallelism does not divide it.
    """

    kind: Literal["latent"] = "latent"
    output_gate: bool = False  # a further projection gates the output (Kimi K3)

    def parameters(self, hidden: int) -> int:
        """Weights of the projections of one layer."""
        return self.widths.parameters(hidden, self.heads) + (
            hidden * self.width if self.output_gate else 0
        )

    def cache(self, kv_bits: int, tp: int) -> Cache:
        """Bytes of the latent vector, which every GPU keeps."""
        del tp
        return Cache(token=self.widths.cached * kv_bits / 8)

    def work(self, kv_bits: int, tp: int) -> Work:
        """Arithmetic and traffic: prompts expand keys and values, decodes attend to the latent
        vector itself.
        """
        return Work(
            pair=2 * self.heads * self.widths.prefill_width / tp,
            context=2 * self.heads * self.widths.decode_width / tp,
            context_bytes=self.widths.cached * kv_bits / 8,
        )


# Latent attention to the tokens that an indexer chooses (DeepSeek sparse attention, DSA).


SCALE_BYTES = 4  # Bytes of the scale of an index key in FP8 (vLLM ``indexer_k_cache``, recalled)

LATENT_SCALES = 16
"""Bytes of the scales of an FP8 entry of the latent cache, whose part with position stays in 16
bits (vLLM ``fp8_ds_mla``, recalled)."""

LEAST_HEADS = 16
"""Query heads to which kernels of sparse attention fill up what is left on a GPU. Those of 2025
filled up to 64 (vLLM's recipe for DeepSeek V3.2); with 16 heads or fewer vLLM has others since 2026
(vLLM pull/33451 on Blackwell, pull/46189 on Hopper), and SGLang those of trtllm and fa3
(InferenceX's scripts of GLM-5)."""


@strict
class SparseLatentLayer(LatentHeads):
    """A light indexer scores all tokens of the context, and latent attention reads the ``topk``
    best (arXiv 2512.02556).
    """

    kind: Literal["sparse-latent"] = "sparse-latent"
    # index_heads, index_dim: heads of the indexer and the width of its keys
    index_heads: int
    index_dim: int
    topk: int  # tokens that a query attends to at most
    pooled: int = 1  # tokens that one index key stands for (``index_kpool`` of GLM-5.3-Flash)
    # the layer has no indexer and takes the choice of an earlier layer (GLM-5.2)
    reuses_choice: bool = False
    output_gate: bool = False  # a further projection gates the output (Hunyuan V4)

    def parameters(self, hidden: int) -> int:
        """Weights of the projections of one layer and of its indexer: queries, one key for all
        heads, a weight per head.
        """
        queried = self.widths.q_lora_rank or hidden
        indexer = queried * self.index_heads * self.index_dim + hidden * (
            self.index_dim + self.index_heads
        )
        gate = hidden * self.width if self.output_gate else 0
        return (
            self.widths.parameters(hidden, self.heads)
            + gate
            + (0 if self.reuses_choice else indexer)
        )

    def cache(self, kv_bits: int, tp: int) -> Cache:
        """Bytes of the latent vector and of the index key, which every GPU keeps."""
        del tp
        return Cache(
            token=self._entry(kv_bits),
            index=0.0 if self.reuses_choice else self._key(kv_bits) / self.pooled,
        )

    def work(self, kv_bits: int, tp: int) -> Work:
        """Arithmetic and traffic.

        Decodes read ``topk`` entries, an upper bound for shorter contexts. Prompts attend to all
        tokens with expanded keys, or to the chosen ones with absorbed ones, whichever takes less.
        """
        heads = max(self.heads / tp, min(LEAST_HEADS, self.heads))
        chosen = 2 * heads * self.widths.decode_width * self.topk
        scores = 0.0 if self.reuses_choice else 2 * self.index_heads * self.index_dim / self.pooled
        return Work(
            pair=2 * self.heads * self.widths.prefill_width / tp,
            pair_most=chosen,
            index_pair=scores,
            index=scores,
            index_bytes=self.cache(kv_bits, tp).index,
            sequence=chosen,
            sequence_bytes=self._entry(kv_bits) * self.topk,
        )

    def _entry(self, kv_bits: int) -> float:
        if kv_bits == BITS_8:
            return self.widths.kv_lora_rank + LATENT_SCALES + 2.0 * self.widths.qk_rope_head_dim
        return self.widths.cached * kv_bits / 8

    def _key(self, kv_bits: int) -> float:
        return self.index_dim * kv_bits / 8 + (SCALE_BYTES if kv_bits == BITS_8 else 0)


# Bytes of the scales of an FP8 entry, whose part with position stays in 16 bits (recalled from
# vLLM)
COMPRESSED_SCALES = 8


@strict
class CompressedLayer(Heads):
    """One key/value head that is key and value at once; it is not divided by tensor parallelism.

    A token attends to the last ``window`` tokens, and to entries that stand for ``ratio`` tokens
    each: to all of them, or, with an indexer, to the ``topk`` best. Source: ``deepseek_v4`` of
    transformers 5.23.0, read 2026-11-22; byte counts of FP8 are recalled.
    """

    kind: Literal["compressed"] = "compressed"
    rope_dim: int  # width of the part of a head with position
    window: int  # tokens that are attended to as they are
    ratio: int  # tokens that an entry stands for: 4 (CSA), 128 (HCA), or 0 for the window alone
    q_lora_rank: int  # width to which queries are compressed
    # o_groups, o_lora_rank: groups of heads whose outputs are compressed, and to which width
    o_groups: int
    o_lora_rank: int
    # index_heads, index_dim, topk: the indexer's heads, the width of its keys, and how many entries
    # it chooses; 0 without one
    index_heads: int = 0
    index_dim: int = 0
    topk: int = 0
    # the layer reads the entries of an earlier layer and keeps a window alone (DeepSeek V4.1)
    shared_cache: bool = False

    def parameters(self, hidden: int) -> int:
        """Weights of the projections of one layer, of what compresses stretches, and of the
        indexer.
        """
        queries = self.q_lora_rank * (hidden + self.width)
        outputs = self.width * self.o_lora_rank + self.o_groups * self.o_lora_rank * hidden
        overlap = 4 if self.index_heads else 2
        stretches = (
            overlap * hidden * (self.head_dim + self.index_dim)
            if self.ratio and not self.shared_cache
            else 0
        )
        indexer = self.q_lora_rank * self.index_heads * self.index_dim
        return queries + hidden * self.head_dim + outputs + stretches + indexer

    def cache(self, kv_bits: int, tp: int) -> Cache:
        """Bytes of entries, index keys and window, which every GPU keeps."""
        del tp
        entry, keeps = self._entry(kv_bits), self.ratio > 0 and not self.shared_cache
        return Cache(
            token=entry / self.ratio if keeps else 0.0,
            index=self.index_dim * kv_bits / 8 / self.ratio if keeps else 0.0,
            window_token=entry,
            window=self.window,
        )

    def work(self, kv_bits: int, tp: int) -> Work:
        """Arithmetic and traffic; assumes contexts long enough for ``topk`` entries, an upper
        bound.
        """
        per_entry = 4 * self.heads * self.head_dim / tp
        entry, cache = self._entry(kv_bits), self.cache(kv_bits, tp)
        bounded = self.window + self.topk
        scores = 2 * self.index_heads * self.index_dim / self.ratio if self.index_heads else 0.0
        whole = per_entry / self.ratio if self.ratio else 0.0
        return Work(
            pair=whole,
            pair_most=per_entry * self.topk if self.index_heads else 0.0,
            token=per_entry * self.window,
            index_pair=scores,
            index=scores,
            index_bytes=cache.index,
            context=0.0 if self.index_heads else whole,
            context_bytes=0.0 if self.index_heads else entry / self.ratio if self.ratio else 0.0,
            sequence=per_entry * bounded,
            sequence_bytes=entry * bounded,
        )

    def _entry(self, kv_bits: int) -> float:
        return (
            self.head_dim + self.rope_dim + COMPRESSED_SCALES
            if kv_bits == BITS_8
            else self.head_dim * kv_bits / 8
        )


Attention = (
    FullAttention
    | SlidingAttention
    | LatentLayer
    | SparseLatentLayer
    | CompressedLayer
    | BlockSparseAttention
)

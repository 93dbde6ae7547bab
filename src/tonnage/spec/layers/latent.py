"""Multi-head latent attention: keys and values of all heads are cached as one compressed vector per token."""

from __future__ import annotations

from typing import Literal

from tonnage.spec.layers.cost import Cache, Work
from tonnage.spec.typed_values import strict


@strict
class LatentAttention:
    """The widths of multi-head latent attention (MLA).

    Source: DeepSeek-V2 (arXiv 2405.04434), section 2.1; the names are those of its ``config.json``.

    Attributes:
        q_lora_rank: width to which queries are compressed; 0 where they are not.
        kv_lora_rank: width of the cached vector of keys and values.
        qk_nope_head_dim: width of a query or key head without position.
        qk_rope_head_dim: width of the part with position, which all heads share in the cache; 0 where there is none.
        v_head_dim: width of a value head.
    """

    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int

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
        """Products per head and pair of tokens where keys and values are expanded: query times key, weight times value."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim + self.v_head_dim

    @property
    def decode_width(self) -> int:
        """The same where the expansion is absorbed into queries and output and the heads attend to the cached vector itself."""
        return 2 * self.kv_lora_rank + self.qk_rope_head_dim


@strict
class LatentLayer:
    """A layer with latent attention to the whole context. Its cache is one vector for all heads: tensor parallelism does not divide it.

    Attributes:
        heads: query heads.
        widths: of queries, keys and values.
        output_gate: a further projection gates the output (Kimi K3).
    """

    kind: Literal["latent"] = "latent"
    heads: int
    widths: LatentAttention
    output_gate: bool = False

    @property
    def width(self) -> int:
        """Elements of the heads' outputs for one token."""
        return self.heads * self.widths.v_head_dim

    def parameters(self, hidden: int) -> int:
        """Weights of the projections of one layer."""
        return self.widths.parameters(hidden, self.heads) + (hidden * self.width if self.output_gate else 0)

    def cache(self, kv_bits: int, tp: int) -> Cache:
        """Bytes of the latent vector, which every GPU keeps."""
        del tp
        return Cache(token=self.widths.cached * kv_bits / 8)

    def work(self, kv_bits: int, tp: int) -> Work:
        """Arithmetic and traffic: prompts expand keys and values, decodes attend to the latent vector itself."""
        return Work(
            pair=2 * self.heads * self.widths.prefill_width / tp,
            context=2 * self.heads * self.widths.decode_width / tp,
            context_bytes=self.widths.cached * kv_bits / 8,
        )

    def splits(self, tp: int) -> bool:
        """Whether ``tp`` GPUs get the same number of heads each."""
        return self.heads % tp == 0


# Latent attention to the tokens that an indexer chooses (DeepSeek sparse attention, DSA).


SCALE_BYTES = 4
"""Bytes of the scale of an index key in FP8 (vLLM ``indexer_k_cache``, recalled)."""

BITS_8 = 8
NARROW_SCALES = 16
"""Bytes of the scales of an FP8 entry of the latent cache, whose part with position stays in 16 bits (vLLM ``fp8_ds_mla``, recalled)."""

LEAST_HEADS = 16
"""Query heads to which kernels of sparse attention fill up what is left on a GPU. Those of 2025 filled up to 64 (vLLM's recipe for DeepSeek
V3.2); with 16 heads or fewer vLLM has others since 2026 (vLLM pull/33451 on Blackwell, pull/46189 on Hopper), and SGLang those of trtllm
and fa3 (InferenceX's scripts of GLM-5)."""


@strict
class SparseLatentLayer:
    """A light indexer scores all tokens of the context, and latent attention reads the ``topk`` best (arXiv 2512.02556).

    Attributes:
        heads, widths: as in ``LatentLayer``.
        index_heads, index_dim: heads of the indexer and the width of its keys.
        topk: tokens that a query attends to at most.
        pooled: tokens that one index key stands for (``index_kpool`` of GLM-5.3-Flash).
        reuses_choice: the layer has no indexer of its own and takes the choice of an earlier layer (GLM-5.2).
    """

    kind: Literal["sparse-latent"] = "sparse-latent"
    heads: int
    widths: LatentAttention
    index_heads: int
    index_dim: int
    topk: int
    pooled: int = 1
    reuses_choice: bool = False

    @property
    def width(self) -> int:
        """Elements of the heads' outputs for one token."""
        return self.heads * self.widths.v_head_dim

    def parameters(self, hidden: int) -> int:
        """Weights of the projections of one layer and of its indexer: queries, one key for all heads, a weight per head."""
        queried = self.widths.q_lora_rank or hidden
        indexer = queried * self.index_heads * self.index_dim + hidden * (self.index_dim + self.index_heads)
        return self.widths.parameters(hidden, self.heads) + (0 if self.reuses_choice else indexer)

    def cache(self, kv_bits: int, tp: int) -> Cache:
        """Bytes of the latent vector and of the index key, which every GPU keeps."""
        del tp
        return Cache(token=self._entry(kv_bits), index=0.0 if self.reuses_choice else self._key(kv_bits) / self.pooled)

    def work(self, kv_bits: int, tp: int) -> Work:
        """Arithmetic and traffic.

        Decodes read ``topk`` entries, an upper bound for shorter contexts. Prompts attend to all tokens with expanded keys, or to the
        chosen ones with absorbed ones, whichever takes less.
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

    def splits(self, tp: int) -> bool:
        """Whether ``tp`` GPUs get the same number of heads each."""
        return self.heads % tp == 0

    def _entry(self, kv_bits: int) -> float:
        if kv_bits == BITS_8:
            return self.widths.kv_lora_rank + NARROW_SCALES + 2.0 * self.widths.qk_rope_head_dim
        return self.widths.cached * kv_bits / 8

    def _key(self, kv_bits: int) -> float:
        return self.index_dim * kv_bits / 8 + (SCALE_BYTES if kv_bits == BITS_8 else 0)

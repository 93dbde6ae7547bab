"""Attention to compressed stretches of the context next to a window (DeepSeek V4: CSA and HCA)."""

from __future__ import annotations

from typing import Literal

from tonnage.spec.layers.cost import Cache, Work
from tonnage.spec.typed_values import strict

BITS_8 = 8
NARROW_SCALES = 8
"""Bytes of the scales of an FP8 entry, whose part with position stays in 16 bits (recalled from vLLM)."""


@strict
class CompressedLayer:
    """One key/value head that is key and value at once; it is not divided by tensor parallelism.

    A token attends to the last ``window`` tokens, and to entries that stand for ``ratio`` tokens each: to all of them, or, with an
    indexer, to the ``topk`` best. Source: ``deepseek_v4`` of transformers 5.23.0, read 2026-11-22; byte counts of FP8 are recalled.

    Attributes:
        heads: query heads.
        head_dim, rope_dim: width of a head, and of its part with position.
        window: tokens that are attended to as they are.
        ratio: tokens that an entry stands for: 4 (CSA), 128 (HCA), or 0 for the window alone.
        q_lora_rank: width to which queries are compressed.
        o_groups, o_lora_rank: groups of heads whose outputs are compressed, and to which width.
        index_heads, index_dim, topk: the indexer's heads, the width of its keys, and how many entries it chooses; 0 without one.
    """

    kind: Literal["compressed"] = "compressed"
    heads: int
    head_dim: int
    rope_dim: int
    window: int
    ratio: int
    q_lora_rank: int
    o_groups: int
    o_lora_rank: int
    index_heads: int = 0
    index_dim: int = 0
    topk: int = 0

    @property
    def width(self) -> int:
        """Elements of the heads' outputs for one token."""
        return self.heads * self.head_dim

    def parameters(self, hidden: int) -> int:
        """Weights of the projections of one layer, of what compresses stretches, and of the indexer."""
        queries = self.q_lora_rank * (hidden + self.width)
        outputs = self.width * self.o_lora_rank + self.o_groups * self.o_lora_rank * hidden
        overlap = 4 if self.index_heads else 2
        stretches = overlap * hidden * (self.head_dim + self.index_dim) if self.ratio else 0
        indexer = self.q_lora_rank * self.index_heads * self.index_dim
        return queries + hidden * self.head_dim + outputs + stretches + indexer

    def cache(self, kv_bits: int, tp: int) -> Cache:
        """Bytes of entries, index keys and window, which every GPU keeps."""
        del tp
        entry = self._entry(kv_bits)
        return Cache(
            token=entry / self.ratio if self.ratio else 0.0,
            index=self.index_dim * kv_bits / 8 / self.ratio if self.ratio else 0.0,
            window_token=entry,
            window=self.window,
        )

    def work(self, kv_bits: int, tp: int) -> Work:
        """Arithmetic and traffic; contexts are taken to be long enough for ``topk`` entries, an upper bound."""
        each = 4 * self.heads * self.head_dim / tp
        entry, kept = self._entry(kv_bits), self.cache(kv_bits, tp)
        bounded = self.window + self.topk
        scores = 2 * self.index_heads * self.index_dim / self.ratio if self.index_heads else 0.0
        whole = each / self.ratio if self.ratio else 0.0
        return Work(
            pair=whole,
            pair_most=each * self.topk if self.index_heads else 0.0,
            token=each * self.window,
            index_pair=scores,
            index=scores,
            index_bytes=kept.index,
            context=0.0 if self.index_heads else whole,
            context_bytes=0.0 if self.index_heads else kept.token,
            sequence=each * bounded,
            sequence_bytes=entry * bounded,
        )

    def splits(self, tp: int) -> bool:
        """Whether ``tp`` GPUs get the same number of heads each."""
        return self.heads % tp == 0

    def _entry(self, kv_bits: int) -> float:
        if kv_bits == BITS_8:
            return self.head_dim + self.rope_dim + NARROW_SCALES
        return self.head_dim * kv_bits / 8

"""Grouped attention to the blocks of the context that an indexer chooses (MiniMax-M3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tonnage.spec.layers.cost import Cache, Work, go_into, of_heads
from tonnage.spec.typed_values import FORBID


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSparseAttention:
    """Keys and values of all tokens are cached; a query attends to the ``topk_blocks`` best blocks, its own among them.

    Source: ``minimax_m3_vl`` of transformers 5.23.0, read 2026-11-22.

    Attributes:
        heads, kv_heads, head_dim: as in ``FullAttention``.
        block, topk_blocks: tokens of a block, and blocks that a query attends to.
        index_heads, index_dim: heads of the indexer, and the width of its keys.
    """

    __pydantic_config__ = FORBID

    kind: Literal["block-sparse"] = "block-sparse"
    heads: int
    kv_heads: int
    head_dim: int
    block: int
    topk_blocks: int
    index_heads: int
    index_dim: int

    @property
    def width(self) -> int:
        """Elements of the heads' outputs for one token."""
        return self.heads * self.head_dim

    def parameters(self, hidden: int) -> int:
        """Weights of the projections of one layer and of its indexer."""
        heads = self.heads * self.head_dim + 2 * self.kv_heads * self.head_dim + self.width
        return hidden * (heads + self.index_heads * self.index_dim + self.index_dim)

    def cache(self, kv_bits: int, tp: int) -> Cache:
        """Bytes of keys, values and index keys on each of ``tp`` GPUs."""
        return Cache(token=self._entry(kv_bits, tp), index=self.index_dim * kv_bits / 8)

    def work(self, kv_bits: int, tp: int) -> Work:
        """Arithmetic and traffic; contexts are taken to be longer than what is chosen, an upper bound."""
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

    def splits(self, tp: int) -> bool:
        """Whether ``tp`` GPUs get the same number of heads each."""
        return self.heads % tp == 0 and go_into(self.kv_heads, tp)

    def _entry(self, kv_bits: int, tp: int) -> float:
        return 2 * of_heads(self.kv_heads, tp) * self.head_dim * kv_bits / 8

"""Attention to the whole context, with full, grouped or single key/value heads."""

from __future__ import annotations

from typing import Literal

from tonnage.spec.layers.cost import Cache, Work, go_into, of_heads
from tonnage.spec.typed_values import strict


@strict
class FullAttention:
    """Every token attends to all before it (arXiv 1706.03762; grouped key/value heads: arXiv 2305.13245).

    Attributes:
        heads, kv_heads: query heads, and key/value heads that they share.
        head_dim: width of a query or key head.
        value_dim: width of a value head; 0 where it is that of a key head.
        output_gate: queries are projected twice, the second time to gate the output (Qwen3-Next).
        keys_are_values: values are the keys before norm and position, so that there is one projection; both are cached (Gemma 4).
        shared_cache: the layer has no keys and values and reads those of an earlier layer (Gemma 4 E2B and E4B).
    """

    kind: Literal["full"] = "full"
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int = 0
    output_gate: bool = False
    keys_are_values: bool = False
    shared_cache: bool = False

    @property
    def _values(self) -> int:
        return self.value_dim or self.head_dim

    @property
    def width(self) -> int:
        """Elements of the heads' outputs for one token."""
        return self.heads * self._values

    def parameters(self, hidden: int) -> int:
        """Weights of the projections of one layer."""
        queries = self.heads * self.head_dim * (2 if self.output_gate else 1)
        cached = self.kv_heads * (self.head_dim + (0 if self.keys_are_values else self._values))
        return hidden * (queries + (0 if self.shared_cache else cached) + self.width)

    def cache(self, kv_bits: int, tp: int) -> Cache:
        """Bytes of keys and values on each of ``tp`` GPUs."""
        return Cache() if self.shared_cache else Cache(token=self._entry(kv_bits, tp))

    def work(self, kv_bits: int, tp: int) -> Work:
        """Arithmetic and traffic of one layer on each of ``tp`` GPUs."""
        pair = 2 * self.heads * (self.head_dim + self._values) / tp
        return Work(pair=pair, context=pair, context_bytes=self._entry(kv_bits, tp))

    def splits(self, tp: int) -> bool:
        """Whether ``tp`` GPUs get the same number of heads each."""
        return self.heads % tp == 0 and go_into(self.kv_heads, tp)

    def _entry(self, kv_bits: int, tp: int) -> float:
        return of_heads(self.kv_heads, tp) * (self.head_dim + self._values) * kv_bits / 8


# Attention to the last tokens of a window.


@strict
class SlidingAttention:
    """Every token attends to the last ``window`` tokens (arXiv 2004.05150); often beside layers that attend to all.

    Attributes:
        heads, kv_heads, head_dim, value_dim: as in ``FullAttention``; they may differ from those of the other layers.
        window: tokens.
        shared_cache: the layer reads the cache of an earlier layer of its kind.
    """

    kind: Literal["sliding"] = "sliding"
    heads: int
    kv_heads: int
    head_dim: int
    window: int
    value_dim: int = 0
    shared_cache: bool = False

    @property
    def _values(self) -> int:
        return self.value_dim or self.head_dim

    @property
    def width(self) -> int:
        """Elements of the heads' outputs for one token."""
        return self.heads * self._values

    def parameters(self, hidden: int) -> int:
        """Weights of the projections of one layer."""
        cached = 0 if self.shared_cache else self.kv_heads * (self.head_dim + self._values)
        return hidden * (self.heads * self.head_dim + cached + self.width)

    def cache(self, kv_bits: int, tp: int) -> Cache:
        """Bytes of keys and values of the window on each of ``tp`` GPUs."""
        return Cache() if self.shared_cache else Cache(window_token=self._entry(kv_bits, tp), window=self.window)

    def work(self, kv_bits: int, tp: int) -> Work:
        """Arithmetic and traffic on each of ``tp`` GPUs; contexts are taken to be longer than the window, an upper bound."""
        pair = 2 * self.heads * (self.head_dim + self._values) / tp
        return Work(token=pair * self.window, sequence=pair * self.window, sequence_bytes=self._entry(kv_bits, tp) * self.window)

    def splits(self, tp: int) -> bool:
        """Whether ``tp`` GPUs get the same number of heads each."""
        return self.heads % tp == 0 and go_into(self.kv_heads, tp)

    def _entry(self, kv_bits: int, tp: int) -> float:
        return of_heads(self.kv_heads, tp) * (self.head_dim + self._values) * kv_bits / 8


# Grouped attention to the blocks of the context that an indexer chooses (MiniMax-M3).


@strict
class BlockSparseAttention:
    """Keys and values of all tokens are cached; a query attends to the ``topk_blocks`` best blocks, its own among them.

    Source: ``minimax_m3_vl`` of transformers 5.23.0, read 2026-11-22.

    Attributes:
        heads, kv_heads, head_dim: as in ``FullAttention``.
        block, topk_blocks: tokens of a block, and blocks that a query attends to.
        index_heads, index_dim: heads of the indexer, and the width of its keys.
    """

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

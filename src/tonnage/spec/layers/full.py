"""Attention to the whole context, with full, grouped or single key/value heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tonnage.spec.layers.cost import Cache, Work, go_into, of_heads
from tonnage.spec.typed_values import FORBID


@dataclass(frozen=True, slots=True, kw_only=True)
class FullAttention:
    """Every token attends to all before it (arXiv 1706.03762; grouped key/value heads: arXiv 2305.13245).

    Attributes:
        heads, kv_heads: query heads, and key/value heads that they share.
        head_dim: width of a query or key head.
        value_dim: width of a value head; 0 where it is that of a key head.
        output_gate: queries are projected twice, the second time to gate the output (Qwen3-Next).
        keys_are_values: values are the keys before norm and position, so that there is one projection; both are cached (Gemma 4).
        shared_cache: the layer has no keys and values of its own and reads those of an earlier layer (Gemma 4 E2B and E4B).
    """

    __pydantic_config__ = FORBID

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

"""Attention to the last tokens of a window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tonnage.spec.layers.cost import Cache, Work, go_into, of_heads
from tonnage.spec.typed_values import FORBID


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingAttention:
    """Every token attends to the last ``window`` tokens (arXiv 2004.05150); often beside layers that attend to all.

    Attributes:
        heads, kv_heads, head_dim, value_dim: as in ``FullAttention``; they may differ from those of the other layers.
        window: tokens.
        shared_cache: the layer reads the cache of an earlier layer of its kind.
    """

    __pydantic_config__ = FORBID

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

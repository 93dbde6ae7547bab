"""Linear attention by the gated delta rule: a state per sequence instead of a cache per token (Qwen3-Next, Qwen3.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tonnage.spec.layers.cost import Cache, Work, go_into, of_heads
from tonnage.spec.typed_values import FORBID

CHUNK = 64
"""Tokens that kernels compute together in prefill (flash-linear-attention)."""

CONV_BYTES = 2
"""Bytes of an element of the convolution's state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDeltaNet:
    """Every value head keeps a matrix of key by value (arXiv 2412.06464). The counts of arithmetic per token are our own.

    Attributes:
        key_heads, value_heads, key_dim, value_dim: heads of keys and values, and their widths.
        conv_kernel: tokens that the convolution before it sees.
        state_bytes: bytes of an element of the matrix, as the model's ``config.json`` asks for.
    """

    __pydantic_config__ = FORBID

    kind: Literal["gated-delta"] = "gated-delta"
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int
    state_bytes: int = 4

    @property
    def width(self) -> int:
        """Elements of the heads' outputs for one token."""
        return self.value_heads * self.value_dim

    def parameters(self, hidden: int) -> int:
        """Weights of the projections of one layer: queries and keys, values and their gate, two numbers per value head, the output."""
        return hidden * (2 * self.key_heads * self.key_dim + 2 * self.width + 2 * self.value_heads) + self.width * hidden

    def cache(self, kv_bits: int, tp: int) -> Cache:
        """Bytes of the states of a sequence on each of ``tp`` GPUs."""
        del kv_bits
        channels = 2 * self.key_heads * self.key_dim + self.width
        conv = channels / tp * (self.conv_kernel - 1) * CONV_BYTES
        return Cache(sequence=self._state(tp) * self.state_bytes + conv)

    def work(self, kv_bits: int, tp: int) -> Work:
        """Arithmetic and traffic: a decode reads and writes the state, a prompt is computed in chunks."""
        del kv_bits
        heads, k, v = of_heads(self.value_heads, tp), self.key_dim, self.value_dim
        return Work(
            token=heads * (CHUNK * (6 * k + 4 * v) + 6 * k * v),
            sequence=7 * heads * k * v,
            sequence_bytes=2 * self._state(tp) * self.state_bytes,
        )

    def splits(self, tp: int) -> bool:
        """Whether ``tp`` GPUs get the same number of heads each."""
        return self.value_heads % tp == 0 and go_into(self.key_heads, tp)

    def _state(self, tp: int) -> float:
        return of_heads(self.value_heads, tp) * self.key_dim * self.value_dim

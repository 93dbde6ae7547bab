"""Kimi delta attention: the gated delta rule with a decay for every channel (Kimi Linear, Kimi K3, GLM-5.3-Flash)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tonnage.spec.layers.cost import Cache, Work, of_heads
from tonnage.spec.layers.gated_delta import CHUNK, CONV_BYTES
from tonnage.spec.typed_values import FORBID


@dataclass(frozen=True, slots=True, kw_only=True)
class KimiDeltaAttention:
    """Every head keeps a matrix of key by value (arXiv 2510.26692).

    Attributes:
        heads, head_dim: heads, and the width of queries, keys and values.
        conv_kernel: tokens that the three convolutions before it see.
        full_gate: the output gate is one matrix instead of two of low rank (Kimi K3).
        state_bytes: bytes of an element of the matrix.
    """

    __pydantic_config__ = FORBID

    kind: Literal["kda"] = "kda"
    heads: int
    head_dim: int
    conv_kernel: int
    full_gate: bool = False
    state_bytes: int = 4

    @property
    def width(self) -> int:
        """Elements of the heads' outputs for one token."""
        return self.heads * self.head_dim

    def parameters(self, hidden: int) -> int:
        """Weights of the projections of one layer: queries, keys, values, output, decay (of low rank), its strength, and the gate."""
        low_rank = self.head_dim * (hidden + self.width)
        return 4 * hidden * self.width + low_rank + hidden * self.heads + (hidden * self.width if self.full_gate else low_rank)

    def cache(self, kv_bits: int, tp: int) -> Cache:
        """Bytes of the states of a sequence on each of ``tp`` GPUs."""
        del kv_bits
        heads = of_heads(self.heads, tp)
        conv = 3 * heads * self.head_dim * (self.conv_kernel - 1) * CONV_BYTES
        return Cache(sequence=heads * self.head_dim**2 * self.state_bytes + conv)

    def work(self, kv_bits: int, tp: int) -> Work:
        """Arithmetic and traffic, as those of the gated delta rule."""
        del kv_bits
        heads, d = of_heads(self.heads, tp), self.head_dim
        return Work(
            token=heads * (CHUNK * 10 * d + 6 * d * d),
            sequence=7 * heads * d * d,
            sequence_bytes=2 * heads * d * d * self.state_bytes,
        )

    def splits(self, tp: int) -> bool:
        """Whether ``tp`` GPUs get the same number of heads each."""
        return self.heads % tp == 0

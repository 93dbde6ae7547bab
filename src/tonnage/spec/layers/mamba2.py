"""State-space layers of the second generation (Mamba-2), as in Nemotron-H and Nemotron 3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tonnage.spec.layers.cost import Cache, Work, go_into, of_heads
from tonnage.spec.typed_values import FORBID

CHUNK = 128
"""Tokens that kernels compute together in prefill (``chunk_size`` of Nemotron's ``config.json``)."""

CONV_BYTES = 2
"""Bytes of an element of the convolution's state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2:
    """Every head keeps a matrix of its width by the state size (arXiv 2405.21060).

    Attributes:
        heads, head_dim: heads and their width.
        state: width of the state of each channel.
        groups: groups of heads that share their projections of input and output.
        conv_kernel: tokens that the convolution before it sees.
        state_bytes: bytes of an element of the matrix, as the model's ``config.json`` asks for.
    """

    __pydantic_config__ = FORBID

    kind: Literal["mamba2"] = "mamba2"
    heads: int
    head_dim: int
    state: int
    groups: int
    conv_kernel: int
    state_bytes: int = 4

    @property
    def width(self) -> int:
        """Elements of the heads' outputs for one token."""
        return self.heads * self.head_dim

    def parameters(self, hidden: int) -> int:
        """Weights of the projections of one layer."""
        return hidden * (2 * self.width + 2 * self.groups * self.state + self.heads) + self.width * hidden

    def cache(self, kv_bits: int, tp: int) -> Cache:
        """Bytes of the states of a sequence on each of ``tp`` GPUs; GPUs beyond the groups repeat them."""
        del kv_bits
        channels = self.width / tp + 2 * of_heads(self.groups, tp) * self.state
        return Cache(sequence=self._state(tp) * self.state_bytes + channels * (self.conv_kernel - 1) * CONV_BYTES)

    def work(self, kv_bits: int, tp: int) -> Work:
        """Arithmetic and traffic: a decode reads and writes the state, a prompt is computed in chunks."""
        del kv_bits
        heads = of_heads(self.heads, tp)
        return Work(
            token=heads * (2 * CHUNK * (self.state + self.head_dim) + 4 * self.head_dim * self.state),
            sequence=6 * self._state(tp),
            sequence_bytes=2 * self._state(tp) * self.state_bytes,
        )

    def splits(self, tp: int) -> bool:
        """Whether ``tp`` GPUs get the same number of heads each."""
        return self.heads % tp == 0 and go_into(self.groups, tp)

    def _state(self, tp: int) -> float:
        return of_heads(self.heads, tp) * self.head_dim * self.state

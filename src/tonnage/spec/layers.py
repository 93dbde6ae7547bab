"""Layers by kind: what mixes the tokens of a sequence.

A model is a list of (kind, number of layers). ``spec.attention_layers`` says what every kind
answers, and has the kinds that attend; the kinds with a state per sequence instead of a cache per
token are here. Nothing else needs to know the kinds apart but what is fitted of each
(``perf.attention``). A new kind is a class, an entry in ``Mixer`` and one in ``KINDS``.
"""

from __future__ import annotations

from typing import Literal

from tonnage.spec.attention_layers import Attention, Cache, Heads, Work, go_into, of_heads
from tonnage.spec.typed_values import strict

CHUNK = 64  # Tokens that kernels compute together in prefill (flash-linear-attention)

CONV_BYTES = 2  # Bytes of an element of the convolution's state


@strict
class GatedDeltaNet:
    """Every value head keeps a matrix of key by value (arXiv 2412.06464). The counts of arithmetic
    per token are our own.
    """

    kind: Literal["gated-delta"] = "gated-delta"
    # key_heads, value_heads, key_dim, value_dim: heads of keys and values, and their widths
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int  # tokens that the convolution before it sees
    # bytes of an element of the matrix, as the model's ``config.json`` asks for
    state_bytes: int = 4

    @property
    def width(self) -> int:
        """Elements of the heads' outputs for one token."""
        return self.value_heads * self.value_dim

    def parameters(self, hidden: int) -> int:
        """Weights of the projections of one layer: queries and keys, values and their gate, two
        numbers per value head, the output.
        """
        return (
            hidden * (2 * self.key_heads * self.key_dim + 2 * self.width + 2 * self.value_heads)
            + self.width * hidden
        )

    def cache(self, kv_bits: int, tp: int) -> Cache:
        """Bytes of the states of a sequence on each of ``tp`` GPUs."""
        del kv_bits
        channels = 2 * self.key_heads * self.key_dim + self.width
        conv = channels / tp * (self.conv_kernel - 1) * CONV_BYTES
        return Cache(sequence=self._state(tp) * self.state_bytes + conv)

    def work(self, kv_bits: int, tp: int) -> Work:
        """Arithmetic and traffic: a decode reads and writes the state, a prompt is computed in
        chunks.
        """
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


# Kimi delta attention: the gated delta rule with a decay for every channel (Kimi Linear, Kimi K3,
# GLM-5.3-Flash).


@strict
class KimiDeltaAttention(Heads):
    """Every head keeps a matrix of key by value (arXiv 2510.26692)."""

    kind: Literal["kda"] = "kda"
    conv_kernel: int  # tokens that the three convolutions before it see
    full_gate: bool = False  # the output gate is one matrix instead of two of low rank (Kimi K3)
    state_bytes: int = 4  # bytes of an element of the matrix

    def parameters(self, hidden: int) -> int:
        """Weights of the projections of one layer: queries, keys, values, output, decay (of low
        rank), its strength, and the gate.
        """
        low_rank = self.head_dim * (hidden + self.width)
        return (
            4 * hidden * self.width
            + low_rank
            + hidden * self.heads
            + (hidden * self.width if self.full_gate else low_rank)
        )

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


# State-space layers of the second generation (Mamba-2), as in Nemotron-H and Nemotron 3.


# Tokens that kernels compute together in prefill (``chunk_size`` of Nemotron's ``config.json``)
MAMBA2_CHUNK = 128


@strict
class Mamba2(Heads):
    """Every head keeps a matrix of its width by the state size (arXiv 2405.21060)."""

    kind: Literal["mamba2"] = "mamba2"
    state: int  # width of the state of each channel
    groups: int  # groups of heads that share their projections of input and output
    conv_kernel: int  # tokens that the convolution before it sees
    # bytes of an element of the matrix, as the model's ``config.json`` asks for
    state_bytes: int = 4

    def parameters(self, hidden: int) -> int:
        """Weights of the projections of one layer."""
        return (
            hidden * (2 * self.width + 2 * self.groups * self.state + self.heads)
            + self.width * hidden
        )

    def cache(self, kv_bits: int, tp: int) -> Cache:
        """Bytes of the states of a sequence on each of ``tp`` GPUs; GPUs beyond the groups repeat
        them.
        """
        del kv_bits
        channels = self.width / tp + 2 * of_heads(self.groups, tp) * self.state
        return Cache(
            sequence=self._state(tp) * self.state_bytes
            + channels * (self.conv_kernel - 1) * CONV_BYTES
        )

    def work(self, kv_bits: int, tp: int) -> Work:
        """Arithmetic and traffic: a decode reads and writes the state, a prompt is computed in
        chunks.
        """
        del kv_bits
        heads = of_heads(self.heads, tp)
        return Work(
            token=heads
            * (2 * MAMBA2_CHUNK * (self.state + self.head_dim) + 4 * self.head_dim * self.state),
            sequence=6 * self._state(tp),
            sequence_bytes=2 * self._state(tp) * self.state_bytes,
        )

    def splits(self, tp: int) -> bool:
        """Whether ``tp`` GPUs get the same number of heads each."""
        return self.heads % tp == 0 and go_into(self.groups, tp)

    def _state(self, tp: int) -> float:
        return of_heads(self.heads, tp) * self.head_dim * self.state


# State-space layers of the first generation (Mamba), as in Jamba, and convolutions of a few tokens,
# as in LFM2.


@strict
class Mamba1:
    """Every channel keeps a vector of the state size (arXiv 2312.00752); the count of arithmetic
    per token is our own.
    """

    kind: Literal["mamba"] = "mamba"
    channels: int  # width of the layer within
    state: int  # width of the state of each channel
    rank: int  # width to which the step sizes are narrowed
    conv_kernel: int  # tokens that the convolution before it sees
    state_bytes: int = 4  # bytes of an element of the state

    @property
    def width(self) -> int:
        """Elements of the channels' outputs for one token."""
        return self.channels

    def parameters(self, hidden: int) -> int:
        """Weights of one layer: input with its gate, convolution, what chooses, step sizes, the
        state's decay, and the output.
        """
        return 3 * hidden * self.channels + self.channels * (
            2 * self.rank + 3 * self.state + self.conv_kernel
        )

    def cache(self, kv_bits: int, tp: int) -> Cache:
        """Bytes of the states of a sequence on each of ``tp`` GPUs."""
        del kv_bits
        return Cache(
            sequence=self.channels
            / tp
            * (self.state * self.state_bytes + (self.conv_kernel - 1) * CONV_BYTES)
        )

    def work(self, kv_bits: int, tp: int) -> Work:
        """Arithmetic and traffic: a decode reads and writes the state, a prompt is scanned token by
        token.
        """
        del kv_bits
        elements = self.channels / tp * self.state
        return Work(
            token=6 * elements,
            sequence=6 * elements,
            sequence_bytes=2 * elements * self.state_bytes,
        )

    def splits(self, tp: int) -> bool:
        """Whether ``tp`` GPUs get the same number of channels each."""
        return self.channels % tp == 0


@strict
class ShortConvolution:
    """A gated convolution over the last tokens in place of attention (``lfm2`` of transformers
    5.24.0).
    """

    kind: Literal["convolution"] = "convolution"
    channels: int  # width of the convolution
    conv_kernel: int  # tokens that it sees

    @property
    def width(self) -> int:
        """Elements of the outputs for one token."""
        return self.channels

    def parameters(self, hidden: int) -> int:
        """Weights of one layer: input with two gates, the convolution, and the output."""
        return 4 * hidden * self.channels + self.channels * self.conv_kernel

    def cache(self, kv_bits: int, tp: int) -> Cache:
        """Bytes of the last tokens on each of ``tp`` GPUs."""
        del kv_bits
        return Cache(sequence=self.channels / tp * (self.conv_kernel - 1) * CONV_BYTES)

    def work(self, kv_bits: int, tp: int) -> Work:
        """Arithmetic and traffic."""
        sequence_state = self.cache(kv_bits, tp).sequence
        return Work(
            token=sequence_state * self.conv_kernel,
            sequence=sequence_state * self.conv_kernel,
            sequence_bytes=2 * sequence_state,
        )

    def splits(self, tp: int) -> bool:
        """Whether ``tp`` GPUs get the same number of channels each."""
        return self.channels % tp == 0


Mixer = Attention | GatedDeltaNet | KimiDeltaAttention | Mamba1 | Mamba2 | ShortConvolution

KINDS: dict[str, str] = {
    "full": "attention to the whole context",
    "sliding": "attention within a window",
    "latent": "latent attention (MLA)",
    "sparse-latent": "latent attention to what an indexer chooses (DSA)",
    "compressed": "attention to compressed stretches and a window (CSA, HCA)",
    "block-sparse": "attention to blocks that an indexer chooses",
    "gated-delta": "linear attention by the gated delta rule",
    "kda": "Kimi delta attention",
    "mamba2": "state-space layers (Mamba-2)",
    "mamba": "state-space layers (Mamba)",
    "convolution": "short convolutions",
}
"""Every kind of layer, in words."""

# Kinds that keep a state per sequence and no cache per token
WITH_STATE = ("gated-delta", "kda", "mamba2", "mamba", "convolution")

WITH_LATENT = ("latent", "sparse-latent", "compressed")
"""Kinds whose cache is one vector for all heads, which tensor parallelism cannot divide."""


@strict
class Layers:
    """Some layers of one kind."""

    layers: int  # how many
    mixer: Mixer  # what mixes tokens in each

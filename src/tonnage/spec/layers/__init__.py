"""Layers by kind: what mixes the tokens of a sequence, one file per family of kinds.

A model is a list of (kind, number of layers). Every kind says how many weights its projections have, what it keeps in memory per
token and per sequence, what a step costs in arithmetic and traffic beyond its matrices, and over how many GPUs it can be split:
``parameters``, ``cache``, ``work`` and ``splits``. Nothing else needs to know the kinds apart but what is fitted of each
(``perf.attention``). A new kind is a class here and an entry in ``KINDS``.
"""

from __future__ import annotations

from tonnage.spec.layers.compressed import CompressedLayer
from tonnage.spec.layers.cost import Cache, Work
from tonnage.spec.layers.full import BlockSparseAttention, FullAttention, SlidingAttention
from tonnage.spec.layers.latent import LatentAttention, LatentLayer, SparseLatentLayer
from tonnage.spec.layers.linear import GatedDeltaNet, KimiDeltaAttention, Mamba2
from tonnage.spec.typed_values import strict

Mixer = (
    FullAttention
    | SlidingAttention
    | LatentLayer
    | SparseLatentLayer
    | CompressedLayer
    | BlockSparseAttention
    | GatedDeltaNet
    | KimiDeltaAttention
    | Mamba2
)

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
}
"""Every kind of layer, in words."""

WITH_STATE = ("gated-delta", "kda", "mamba2")
"""Kinds that keep a state per sequence and no cache per token."""

WITH_LATENT = ("latent", "sparse-latent", "compressed")
"""Kinds whose cache is one vector for all heads, which tensor parallelism cannot divide."""


@strict
class Layers:
    """Some layers of one kind.

    Attributes:
        layers: how many.
        mixer: what mixes tokens in each.
    """

    layers: int
    mixer: Mixer


__all__ = [
    "KINDS",
    "WITH_LATENT",
    "WITH_STATE",
    "BlockSparseAttention",
    "Cache",
    "CompressedLayer",
    "FullAttention",
    "GatedDeltaNet",
    "KimiDeltaAttention",
    "LatentAttention",
    "LatentLayer",
    "Layers",
    "Mamba2",
    "Mixer",
    "SlidingAttention",
    "SparseLatentLayer",
    "Work",
]

"""What one layer that mixes tokens keeps in memory and costs in a step, in one form for every kind of layer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """Bytes that one layer keeps on one GPU of an attention rank.

    Attributes:
        token: per token of the context.
        index: per token of the context, for the keys of an indexer.
        window_token: per token among the last ``window``.
        window: tokens of the context that a window keeps.
        sequence: per sequence, however long it is.
    """

    token: float = 0.0
    index: float = 0.0
    window_token: float = 0.0
    window: int = 0
    sequence: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Arithmetic and traffic of one layer on one GPU beyond its matrices; arithmetic is in FLOP, traffic in bytes.

    Attributes:
        pair: prefill, per pair of a new token and a token that it attends to.
        pair_most: prefill, per new token where attention is bounded: what ``pair`` comes to at most; 0 where nothing bounds it.
        index_pair: prefill, per pair that an indexer scores.
        token: prefill, per new token whatever its context: scans of linear attention and state-space layers, windows.
        context, context_bytes: decode, per token of the context.
        index, index_bytes: decode, per token of the context that an indexer scores.
        sequence, sequence_bytes: decode, per sequence: entries that were chosen, windows, states that are read and written.
    """

    pair: float = 0.0
    pair_most: float = 0.0
    index_pair: float = 0.0
    token: float = 0.0
    context: float = 0.0
    context_bytes: float = 0.0
    index: float = 0.0
    index_bytes: float = 0.0
    sequence: float = 0.0
    sequence_bytes: float = 0.0


def of_heads(heads: int, tp: int) -> float:
    """Heads on one of ``tp`` GPUs: at least one, which GPUs beyond the heads repeat."""
    return max(heads / tp, 1.0)


def go_into(heads: int, tp: int) -> bool:
    """Whether ``tp`` GPUs share heads evenly, several to a GPU or several GPUs to a head."""
    return heads % tp == 0 or tp % heads == 0

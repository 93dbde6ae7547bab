"""Bytes of KV cache per token, and of states per sequence.

Layers with sliding-window attention keep the last ``window`` tokens of a sequence; the cache of the other layers grows with every
token. The windows of a sequence count as further blocks of the growing layers from admission to release. So does vLLM, where
blocks of both kinds come from one pool (hybrid KV cache manager, ``docs/design/hybrid_kv_cache_manager.md``,
``SlidingWindowSpec`` of ``vllm/v1/kv_cache_interface.py``; left out: while a prompt is computed it may hold a whole step's tokens
more, a window takes one block more where it begins inside one, and groups of layers are filled up to equal size). TensorRT-LLM
has a pool per window size, with fixed shares of the memory; its PyTorch backend keeps windows only where
``max_attention_window`` is set, and releases whose shares are those of full attention gain little
(``calculateWindowSizeToShare`` of ``kvCacheManager.cpp``). SGLang has two pools too, that of windows of 0.8 as many tokens as the
other unless set (``swa_full_tokens_ratio``). All are treated alike here: as one pool, which is what theirs come to where they are
set to what the requests need. Models all of whose layers have windows (Mistral 7B v0.1) are counted in full, which is an upper bound.

States of linear attention and state-space layers are of one size however long the sequence is. They count as further blocks, too, from
admission to release: vLLM keeps them in pages of the same pool (``MambaSpec``), SGLang and TensorRT-LLM in a pool beside it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tonnage.spec.deployment import Deployment


def kv_bytes_per_token(deployment: Deployment) -> int:
    """Bytes of KV cache that one token takes on each GPU of its attention rank, the drafter's included, in layers without a window.

    Keys of indexers count with it. With more GPUs than key/value heads each GPU keeps one head; a latent vector is kept by all GPUs. A
    drafter's windows count in full.
    """
    asked, model, bits, tp = deployment.speculation, deployment.model, deployment.precision.kv_bits, deployment.parallelism.tp
    drafter = None if asked is None else asked.layers_of(model)
    size = sum(layers * (cache.token + cache.index) for layers, cache in model.caches(bits, tp))
    if drafter is not None:
        size += sum(layers * (cache.token + cache.index + cache.window_token) for layers, cache in drafter.caches(bits, tp))
    return math.ceil(size)


def index_bytes_per_token(deployment: Deployment) -> int:
    """What of it the keys of indexers take."""
    kept = deployment.model.caches(deployment.precision.kv_bits, deployment.parallelism.tp)
    return math.ceil(sum(layers * cache.index for layers, cache in kept))


def window_bytes_per_token(deployment: Deployment) -> int:
    """The same in layers with a sliding window, per token that they keep; 0 where all layers grow with the sequence or are counted so."""
    kept = deployment.model.caches(deployment.precision.kv_bits, deployment.parallelism.tp)
    return math.ceil(sum(layers * cache.window_token for layers, cache in kept))


def window_tokens(deployment: Deployment) -> int:
    """Tokens that the layers with a sliding window keep; where they differ, the most that any of them keeps."""
    kept = deployment.model.caches(deployment.precision.kv_bits, deployment.parallelism.tp)
    return max((cache.window for _, cache in kept if cache.window_token), default=0)


def state_bytes(deployment: Deployment) -> int:
    """Bytes of the states of one sequence on each GPU, in layers of linear attention and state-space layers.

    With speculative decoding a state is kept for every guess, so that the one after the last right guess can be taken up.
    """
    kept = deployment.model.caches(deployment.precision.kv_bits, deployment.parallelism.tp)
    states = 1 if deployment.speculation is None else deployment.speculation.tokens + 1
    return math.ceil(states * sum(layers * cache.sequence for layers, cache in kept))

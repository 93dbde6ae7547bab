"""Bytes of KV cache per token.

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
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tonnage.spec.deployment import Deployment


def kv_bytes_per_token(deployment: Deployment) -> int:
    """Bytes of KV cache that one token takes on each GPU of its attention rank, the drafter's included, in layers without a window.

    With more GPUs than key/value heads each GPU keeps one head; a latent vector is kept by all GPUs. A drafter's windows count in full.
    """
    asked, model, tp = deployment.speculation, deployment.model, deployment.parallelism.tp
    drafter = None if asked is None else asked.layers_of(model)
    elements = model.kv_elements_per_gpu(tp) * model.growing_layers / model.layers
    elements += 0 if drafter is None else drafter.kv_elements_per_gpu(tp)
    return math.ceil(elements * deployment.precision.kv_bytes)


def window_bytes_per_token(deployment: Deployment) -> int:
    """The same in layers with a sliding window, per token that they keep; 0 where all layers grow with the sequence or are counted so."""
    model = deployment.model
    elements = model.kv_elements_per_gpu(deployment.parallelism.tp) * (model.layers - model.growing_layers) / model.layers
    return math.ceil(elements * deployment.precision.kv_bytes)

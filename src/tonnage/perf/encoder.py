"""The image encoder of a model: seconds and bytes of its layers, on the terms of the language model's.

The transformer of an encoder is a second model whose tokens are patches. It runs in 16 bits in the steps that compute a prompt, kernel
by kernel, split over the GPUs like the language model (vLLM ``mm_encoder_tp_mode`` weights). Patches attend to all patches of their image
or tile: as many pairs as patches squared. What images add to a request is spread evenly over the tokens that it computes. Sizing and
decoding of image files on the CPU, before the engine has a request, are not counted.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tonnage.perf import step_terms as at
from tonnage.perf.step import step_seconds
from tonnage.spec.model import Model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tonnage.spec.deployment import Deployment
    from tonnage.spec.images import Encoder

MARK = (
    "images: the encoder is estimated by its layers at the language model's efficiencies; published encoders of 16 bits take "
    "about as long (docs/images-and-adapters.md), and decoding of image files on the CPU comes on top"
)

BYTES_16 = 2


def transformer(encoder: Encoder) -> Model:
    """The encoder's layers as a model."""
    return Model(
        name=encoder.name,
        layers=encoder.layers,
        hidden=encoder.hidden,
        heads=encoder.heads,
        kv_heads=encoder.heads,
        head_dim=encoder.hidden // encoder.heads,
        ffn=encoder.ffn,
        gated=encoder.gated,
        vocab=1,
        max_context=1,
    )


def merger_parameters(encoder: Encoder, hidden: int) -> int:
    """Weights of the perceptrons that turn merged patches into tokens of the language model's width."""
    merged = encoder.hidden * encoder.merge**2
    return encoder.mergers * merged * (merged + hidden)


def encoder_bytes(deployment: Deployment) -> int:
    """Bytes of the encoder's weights on each GPU; 0 without images."""
    images = deployment.images
    if images is None:
        return 0
    weights = transformer(images.encoder).linear_parameters + merger_parameters(images.encoder, deployment.model.hidden)
    return math.ceil(BYTES_16 * weights / deployment.parallelism.tp)


def encoded_seconds(c: list[float], encoder: Encoder, hidden: int, sequences: Sequence[int]) -> float:
    """Seconds in which an encoder takes sequences of patches in one step.

    Args:
        c: coefficients of its ``transformer`` in 16 bits, without what the host does once per step.
        encoder: whose they are.
        hidden: the language model's width.
        sequences: patches of each.
    """
    import numpy as np

    merged = merger_parameters(encoder, hidden) / encoder.merge**2
    array = np.array(c)
    array[at.LINEAR_FLOPS] *= 1 + merged / transformer(encoder).common_parameters
    return step_seconds(array, sum(sequences), len(sequences), 0, 2 * sum(patches**2 for patches in sequences), 0)

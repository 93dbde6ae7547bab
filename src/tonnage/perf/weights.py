"""Bytes of the weights on each GPU, the drafter's included."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from tonnage.perf.split import check_split
from tonnage.spec.catalog import find_engine
from tonnage.spec.deployment import Parallelism

if TYPE_CHECKING:
    from tonnage.spec.deployment import Deployment
    from tonnage.spec.model import Model
    from tonnage.spec.precision import Precision

BYTES_16 = 2
"""Bytes of one number of embeddings, output head, router and activations, which stay in 16 bits."""


def weight_bytes(deployment: Deployment) -> int:
    """Bytes of weights on each GPU.

    Attention and MLP matrices are in the weight format; with a format for experts only, all matrices but those of experts are in 16
    bits, or in FP8 (``Precision.rest_bits``). Routed experts are split over all GPUs, the other matrices over the GPUs of an attention
    rank. Embedding, output head and router are in 16 bits. The router is on every GPU, and so is the embedding table where the engine
    replicates it (``EngineSpec.replicated_embedding``); the head is always split.
    """
    model, precision, tp = deployment.model, deployment.precision, deployment.parallelism.tp
    narrow, wide = matrix_weights(model, precision)
    matrices = narrow * precision.weight_bytes / tp + wide * precision.rest_bits / 8 / tp
    if deployment.parallelism.dp > 1:
        matrices -= expert_weights(model) * precision.weight_bytes * (1 / tp - 1 / deployment.parallelism.stage_gpus)
    table = model.head_parameters * BYTES_16
    tables = table + model.further_embeddings * BYTES_16
    embedding = tables if find_engine(deployment.engine).replicated_embedding else tables / tp
    head = 0 if model.tied_embeddings else table / tp
    return math.ceil(matrices + model.router_parameters * BYTES_16 + embedding + head)


def matrix_weights(model: Model, precision: Precision) -> tuple[int, int]:
    """Parameters of the layers' matrices in the weight format, and in that of the rest; the router is not counted."""
    matrices = model.linear_parameters - model.router_parameters
    if not (precision.experts_only and model.is_moe):
        return matrices, 0
    experts = expert_weights(model)
    return experts, matrices - experts


def expert_weights(model: Model) -> int:
    """Parameters of all routed experts; 0 for a dense model."""
    return model.experts * model.expert_parameters if model.is_moe else 0


def drafter_bytes(deployment: Deployment) -> int:
    """Bytes of a drafter's weights on each GPU; 0 without speculative decoding.

    Its layers are in the model's format and split like the model's; heads of its own are in 16 bits.
    """
    asked, model, split = deployment.speculation, deployment.model, deployment.parallelism
    if asked is None:
        return 0
    if asked.draft is not None:
        placed = split if asked.draft.is_moe else Parallelism(tp=split.tp)
        whole = replace(deployment, model=asked.draft, parallelism=placed, speculation=None)
        check_split(whole)
        return weight_bytes(whole)
    layers = asked.layers_of(model)
    narrow = asked.projection_parameters(model) + (0 if layers is None else layers.linear_parameters)
    experts = 0 if layers is None else expert_weights(layers)
    own = (narrow - experts) / split.tp + experts / split.stage_gpus
    return math.ceil(own * deployment.precision.weight_bytes + asked.head_parameters(model) * BYTES_16 / split.tp)

"""What LoRA adapters and images take: memory of each GPU, and seconds of a step.

An adapter puts two narrow matrices, A (rank × in) and B (out × rank), next to every matrix that it
changes. vLLM sets a slot aside for each adapter that may be in a step, of the highest rank, in 16
bits: a matrix that is split by its outputs has all of A on every GPU and a share of B, one that is
split by its inputs a share of A and all of B (S-LoRA's rule without ``fully_sharded_loras``). In a
step every token's inputs are read once more for A, and the outputs read and written once more for
B. Arithmetic and slots are small next to two durations that rank and shapes do not explain: two
kernels for each changed group of matrices, and the pass of these over each adapter that any
sequence of the step uses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tonnage.perf import step_terms as at
from tonnage.perf.step import step_seconds
from tonnage.spec.model import Model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tonnage.spec.deployment import Deployment
    from tonnage.spec.images import Encoder


GROUP_S, ADAPTER_S = 33.3e-6, 3.57e-6
"""Seconds of a step for each changed group of matrices of a layer, and for each adapter in use as
well: what vLLM 0.8 (V1, CUDA graphs) took for Llama 3.1 8B on one H100 (4 groups, rank 16), fitted
to runs of FerranAgulloLopez/GPULLMAdapterOptimization, the data of arXiv 2508.08343; ``./benchmark
published`` prints the fit and what others measured."""

ADAPTERS_MARK = (
    "LoRA adapters: estimated from their shapes and from what vLLM 0.8 took for each layer and"
    " adapter in use on one H100 (arXiv 2508.08343), not fitted to this engine"
)

BYTES_16 = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """Matrices of one group, such as queries, keys and values, as far as adapters see them."""

    copies: int  # of the group in the model: layers, times experts where each has its own
    used: int  # of these a token passes
    layers: int  # layers that launch kernels for it
    # inputs, outputs: widths, summed over the matrices of the group; of inputs once for each matrix
    inputs: int
    outputs: int
    by_outputs: bool  # split over GPUs by outputs, otherwise by inputs

    def widths(self, tp: int) -> tuple[float, float]:
        """Inputs and outputs on each of ``tp`` GPUs."""
        return (
            (self.inputs, self.outputs / tp)
            if self.by_outputs
            else (self.inputs / tp, self.outputs)
        )


def changed(model: Model, on: str) -> list[Changed]:
    """What adapters change: the projections of the layers that mix tokens, and those of MLPs and
    experts where they change all.
    """
    changes = []
    for layer_group in model.by_kind:
        width, inner = (
            layer_group.mixer.width,
            layer_group.mixer.parameters(model.hidden) // model.hidden - layer_group.mixer.width,
        )
        changes += _group(
            layer_group.layers, 1, 1, (3 * model.hidden, inner), (width, model.hidden)
        )
    if on == "attention":
        return changes
    for layers, experts, used, hidden, ffn in _perceptrons(model):
        gates = 2 if model.gated else 1
        changes += _group(layers, experts, used, (gates * hidden, gates * ffn), (ffn, hidden))
    return changes


def _perceptrons(model: Model) -> list[tuple[int, int, int, int, int]]:
    """MLPs: layers, experts of each, how many a token uses, and their widths."""
    experts = model.experts if model.is_moe else 1
    perceptrons = [
        (
            model.expert_layers,
            experts,
            model.experts_per_token if model.is_moe else 1,
            model.expert_width,
            model.ffn,
        )
    ]
    perceptrons += (
        [(model.dense_layers, 1, 1, model.hidden, model.dense_ffn)] if model.dense_layers else []
    )
    return perceptrons + (
        [(model.expert_layers, 1, 1, model.hidden, model.shared_inner)]
        if model.shared_inner
        else []
    )


def _group(
    layers: int, copies: int, used: int, first: tuple[int, int], last: tuple[int, int]
) -> list[Changed]:
    """The matrices before and after what a layer does, each a group."""
    return [
        Changed(
            copies=layers * copies,
            used=layers * used,
            layers=layers,
            inputs=inputs,
            outputs=outputs,
            by_outputs=before,
        )
        for (inputs, outputs), before in ((first, True), (last, False))
    ]


def adapter_bytes(deployment: Deployment) -> int:
    """Bytes of the slots of all adapters on each GPU; 0 without adapters."""
    adapters, split = deployment.adapters, deployment.parallelism
    if adapters is None:
        return 0
    size = 0.0
    for group in changed(deployment.model, adapters.on):
        # experts are on all GPUs of a stage
        spread = group.copies // group.layers if group.copies > group.used else 1
        inputs, outputs = group.widths(split.tp if spread == 1 else split.moe_tp)
        size += group.copies * (inputs + outputs) / (split.ep if spread > 1 else 1)
    return math.ceil(adapters.count * adapters.rank * BYTES_16 * size)


def add_adapters(c: list[float], deployment: Deployment) -> None:
    """Put what adapters take into a coefficient array; nothing without adapters."""
    adapters, tp, gpu = deployment.adapters, deployment.parallelism.tp, deployment.gpu
    if adapters is None:
        return
    moved, narrow, launches = 0.0, 0.0, 0
    for group in changed(deployment.model, adapters.on):
        inputs, outputs = group.widths(tp)
        moved += group.used * (inputs + 2 * outputs)
        narrow += group.used * (inputs + outputs)
        launches += group.layers
    bandwidth = gpu.memory_bandwidth_gb_s * 1e9
    c[at.HOST_STEP] += GROUP_S * launches
    c[at.ACTIVATION] += BYTES_16 * moved / bandwidth
    c[at.LINEAR_FLOPS] += 2 * adapters.rank * narrow / (gpu.fp16_tflops * 1e12)
    c[at.ADAPTERS] = adapters.count * (
        ADAPTER_S * launches + BYTES_16 * adapters.rank * narrow / bandwidth
    )
    c[at.ADAPTER_MISS] = 1 - 1 / adapters.count


# The image encoder of a model: seconds and bytes of its layers, on the terms of the language
# model's. The transformer of an encoder is a second model whose tokens are patches. It runs in 16
# bits in the steps that compute a prompt, kernel by kernel, split over the GPUs like the language
# model (vLLM ``mm_encoder_tp_mode`` weights). Patches attend to all patches of their image or tile:
# as many pairs as patches squared. What images add to a request is spread evenly over the tokens
# that it computes. Sizing and decoding of image files on the CPU, before the engine has a request,
# are not counted.


ENCODER_MARK = (
    "images: the encoder is estimated by its layers at the language model's efficiencies; published"
    " encoders of 16 bits take about as long (docs/workload.md), and decoding of image"
    " files on the CPU comes on top"
)


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
    """Weights of the perceptrons that turn merged patches into tokens of the language model's
    width.
    """
    merged = encoder.hidden * encoder.merge**2
    return encoder.mergers * merged * (merged + hidden)


def encoder_bytes(deployment: Deployment) -> int:
    """Bytes of the encoders' weights on each GPU; engines load them with the decoder's (vLLM splits
    them over its GPUs: ``mm_encoder_tp_mode`` is ``weights``).
    """
    return math.ceil(BYTES_16 * deployment.model.encoder_parameters / deployment.parallelism.tp)


def encoded_seconds(
    c: list[float], encoder: Encoder, hidden: int, sequences: Sequence[int]
) -> float:
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
    return step_seconds(
        array, sum(sequences), len(sequences), 0, 2 * sum(patches**2 for patches in sequences), 0
    )

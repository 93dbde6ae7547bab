"""GPU memory beyond weights and KV cache: activations, logits, the CUDA context and communication buffers.

What engines set aside was fitted to measured peaks: ``coefficients/memory.json``. vLLM's pools follow from the same constants with
smaller communication buffers: four pools printed by running engines (Llama 3 8B on H100 SXM, H100 NVL and RTX 6000 Ada, Llama 3.3
70B FP8 on 2 × H100; public logs, 2026-11-21) come out within 4 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from tonnage.errors import DataErrors
from tonnage.perf.coefficient_files import content
from tonnage.perf.weights import BYTES_16
from tonnage.spec.catalog import find_engine, gpus
from tonnage.spec.typed_values import FORBID, read_as

if TYPE_CHECKING:
    from tonnage.spec.deployment import Deployment
    from tonnage.spec.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Vectors:
    """Vectors of a token that are alive at once: of the model's width, and of the inner width."""

    __pydantic_config__ = FORBID

    hidden: float
    ffn: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryConstants:
    """``memory.json`` as it is written.

    Attributes:
        name, what, source, date: what was fitted to what, and when.
        rows, rows_left_out: how many rows, and which not.
        mape_percent, mape_percent_by_model: mean size of the relative error, in percent.
        context_gb: CUDA context and loaded kernels by GPU generation, in decimal GB.
        fp8_gb: what kernels of 8 bits add.
        communication_gb: buffers of two GPUs by the kind of their link.
        communication_exponent: how they grow with the further GPUs.
        activation_mlp, activation_attention, activation_experts: vectors alive in the MLP, around attention, and with experts.
        logit_bytes_per_vocabulary_row: bytes of logits and sampling buffers per sequence and token of the vocabulary.
    """

    __pydantic_config__ = FORBID

    name: str
    what: str
    source: str
    date: str
    rows: int
    rows_left_out: str
    mape_percent: dict[str, float]
    mape_percent_by_model: dict[str, dict[str, float]]
    context_gb: dict[str, float]
    fp8_gb: float
    communication_gb: dict[str, float]
    communication_exponent: float
    activation_mlp: Vectors
    activation_attention: Vectors
    activation_experts: Vectors
    logit_bytes_per_vocabulary_row: float


@cache
def memory_constants() -> MemoryConstants:
    """The constants of ``coefficients/memory.json``.

    Raises:
        DataError: the file is missing, is no JSON, or holds what it may not; one line for each fault.
    """
    return constants_of(content("memory.json", "reinstall"), "perf/coefficients/memory.json")


def constants_of(document: object, where: str) -> MemoryConstants:
    """The constants of a document.

    Raises:
        DataErrors: unknown or missing keys, GPU generations or links that nothing has, and values of another kind; one line each.
    """
    found = read_as(MemoryConstants, document, where)
    generations = {gpu.arch for gpu in gpus()}
    links = {"nvlink-bridge", "pcie", *(f"nvlink {name}" for name in generations)}
    faults = [f"{where}: context_gb.{name}: no GPU is of this generation" for name in found.context_gb if name not in generations]
    faults += [f"{where}: communication_gb.{name}: no GPUs are joined so" for name in found.communication_gb if name not in links]
    DataErrors.raise_if(faults)
    return found


def activation_bytes_per_token(deployment: Deployment) -> float:
    """Peak bytes of activations per token of a prefill step, on each GPU.

    It is the larger of two moments: inside the MLP, where the inner tensors of width ``ffn / tp`` are
    alive, and around attention, where those of width ``hidden`` are. Activations of fewer than 16 bits keep a
    16-bit copy beside the narrow one. In a mixture of experts, tokens are copied once per expert used.
    """
    model, fitted = deployment.model, memory_constants()
    inner = model.inner / deployment.parallelism.tp
    if model.is_moe:
        return BYTES_16 * _vectors(fitted.activation_experts, model.hidden, inner)
    copies = inner * 16 / deployment.gpu.executes(deployment.precision).activation_bits
    mlp = _vectors(fitted.activation_mlp, model.hidden, inner)
    attention = _vectors(fitted.activation_attention, model.hidden, copies)
    return BYTES_16 * max(mlp, attention)


def _vectors(weights: Vectors, hidden: int, inner: float) -> float:
    return weights.hidden * hidden + weights.ffn * inner


def logit_bytes_per_sequence(model: Model) -> float:
    """Bytes of logits and sampling buffers per sequence."""
    return float(memory_constants().logit_bytes_per_vocabulary_row) * model.vocab


def step_activation_bytes(deployment: Deployment) -> int:
    """Bytes set aside on each GPU for the largest step that the engine may run."""
    engine, knobs, model = find_engine(deployment.engine), deployment.knobs, deployment.model
    logits = engine.logit_bytes_per_vocabulary_row * model.vocab * knobs.max_batch_size
    return math.ceil(step_bytes_per_token(deployment) * knobs.max_num_tokens + logits)


def step_bytes_per_token(deployment: Deployment) -> float:
    """Bytes of activations per token of a full step, with what the engine adds for narrow weights."""
    narrow = deployment.gpu.executes(deployment.precision).activation_bits < 16
    further = find_engine(deployment.engine).narrow_activation_bytes_per_hidden if narrow else 0.0
    return activation_bytes_per_token(deployment) + further * deployment.model.hidden


def reserve_bytes(deployment: Deployment) -> int:
    """Bytes set aside on each GPU for the CUDA context, communication buffers and CUDA graphs."""
    return find_engine(deployment.engine).reserve_bytes + math.ceil(context_bytes(deployment))


def context_bytes(deployment: Deployment) -> float:
    """CUDA context, loaded kernels and the communication buffers of an instance's GPUs, in bytes."""
    fitted, gpu, tp = memory_constants(), deployment.gpu, deployment.parallelism.stage_gpus
    context = fitted.context_gb.get(gpu.arch, fitted.context_gb["Hopper"])
    if gpu.executes(deployment.precision).activation_bits < 16:
        context += fitted.fp8_gb
    if tp > 1:
        links = fitted.communication_gb
        kind = "nvlink-bridge" if gpu.link == "nvlink-bridge" else gpu.tp_link(tp)
        own = find_engine(deployment.engine).communication_bytes
        link = links.get(kind, links.get(f"{kind} {gpu.arch}", links["nvlink Hopper"])) if own is None else own / 1e9
        context += link * (tp - 1) ** fitted.communication_exponent
    return float(context) * 1e9

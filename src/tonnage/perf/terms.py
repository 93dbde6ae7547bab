"""From a deployment to its step model: fitted terms times what the datasheets and the model's sizes
say.

``resolve`` finds the terms of a deployment; the modules of matrices, attention, links and the host
turn theirs into coefficients (``perf.step_terms``), and those of experts and drafters are here.

Sources: the form and the numbers come from ``tools/fit/fit.py`` (docs/fit.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tonnage.perf import step_terms as at
from tonnage.perf.attention import AttentionTerms, add_attention, attention_terms
from tonnage.perf.host import (
    HostTerms,
    add_host,
    front_end_s,
    host_terms,
    responding_s,
    streaming_s,
)
from tonnage.perf.images_and_adapters import add_adapters, encoded_seconds, transformer
from tonnage.perf.links import LinkTerms, add_communication, dispatch_terms, largest_of, link_terms
from tonnage.perf.matrices import MatrixTerms, add_matrices, format_name, matrix_rate, matrix_terms
from tonnage.perf.measured_steps import reduction
from tonnage.perf.power import clock
from tonnage.perf.step import Drafting, StepModel
from tonnage.perf.terms_file import TermGroups, engine_terms, groups_of, terms_of
from tonnage.spec.catalog import find_engine
from tonnage.spec.deployment import Deployment, EngineKnobs, Parallelism
from tonnage.spec.hardware import Gpu
from tonnage.spec.images import Encoder
from tonnage.spec.model import Model
from tonnage.spec.precision import WIDE, Precision, find_precision

# What a mixture of experts adds to a step: its matrices, the copies of its tokens, and the tokens'
# way to their experts. Each rank of data- parallel attention (``Parallelism.dp``) brings T tokens
# to a step, so that dp · T tokens choose experts together; where ranks bring different numbers, T
# is the mean (``share`` of ``step_seconds``). Of E experts of which a token chooses k, experts that
# no token chose are not read. With random choices the expected touched share after t tokens is 1 −
# (1 − k/E)^t; with choices that resemble each other (``spread`` below 1) it is less. The experts of
# one of the ``ep`` groups are at times touched more than the mean, and the step waits for the
# fullest group: with n = E/ep experts in each, the counts are binomial, and the largest of ep such
# counts lies some standard deviations above the mean (``largest_of``, ``EXPERT_UNEVEN``). Routers
# also favour some experts, so that the arithmetic and the copies of tokens on the fullest GPU are
# ``skew`` above the mean per doubling of ``ep``. The experts' matrices are separate kernels: their
# arithmetic and reading are joined apart from those of the dense matrices. With tensor parallelism
# alone the experts' outputs are summed by the all-reduce of ``links``. With data-parallel
# attention, tokens travel to the GPUs of their experts and back: one dispatch and one combine per
# layer.


TOKEN_BYTES = 2.0
"""Bytes of one element of a token that is sent to its experts; engines that dispatch in FP8 save
half of one direction."""

NARROW_FFN, WIDE_FFN = 2_880, 14_336
"""Inner width of the widest experts that current engines are fitted on (gpt-oss), and of Mixtral
8x7B's."""

SKEW = 0.05
"""How far the fullest GPU's tokens are above the mean per doubling of ``ep``, as a share; an
estimate for engines without rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertTerms:
    """Efficiencies and times of the experts; all are fitted or neutral."""

    # compute, memory: share of rate and bandwidth that expert matrices reach, relative to dense
    # ones
    compute: float
    memory: float
    # how independent the tokens' choices of experts are: 0 if all tokens choose alike, 1 if they
    # choose at random
    spread: float
    first: float = 0.0  # experts that one token touches; 0 means as many as it chooses
    rows: float = 0.0  # passes through memory of every token's copy for each of its experts
    # seconds per step that a layer of experts takes longer than a dense one (router, sorting,
    # launches); may be negative
    layer_s: float = 0.0
    each_s: float = 0.0  # seconds per step that each expert of a layer adds
    # host seconds per sequence beyond those of a dense model; may be negative
    sequence_s: float = 0.0
    # seconds that a layer of experts takes longer still in a step with prefill
    prefill_s: float = 0.0
    skew: float = SKEW  # how far the fullest GPU is above the mean per doubling of ``ep``
    dispatch_s: float = 0.0  # latency of one dispatch or combine
    dispatch_bytes_s: float = math.inf  # bytes/s per GPU and direction that they reach


def expert_terms(groups: TermGroups, model: Model, precision: Precision, gpus: int) -> ExpertTerms:
    """The terms of experts of an engine on a GPU, in a precision as the GPU executes it, over the
    ``gpus`` of an instance.

    What a generation saves per layer are kernels that fuse a layer of experts in its own formats,
    but for a format of which the engine says otherwise. Weights that are unpacked to 16 bits go
    through the kernels of every generation (Marlin, Triton).
    """
    engine, kernels, form = groups.engine, groups.kernels, format_name(precision)
    saved = engine.get(f"expert_layer_{kernels}_{form}", engine.get(f"expert_layer_{kernels}", 1.0))
    layer = engine.get("expert_layer", 1.0) * (1.0 if precision.unpacked else saved)
    any_width = (
        groups.shared["expert_compute"]
        * engine.get(f"expert_{kernels}", 1.0)
        * groups.generation.get("expert_compute", 1.0)
    )
    any_width *= groups.generation.get(f"expert_compute_{form}", 1.0)
    narrow = (
        any_width * engine.get("expert_compute", 1.0) * engine.get(f"expert_compute_{form}", 1.0)
    )
    wide = engine.get("expert_compute_wide")
    dispatch_s, dispatch_bytes_s = dispatch_terms(groups, gpus)
    four_bits = engine.get("expert_layer_4bit_s", 0.0) if precision.weight_bytes < 1 else 0.0
    return ExpertTerms(
        compute=narrow if wide is None else by_width(narrow, any_width * wide, model.ffn),
        memory=engine["expert_memory"]
        * engine.get(f"expert_memory_{form}", 1.0)
        * groups.generation.get("expert_memory", 1.0),
        spread=engine["expert_spread"],
        rows=engine.get("expert_rows", 0.0),
        layer_s=(engine["layer_s"] * (layer - 1.0) + engine.get("expert_layer_s", 0.0))
        * groups.generation.get("layer", 1.0)
        + four_bits,
        each_s=engine.get("expert_each_s", 0.0),
        sequence_s=engine["sequence_s"]
        * (engine.get("expert_sequence", 1.0) - 1.0)
        * groups.generation.get("sequence", 1.0),
        prefill_s=engine.get("expert_prefill_s", 0.0),
        first=engine.get("expert_first", 0.0),
        skew=engine.get("expert_skew", SKEW),
        dispatch_s=dispatch_s,
        dispatch_bytes_s=dispatch_bytes_s,
    )


def by_width(narrow: float, wide: float, width: int) -> float:
    """The share of dense arithmetic that experts of an inner width reach, interpolated between
    narrow and wide experts.

    Current engines are fitted on experts up to ``NARROW_FFN`` wide, whose matrices are too small to
    fill a GPU. Experts of ``WIDE_FFN`` and more reach what Mixtral's do; between the two the
    logarithm is interpolated.
    """
    share = min(max(math.log(width / NARROW_FFN) / math.log(WIDE_FFN / NARROW_FFN), 0.0), 1.0)
    return float(narrow ** (1.0 - share) * wide**share)


def add_experts(
    c: list[float],
    *,
    terms: ExpertTerms,
    model: Model,
    precision: Precision,
    parallelism: Parallelism,
    flops_s: float,
    bytes_s: tuple[float, float],
) -> None:
    """Put the experts into a coefficient array.

    Args:
        c: the array, with the dense matrices already in it.
        flops_s: FLOP/s that dense matrices reach on the GPUs of a rank.
        bytes_s: bytes/s of one GPU's memory by the datasheet, and the share that dense weights
            reach.
    """
    dp, ep = parallelism.dp, parallelism.ep
    bandwidth, memory = bytes_s
    fullest = 1.0 + terms.skew * math.log2(ep)
    chosen = model.experts_per_token * model.expert_parameters
    c[at.EXPERT_FLOPS] = fullest * (2 * chosen / (flops_s * terms.compute))
    reached = bandwidth * min(memory * terms.memory, 1.0)
    c[at.EXPERT_BYTES] = (
        model.experts
        * model.expert_parameters
        * precision.bits("experts", moe=True)
        / 8
        / (parallelism.stage_gpus * reached)
    )
    miss = 1.0 - model.experts_per_token / model.experts
    c[at.EXPERT_MISS] = miss**terms.spread
    c[at.EXPERT_REST] = (1.0 - (terms.first or model.experts_per_token) / model.experts) / c[
        at.EXPERT_MISS
    ]
    c[at.EXPERT_MISS] **= dp
    c[at.EXPERT_UNEVEN] = largest_of(ep) * math.sqrt(ep / model.experts)
    layers = model.expert_layers
    copies = fullest * dp * model.experts_per_token / ep
    c[at.ACTIVATION] += terms.rows * TOKEN_BYTES * layers * model.expert_width * copies / bandwidth
    c[at.HOST_STEP] += (terms.layer_s + terms.each_s * model.experts) * layers
    c[at.HOST_SEQUENCE] += terms.sequence_s
    c[at.HOST_PREFILL] += terms.prefill_s * layers


def add_dispatch(
    c: list[float], terms: ExpertTerms, model: Model, parallelism: Parallelism
) -> None:
    """Put dispatch and combine into a coefficient array; each GPU of a rank sends its share of the
    rank's tokens.
    """
    layers = model.expert_layers
    sent = TOKEN_BYTES * model.expert_width * remote_copies(model, parallelism) / parallelism.tp
    for once, per_token in at.MESSAGES:
        c[once] += 2 * layers * terms.dispatch_s
        c[per_token] += 2 * layers * sent / terms.dispatch_bytes_s


def remote_copies(model: Model, parallelism: Parallelism) -> float:
    """Mean number of other GPUs that a token is sent to: the GPUs of the groups that hold one of
    its experts.
    """
    ep, gpus = parallelism.ep, parallelism.stage_gpus
    groups = ep * (1.0 - (1.0 - 1.0 / ep) ** model.experts_per_token)
    return groups * parallelism.moe_tp * (1.0 - 1.0 / gpus)


# Speculative decoding: one pass of the drafter as a coefficient array, on the model's GPUs and with
# its terms. A drafter with layers is estimated as a model that has only these. Its passes lack the
# host's work per step, sequence and prefill, which the engine does once. No measurement of
# speculative decoding went into this.


MARK = (
    "speculative decoding: estimated from its weights and arithmetic, not fitted; the acceptance is"
    " as given"
)


def drafting(
    deployment: Deployment, coefficients: Callable[[Model], list[float]]
) -> Drafting | None:
    """The deployment's speculative decoding, as far as it decides how long steps take; None
    without.

    Args:
        deployment: the model on its GPUs and engine.
        coefficients: gives the coefficient array of a model on the deployment's GPUs, without what
            the host does once per step.
    """
    import numpy as np

    speculation = deployment.speculation
    if speculation is None:
        return None
    layers = speculation.layers_of(deployment.model)
    c = coefficients(deployment.model if layers is None else layers)
    if layers is None:
        c = _heads(speculation.head_parameters(deployment.model), deployment.model, c)
    else:  # with the projection before them
        for place in (at.LINEAR_FLOPS, at.LINEAR_BYTES):
            c[place] *= 1 + (
                speculation.projection_parameters(deployment.model) / layers.common_parameters
            )
    return Drafting(
        tokens=speculation.tokens,
        acceptance=speculation.acceptance,
        passes=speculation.passes,
        coefficients=np.array(c),
    )


def _heads(parameters: int, model: Model, of_model: list[float]) -> list[float]:
    """One pass through heads alone, in proportion to the size of the model's head."""
    share = parameters / model.head_parameters
    c = [0.0] * at.COEFFICIENTS
    c[at.NORM] = 1.0
    c[at.HEAD_FLOPS], c[at.HEAD_BYTES] = (
        share * of_model[at.HEAD_FLOPS],
        share * of_model[at.HEAD_BYTES],
    )
    return c


# What one deployment reaches of its datasheets, and its host's times: the terms that its
# coefficients are made of.


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms of one (model, GPU, precision, parallelism, engine); those of attention by kind of
    layer, in the model's order.
    """

    matrices: MatrixTerms
    attention: tuple[AttentionTerms, ...]
    links: LinkTerms
    experts: ExpertTerms
    host: HostTerms


def resolve(
    terms: dict[str, Any],
    model: Model,
    gpu: Gpu,
    precision: Precision,
    parallelism: Parallelism,
    preset: str,
) -> Terms:
    """The terms of one deployment out of the groups of ``coefficients/terms.json``.

    Raises DataError: there are no terms of that engine preset.
    """
    precision, tp, groups = gpu.executes(precision), parallelism.tp, groups_of(terms, gpu, preset)
    return Terms(
        matrices=matrix_terms(groups, model, precision),
        attention=tuple(
            attention_terms(groups, layer_group.mixer, precision) for layer_group in model.by_kind
        ),
        links=link_terms(groups, tp),
        experts=expert_terms(groups, model, precision, parallelism.stage_gpus),
        host=host_terms(groups, model, precision, tp),
    )


def step_model(deployment: Deployment) -> StepModel:
    """How long the steps of a deployment take.

    Raises DataError: the coefficients that the package ships are damaged, or hold no terms of the
    engine; InputError: the deployment's ``step_source`` has no step times of it.
    """
    import numpy as np

    preset = find_engine(deployment.engine).coefficients
    split = deployment.parallelism
    drafted = drafting(deployment, lambda model: _drafter(deployment, model))
    if deployment.step_source is not None:
        engine = engine_terms(terms_of(deployment), preset)
        array, stream_s = reduction(deployment).coefficients, streaming_s(engine, deployment)
        return StepModel(
            coefficients=array,
            frontend_s=engine["frontend_s"],
            drafting=drafted,
            stream_s=stream_s,
            **front_end_s(deployment),
        )
    groups = terms_of(deployment)
    terms = resolve(groups, deployment.model, deployment.gpu, deployment.precision, split, preset)
    engine = engine_terms(groups, preset)
    values = coefficients(
        terms, deployment.model, deployment.gpu, deployment.precision, split, deployment.knobs
    )
    add_adapters(values, deployment)
    if (images := deployment.images) is not None:
        image_seconds = encoder_seconds(
            deployment, images.encoder, images.encoder.sequences(images.width, images.height)
        )
        values[at.ENCODER] = images.count * image_seconds / images.prompt_tokens
    array = np.array(values)
    return StepModel(
        coefficients=array,
        frontend_s=terms.host.frontend_s,
        drafting=drafted,
        stream_s=streaming_s(engine, deployment),
        response_s=responding_s(engine, float(array[at.HOST_SEQUENCE])),
        **front_end_s(deployment),
    )


def _drafter(deployment: Deployment, model: Model) -> list[float]:
    """The coefficients of a drafter on the deployment's GPUs, without what the host does once per
    step, sequence and prefill.
    """
    preset, split = find_engine(deployment.engine).coefficients, deployment.parallelism
    placed = split if model.is_moe else Parallelism(tp=split.tp)
    terms = resolve(
        terms_of(deployment), model, deployment.gpu, deployment.precision, placed, preset
    )
    once = ("step_s", "schedule_s", "sequence_s", "prefill_s", "launch_s", "eager_s")
    host = replace(terms.host, **dict.fromkeys(once, 0.0))
    return coefficients(
        replace(terms, host=host),
        model,
        deployment.gpu,
        deployment.precision,
        placed,
        deployment.knobs,
    )


def encoder_seconds(deployment: Deployment, encoder: Encoder, sequences: Sequence[int]) -> float:
    """Seconds in which an image encoder on the deployment's GPUs, kernel by kernel, takes sequences
    of patches in one step.
    """
    preset, placed, wide = (
        find_engine(deployment.engine).coefficients,
        Parallelism(tp=deployment.parallelism.tp),
        find_precision("fp16"),
    )
    layers = transformer(encoder)
    terms = resolve(terms_of(deployment), layers, deployment.gpu, wide, placed, preset)
    host = replace(terms.host, step_s=0.0, sequence_s=0.0, prefill_s=0.0)
    c = coefficients(replace(terms, host=host), layers, deployment.gpu, wide, placed)
    return encoded_seconds(c, encoder, deployment.model.hidden, sequences)


def client_turnaround_s(deployment: Deployment) -> float:
    """Seconds that a benchmark's client and the engine's front end take to start a request, one
    request after another.
    """
    return engine_terms(terms_of(deployment), find_engine(deployment.engine).coefficients)[
        "turnaround_s"
    ]


def coefficients(
    terms: Terms,
    model: Model,
    gpu: Gpu,
    precision: Precision,
    parallelism: Parallelism,
    knobs: EngineKnobs | None = None,
) -> list[float]:
    """The coefficient array of ``perf.step`` from terms, datasheet and the model's sizes; with
    knobs also what CUDA graphs hold.

    Returns:
        ``COEFFICIENTS`` floats.

    Raises:
        InputError: the hardware has no such arithmetic.
    """
    precision, tp = gpu.executes(precision), parallelism.tp
    if precision.weight_format in WIDE:  # attention and the head are in 32 bits as well
        gpu = replace(gpu, fp16_tflops=matrix_rate(gpu, precision) / 1e12)
    c = [0.0] * at.COEFFICIENTS
    add_matrices(c, terms.matrices, model, gpu, precision, tp)
    add_attention(c, terms.attention, model, gpu, precision, tp)
    if tp > 1:
        add_communication(c, terms.links, model, parallelism)
    add_host(c, terms.host, knobs)
    if model.is_moe:
        _experts_of(c, terms, model, gpu, precision, parallelism)
    if (rate := clock(gpu)) != 1.0:
        for place in at.ARITHMETIC:
            c[place] /= rate
    return c


def _experts_of(
    c: list[float],
    terms: Terms,
    model: Model,
    gpu: Gpu,
    precision: Precision,
    parallelism: Parallelism,
) -> None:
    """Put the routed experts into the array, and with data-parallel attention also the tokens' way
    to them.
    """
    reached = parallelism.tp * matrix_rate(gpu, precision) * terms.matrices.compute
    add_experts(
        c,
        terms=terms.experts,
        model=model,
        precision=precision,
        parallelism=parallelism,
        flops_s=reached,
        bytes_s=(gpu.memory_bandwidth_gb_s * 1e9, terms.matrices.memory),
    )
    if parallelism.dp > 1:
        add_dispatch(c, terms.experts, model, parallelism)

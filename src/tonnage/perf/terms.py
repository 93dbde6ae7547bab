"""From a deployment to its step model: fitted terms times what the datasheets and the model's sizes say.

``efficiencies`` resolves the terms of a deployment; the modules of matrices, attention, links, experts and the host turn theirs
into coefficients (``perf.step_terms``).

Sources: the form is DESIGN §5 with what ``tools/fit/fit.py`` found; the numbers are fitted there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tonnage.perf import step_terms as at
from tonnage.perf.adapters import add_adapters
from tonnage.perf.attention import AttentionTerms, add_attention, attention_terms
from tonnage.perf.encoder import encoded_seconds, transformer
from tonnage.perf.experts import ExpertTerms, add_dispatch, add_experts, expert_terms
from tonnage.perf.external.measured_steps import reduction
from tonnage.perf.formats import matrix_rate
from tonnage.perf.host import HostTerms, add_host, host_terms, responding_s, streaming_s
from tonnage.perf.links import LinkTerms, add_communication, link_terms
from tonnage.perf.matrices import MatrixTerms, add_matrices, matrix_terms
from tonnage.perf.power import clock
from tonnage.perf.step import Drafting, StepModel
from tonnage.perf.terms_file import engine_terms, groups_of, terms_of
from tonnage.spec.catalog import find_engine
from tonnage.spec.deployment import Parallelism
from tonnage.spec.precision import WIDE, find_precision

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tonnage.spec.deployment import Deployment, EngineKnobs
    from tonnage.spec.hardware import Gpu
    from tonnage.spec.images import Encoder
    from tonnage.spec.model import Model
    from tonnage.spec.precision import Precision


# Speculative decoding: one pass of the drafter as a coefficient array, on the model's GPUs and with its terms. A drafter with layers is
# estimated as a model that has only these. Its passes lack the host's work per step, sequence and prefill, which the engine does once. No
# measurement of speculative decoding went into this.


MARK = "speculative decoding: estimated from its weights and arithmetic, not fitted; the acceptance is as given"


def drafting(deployment: Deployment, coefficients: Callable[[Model], list[float]]) -> Drafting | None:
    """The deployment's speculative decoding, as far as it decides how long steps take; None without.

    Args:
        deployment: what is deployed.
        coefficients: gives the coefficient array of a model on the deployment's GPUs, without what the host does once per step.
    """
    import numpy as np

    asked = deployment.speculation
    if asked is None:
        return None
    layers = asked.layers_of(deployment.model)
    c = _heads(deployment, coefficients(deployment.model)) if layers is None else _layers(deployment, coefficients(layers), layers)
    return Drafting(tokens=asked.tokens, acceptance=asked.acceptance, passes=asked.passes, coefficients=np.array(c))


def _layers(deployment: Deployment, c: list[float], layers: Model) -> list[float]:
    """One pass through the drafter's layers, with the projection before them."""
    asked = deployment.speculation
    projection = 0 if asked is None else asked.projection_parameters(deployment.model)
    for place in (at.LINEAR_FLOPS, at.LINEAR_BYTES):
        c[place] *= 1 + projection / layers.common_parameters
    return c


def _heads(deployment: Deployment, of_model: list[float]) -> list[float]:
    """One pass through heads alone, in proportion to the size of the model's head."""
    asked: Any = deployment.speculation
    share = asked.head_parameters(deployment.model) / deployment.model.head_parameters
    c = [0.0] * at.COEFFICIENTS
    c[at.NORM] = 1.0
    c[at.HEAD_FLOPS], c[at.HEAD_BYTES] = share * of_model[at.HEAD_FLOPS], share * of_model[at.HEAD_BYTES]
    return c


# What one deployment reaches of its datasheets, and its host's times: the terms that its coefficients are made of.


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms of one (model, GPU, precision, parallelism, engine); those of attention by kind of layer, in the model's order."""

    matrices: MatrixTerms
    attention: tuple[AttentionTerms, ...]
    links: LinkTerms
    experts: ExpertTerms
    host: HostTerms


def resolve(terms: dict[str, Any], model: Model, gpu: Gpu, precision: Precision, parallelism: Parallelism, preset: str) -> Terms:
    """The terms of one deployment out of the groups of ``coefficients/terms.json``.

    Raises DataError: there are no terms of that engine preset.
    """
    precision, tp, groups = gpu.executes(precision), parallelism.tp, groups_of(terms, gpu, preset)
    return Terms(
        matrices=matrix_terms(groups, model, precision),
        attention=tuple(attention_terms(groups, some.mixer, precision) for some in model.by_kind),
        links=link_terms(groups, tp),
        experts=expert_terms(groups, model, precision, parallelism.stage_gpus),
        host=host_terms(groups, model, precision, tp),
    )


def step_model(deployment: Deployment) -> StepModel:
    """How long the steps of a deployment take.

    Raises DataError: the coefficients that the package ships are damaged, or hold no terms of the engine; InputError: the deployment's
    ``step_source`` has no step times of it.
    """
    import numpy as np

    preset = find_engine(deployment.engine).coefficients
    split = deployment.parallelism
    drafted = drafting(deployment, lambda model: _drafter(deployment, model))
    if deployment.step_source is not None:
        engine = engine_terms(terms_of(deployment), preset)
        array, stream_s = reduction(deployment).coefficients, streaming_s(engine, deployment)
        return StepModel(coefficients=array, frontend_s=engine["frontend_s"], drafting=drafted, stream_s=stream_s)
    groups = terms_of(deployment)
    terms = resolve(groups, deployment.model, deployment.gpu, deployment.precision, split, preset)
    engine = engine_terms(groups, preset)
    found = coefficients(terms, deployment.model, deployment.gpu, deployment.precision, split, deployment.knobs)
    add_adapters(found, deployment)
    if (images := deployment.images) is not None:
        each = encoder_seconds(deployment, images.encoder, images.encoder.sequences(images.width, images.height))
        found[at.ENCODER] = images.count * each / images.prompt_tokens
    array = np.array(found)
    return StepModel(
        coefficients=array,
        frontend_s=terms.host.frontend_s,
        drafting=drafted,
        stream_s=streaming_s(engine, deployment),
        response_s=responding_s(engine, float(array[at.HOST_SEQUENCE])),
    )


def _drafter(deployment: Deployment, model: Model) -> list[float]:
    """The coefficients of a drafter on the deployment's GPUs, without what the host does once per step, sequence and prefill."""
    preset, split = find_engine(deployment.engine).coefficients, deployment.parallelism
    placed = split if model.is_moe else Parallelism(tp=split.tp)
    terms = resolve(terms_of(deployment), model, deployment.gpu, deployment.precision, placed, preset)
    host = replace(terms.host, step_s=0.0, sequence_s=0.0, prefill_s=0.0, launch_s=0.0, eager_s=0.0)
    return coefficients(replace(terms, host=host), model, deployment.gpu, deployment.precision, placed, deployment.knobs)


def encoder_seconds(deployment: Deployment, encoder: Encoder, sequences: Sequence[int]) -> float:
    """Seconds in which an image encoder on the deployment's GPUs, kernel by kernel, takes sequences of patches in one step."""
    preset, placed, wide = find_engine(deployment.engine).coefficients, Parallelism(tp=deployment.parallelism.tp), find_precision("fp16")
    layers = transformer(encoder)
    terms = resolve(terms_of(deployment), layers, deployment.gpu, wide, placed, preset)
    host = replace(terms.host, step_s=0.0, sequence_s=0.0, prefill_s=0.0)
    c = coefficients(replace(terms, host=host), layers, deployment.gpu, wide, placed)
    return encoded_seconds(c, encoder, deployment.model.hidden, sequences)


def client_turnaround_s(deployment: Deployment) -> float:
    """Seconds that a benchmark's client and the engine's front end take to start a request, one request after another."""
    return engine_terms(terms_of(deployment), find_engine(deployment.engine).coefficients)["turnaround_s"]


def coefficients(
    terms: Terms, model: Model, gpu: Gpu, precision: Precision, parallelism: Parallelism, knobs: EngineKnobs | None = None
) -> list[float]:
    """The coefficient array of ``perf.step`` from terms, datasheet and the model's sizes; with knobs also what CUDA graphs hold.

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
    add_host(c, terms.host, model, knobs)
    if model.is_moe:
        _experts_of(c, terms, model, gpu, precision, parallelism)
    if (rate := clock(gpu)) != 1.0:
        for place in at.ARITHMETIC:
            c[place] /= rate
    return c


def _experts_of(c: list[float], terms: Terms, model: Model, gpu: Gpu, precision: Precision, parallelism: Parallelism) -> None:
    """Put the routed experts into the array, and with data-parallel attention also the tokens' way to them."""
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

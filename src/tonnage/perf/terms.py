"""From a deployment to its step model: fitted terms times what the datasheets and the model's sizes say.

``efficiencies`` resolves the terms of a deployment; the modules of matrices, attention, links, experts and the host turn theirs
into coefficients (``perf.step_terms``).

Sources: the form is DESIGN §5 with what ``tools/fit/fit.py`` found; the numbers are fitted there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tonnage.perf import step_terms as at
from tonnage.perf.attention import add_attention
from tonnage.perf.drafting import drafting
from tonnage.perf.efficiencies import Terms, resolve
from tonnage.perf.experts import add_dispatch, add_experts
from tonnage.perf.external.measured_steps import reduction
from tonnage.perf.formats import matrix_rate
from tonnage.perf.host import add_host, responding_s, streaming_s
from tonnage.perf.links import add_communication
from tonnage.perf.matrices import add_matrices
from tonnage.perf.step import StepModel
from tonnage.perf.term_groups import engine_terms
from tonnage.perf.terms_file import terms_of
from tonnage.spec.catalog import find_engine
from tonnage.spec.deployment import Parallelism

if TYPE_CHECKING:
    from tonnage.spec.deployment import Deployment, EngineKnobs
    from tonnage.spec.hardware import Gpu
    from tonnage.spec.model import Model
    from tonnage.spec.precision import Precision


def step_model(deployment: Deployment) -> StepModel:
    """How long the steps of a deployment take.

    Raises:
        DataError: the coefficients that the package ships are damaged, or hold no terms of the engine.
        InputError: the deployment's ``step_source`` has no step times of it.
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
    array = np.array(coefficients(terms, deployment.model, deployment.gpu, deployment.precision, split, deployment.knobs))
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
    c = [0.0] * at.COEFFICIENTS
    add_matrices(c, terms.matrices, model, gpu, precision, tp)
    add_attention(c, terms.attention, model, gpu, precision, tp)
    if tp > 1:
        add_communication(c, terms.links, model, parallelism)
    add_host(c, terms.host, model, knobs)
    if model.is_moe:
        _experts_of(c, terms, model, gpu, precision, parallelism)
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

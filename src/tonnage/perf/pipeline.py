"""Pipeline parallelism: an instance of ``pp`` stages of ``tp`` GPUs each, which may be in several
systems.

Engines keep ``pp`` micro-batches in flight, one in each stage. Seen from outside, all sequences
gain one token per round, and a round lasts as long as one micro-batch of 1/pp of them takes through
all stages. The latency of a token is therefore the sum of the stages, and the throughput is that of
``pp`` batches at once. So the instance is estimated as one engine whose step is the round: fixed
terms of a stage count ``pp`` times, terms per token count once (``StepTerm.stages``), and slots and
token budget are those of ``pp`` micro-batches (TensorRT-LLM: ``max_num_requests = max_batch_size ×
pp``, ``cpp/tensorrt_llm/batch_manager/capacityScheduler.cpp``).

A lone prompt is in one micro-batch and not spread over ``pp``; the difference, at the mean prompt,
is added to the front end, where it delays requests without occupying the engine. Bubbles of uneven
micro-batches are left out, and so is the head that makes the last stage longer; every stage is as
long as the one with the most layers. No measurement of a pipelined engine went into any of this.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tonnage.errors import DoesNotFit, InputError, option
from tonnage.perf import step_terms as at
from tonnage.perf.measured_steps import check_stages
from tonnage.perf.memory import MemoryPlan, memory_plan
from tonnage.perf.step import StepModel, step_seconds
from tonnage.perf.step_terms import Stages
from tonnage.perf.terms import step_model
from tonnage.spec.deployment import Deployment, EngineKnobs

NETWORK_BYTES_S = 25e9
"""One-way bytes/s per GPU between systems: a 200 Gb/s adapter per GPU (DGX A100 datasheet; DGX H100
has 400 Gb/s)."""

NETWORK_S = 20e-6
"""Latency of a hop between systems in seconds; estimate for RDMA with the engine's send and
receive."""

LINK_S = 10e-6
"""The same inside a system; estimate."""

ACTIVATION_BYTES = 2
"""Bytes of one element of the residual stream that is sent from stage to stage."""

MARK = "pipeline parallelism: stages in closed form, no measurement of a pipelined engine"


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatedInstance:
    """An instance as one engine: how long its steps take, what its memory holds, and which knobs
    its scheduler has.
    """

    step: StepModel
    memory: MemoryPlan
    knobs: EngineKnobs


def estimated_instance(
    deployment: Deployment, *, gpus_per_system: int, prompt_tokens: int
) -> EstimatedInstance:
    """An instance with any number of pipeline stages, as one engine.

    Args:
        deployment: model, GPUs and engine; its knobs are per micro-batch.
        gpus_per_system: stages that do not fit into one system are joined by the network.
        prompt_tokens: mean prompt.

    Raises:
        DoesNotFit: the stage with the most layers exceeds the memory.
        InputError: the heads cannot be split over ``tp`` GPUs, or its step times or its speculative
            decoding are not known in stages.
    """
    pp = deployment.parallelism.pp
    check_stages(deployment)
    if pp == 1:
        return EstimatedInstance(
            step=step_model(deployment), memory=memory_plan(deployment), knobs=deployment.knobs
        )
    if deployment.speculation is not None:
        raise InputError(
            f"{option('speculation')}: is not estimated together with PP {pp}; use {option('pp')}"
            " 1, or leave it out"
        )
    stage = largest_stage(deployment)
    try:
        memory = memory_plan(stage)
    except DoesNotFit as error:
        raise DoesNotFit(
            f"PP {pp}, {stage.model.layers} of {deployment.model.layers} layers a stage: {error}"
        ) from None
    return EstimatedInstance(
        step=_round(step_model(stage), deployment, gpus_per_system, prompt_tokens),
        memory=memory,
        knobs=pipeline_knobs(deployment),
    )


def largest_stage(deployment: Deployment) -> Deployment:
    """The stage with the most layers as a deployment by itself; the deployment where it is no
    pipeline.

    Raises InputError: more stages than layers.
    """
    p, model = deployment.parallelism, deployment.model
    if p.pp == 1:
        return deployment
    if p.pp > model.layers:
        raise InputError(
            f"{option('pp')}: {p.pp} stages are more than the {model.layers} layers of"
            f" {model.name}; write at most that many"
        )
    return replace(
        deployment, model=model.part(math.ceil(model.layers / p.pp)), parallelism=replace(p, pp=1)
    )


def pipeline_knobs(deployment: Deployment) -> EngineKnobs:
    """Slots and token budget of a round: those of ``pp`` micro-batches."""
    knobs, pp = deployment.knobs, deployment.parallelism.pp
    return replace(
        knobs, max_batch_size=knobs.max_batch_size * pp, max_num_tokens=knobs.max_num_tokens * pp
    )


def _round(
    stage: StepModel, deployment: Deployment, gpus_per_system: int, prompt_tokens: int
) -> StepModel:
    """The round of ``pp`` micro-batches through ``pp`` stages, from the step of one stage."""
    pp = deployment.parallelism.pp
    c = stage.coefficients.copy()
    for term in at.TERMS:
        c[term.place] = _of_round(c[term.place], term.stages, pp)
    p = deployment.parallelism
    across = math.ceil(p.gpus / gpus_per_system) - 1
    inside = p.pp - 1 - across
    # of the residual stream, which each GPU of a stage sends (Megatron)
    share = ACTIVATION_BYTES * deployment.model.hidden / p.tp
    latency_s = across * NETWORK_S + inside * LINK_S
    token_s = share * (across / NETWORK_BYTES_S + inside / deployment.gpu.tp_link_bytes_s(2))
    for once, per_token in at.MESSAGES:
        c[once] += latency_s
        c[per_token] += token_s / pp
    alone, whole = (
        step_seconds(c, prompt_tokens * n, 1, 0, prompt_tokens * prompt_tokens * n, 0)
        for n in (1, pp)
    )
    return replace(stage, coefficients=c, frontend_s=stage.frontend_s + (whole - alone))


def _of_round(coefficient: float, stages: Stages, pp: int) -> float:
    """A coefficient of the round, from that of one stage."""
    match stages:
        case "same":
            return coefficient
        case "times":
            return coefficient * pp
        case "share":
            return coefficient / pp
        case "root":
            return float(coefficient ** (1 / pp))


# How long a new instance takes until it serves: its process starts, its weights come over a link,
# its engine warms up.


LINK_BYTES_S = 1.25e9
"""Bytes per second over which the weights of an instance are read where nothing is given: a network
of 10 Gbit/s."""

BOOT_S = 60.0
"""Seconds next to the weights where the question gives none: the container, CUDA, compilation and
the capture of CUDA graphs. An assumption of this project, not a measurement: give ``boot`` or
``start`` as you measured it."""


def weight_bytes(deployment: Deployment) -> int:
    """Bytes of the weights that an instance reads: those on each of its GPUs, a drafter's
    included.
    """
    memory = memory_plan(largest_stage(deployment))
    return (memory.weight_bytes + memory.drafter_bytes) * deployment.parallelism.gpus


def start_seconds(
    deployment: Deployment, link_bytes_s: float = LINK_BYTES_S, boot_s: float = BOOT_S
) -> float:
    """Seconds from the decision to start an instance until it serves: its weights over one link, in
    bytes/s, and everything else.
    """
    return boot_s + weight_bytes(deployment) / link_bytes_s

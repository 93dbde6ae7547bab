"""Pipelines of stages: a token takes as long as through all layers, and a full one carries more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tonnage import api
from tonnage.errors import DoesNotFit
from tonnage.perf import pipeline
from tonnage.perf import step_terms as at
from tonnage.perf.memory import memory_plan
from tonnage.perf.pipeline import estimated_instance
from tonnage.perf.step import batch_seconds, step_seconds
from tonnage.perf.step_terms import HOST_STEP
from tonnage.perf.terms import step_model
from tonnage.spec.deployment import Deployment, Parallelism


def staged(
    model: str = "llama-3.1-70b",
    tp: int = 2,
    pp: int = 1,
    gpu: str = "h100-sxm-80gb",
    precision: str = "fp8",
) -> Deployment:
    d = api.deployment_of(
        model=model, gpu=gpu, precision=precision, tp=1, engine="tensorrt-llm-0.15"
    )
    return replace(d, parallelism=Parallelism(tp=tp, pp=pp))


def test_one_stage_is_the_plain_instance() -> None:
    d = staged()
    found = estimated_instance(d, gpus_per_system=8, prompt_tokens=1000)
    assert found.memory == memory_plan(d)
    assert found.knobs == d.knobs
    np.testing.assert_array_equal(found.step.coefficients, step_model(d).coefficients)


def test_a_token_takes_as_long_as_through_all_layers_and_a_full_pipeline_carries_more() -> None:
    """Alone, a pipeline is no faster than one stage with all layers; with pp times the sequences a
    round is hardly longer."""
    one, two = (
        estimated_instance(
            staged(tp=4, pp=pp), gpus_per_system=8, prompt_tokens=1000
        ).step.coefficients
        for pp in (1, 2)
    )
    alone = step_seconds(one, 0, 0, 1, 0, 1000)
    assert step_seconds(two, 0, 0, 1, 0, 1000) == pytest.approx(alone, rel=0.1)
    assert step_seconds(two, 0, 0, 1, 0, 1000) > alone
    both = batch_seconds(two, 128, 128) / batch_seconds(one, 64, 64)
    assert both == pytest.approx(1.0, rel=0.1)


def test_a_lone_prompt_goes_through_every_stage_one_after_another() -> None:
    one, four = (
        estimated_instance(staged(tp=2, pp=pp), gpus_per_system=8, prompt_tokens=8000)
        for pp in (1, 4)
    )
    first, fourth = (
        p.step.frontend_s + step_seconds(p.step.coefficients, 8000, 1, 0, 8000 * 8000, 0)
        for p in (one, four)
    )
    assert fourth == pytest.approx(first, rel=0.1)


def test_stages_over_the_network_take_longer_than_inside_a_system() -> None:
    inside, across = (
        estimated_instance(
            staged(tp=4, pp=2), gpus_per_system=n, prompt_tokens=100
        ).step.coefficients
        for n in (8, 4)
    )
    assert batch_seconds(across, 64, 64) > batch_seconds(inside, 64, 64)
    assert across[HOST_STEP] == inside[HOST_STEP]


def test_405b_in_16_bits_needs_two_systems_of_eight() -> None:
    whole = staged("llama-3.1-405b", tp=8, precision="fp16")
    with pytest.raises(DoesNotFit, match="do not fit 8 × 80 GB"):
        estimated_instance(whole, gpus_per_system=8, prompt_tokens=1000)
    halves = estimated_instance(
        replace(whole, parallelism=Parallelism(tp=8, pp=2)), gpus_per_system=8, prompt_tokens=1000
    )
    assert halves.memory.tokens > 10_000
    assert halves.memory.weight_bytes * 16 == pytest.approx(2 * 405.9e9, rel=0.02)


def test_what_a_network_between_stages_adds_by_hand() -> None:
    """Of two stages the only hand-over is over the network in place of a link: its latency once,
    and 16 bits of the residual stream, of which each of four GPUs sends its part, halved over the
    two micro-batches."""
    split = staged(tp=4, pp=2)
    inside, across = (
        estimated_instance(split, gpus_per_system=n, prompt_tokens=100).step.coefficients
        for n in (8, 4)
    )
    sent = 2 * split.model.hidden / 4
    per_token = sent * (1 / pipeline.NETWORK_BYTES_S - 1 / split.gpu.tp_link_bytes_s(2)) / 2
    for once, place in at.MESSAGES:
        latency = pipeline.NETWORK_S - pipeline.LINK_S
        assert across[once] - inside[once] == pytest.approx(latency)
        assert across[place] - inside[place] == pytest.approx(per_token)

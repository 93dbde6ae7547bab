"""Pipelines of stages: a token takes as long as through all layers, and a full one carries more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tonnage import api
from tonnage.errors import DoesNotFit, InputError
from tonnage.perf import pipeline
from tonnage.perf import step_terms as at
from tonnage.perf.memory import memory_plan
from tonnage.perf.pipeline import (
    estimated_instance,
    largest_stage,
    pipeline_knobs,
    start_seconds,
    weight_bytes,
)
from tonnage.perf.step import StepModel, batch_seconds, step_seconds
from tonnage.perf.step_terms import HOST_STEP
from tonnage.perf.terms import step_model
from tonnage.spec.deployment import Deployment, Parallelism, parse_speculation


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


@pytest.mark.parametrize(
    ("gpus_per_system", "pp", "tp", "latency_us", "per_gpu"),
    [
        # all hand-overs over NVLink at 450 GB/s, one of three over the network at 25, or all
        (8, 4, 2, 30, 3 / 450e9),
        (4, 4, 2, 40, 2 / 450e9 + 1 / 25e9),
        (2, 4, 2, 60, 3 / 25e9),
        (3, 2, 2, 20, 1 / 25e9),
        (8, 3, 2, 20, 2 / 450e9),
    ],
)
def test_hand_overs_of_a_round_by_hand(
    gpus_per_system: int, pp: int, tp: int, latency_us: float, per_gpu: float
) -> None:
    """20 µs over the network and 10 inside; two bytes of each of 8,192 elements, of which each GPU
    sends its part, of one micro-batch in ``pp``."""
    d = staged(tp=tp, pp=pp)
    stage = StepModel(coefficients=np.zeros(at.COEFFICIENTS), frontend_s=0.5)
    stage.coefficients[at.NORM] = 1.0
    found_round = pipeline._round(stage, d, gpus_per_system, 1000)
    expected = np.zeros(at.COEFFICIENTS)
    expected[at.NORM] = 1.0
    for once, per_token in at.MESSAGES:
        expected[once] = latency_us * 1e-6
        expected[per_token] = 2 * 8192 / tp * per_gpu / pp
    assert found_round.coefficients == pytest.approx(expected, rel=1e-12, abs=0.0)
    # a prompt is in one micro-batch: it takes as long as pp of them, each a token's share
    assert found_round.frontend_s == pytest.approx(0.5 + (pp - 1) * 1000 * expected[at.COMM_TOKEN])
    assert (stage.frontend_s, stage.coefficients.sum()) == (0.5, 1.0)


def test_a_lone_prompt_attends_to_itself_in_every_stage_by_hand() -> None:
    """Two stages of 1 ms a token of prompts and 1 µs a pair: 100 tokens, half of each other."""
    d = staged(tp=2, pp=2)
    stage = StepModel(coefficients=np.zeros(at.COEFFICIENTS), frontend_s=0.0)
    stage.coefficients[[at.NORM, at.LINEAR_FLOPS, at.ATTENTION]] = 1.0, 1e-3, 1e-6
    longer = pipeline._round(stage, d, 8, 100).frontend_s
    sent = 100 * 2 * 8192 / 2 / 450e9 / 2
    assert longer == pytest.approx(100 * 1e-3 + 100 * 100 / 2 * 1e-6 + sent)


def test_stages_and_their_knobs_by_hand() -> None:
    d = staged("llama-3.1-70b", tp=2, pp=3)
    stage = largest_stage(d)
    assert (stage.model.layers, stage.parallelism) == (27, Parallelism(tp=2))
    assert largest_stage(staged()) == staged()
    assert largest_stage(staged(pp=80)).model.layers == 1
    with pytest.raises(InputError) as error:
        largest_stage(staged(pp=81))
    assert str(error.value) == (
        "pp: 81 stages are more than the 80 layers of llama-3.1-70b; write at most that many"
    )
    knobs = pipeline_knobs(d)
    assert knobs == replace(
        d.knobs,
        max_batch_size=3 * d.knobs.max_batch_size,
        max_num_tokens=3 * d.knobs.max_num_tokens,
    )
    whole = estimated_instance(d, gpus_per_system=8, prompt_tokens=1000)
    assert (whole.knobs, whole.memory) == (knobs, memory_plan(stage))
    with pytest.raises(DoesNotFit, match=r"^PP 2, 63 of 126 layers a stage: weights "):
        estimated_instance(staged("llama-3.1-405b", tp=1, pp=2), gpus_per_system=8, prompt_tokens=1)
    guessing = replace(d, speculation=parse_speculation("ngram k=2 acceptance=0.5"))
    with pytest.raises(InputError) as refused:
        estimated_instance(guessing, gpus_per_system=8, prompt_tokens=1)
    assert str(refused.value) == (
        "speculation: is not estimated together with PP 3; use pp 1, or leave it out"
    )


def test_how_long_an_instance_takes_to_start_by_hand() -> None:
    """A minute, and the weights of all GPUs over 10 Gbit/s: 8.0 GB of 16-bit tables and layers, a
    drafter's with them."""
    d = staged("llama-3.1-8b", tp=1, precision="fp16")
    size = 2 * (32 * 218_103_808 + 2 * 128_256 * 4096)
    assert weight_bytes(d) == size
    assert start_seconds(d) == pytest.approx(60 + size / 1.25e9)
    assert start_seconds(d, link_bytes_s=1e9, boot_s=5) == pytest.approx(5 + size / 1e9)
    eagle = replace(d, speculation=parse_speculation("eagle k=3 acceptance=0.7"))
    assert weight_bytes(eagle) == size + 2 * (218_103_808 + 33_554_432)
    two = replace(d, parallelism=Parallelism(tp=1, pp=2))
    # each of two stages has half of the layers, and both tables as the estimate has them
    assert weight_bytes(two) == 2 * (2 * (16 * 218_103_808 + 2 * 128_256 * 4096))

"""What a host costs: front ends of a class of core, scaled to the host."""

from __future__ import annotations

from dataclasses import astuple, replace
from typing import Any

import pytest

from tests.deployments import deployment
from tonnage.api.question.deployment import deployment_of
from tonnage.errors import InputError
from tonnage.perf import step_terms as at
from tonnage.perf.host import HostTerms, add_host, host_terms, responding_s, streaming_s
from tonnage.perf.ranges import marks
from tonnage.perf.step import StepModel
from tonnage.perf.terms import step_model
from tonnage.perf.terms_file import TermGroups, shipped
from tonnage.spec.catalog import engines, find_engine, find_gpu, find_model
from tonnage.spec.catalog.entries import host_cpus
from tonnage.spec.deployment import Parallelism
from tonnage.spec.precision import find_precision


def test_a_slow_host_shows_in_small_models_and_in_what_the_gpu_waits_for() -> None:
    """One speed for one host: AccelMark's RTX 5090 takes 8.1 ms a step of 32 for 0.5B and 10.2 ms a
    token for 8B."""

    def steps(model: str, engine: str, speed: float) -> tuple[float, float, StepModel]:
        d = deployment_of(
            model=model, gpu="rtx-5090", precision="bf16", tp=1, engine=engine, host_speed=speed
        )
        made = step_model(d)
        return made.seconds(0, 0, 1, 0, 400), made.seconds(0, 0, 32, 0, 32 * 200), made

    (one, many, quick), (slow_one, slow_many, slow) = (
        steps("qwen2.5-0.5b", "vllm-0.19", speed) for speed in (1.0, 0.25)
    )
    assert one < 2.1e-3
    assert 4.5e-3 < slow_one < 6e-3
    assert many < 3e-3
    assert 6.5e-3 < slow_many < 9e-3
    assert slow.frontend_s == pytest.approx(4 * quick.frontend_s)
    assert slow.stream_s == pytest.approx(4 * quick.stream_s)
    large, slow_large = (steps("llama-3-8b", "vllm-0.19", speed)[0] for speed in (1.0, 0.25))
    assert slow_large == large
    serial, slow_serial = (steps("llama-3-8b", "vllm-0.12", speed)[0] for speed in (1.0, 0.25))
    assert slow_serial - serial == pytest.approx(
        3 * shipped()["engines"]["vllm-0.12"]["schedule_s"]
    )
    assert steps("llama-3-8b", "vllm-0.19", 2.0)[0] == large
    d = deployment_of(
        model="llama-3-8b", gpu="h100", precision="bf16", tp=1, engine="vllm", host_speed=0.25
    )
    assert "cores of the host at 0.25 of the measured hosts' speed, as stated" in marks(d)


@pytest.mark.parametrize("speed", [0.0, 0.09, 3.1, -1.0])
def test_a_speed_that_no_core_has_is_refused(speed: float) -> None:
    with pytest.raises(InputError, match=r"is not a speed of cores; write 0\.1 to 3"):
        deployment_of(model="llama-3-8b", gpu="h100", tp=1, engine="vllm", host_speed=speed)


def test_what_a_front_end_costs_is_that_of_its_measured_class_of_core_scaled_to_the_host() -> None:
    """One API server of vLLM was measured on EPYC 9005, whose cores are 1.25 times as fast as those
    of the shipped terms' hosts."""
    measured, speed = find_engine("vllm").front_end, host_cpus()["epyc-9005"].speed
    assert measured is not None
    one = step_model(deployment(engine="vllm"))
    assert one.enter_s == pytest.approx(1e-6 * measured.enter_us * speed)
    assert one.stream_step_s == pytest.approx(1e-6 * measured.step_us * speed)
    d = deployment(engine="vllm")
    four = step_model(replace(d, knobs=replace(d.knobs, front_ends=4)))
    assert (four.enter_s, four.enter_token_s, four.stream_step_s) == pytest.approx(
        (one.enter_s / 4, one.enter_token_s / 4, one.stream_step_s)
    )
    slow = step_model(replace(d, gpu=replace(d.gpu, host_speed=0.5)))
    assert (slow.enter_s, slow.stream_step_s) == pytest.approx(
        (2 * one.enter_s, 2 * one.stream_step_s)
    )
    wide = step_model(replace(d, parallelism=Parallelism(dp=8)))
    assert (wide.enter_s, wide.stream_step_s) == pytest.approx(
        (8 * one.enter_s, 8 * one.stream_step_s)
    )
    unknown = step_model(deployment(engine="sglang"))
    assert unknown.enter_s == unknown.enter_token_s == unknown.stream_step_s == 0.0


def test_every_measured_front_end_names_a_class_of_the_catalog() -> None:
    for engine in engines():
        assert engine.front_end is None or (
            engine.front_end.cpu in host_cpus()
            and engine.front_end.date
            and engine.front_end.source
        )


NEEDED = {
    "step_s": 4e-4,
    "sequence_s": 1e-5,
    "prefill_s": 7e-4,
    "frontend_s": 8e-3,
    "layer_s": 3e-5,
}
MORE = {
    "schedule_s": 5e-4,
    "sequence_hopper": 1.5,
    "prefill_ranks_s": 2e-4,
    "launch_layer_s": 5e-4,
    "launch_layer_hopper": 1.2,
    "prefill_layer_s": 5e-5,
    "piece_layer_s": 1.9e-4,
    "latent_prefill_s": 6e-4,
    "latent_layer": 1.5,
    "layer_narrow_s": 4e-6,
    "layer_fp4_s": 8e-6,
    "layer_blocks_s": 7e-6,
    "layer_kv_8bit_hopper_s": 3e-6,
    "layer_norms_s": 2e-6,
}
GENERATION = {"layer": 2.0, "sequence": 0.5, "launch": 0.25, "blocks": 3.0}


def host_of(
    model: str = "llama-3.1-8b",
    precision: str = "fp16",
    tp: int = 1,
    *,
    speed: float = 1.0,
    plain: bool = False,
    **sizes: Any,
) -> HostTerms:
    """The terms of an engine that has all of ``MORE`` on a generation with all corrections, or of
    one and on one with none."""
    groups = TermGroups(
        gpu=replace(find_gpu("h100"), host_speed=speed),
        shared={"state_layer": 1.4, "sparse_layer": 2.0}
        | ({} if plain else {"state_prefill_s": 1e-3}),
        generation={} if plain else GENERATION,
        own={},
        engine=NEEDED if plain else NEEDED | MORE,
        links={},
        formats={},
    )
    form = groups.gpu.executes(find_precision(precision))
    return host_terms(groups, replace(find_model(model), **sizes), form, tp)


WHOLE = HostTerms(
    layers_s=32 * 3e-5 * 2,
    step_s=4e-4,
    sequence_s=1e-5 * 1.5 / 2,
    prefill_s=7e-4,
    schedule_s=5e-4,
    launch_s=32 * 5e-4 * 1.2 / 4,
    eager_s=32 * 5e-5,
    frontend_s=8e-3,
    pieces_s=32 * 1.9e-4,
)
TWICE = replace(
    WHOLE,
    prefill_s=1.4e-3,
    schedule_s=1e-3,
    launch_s=2 * WHOLE.launch_s,
    eager_s=2 * WHOLE.eager_s,
    frontend_s=1.6e-2,
    pieces_s=2 * WHOLE.pieces_s,
    least_s=2 * (4e-4 + 1.92e-3),
    least_sequence_s=1.5e-5,
)
HALF = replace(
    WHOLE,
    prefill_s=3.5e-4,
    schedule_s=2.5e-4,
    launch_s=WHOLE.launch_s / 2,
    eager_s=WHOLE.eager_s / 2,
    frontend_s=4e-3,
    pieces_s=WHOLE.pieces_s / 2,
)
PLAIN = HostTerms(
    layers_s=32 * 3e-5,
    step_s=4e-4,
    sequence_s=1e-5,
    prefill_s=7e-4,
    schedule_s=0.0,
    launch_s=0.0,
    eager_s=0.0,
    frontend_s=8e-3,
)


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ({"plain": True}, PLAIN),
        ({"plain": True, "tp": 2, "precision": "fp8"}, PLAIN),
        ({}, WHOLE),
        ({"tp": 2}, replace(WHOLE, prefill_s=9e-4)),
        ({"speed": 0.5}, TWICE),
        ({"speed": 2.0}, HALF),
    ],
)
def test_terms_of_a_host_by_hand(what: dict[str, Any], expected: HostTerms) -> None:
    assert astuple(host_of(**what)) == pytest.approx(astuple(expected), rel=1e-12)


@pytest.mark.parametrize(
    ("model", "launched", "eager_s"),
    [
        # latent attention launches half as much again, and 0.6 ms / 4 in a step with prompts
        ("deepseek-v3", 61 * 1.5, 61 * (1.5e-4 + 5e-5)),
        # an indexer of tokens doubles it; compressing takes 1.3 times as much more
        ("deepseek-v3.2", 61 * 1.5 * 2, 61 * (1.5e-4 + 5e-5)),
        ("deepseek-v4-pro", 61 * 1.5 * 2.3, 61 * (1.5e-4 + 5e-5)),
        # choosing blocks takes 0.4 of it
        ("minimax-m3", 3 + 57 * 1.4, 60 * 5e-5),
        # layers with a state, and a scan in a step with prompts
        ("qwen3.5-397b-a17b", 15 + 45 * 1.4, 45 * 2.5e-4 + 60 * 5e-5),
        # 29 layers that mix tokens and 23 of experts are 26 layers of both
        ("nemotron-3-nano-30b-a3b", (6 + 23 * 1.4) * 26 / 29, 23 * 2.5e-4 + 52 * 5e-5),
    ],
)
def test_what_layers_of_each_kind_launch_by_hand(
    model: str, launched: float, eager_s: float
) -> None:
    terms = host_of(model, head_norms=False, residual_streams=1)
    assert terms.layers_s == pytest.approx(launched * 3e-5 * 2, rel=1e-12)
    assert terms.eager_s == pytest.approx(eager_s, rel=1e-12)
    layers = find_model(model).layers
    several = host_of(model, head_norms=False, residual_streams=2).layers_s - terms.layers_s
    assert several == pytest.approx(31e-6 * layers)
    bare = host_of(model, plain=True, residual_streams=1, head_norms=False)
    assert bare.eager_s == 0.0
    latent = 1.5 if find_model(model).has_latent_cache else 1.0
    assert bare.layers_s == pytest.approx(launched / latent * 3e-5, rel=1e-12)


@pytest.mark.parametrize(
    ("precision", "sizes", "layer_us"),
    [
        ("fp16", {}, 30),
        ("fp16+kv-fp8", {}, 33),
        ("fp16", {"head_norms": True}, 32),
        ("fp8+kv-fp16", {}, 34),
        ("fp8", {}, 37),
        ("fp8+kv-fp16", {"block_fp8": True}, 34 + 21),
        # unpacked weights are multiplied in 16 bits
        ("gptq", {"block_fp8": True}, 30),
        ("mxfp4", {}, 30),
        ("nvfp4+kv-fp16", {}, 42),
        # a dense model has no experts that alone could be narrow
        ("nvfp4+experts+kv-fp16", {}, 42),
        ("nvfp4+experts+kv-fp16", {"experts": 8}, 34),
        ("nvfp4+kv-fp16", {"experts": 8}, 42),
    ],
)
def test_what_a_format_adds_to_a_layer_by_hand(
    precision: str, sizes: dict[str, Any], layer_us: float
) -> None:
    assert host_of(precision=precision, **sizes).layers_s == pytest.approx(
        64e-6 * layer_us, rel=1e-12
    )
    # an engine and a generation that say nothing of it
    plain = host_of(precision=precision, plain=True, **sizes)
    assert plain.layers_s == pytest.approx(32 * 3e-5, rel=1e-12)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (None, {"host_step": 7e-3}),
        (
            {"overlap_schedule": True, "graph_tokens": 512},
            {"host_step": 7e-3, "graphed_to": 512.0, "host_least": 2e-3},
        ),
        ({"overlap_schedule": False}, {"host_step": 1.2e-2, "host_least": 2e-3}),
        (
            {"piecewise_graphs": True, "overlap_schedule": True},
            {"host_step": 7e-3, "host_least": 6e-3},
        ),
    ],
)
def test_the_host_of_a_step_by_hand(
    changed: dict[str, Any] | None, expected: dict[str, float]
) -> None:
    """What is there for each sequence is kept, such as that of experts."""
    terms = HostTerms(
        layers_s=4e-3,
        step_s=3e-3,
        sequence_s=1e-4,
        prefill_s=7e-4,
        schedule_s=5e-3,
        launch_s=9e-3,
        eager_s=3e-4,
        frontend_s=1.0,
        least_s=2e-3,
        least_sequence_s=3e-5,
        pieces_s=6e-3,
    )
    c = [0.0] * at.COEFFICIENTS
    c[at.HOST_SEQUENCE] = 1e-3
    usual = {"graph_tokens": 0, "piecewise_graphs": False}
    add_host(
        c,
        terms,
        None if changed is None else replace(deployment().knobs, **{**usual, **changed}),
    )
    always = {
        "host_sequence": 1.1e-3,
        "launches": 9e-3,
        "eager": 1e-3,
        "host_least_sequence": 3e-5,
    }
    assert {at.TERMS[place].name: c[place] for place in range(len(c)) if c[place]} == pytest.approx(
        always | expected, rel=1e-12
    )


@pytest.mark.parametrize(
    ("engine", "sequence_s", "seconds"),
    [
        ({"sequence_s": 1e-5}, 1.5e-5, 0.0),
        ({"sequence_s": 1e-5, "response_s": 4e-6}, 1.5e-5, 9e-6),
        ({"sequence_s": 1e-5, "response_s": 4e-6}, 7e-6, 1e-6),
        ({"sequence_s": 1e-5, "response_s": 4e-6}, 5e-6, 0.0),
    ],
)
def test_seconds_of_handing_out_tokens_by_hand(
    engine: dict[str, float], sequence_s: float, seconds: float
) -> None:
    assert responding_s(engine, sequence_s) == pytest.approx(seconds)


def test_seconds_of_streaming_by_hand() -> None:
    """50 µs for five tokens of four ranks in two front ends on cores of half the speed."""
    d = deployment()
    d = replace(
        d,
        gpu=replace(d.gpu, host_speed=0.5),
        parallelism=Parallelism(dp=4),
        knobs=replace(d.knobs, stream_interval=5, front_ends=2),
    )
    assert streaming_s({"stream_s": 5e-5}, d) == pytest.approx(5e-5 * 2 * 4 / 10)
    assert streaming_s({}, d) == 0.0

"""What a host costs: front ends of a class of core, scaled to the host."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.deployments import deployment
from tonnage.api.question.deployment import deployment_of
from tonnage.errors import InputError
from tonnage.perf.ranges import marks
from tonnage.perf.step import StepModel
from tonnage.perf.terms import step_model
from tonnage.perf.terms_file import shipped
from tonnage.spec.catalog import engines, find_engine
from tonnage.spec.catalog.entries import host_cpus
from tonnage.spec.deployment import Parallelism


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

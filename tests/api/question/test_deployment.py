"""Deployments by the names of their parts."""

from __future__ import annotations

import pytest

from tests.questions import plans_with
from tonnage.api import memory, simulate, size
from tonnage.api.question.deployment import deployment_of, usual_engine
from tonnage.errors import InputError
from tonnage.spec.catalog import find_engine, find_gpu, gpus
from tonnage.spec.precision import find_precision

few_parts = plans_with()


def test_the_usual_engine_runs_on_every_gpu_of_the_catalog() -> None:
    precision = find_precision("fp16")
    for gpu in gpus():
        engine = find_engine(usual_engine(gpu, precision))
        assert not engine.excluded(gpu), gpu.name
        assert not engine.lacks(precision), gpu.name


@pytest.mark.parametrize(
    ("gpu", "engine"),
    [
        ("mi300x", "vllm-0.32"),
        ("v100", "vllm-0.19"),
        ("t4", "vllm-0.32"),
        ("l4", "tensorrt-llm-1.2"),
    ],
)
def test_memory_simulate_and_size_take_an_engine_that_runs_there(gpu: str, engine: str) -> None:
    load = {"model": "qwen2.5-0.5b", "gpu": gpu, "isl": 100, "osl": 10}
    assert memory(**load).plan.deployment.engine == engine
    assert simulate(**load, concurrency=1, requests=4).deployment.engine == engine
    plan = size(**load, peak_rps=0.1, tp=1)
    assert {candidate.engine_preset for candidate in plan.candidates} >= {engine}


def test_an_engine_that_does_not_run_there_is_refused() -> None:
    with pytest.raises(InputError, match=r"sglang-0.5.9 does not run on Volta .* vllm-0.19"):
        deployment_of(model="llama-3.1-8b", gpu="v100", tp=1, engine="sglang")


@pytest.mark.parametrize("name", ["gfx942", "CDNA 3", "cdna3"])
def test_a_generation_is_answered_with_its_gpus(name: str) -> None:
    with pytest.raises(InputError, match=r"is a generation, CDNA3; name .*: mi300x, mi325x"):
        find_gpu(name)

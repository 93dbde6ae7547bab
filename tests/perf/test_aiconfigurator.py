"""Step times of AIConfigurator's wheel."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.step_times import deployment
from tonnage.errors import InputError
from tonnage.perf import aiconfigurator
from tonnage.perf.measured_steps import checked_source, reduction, source_mark
from tonnage.perf.step import step_seconds
from tonnage.perf.terms import step_model
from tonnage.spec.catalog import find_model
from tonnage.spec.config_json import read_config
from tonnage.spec.deployment import Deployment
from tonnage.spec.step_times import StepSource

absent = aiconfigurator.installed_version() is None

needs_wheel = pytest.mark.skipif(
    absent, reason="THE WHEEL aiconfigurator-core IS ABSENT: its step times are not checked"
)


def asked(d: Deployment) -> Deployment:
    return replace(d, step_source=StepSource(name="aiconfigurator"))


@pytest.mark.parametrize(
    ("name", "family"), [("mixtral-8x7b", "Mixtral"), ("llama-3.1-8b", "Llama")]
)
def test_the_model_that_is_written_for_it_reads_back_with_its_weights(
    name: str, family: str, tmp_path: Path
) -> None:
    model = find_model(name)
    aiconfigurator.written(model, tmp_path)
    config = tmp_path / "config.json"
    fields = json.loads(config.read_text())
    assert (fields["architectures"], fields["model_type"]) == (
        [f"{family}ForCausalLM"],
        family.lower(),
    )
    assert read_config(config).group_parameters == model.group_parameters


def test_without_the_wheel_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiconfigurator, "find_spec", lambda _: None)
    with pytest.raises(
        InputError,
        match=r"aiconfigurator-core is not installed; pip install 'tonnage\[aiconfigurator\]'",
    ) as error:
        checked_source("aiconfigurator")
    assert error.value.exit_code == 2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param(
            {"model": "gpt-j-6b", "precision": "fp16"},
            "does not cover the architecture of gpt-j-6b",
            marks=[pytest.mark.accuracy, needs_wheel],
        ),
        ({"gpu": "l40"}, "has no tables of l40"),
        ({"precision": "fp8+2:4"}, r"llama-3.1-8b is in fp8\+2:4"),
    ],
)
def test_a_deployment_that_it_has_no_tables_of_is_refused(
    change: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tonnage.api.question.deployment import deployment_of

    what = {
        "model": "llama-3.1-8b",
        "gpu": "h100",
        "precision": "fp16",
        "tp": 1,
        "engine": "vllm",
        **change,
    }
    monkeypatch.setattr(aiconfigurator, "installed_version", lambda: "0.12.0")
    with pytest.raises(InputError, match=says):
        reduction(asked(deployment_of(**what)))


@pytest.mark.accuracy
@needs_wheel
@pytest.mark.parametrize("engine", ["vllm", "tensorrt-llm-0.15"])
def test_the_wheels_steps_reduce_well(engine: str) -> None:
    d = asked(deployment(engine=engine))
    found = reduction(d)
    assert found.decode_mape < 3
    assert found.prefill_mape < 10
    assert found.steps > 150
    assert "aiconfigurator-core" in source_mark(d)
    alone = step_seconds(step_model(d).coefficients, 0, 0, 1, 0, 1000)
    assert 0.002 < alone < 0.008  # 8 GB of weights at 3.35 TB/s take 2.4 ms


@pytest.mark.accuracy
@needs_wheel
def test_the_wheel_refuses_in_one_line() -> None:
    with pytest.raises(InputError, match=r"cannot estimate llama-3.1-8b, a100_sxm") as error:
        reduction(asked(replace(deployment(), gpu=replace(deployment().gpu, name="a100-sxm-80gb"))))
    assert "\n" not in str(error.value)

"""Step times of AIConfigurator's wheel."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.deployments import deployment as deployed
from tests.step_times import deployment
from tonnage.errors import InputError
from tonnage.perf import aiconfigurator
from tonnage.perf.measured_steps import checked_source, reduction, source_mark
from tonnage.perf.step import step_seconds
from tonnage.perf.terms import step_model
from tonnage.spec.catalog import find_model
from tonnage.spec.config_json import read_config
from tonnage.spec.deployment import Deployment, Parallelism
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


def tables(model: str, gpu: str, precision: str, engine: str) -> tuple[str, str, str, str, str]:
    found = aiconfigurator.tables_of(deployed(model, gpu, precision, 1, engine))
    return found.system, found.backend, found.gemm, found.experts, found.kv


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (
            ("llama-3.1-8b", "h100", "fp16", "vllm"),
            ("h100_sxm", "vllm", "bfloat16", "bfloat16", "bfloat16"),
        ),
        (
            ("llama-3.1-8b", "a100", "int8-sq", "tensorrt-llm"),
            ("a100_sxm", "trtllm", "sq", "", "bfloat16"),
        ),
        (
            ("llama-3.1-8b", "l40s", "fp8", "nim"),
            ("l40s", "trtllm", "fp8_static", "fp8", "fp8"),
        ),
        (
            ("deepseek-r1", "h200", "fp8", "sglang"),
            ("h200_sxm", "sglang", "fp8_block", "fp8_block", "fp8"),
        ),
        (
            ("mixtral-8x7b", "b200", "nvfp4+experts", "vllm"),
            ("b200_sxm", "vllm", "bfloat16", "nvfp4", "fp8"),
        ),
        (
            ("gpt-oss-20b", "gb200", "mxfp4", "tensorrt-llm"),
            ("gb200", "trtllm", "bfloat16", "w4a8_mxfp4_mxfp8", "bfloat16"),
        ),
        (
            ("gpt-oss-20b", "b200", "mxfp4", "vllm"),
            ("b200_sxm", "vllm", "bfloat16", "w4a16_mxfp4", "bfloat16"),
        ),
        (
            ("gpt-oss-20b", "h100", "mxfp4", "tensorrt-llm"),
            ("h100_sxm", "trtllm", "bfloat16", "w4a16_mxfp4", "bfloat16"),
        ),
    ],
)
def test_a_deployment_in_the_wheels_words(
    place: tuple[str, str, str, str], expected: tuple[str, ...]
) -> None:
    assert tables(*place) == expected


@pytest.mark.parametrize(
    ("place", "says"),
    [
        (("llama-3.1-8b", "h100", "w4a8", "vllm"), "llama-3.1-8b is in w4a8"),
        # of matrices there are such tables, of experts there are none
        (("mixtral-8x7b", "h100", "int8-wo", "vllm"), "mixtral-8x7b is in int8-wo"),
        (("llama-3.1-8b", "h100", "fp8+2:4", "vllm"), r"is in fp8\+2:4"),
        (("llama-3.1-8b", "mi300x", "fp16", "vllm"), "no tables of mi300x; it has a100-sxm-80gb"),
        (("llama-3.1-8b", "b300", "fp16", "atom"), "has no tables of the engine atom"),
    ],
)
def test_what_the_wheel_has_no_tables_of(place: tuple[str, str, str, str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        tables(*place)


@pytest.mark.parametrize(
    ("place", "split", "expected"),
    [
        (
            ("llama-3.1-8b", "h100", "fp8", "tensorrt-llm"),
            Parallelism(),
            {
                "gemm_quant_mode": "fp8_static",
                "kvcache_quant_mode": "fp8",
                "fmha_quant_mode": "fp8",
            },
        ),
        (
            ("llama-3.1-8b", "h100", "fp8", "vllm"),
            Parallelism(),
            {
                "gemm_quant_mode": "fp8_static",
                "kvcache_quant_mode": "fp8",
                "fmha_quant_mode": "bfloat16",
            },
        ),
        (
            ("deepseek-v3", "h200", "fp8", "tensorrt-llm"),
            Parallelism(tp=2, dp=4, ep=2),
            {
                "gemm_quant_mode": "fp8_block",
                "kvcache_quant_mode": "fp8",
                "fmha_quant_mode": "bfloat16",
                "moe_quant_mode": "fp8_block",
                "attention_dp_size": 4,
                "moe_tp_size": 4,
                "moe_ep_size": 2,
            },
        ),
    ],
)
def test_formats_that_the_wheel_is_told(
    place: tuple[str, str, str, str], split: Parallelism, expected: dict[str, Any]
) -> None:
    model, gpu, precision, engine = place
    d = replace(deployed(model, gpu, precision, 1, engine), parallelism=split)
    assert aiconfigurator.formats(aiconfigurator.tables_of(d)) == expected


def test_the_sizes_that_are_written_for_it(tmp_path: Path) -> None:
    model = find_model("mixtral-8x7b")
    assert aiconfigurator.written(model, tmp_path) == str(tmp_path)
    mixtral = {
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "hidden_size": 4096,
        "intermediate_size": 14_336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 32,
        "head_dim": 128,
        "vocab_size": 32_000,
        "max_position_embeddings": 32_768,
        "torch_dtype": "bfloat16",
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    }
    assert json.loads((tmp_path / "config.json").read_text()) == mixtral
    for sizes in (
        {"gated": False},
        {"mixers": model.by_kind},
        {"latent": find_model("deepseek-v3").latent},
        {"shared_experts": 1},
        {"dense_layers": 1},
        {"parallel_block": True},
    ):
        with pytest.raises(InputError, match="does not cover the architecture of mixtral-8x7b"):
            aiconfigurator.written(replace(model, **sizes), tmp_path)


class Handle:
    """A wheel whose times are what it was asked for: a millisecond for each batch, and so on."""

    compiled: list[tuple[Any, ...]]

    @classmethod
    def compile(cls, path: str, *words: str, **formats: Any) -> Handle:
        cls.compiled.append((path, *words, formats))
        if "broken" in words:
            raise ValueError("no \n such   table " + "x" * 300)
        return cls()

    def decode_step_latency(self, batch: int, context: int, steps: int) -> float:
        assert steps == 2
        return batch + context / 1e6

    def predict_prefill_latency(self, pack: int, prompt: int) -> float:
        return pack * 1e3 + prompt

    def mixed_step_latency(self, prefill: int, batch: int, prompt: int, output: int) -> float:
        assert (prefill, output) == (prompt, 128)
        return prompt * 1e4 + batch


@pytest.fixture
def wheel(monkeypatch: pytest.MonkeyPatch) -> type[Handle]:
    Handle.compiled = []
    for name in ("aiconfigurator_core", "aiconfigurator_core.sdk"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    engine: Any = ModuleType("aiconfigurator_core.sdk.engine")
    engine.EngineHandle = Handle
    monkeypatch.setitem(sys.modules, "aiconfigurator_core.sdk.engine", engine)
    monkeypatch.setattr(aiconfigurator, "installed_version", lambda: "0.12.0")
    aiconfigurator.compiled.cache_clear()
    aiconfigurator._grid.cache_clear()
    return Handle


def test_the_steps_that_the_wheel_is_asked_for_by_hand(wheel: type[Handle]) -> None:
    """A context of 512 tokens; the new token of a decode is one of them, and half of 128 tokens of
    output follow a prompt."""
    d = deployed("llama-3.1-8b", "h100", "fp16", 2, "vllm")
    short = replace(d, model=replace(d.model, max_context=512))
    expected = [
        (0, 1, 0, batch, batch * 129, (batch + 128e-6) / 1e3)
        for batch in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    ]
    prompts = (16, 32, 64, 128, 192, 256, 384, 512)
    expected += [
        (prompt * pack, pack, 0, 0, 0, pack + prompt / 1e3)
        for prompt in prompts
        for pack in (1, 2, 4, 8)
    ]
    expected += [
        (prompt, 1, 0, batch, batch * (prompt + 64), prompt * 10 + batch / 1e3)
        for prompt in prompts[:6]
        for batch in (1, 8, 64, 512)
    ]
    steps = aiconfigurator.timed_steps(short)
    assert [
        (
            s.prefill_tokens,
            s.prefill_sequences,
            s.past_tokens,
            s.decode_sequences,
            s.context_tokens,
            s.seconds,
        )
        for s in steps
    ] == [pytest.approx(step) for step in expected]
    ((path, *words, formats),) = wheel.compiled
    assert words == ["h100_sxm", "vllm"]
    assert not Path(path).exists()  # written for it, and gone
    assert formats == {
        "tp_size": 2,
        "gemm_quant_mode": "bfloat16",
        "kvcache_quant_mode": "bfloat16",
        "fmha_quant_mode": "bfloat16",
    }
    # of a long context all prompts, and no more than 32,768 tokens of them
    whole = aiconfigurator.timed_steps(d)
    assert len(whole) == 10 * 7 + (14 * 4 + 2 * 3 + 2) + 17 * 4
    assert max(s.prefill_tokens for s in whole) == 32_768
    # powers of two, with those halfway between them from 192 to 6,144
    alone = {s.prefill_tokens for s in whole if s.prefill_sequences == 1 and not s.decode_sequences}
    assert alone == {2**n for n in range(4, 15)} | {3 * 2**n for n in range(6, 12)}
    contexts = {s.context_tokens for s in whole if s.tokens == 1}
    assert contexts == {1 + n for n in (128, 512, 1024, 2048, 4096, 8192, 16_384)}
    assert max(s.context_tokens for s in whole) == 512 * (16_384 + 64)
    assert aiconfigurator.described(d) == "aiconfigurator-core 0.12.0, h100_sxm vllm"


def test_a_model_that_the_wheel_knows_goes_by_its_name(wheel: type[Handle]) -> None:
    d = deployed("deepseek-r1", "h200", "fp8", 8, "vllm")
    aiconfigurator.timed_steps(d)
    assert wheel.compiled[0][:3] == ("deepseek-ai/DeepSeek-R1", "h200_sxm", "vllm")


def test_what_the_wheel_cannot_estimate_is_one_line(
    wheel: type[Handle], monkeypatch: pytest.MonkeyPatch
) -> None:
    d = deployed("llama-3.1-8b", "h100", "fp16", 1, "vllm")
    monkeypatch.setitem(aiconfigurator.SYSTEMS, "h100-sxm-80gb", "broken")
    with pytest.raises(InputError) as error:
        aiconfigurator.timed_steps(d)
    assert str(error.value) == (
        "step_model: aiconfigurator-core cannot estimate llama-3.1-8b, broken vllm bfloat16 TP 1:"
        f" no such table {'x' * 146}"
    )
    monkeypatch.setattr(wheel, "decode_step_latency", None)
    monkeypatch.setitem(aiconfigurator.SYSTEMS, "h100-sxm-80gb", "h100_sxm")
    with pytest.raises(InputError, match=r"cannot estimate llama-3\.1-8b, h100_sxm vllm"):
        aiconfigurator.timed_steps(d)
    odd = replace(d, model=replace(d.model, gated=False))
    with pytest.raises(InputError, match="does not cover the architecture"):
        aiconfigurator.timed_steps(odd)
    monkeypatch.setitem(sys.modules, "aiconfigurator_core.sdk.engine", None)
    with pytest.raises(InputError, match=r"cannot be imported .*; pip install 'tonnage\[aic"):
        aiconfigurator.timed_steps(replace(d, parallelism=Parallelism(tp=4)))


def test_the_version_of_the_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_package(_: str) -> str:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(aiconfigurator, "find_spec", lambda _: SimpleNamespace())
    monkeypatch.setattr(aiconfigurator.metadata, "version", lambda name: f"{name} 1.2")
    assert aiconfigurator.installed_version() == "aiconfigurator-core 1.2"
    monkeypatch.setattr(aiconfigurator.metadata, "version", no_package)
    assert aiconfigurator.installed_version() == "unknown version"
    monkeypatch.setattr(aiconfigurator, "find_spec", lambda _: None)
    assert aiconfigurator.installed_version() is None
    d = deployed("llama-3.1-8b", "h100", "fp16", 1, "vllm")
    with pytest.raises(InputError, match="is not installed"):
        aiconfigurator.timed_steps(d)

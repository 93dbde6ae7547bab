"""What an engine loads: a published checkpoint, one that it quantises at its start, or a folder with what fills it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tonnage.deploy.checkpoint import loading
from tonnage.errors import InputError
from tonnage.spec.catalog.checkpoints import listed_checkpoints
from tonnage.spec.catalog.entries import engine_shelf, model_shelf
from tonnage.spec.precision import PRECISIONS, find_precision

FORMATS = [*PRECISIONS, "fp8+kv-fp16", "fp8+2:4", "nvfp4+experts", "int4-g32+experts", "mxfp4+rest-fp8", "nvfp4+rest-fp8"]


@pytest.mark.parametrize("engine", engine_shelf().by_name)
def test_every_model_and_format_has_a_checkpoint_or_the_engines_own_quantisation_or_a_word_on_how_to_make_one(engine: str) -> None:
    by_name = {one.repository: one for one in listed_checkpoints()}
    launch = engine_shelf().by_name[engine].launch
    for model in model_shelf().by_name:
        for precision in FORMATS:
            wanted = find_precision(precision)
            for vendor in ("NVIDIA", "AMD"):
                found = loading(model, precision, engine, vendor=vendor)
                known = by_name.get(found.checkpoint)
                if found.words:
                    assert launch is not None
                    assert found.words == launch.quantizing(wanted.weights)
                    assert known.half if known else found.checkpoint == f"/models/{model}-bf16"
                elif known:
                    assert known.model == model
                    assert {known.format.partition("+")[0], wanted.weight_format} <= {"fp16", "bf16"} or known.format.startswith(
                        wanted.weight_format
                    )
                    assert (known.format == wanted.weights or known.half) or f"--precision {known.format}" in found.told
                else:
                    assert found.checkpoint.startswith(f"/models/{model}-")
                    for command in found.make:
                        assert found.checkpoint in shlex.split(command)
                    assert found.make or "No tool that creates one is known" in found.told


@pytest.mark.parametrize(
    ("asked", "checkpoint", "words"),
    [
        (("deepseek-v3", "fp8", "vllm-0.32"), "deepseek-ai/DeepSeek-V3", ()),
        (("llama-3.1-8b", "fp16", "vllm-0.32"), "meta-llama/Llama-3.1-8B-Instruct", ()),
        (("llama-3.1-8b", "fp8+kv-fp16", "tensorrt-llm-1.2"), "nvidia/Llama-3.1-8B-Instruct-FP8", ()),
        (("kimi-k2.5", "int4-g32+experts", "sglang-0.5.9"), "moonshotai/Kimi-K2.5", ()),
        (("qwen3-8b", "fp8", "vllm-0.32"), "Qwen/Qwen3-8B-FP8", ()),  # the author's own
        (("qwen3-8b", "fp8", "tensorrt-llm-1.2"), "nvidia/Qwen3-8B-FP8", ()),  # which runs on every GPU with FP8
        (("phi-4", "fp8", "tensorrt-llm-1.2"), "RedHatAI/phi-4-FP8-dynamic", ()),
        (("phi-4", "fp8", "tensorrt-llm-1.0"), "/models/phi-4-fp8", ()),  # which does not read it yet
        (("gemma-2-27b", "fp8", "vllm-0.32"), "google/gemma-2-27b-it", ("--quantization", "fp8_per_tensor")),
        (("gemma-2-27b", "fp8", "vllm-0.19"), "google/gemma-2-27b-it", ("--quantization", "fp8")),
        (("gemma-2-27b", "fp8", "sglang-0.5.9"), "google/gemma-2-27b-it", ("--quantization", "fp8")),
        (("gemma-2-27b", "mxfp4", "vllm-0.32"), "/models/gemma-2-27b-mxfp4", ()),  # of experts alone, which it does not have
        (("gpt-43b", "fp8", "vllm-0.32"), "/models/gpt-43b-bf16", ("--quantization", "fp8_per_tensor")),
    ],
)
def test_what_is_loaded(asked: tuple[str, str, str], checkpoint: str, words: tuple[str, ...]) -> None:
    found = loading(*asked)
    assert (found.checkpoint, found.words) == (checkpoint, words)
    assert f"`{checkpoint}`" in found.told


def test_what_is_gated_is_called_so() -> None:
    assert "It is gated" in loading("llama-3.1-8b", "bf16", "vllm").told
    assert "It is gated" in loading("gemma-2-27b", "fp8", "vllm").told
    assert "gated" not in loading("llama-3.1-8b", "fp8", "vllm").told


def test_amds_format_is_for_amds_gpus() -> None:
    assert loading("glm-5.2", "mxfp4", "sglang", vendor="AMD").checkpoint == "amd/GLM-5.2-MXFP4"
    assert loading("glm-5.2", "mxfp4", "sglang").checkpoint == "/models/glm-5.2-mxfp4"


def test_a_name_wins_and_nonsense_does_not() -> None:
    found = loading("llama-3.1-8b", "fp8", "vllm", asked=" mine/x ")
    assert (found.checkpoint, found.named, found.words, found.make) == ("mine/x", True, (), ())
    with pytest.raises(InputError, match="'--x' is no name of a checkpoint"):
        loading("llama-3.1-8b", "fp8", "vllm", asked="--x")


def test_a_model_of_a_file_is_named_after_its_folder(tmp_path: Path) -> None:
    model = str(tmp_path / "My Model" / "config.json")
    assert loading(model, "gptq", "vllm").checkpoint == "/models/My-Model-gptq"
    assert loading(model, "gptq", "vllm").make == (
        "auto-round --model /models/My-Model-bf16 --scheme W4A16 --format auto_gptq --output_dir /models/My-Model-gptq",
    )

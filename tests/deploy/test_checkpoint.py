"""The checkpoint that a deployment loads."""

from __future__ import annotations

import shlex

import pytest

from tonnage.deploy.checkpoint import loading
from tonnage.spec.catalog import find_engine, find_model
from tonnage.spec.catalog.checkpoints import find_checkpoints, loaded
from tonnage.spec.catalog.entries import engine_shelf, model_shelf
from tonnage.spec.precision import PRECISIONS, find_precision

FORMATS = [
    *PRECISIONS,
    "fp8+kv-fp16",
    "fp8+2:4",
    "nvfp4+experts",
    "int4-g32+experts",
    "mxfp4+rest-fp8",
    "nvfp4+rest-fp8",
]


ENGINES = ("vllm-0.32", "sglang-0.5.9", "tensorrt-llm-1.2", "atom-0.1", "tensorrt-llm-0.9")


@pytest.mark.parametrize("engine", ENGINES)
def test_every_model_and_format_has_a_checkpoint_or_the_engines_own_quantisation_or_a_word_on_how_to_make_one(
    engine: str,
) -> None:
    """Each model in each format on a GPU of one vendor, by turns."""
    by_name = {
        one.repository: one for model in model_shelf().by_name for one in find_checkpoints(model)
    }
    launch = engine_shelf().by_name[engine].launch
    for place, model in enumerate(model_shelf().by_name):
        for turn, precision in enumerate(FORMATS, ENGINES.index(engine)):
            wanted = find_precision(precision)
            vendor = ("NVIDIA", "AMD")[(place + turn) % 2]
            found = loading(model, precision, engine, vendor=vendor)
            known = by_name.get(found.checkpoint)
            if found.words:
                assert found.words == launch.quantizing(wanted.weights)
                assert known.half if known else found.checkpoint == f"/models/{model}-bf16"
            elif known:
                assert known.model == model
                assert {known.format.partition("+")[0], wanted.weight_format} <= {
                    "fp16",
                    "bf16",
                } or known.format.startswith(wanted.weight_format)
                assert (
                    known.format == wanted.weights or known.half
                ) or f"--precision {known.format}" in found.told
            else:
                assert found.checkpoint.startswith(f"/models/{model}-")
                for command in found.make:
                    assert found.checkpoint in shlex.split(command)
                assert found.make or "No tool that creates one is known" in found.told


@pytest.mark.parametrize(
    ("asked", "checkpoint", "words"),
    [
        (("deepseek-v3", "fp8", "vllm-0.32"), "deepseek-ai/DeepSeek-V3", ()),
        (
            ("llama-3.1-8b", "fp8+kv-fp16", "tensorrt-llm-1.2"),
            "nvidia/Llama-3.1-8B-Instruct-FP8",
            (),
        ),
        (("qwen3-8b", "fp8", "vllm-0.32"), "Qwen/Qwen3-8B-FP8", ()),  # the author's own
        # which runs on every GPU with FP8
        (("qwen3-8b", "fp8", "tensorrt-llm-1.2"), "nvidia/Qwen3-8B-FP8", ()),
        (("phi-4", "fp8", "tensorrt-llm-1.2"), "RedHatAI/phi-4-FP8-dynamic", ()),
        # which does not read it yet
        (("phi-4", "fp8", "tensorrt-llm-1.0"), "/models/phi-4-fp8", ()),
        (
            ("gemma-2-27b", "fp8", "vllm-0.32"),
            "google/gemma-2-27b-it",
            ("--quantization", "fp8_per_tensor"),
        ),
        (
            ("gemma-2-27b", "fp8", "sglang-0.5.9"),
            "google/gemma-2-27b-it",
            ("--quantization", "fp8"),
        ),
        # of experts alone, which it does not have
        (("gemma-2-27b", "mxfp4", "vllm-0.32"), "/models/gemma-2-27b-mxfp4", ()),
        (
            ("gpt-43b", "fp8", "vllm-0.32"),
            "/models/gpt-43b-bf16",
            ("--quantization", "fp8_per_tensor"),
        ),
    ],
)
def test_what_is_loaded(
    asked: tuple[str, str, str], checkpoint: str, words: tuple[str, ...]
) -> None:
    found = loading(*asked)
    assert (found.checkpoint, found.words) == (checkpoint, words)
    assert f"`{checkpoint}`" in found.told


def test_amds_format_is_for_amds_gpus() -> None:
    assert loading("glm-5.2", "mxfp4", "sglang", vendor="AMD").checkpoint == "amd/GLM-5.2-MXFP4"
    assert loading("glm-5.2", "mxfp4", "sglang").checkpoint == "/models/glm-5.2-mxfp4"


@pytest.mark.parametrize(
    "name",
    [
        "RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic",
        "a/my-llama3.1-8b-FP8",
        "deepseek-ai/DeepSeek-R1-Distill-Llama-8B",
    ],
)
def test_an_engine_loads_the_repository_that_was_named(name: str) -> None:
    model = find_model(name)
    form = find_precision(model.usual_precision)
    assert loaded(model, form, find_engine("vllm"), "NVIDIA") == (name, ())
    words = ("vllm", "serve", name, "--tensor-parallel-size", "1")
    assert loading(model.name, form.name, "vllm-0.32", planned=words).checkpoint == name
    assert loaded(find_model("llama-3.1-8b"), form, find_engine("vllm"), "NVIDIA")[0] != name

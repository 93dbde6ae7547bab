"""``config.json`` of models that mix layers with and without sliding windows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.spec.published_configs import config_of
from tonnage import api
from tonnage.errors import InputError
from tonnage.spec.catalog import find_model
from tonnage.spec.config_json import read_config
from tonnage.spec.precision import find_precision, released_format

GPT_OSS, GEMMA_2, GEMMA_3 = (config_of(f"{name}ForCausalLM") for name in ("GptOss", "Gemma2", "Gemma3"))


def write(folder: Path, config: dict[str, Any]) -> Path:
    file = folder / "config.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    return file


@pytest.mark.parametrize(("config", "name"), [(GPT_OSS, "gpt-oss-20b"), (GEMMA_2, "gemma-2-9b")])
def test_they_are_read_as_the_catalog_has_them(tmp_path: Path, config: dict[str, Any], name: str) -> None:
    read, known = read_config(write(tmp_path, config)), find_model(name)
    assert replace(read, name=known.name, source=known.source, date=known.date, notes=known.notes) == known


def test_layers_are_counted_by_list_by_pattern_or_as_the_library_has_them(tmp_path: Path) -> None:
    by_pattern = read_config(write(tmp_path, GEMMA_3))
    assert (by_pattern.window, by_pattern.windowed_layers, by_pattern.growing_layers) == (512, 22, 4)
    bare = {key: value for key, value in GEMMA_3.items() if key != "sliding_window_pattern"}
    listed = [("full" if (i + 1) % 6 == 0 else "sliding") + "_attention" for i in range(26)]
    for other in (bare, bare | {"_sliding_window_pattern": 6}, bare | {"layer_types": listed}):
        assert read_config(write(tmp_path, other)) == by_pattern
    assert read_config(write(tmp_path, GEMMA_3 | {"sliding_window_pattern": 2})).windowed_layers == 13
    assert read_config(write(tmp_path, {key: value for key, value in GPT_OSS.items() if key != "layer_types"})).windowed_layers == 12


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"layer_types": ["sliding_attention"] * 25}, "layer_types"),
        ({"layer_types": ["chunked_attention"] * 26}, "layer_types"),
        ({"sliding_window_pattern": 0}, "sliding_window_pattern"),
        ({"sliding_window": -1}, "sliding_window"),
    ],
)
def test_impossible_windows_are_refused(tmp_path: Path, change: dict[str, Any], key: str) -> None:
    with pytest.raises(InputError, match=f"config.json: {key}: ") as error:
        read_config(write(tmp_path, GEMMA_3 | change))
    assert "\n" not in str(error.value)


# The format that a checkpoint is published in, from the forms of quantization_config that published models have.


GROUP = {"weights": {"num_bits": 4, "type": "int", "group_size": 32}, "input_activations": None}
KIMI = {"quant_method": "compressed-tensors", "config_groups": {"group_0": GROUP}, "ignore": ["lm_head", "re:.*self_attn.*"]}
FORMS = {
    "nothing said": ({}, "bf16"),
    "float16": ({"torch_dtype": "float16"}, "fp16"),
    "DeepSeek": ({"quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}}, "fp8"),
    "gpt-oss": ({"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}}, "mxfp4"),
    "AWQ": ({"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}, "awq"),
    "GPTQ of 8 bits": ({"quantization_config": {"quant_method": "gptq", "bits": 8}}, "int8-wo"),
    "Kimi": ({"quantization_config": KIMI}, "int4-g32+experts"),
    "Model Optimizer": ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, "nvfp4"),
    "DeepSeek V4": ({"expert_dtype": "fp4", "quantization_config": {"quant_method": "fp8"}}, "mxfp4+rest-fp8"),
    "GLM-5-FP8": (
        {"quantization_config": {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.0.self_attn.indexers_proj"]}},
        "fp8",
    ),
    "experts of NVIDIA": (
        {"quantization_config": {"quant_algo": "MIXED_PRECISION", "quantized_layers": {"layers.0.ffn.experts": {"quant_algo": "NVFP4"}}}},
        "nvfp4+rest-fp8",
    ),
    "GGUF": ({"quantization_config": {"quant_method": "gguf", "bits": 5}}, ""),
    "groups of nothing": ({"quantization_config": {"config_groups": {"group_0": {"weights": {"num_bits": [], "type": {}}}}}}, ""),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_published_checkpoints(form: str) -> None:
    config, name = FORMS[form]
    assert released_format(config, experts=True) == name
    assert name == "" or find_precision(name).name == name


def test_weights_are_counted_as_published() -> None:
    """gpt-oss-120b is a download of 65 GB, and was counted at 234."""
    plan = api.memory(model="gpt-oss-120b", isl=2_000, osl=200).plan
    assert 60e9 < plan.weight_bytes < 66e9
    assert find_model("llama-3.1-8b").usual_precision == "fp16"

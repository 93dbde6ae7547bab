"""The format that a checkpoint is published in, from the forms of quantization_config that published models have."""

from __future__ import annotations

import pytest

from tonnage import api
from tonnage.spec.catalog import find_model
from tonnage.spec.precision import find_precision
from tonnage.spec.released_format import released_format

GROUP = {"weights": {"num_bits": 4, "type": "int", "group_size": 32}, "input_activations": None}
KIMI_IGNORE = ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"]
KIMI = {"quant_method": "compressed-tensors", "config_groups": {"group_0": GROUP}, "ignore": KIMI_IGNORE}
EXPERTS_OF_NVIDIA = {f"layers.{layer}.ffn.experts": {"quant_algo": "NVFP4"} for layer in range(61)}
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
        {"quantization_config": {"quant_algo": "MIXED_PRECISION", "quantized_layers": EXPERTS_OF_NVIDIA}},
        "nvfp4+rest-fp8",
    ),
    "GGUF": ({"quantization_config": {"quant_method": "gguf", "bits": 5}}, ""),
    "groups of nothing": ({"quantization_config": {"config_groups": {"group_0": {"weights": {"num_bits": [], "type": {}}}}}}, ""),
}

MODELS = {"AWQ": "llama-3.1-8b", "GPTQ of 8 bits": "llama-3.1-8b", "float16": "llama-3.1-8b"}
"""The model of a form, where it is another than DeepSeek-V3."""


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_published_checkpoints(form: str) -> None:
    config, name = FORMS[form]
    assert released_format(config, find_model(MODELS.get(form, "deepseek-v3"))) == name
    assert name == "" or find_precision(name).name == name


def test_weights_are_counted_as_published() -> None:
    """gpt-oss-120b is a download of 65 GB, and was counted at 234."""
    plan = api.memory(model="gpt-oss-120b", isl=2_000, osl=200).plan
    assert 60e9 < plan.weight_bytes < 66e9
    assert find_model("llama-3.1-8b").usual_precision == "fp16"

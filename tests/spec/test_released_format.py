"""The format that a checkpoint is published in, from the forms of quantization_config that published models have."""

import json
from pathlib import Path

import pytest

from tonnage import api
from tonnage.spec.catalog import find_model, models
from tonnage.spec.precision import find_precision, released_format

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
    "a list": ({"quantization_config": [4]}, ""),
    "groups of nothing": ({"quantization_config": {"config_groups": {"group_0": {"weights": {"num_bits": [], "type": {}}}}}}, ""),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_published_checkpoints(form: str) -> None:
    config, name = FORMS[form]
    assert released_format(config, experts=True) == name
    assert name == "" or find_precision(name).name == name


def test_a_dense_checkpoint_that_leaves_attention_is_not_of_experts() -> None:
    assert released_format({"quantization_config": KIMI}, experts=False) == "int4-g32"


def test_every_model_of_the_catalog_is_published_in_a_format_that_is_known() -> None:
    assert {find_precision(model.released).name for model in models()} == {model.released for model in models()}
    narrow = {model.name: model.usual_precision for model in models() if model.usual_precision != "fp16"}
    assert narrow.items() >= {"gpt-oss-120b": "mxfp4", "deepseek-r1": "fp8", "kimi-k2.5": "int4-g32+experts", "minimax-m2.5": "fp8"}.items()


def test_weights_are_counted_as_published() -> None:
    """gpt-oss-120b is a download of 65 GB, and was counted at 234."""
    plan = api.memory(model="gpt-oss-120b", isl=2_000, osl=200).plan
    assert 60e9 < plan.weight_bytes < 66e9
    assert find_model("llama-3.1-8b").usual_precision == "fp16"


def test_a_config_of_ones_own_is_taken_as_it_is_published(tmp_path: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": 4,
        "hidden_size": 256,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 512,
        "vocab_size": 1_000,
        "max_position_embeddings": 4_096,
        "quantization_config": {"quant_method": "fp8"},
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    found = find_model(str(path))
    assert found.usual_precision == "fp8"
    assert "The checkpoint is quantized (" in found.notes
    assert "that is its format unless another is asked for" in found.notes

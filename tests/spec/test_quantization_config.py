"""What a configuration says of its quantisation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.spec.quantised_configs import FP8, GROUP, LLAMA_8B
from tonnage import api
from tonnage.errors import InputError
from tonnage.spec.config_json import read_config
from tonnage.spec.quantization_config import Names


@pytest.mark.parametrize(
    "pattern",
    [
        r"([\w.]+)+!",
        r"(a*)*b",
        r"((a+)b)*x",
        r"(?:\w+)+!",
        r"(a|a)*!",
        r".*.*!",
        r".*\w+!",
        r".*a?.*!",
        r"(\w+\.){2,}!",
    ],
)
def test_a_pattern_that_could_be_tried_without_end_is_refused_at_once(pattern: str) -> None:
    """A checkpoint comes from anywhere; such a pattern held the process for years of a name's 40
    letters."""
    quantized = {"quant_method": "fp8", "ignore": [f"re:{pattern}"]}
    with pytest.raises(InputError, match="could be tried without end"):
        Names.of(quantized["ignore"])


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        (r".*\.(q|k|v)_proj$", "self_attn.q_proj"),
        (r".*self_attn.*", "self_attn.q_proj"),
        (r".*layers.\d+.mlp.*", "x.layers.3.mlp.up"),
        (r"(?:.*\.)?experts\.\d+\.(gate|up)_proj", "mlp.experts.3.up_proj"),
        (r"[()*+]x", "*x"),
    ],
)
def test_patterns_of_real_checkpoints_are_read(pattern: str, name: str) -> None:
    assert Names.of([f"re:{pattern}"]).hold(-1, name)


@pytest.mark.parametrize(
    ("said", "released"),
    [
        (
            {
                "compression_config": {
                    "quant_method": "compressed-tensors",
                    "config_groups": {"group_0": GROUP},
                }
            },
            "int4-g32",
        ),
        (
            {
                "quantization_config": {
                    "producer": {"name": "modelopt"},
                    "quantization": {"quant_algo": "NVFP4"},
                }
            },
            "nvfp4",
        ),
        ({"quantization": {"quant_algo": "FP8"}, "quantization_config": None}, "fp8"),
        ({"quantization": {"group_size": 64, "bits": 4}}, ""),  # MLX
        (
            {
                "quantization": {"group_size": 64, "bits": 4},
                "quantization_config": {"group_size": 64, "bits": 4},
            },
            "",
        ),
    ],
)
def test_quantization_under_another_key_is_not_counted_as_16_bits(
    tmp_path: Path, said: dict[str, Any], released: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B | said), encoding="utf-8")
    assert read_config(tmp_path).released == released
    if not released:
        with pytest.raises(InputError, match="has no name here"):
            api.memory(model=str(tmp_path))


def linear(weights: dict[str, Any], inputs: dict[str, Any] | None = None) -> dict[str, Any]:
    """A compressed-tensors file with one group of all linear layers."""
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}


FP8_INPUTS, INT8_INPUTS, INT4_INPUTS = (
    {"num_bits": bits, "type": kind} for bits, kind in ((8, "float"), (8, "int"), (4, "int"))
)
INT4 = {"num_bits": 4, "type": "int", "group_size": 128, "strategy": "group"}
HALVED = {"format": "sparse-24-bitmask", "sparsity_structure": "2:4", "targets": ["Linear"]}


@pytest.mark.parametrize(
    ("quantized", "released"),
    [
        # two of four values: half of each format's bits, and two of position for each pair
        ({**linear(FP8, FP8_INPUTS), "sparsity_config": HALVED}, "fp8+2:4"),
        ({"quant_method": "compressed-tensors", "sparsity_config": HALVED}, "bf16+2:4"),
        ({**linear(FP8, FP8_INPUTS), "sparsity_config": HALVED | {"format": "dense"}}, "fp8"),
        ({**linear(FP8, FP8_INPUTS), "sparsity_config": {}}, "fp8"),
        ({**linear(INT4), "sparsity_config": HALVED}, ""),  # no format here is both
        # activations in whole numbers are no FP8, and those of four bits no 16
        (linear(INT4, INT8_INPUTS), ""),
        (linear(INT4, INT4_INPUTS), ""),
        (linear(INT4, FP8_INPUTS), "w4a8"),
        ({}, "bf16"),
        (
            {
                "quant_method": "compressed-tensors",
                "kv_cache_scheme": {"num_bits": 8, "type": "float"},
            },
            "bf16",
        ),
    ],
)
def test_what_a_file_says_of_its_weights_is_counted_or_has_no_name(
    tmp_path: Path, quantized: dict[str, Any], released: str
) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA_8B | {"quantization_config": quantized}), encoding="utf-8")
    assert read_config(file).released == released


@pytest.mark.parametrize(
    ("dtype", "released"),
    [
        ("torch.bfloat16", "bf16"),
        ("float16", "fp16"),
        ("float32", "bf16"),  # which engines load as 16 bits
        ("float8_e4m3fn", "fp8"),
        ("int8", ""),
    ],
)
def test_the_type_of_the_numbers_is_not_taken_for_16_bits(
    tmp_path: Path, dtype: str, released: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B | {"torch_dtype": dtype}))
    model = read_config(tmp_path)
    assert model.released == released
    assert released or f"of the type {dtype}" in model.notes


@pytest.mark.parametrize(
    ("name", "written", "released"),
    [
        ("quantize_config.json", {"bits": 4, "group_size": 128, "desc_act": True}, "gptq"),
        ("quantize_config.json", {"bits": 3, "group_size": 64}, "gptq-3bit-g64"),
        ("quant_config.json", {"w_bit": 4, "q_group_size": 128, "version": "GEMM"}, "awq"),
    ],
)
def test_a_format_that_an_older_tool_wrote_next_to_the_file_is_read(
    tmp_path: Path, name: str, written: dict[str, Any], released: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B), encoding="utf-8")
    (tmp_path / name).write_text(json.dumps(written), encoding="utf-8")
    assert read_config(tmp_path).released == released


def test_a_kv_cache_in_a_format_without_a_name_is_said_and_blocks_of_scales_are_seen(
    tmp_path: Path,
) -> None:
    file, narrow = tmp_path / "config.json", {"num_bits": 4, "type": "float"}
    blocks = linear({"num_bits": 8, "type": "float", "strategy": "block"}, FP8_INPUTS)
    quantized = blocks | {"kv_cache_scheme": narrow}
    file.write_text(json.dumps(LLAMA_8B | {"quantization_config": quantized}), encoding="utf-8")
    model = read_config(file)
    assert (model.released_kv, model.block_fp8) == ("fp16", True)
    assert "KV cache in FP4, which is counted in 16 bits" in model.reading
    assert model.reading in "".join(api.memory(model=str(file)).lines())
    file.write_text(json.dumps(LLAMA_8B | {"quantization_config": linear(FP8, FP8_INPUTS)}))
    assert (read_config(file).block_fp8, read_config(file).reading) == (False, "")


def test_a_layer_of_5000_digits_is_a_name_like_any_other() -> None:
    digits = "9" * 5_000
    texts = [f"model.layers.{digits}.mlp", f"model.layers.{digits}.*", "model.layers.3.mlp"]
    names = Names.of(texts)
    assert names.hold(3, "mlp")
    assert not names.hold(4, "mlp")

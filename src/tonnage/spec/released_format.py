"""The number format in which a checkpoint is published, read from its ``config.json``.

Sources of the forms of ``quantization_config``: Hugging Face transformers, docs/source/en/main_classes/quantization (fp8, mxfp4, awq,
gptq); compressed-tensors, src/compressed_tensors/quantization/quant_config.py (config_groups with num_bits and type); NVIDIA Model
Optimizer, hf_quant_config.json (quant_algo). Read on 2026-11-22.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

FINE_GROUPS = 32
"""Weights of a group in INT4 checkpoints of quantization-aware training (Kimi K2.5)."""

UNQUANTIZED = "bf16"
"""The format of a checkpoint that says nothing of one."""

SIXTEEN_BITS = {"bfloat16": "bf16", "float16": "fp16"}

METHODS = {"fp8": "fp8", "fbgemm_fp8": "fp8", "mxfp4": "mxfp4", "awq 4": "awq", "gptq 4": "gptq", "gptq 8": "int8-wo"}
"""Formats by ``quant_method``, and by its ``bits`` where it has several."""

ALGORITHMS = {"FP8": "fp8", "NVFP4": "nvfp4", "W4A8_AWQ": "w4a8", "W4A16_AWQ": "awq", "INT8_SQ": "int8-sq", "W8A16": "int8-wo"}
"""Formats by the ``quant_algo`` of Model Optimizer."""

GROUPS = {
    ("float", 8, 8): "fp8",
    ("int", 8, 8): "int8-sq",
    ("int", 8, 16): "int8-wo",
    ("int", 4, 16): "gptq",
    ("int", 4, 8): "w4a8",
    ("float", 4, 4): "nvfp4",
    ("float", 4, 16): "mxfp4",
}
"""Formats of compressed-tensors, by the type and bits of a weight and the bits of an activation."""


WHOLE_ATTENTION = re.compile(r"self_attn(\W*$|\.(q|k|v|o|qkv|q_a|q_b|kv_a|kv_b)_proj)")
"""How the attention of a layer is named among what is not quantized, its matrices and not its indexer alone."""


def released_format(config: Mapping[str, Any], experts: bool) -> str:
    """The format of a checkpoint, as ``spec.precision`` writes it; empty where it is quantized in a way that has no name there.

    Args:
        config: the whole ``config.json``.
        experts: whether the model has experts: a checkpoint that leaves its attention in 16 bits is then of experts only.
    """
    quantized = config.get("quantization_config")
    if quantized is None:
        return SIXTEEN_BITS.get(str(config.get("torch_dtype", config.get("dtype"))), UNQUANTIZED)
    if not isinstance(quantized, Mapping):
        return ""
    if experts and (mixed := _experts_beside_fp8(config, quantized)):
        return mixed
    found = _method(quantized) or ALGORITHMS.get(str(quantized.get("quant_algo")), "") or _groups(quantized)
    return f"{found}+experts" if found and found != "mxfp4" and experts and _leaves_attention(quantized) else found


def _experts_beside_fp8(config: Mapping[str, Any], quantized: Mapping[str, Any]) -> str:
    """The format of experts in 4 bits beside other matrices in FP8 (DeepSeek V4, MiniMax-M3 of NVIDIA); empty for other checkpoints."""
    if quantized.get("quant_algo") == "MIXED_PRECISION":
        layers = quantized.get("quantized_layers")
        named = (
            {str(one.get("quant_algo")) for name, one in layers.items() if ".experts" in name and isinstance(one, Mapping)}
            if isinstance(layers, Mapping)
            else set()
        )
        return "nvfp4+rest-fp8" if named == {"NVFP4"} else ""
    return "mxfp4+rest-fp8" if quantized.get("quant_method") == "fp8" and config.get("expert_dtype") == "fp4" else ""


def _method(quantized: Mapping[str, Any]) -> str:
    method = str(quantized.get("quant_method"))
    return METHODS.get(method) or METHODS.get(f"{method} {quantized.get('bits')}", "")


def _groups(quantized: Mapping[str, Any]) -> str:
    """The format of the first group of compressed-tensors."""
    groups = quantized.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    weights = first.get("weights") if isinstance(first, Mapping) else None
    if not isinstance(first, Mapping) or not isinstance(weights, Mapping):
        return ""
    inputs = first.get("input_activations")
    activation_bits = inputs.get("num_bits") if isinstance(inputs, Mapping) else 16
    weight_bits = weights.get("num_bits")
    if not isinstance(weight_bits, int) or not isinstance(activation_bits, int):
        return ""
    if weights.get("type") == "int" and weight_bits == 4 and weights.get("group_size") == FINE_GROUPS:
        return "int4-g32"
    return GROUPS.get((str(weights.get("type")), weight_bits, activation_bits), "")


def _leaves_attention(quantized: Mapping[str, Any]) -> bool:
    """Whether the attention of some layer is named among what is not quantized."""
    left = [quantized.get(key) for key in ("ignore", "exclude_modules", "modules_to_not_convert")]
    return any(WHOLE_ATTENTION.search(str(name)) for names in left if isinstance(names, list) for name in names)

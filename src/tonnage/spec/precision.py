"""Number formats of weights, activations and KV cache.

A precision says how many bits each kind of value takes and which of the GPU's arithmetic rates its
matrix products use. It acts on the matrices of the decoder layers: embeddings, the output head, an
expert router and attention itself stay in 16 bits, as the engines keep them.

It is written as a format, and behind it, each after a plus sign, what differs from the format's own:
``fp8``, ``fp8+kv-fp16``, ``awq+kv-int8``, ``fp8+2:4``, ``nvfp4+experts`` (of a mixture of experts only the experts, as in the
checkpoints that NVIDIA and Moonshot publish), ``mxfp4+rest-fp8`` (the experts, with the other matrices in FP8: DeepSeek V4).

Sources of the bits: AWQ and GPTQ checkpoints in groups of 128 with a 16-bit scale and a 4-bit zero point
(AutoAWQ, GPTQModel); INT4 by quantization-aware training in groups of 32 with a 16-bit scale (Kimi K2.5,
compressed-tensors); W4A8 in groups of 128 with a 16-bit scale (TensorRT-LLM ``w4a8_awq``); NVFP4 blocks of
16 with an 8-bit scale (NVIDIA, "Introducing NVFP4", 2025); MXFP4 and MXFP8 blocks of 32 with an 8-bit exponent (OCP
Microscaling Formats 1.0, 2023); INT8 and INT4 weight-only and SmoothQuant one scale per channel, which is
less than 0.01 bits. 2:4 keeps two of four values and two bits of position for each (NVIDIA Ampere
architecture whitepaper).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from tonnage.errors import InputError, UnknownName

Arithmetic = Literal["fp16", "fp8", "int8", "fp4", "tf32", "fp32"]
KvFormat = Literal["fp16", "fp8", "int8"]

BITS: dict[Arithmetic, int] = {"fp16": 16, "fp8": 8, "int8": 8, "fp4": 4, "tf32": 32, "fp32": 32}  # Bits of one value of each kind

SPARSE = "2:4"
KV = "kv-"
EXPERTS = "experts"
REST_FP8 = "rest-fp8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """One combination of formats, such as FP8 weights and activations with an FP8 KV cache."""

    name: str  # what users write, such as "fp8" or "fp8+kv-fp16"
    weight_bits: float  # bits per weight of the linear layers as stored, with its share of scales, zero points and positions
    value_bits: int  # bits of the weight's value alone
    kv: KvFormat | Literal["fp32"]  # format of the KV cache; without a word about it the one that engines choose for these weights
    arithmetic: Arithmetic  # the rate that the products of the linear layers use; activations enter them in this format
    unpacked: bool = False  # weights are stored narrower than they are multiplied, and are unpacked on the way
    block_scaled: bool = False  # the matrix units must take blocks with a scale each, as those with FP4 do
    experts_only: bool = False  # in a mixture of experts the other matrices are in another format, as in the checkpoints of gpt-oss
    rest_bits: int = 16  # bits of these other matrices: 16, or 8 for FP8 with a scale per block, as in the checkpoints of DeepSeek V4
    sparse: bool = False  # two of every four weights are zero and neither stored nor multiplied

    @property
    def weight_bytes(self) -> float:
        """Bytes per weight of the linear layers."""
        return self.weight_bits / 8

    @property
    def unquantised_bytes(self) -> int:
        """Bytes of a number of what no format narrows, such as the embedding: two, or four where all is in 32 bits."""
        return max(16, self.value_bits) // 8

    @property
    def activation_bits(self) -> int:
        """Bits of an activation that enters a linear layer."""
        return BITS[self.arithmetic]

    @property
    def kv_bits(self) -> int:
        """Bits per element of the KV cache."""
        return BITS[self.kv]

    @property
    def kv_bytes(self) -> float:
        """Bytes per element of the KV cache."""
        return self.kv_bits / 8

    @property
    def weight_format(self) -> str:
        """The name without the facts about KV cache and sparsity, such as "fp8"."""
        return self.name.partition("+")[0]

    @property
    def weights(self) -> str:
        """The name without the KV format, such as "nvfp4+experts"."""
        return "+".join(part for part in self.name.split("+") if not part.startswith(KV))


def _format(name: str, *, weight_bits: float, value_bits: int, arithmetic: Arithmetic, kv: KvFormat = "fp16") -> Precision:
    unpacked = value_bits < BITS[arithmetic]
    return Precision(name=name, weight_bits=weight_bits, value_bits=value_bits, kv=kv, arithmetic=arithmetic, unpacked=unpacked)


_GROUP_OF_128 = (16 + 4) / 128  # Bits per weight of a 16-bit scale and a 4-bit zero point for 128 weights

PRECISIONS: dict[str, Precision] = {
    made.name: made
    for made in (
        _format("fp16", weight_bits=16, value_bits=16, arithmetic="fp16"),
        _format("bf16", weight_bits=16, value_bits=16, arithmetic="fp16"),
        _format("fp8", weight_bits=8, value_bits=8, arithmetic="fp8", kv="fp8"),
        _format("int8-sq", weight_bits=8, value_bits=8, arithmetic="int8"),
        _format("int8-wo", weight_bits=8, value_bits=8, arithmetic="fp16"),
        _format("int4-wo", weight_bits=4, value_bits=4, arithmetic="fp16"),
        _format("awq", weight_bits=4 + _GROUP_OF_128, value_bits=4, arithmetic="fp16"),
        _format("gptq", weight_bits=4 + _GROUP_OF_128, value_bits=4, arithmetic="fp16"),
        _format("w4a8", weight_bits=4 + 16 / 128, value_bits=4, arithmetic="fp8", kv="fp8"),
        _format("int4-g32", weight_bits=4 + 16 / 32, value_bits=4, arithmetic="fp16"),
        _format("mxfp8", weight_bits=8 + 8 / 32, value_bits=8, arithmetic="fp8", kv="fp8"),
        replace(_format("nvfp4", weight_bits=4 + 8 / 16, value_bits=4, arithmetic="fp4", kv="fp8"), block_scaled=True),
        replace(
            _format("mxfp4", weight_bits=4 + 8 / 32, value_bits=4, arithmetic="fp8"), block_scaled=True, unpacked=False, experts_only=True
        ),
    )
}
"""Every format with its own KV format.

``mxfp4`` is multiplied with 8-bit activations by matrix units that take blocks (TensorRT-LLM ``W4A8_MXFP4_MXFP8``);
others unpack it to 16 bits: ``Gpu.executes``.
"""

WIDE: dict[str, Precision] = {
    name: Precision(name=name, weight_bits=32, value_bits=32, kv="fp32", arithmetic=name, rest_bits=32) for name in ("tf32", "fp32")
}
"""Formats of 32 bits, estimated on request and never searched: no engine is measured in them. TF32 is FP32 in memory, and
its products round to 19 bits (NVIDIA Ampere architecture whitepaper)."""

ALIASES = {
    **dict.fromkeys(("float16", "half", "f16", "w16a16"), "fp16"),
    **dict.fromkeys(("bfloat16", "bfp16"), "bf16"),
    **dict.fromkeys(("float32", "f32"), "fp32"),
    **dict.fromkeys(("fp8-e4m3", "e4m3", "float8", "fp8-w8a8", "w8a8-fp8", "fp8-dynamic", "fp8-block", "block-fp8"), "fp8"),
    **dict.fromkeys(("smoothquant", "sq", "w8a8", "int8", "int8-w8a8", "w8a8-int8"), "int8-sq"),
    **dict.fromkeys(("w8a16", "int8-w8a16", "w8a16-int8", "gptq-8bit", "int8-weight-only"), "int8-wo"),
    **dict.fromkeys(("int4-weight-only",), "int4-wo"),
    **dict.fromkeys(("int4-awq", "awq-int4", "w4a16-awq", "awq-w4a16", "awq-4bit"), "awq"),
    **dict.fromkeys(("int4-gptq", "gptq-int4", "w4a16", "w4a16-gptq", "gptq-w4a16", "gptq-4bit", "int4", "int4-w4a16"), "gptq"),
    **dict.fromkeys(("w4a8-awq", "w4a8-fp8", "w4afp8"), "w4a8"),
    **dict.fromkeys(("fp4", "nv-fp4", "w4a4", "w4a4-nvfp4", "nvfp4-w4a4"), "nvfp4"),
    **dict.fromkeys(("mx-fp4", "w4a8-mxfp4", "w4a16-mxfp4", "w4a8-mxfp4-mxfp8"), "mxfp4"),
}
"""Other spellings, as engines, checkpoints and benchmark files write them, underscores as hyphens. ``w8a8`` is INT8 and ``w4a16`` is
groups of 128 with GPTQ, as in the names of the checkpoints that Red Hat publishes for vLLM (huggingface.co/RedHatAI, read 2026-11-22)."""


def find_precision(name: str) -> Precision:
    """The precision of that name, in any case: a format, and behind plus signs its KV format or "2:4".

    Raises UnknownName: the format, or what is behind it, is not known; InputError: a sparse format that no matrix unit multiplies.
    """
    first, *further = (part.strip() for part in name.lower().split("+"))
    try:
        level = first.replace("_", "-")
        found = {**PRECISIONS, **WIDE}[ALIASES.get(level, level)]
    except KeyError:
        raise UnknownName("precision", name, PRECISIONS) from None
    kv, sparse = found.kv, False
    if EXPERTS in further:
        further.remove(EXPERTS)
        found = found if found.experts_only else replace(found, name=f"{found.name}+{EXPERTS}", experts_only=True)
    if REST_FP8 in further:
        further.remove(REST_FP8)
        found = replace(found, name=f"{found.name}+{REST_FP8}", experts_only=True, rest_bits=8)
    for part in further:
        chosen: KvFormat | None = next((kind for kind in get_args(KvFormat) if part == KV + kind), None)
        if chosen is None and part != SPARSE:
            raise UnknownName(
                "precision", name, [f"{found.name}+{rest}" for rest in (*(KV + k for k in get_args(KvFormat)), SPARSE, EXPERTS, REST_FP8)]
            )
        kv, sparse = chosen or kv, sparse or part == SPARSE
    return _with(found, kv, sparse)


def _with(own: Precision, kv: KvFormat | Literal["fp32"], sparse: bool) -> Precision:
    name = own.name + (f"+{SPARSE}" if sparse else "") + (f"+{KV}{kv}" if kv != own.kv else "")
    if not sparse:
        return replace(own, name=name, kv=kv)
    if own.unpacked or own.block_scaled:
        raise InputError(f"precision '{name}': weights that are unpacked or have block scales cannot be 2:4 sparse; use fp8+2:4")
    return replace(own, name=name, kv=kv, sparse=True, weight_bits=own.value_bits / 2 + 1)


# The number format in which a checkpoint is published, read from its ``config.json``. Sources of the forms of ``quantization_config``:
# Hugging Face transformers, docs/source/en/main_classes/quantization (fp8, mxfp4, awq, gptq); compressed-tensors,
# src/compressed_tensors/quantization/quant_config.py (config_groups with num_bits and type); NVIDIA Model Optimizer, hf_quant_config.json
# (quant_algo). Read on 2026-11-22.


FINE_GROUPS = 32  # Weights of a group in INT4 checkpoints of quantization-aware training (Kimi K2.5)

UNQUANTIZED = "bf16"  # The format of a checkpoint that names none

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

    With ``experts``, a checkpoint that leaves its attention in 16 bits is of experts only.
    """
    quantized = config.get("quantization_config")
    if quantized is None:
        return SIXTEEN_BITS.get(str(config.get("torch_dtype", config.get("dtype"))), UNQUANTIZED)
    if not isinstance(quantized, Mapping):
        return ""
    if experts and (mixed := _experts_beside_fp8(config, quantized)):
        return mixed
    method = str(quantized.get("quant_method"))
    found = METHODS.get(method) or METHODS.get(f"{method} {quantized.get('bits')}")
    found = found or ALGORITHMS.get(str(quantized.get("quant_algo"))) or _groups(quantized)
    return f"{found}+experts" if found and found != "mxfp4" and experts and _leaves_attention(quantized) else found


def _experts_beside_fp8(config: Mapping[str, Any], quantized: Mapping[str, Any]) -> str:
    """The format of experts in 4 bits and other matrices in FP8 (DeepSeek V4, MiniMax-M3 of NVIDIA); empty for other checkpoints."""
    if quantized.get("quant_algo") == "MIXED_PRECISION":
        layers = quantized.get("quantized_layers")
        named = (
            {str(one.get("quant_algo")) for name, one in layers.items() if ".experts" in name and isinstance(one, Mapping)}
            if isinstance(layers, Mapping)
            else set()
        )
        return "nvfp4+rest-fp8" if named == {"NVFP4"} else ""
    return "mxfp4+rest-fp8" if quantized.get("quant_method") == "fp8" and config.get("expert_dtype") == "fp4" else ""


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
    if weight_bits == 4 and weights.get("group_size") == FINE_GROUPS:
        return "int4-g32" if weights.get("type") == "int" else "mxfp4"
    return GROUPS.get((str(weights.get("type")), weight_bits, activation_bits), "")


def _leaves_attention(quantized: Mapping[str, Any]) -> bool:
    """Whether the attention of some layer is named among what is not quantized."""
    left = [quantized.get(key) for key in ("ignore", "exclude_modules", "modules_to_not_convert")]
    return any(WHOLE_ATTENTION.search(str(name)) for names in left if isinstance(names, list) for name in names)

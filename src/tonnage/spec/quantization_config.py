"""A checkpoint's ``quantization_config``: in what format its matrices are, and which of them are
left out, as rules by name.

Sources of the forms: Hugging Face transformers, src/transformers/utils/quantization_config.py (the
keys of fp8, fbgemm_fp8, mxfp4, awq, gptq, bitsandbytes, hqq, torchao, eetq, aqlm, vptq, quanto,
higgs, spqr, bitnet, fp_quant); compressed-tensors, src/compressed_tensors/quantization
(config_groups with num_bits, type, group_size and targets; ``re:`` before a regular expression);
NVIDIA Model Optimizer, hf_quant_config.json (quant_algo, quantized_layers, exclude_modules), and
vLLM, layers/quantization/modelopt.py; auto_round/export (extra_config); AMD Quark,
quark/torch/quantization/config (global_quant_config, layer_quant_config, exclude). Read on
2026-11-22 and 2026-11-28; the keys of aqlm, vptq, higgs, spqr and fp_quant are recalled.
"""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from tonnage.errors import InputError
from tonnage.spec.precision import find_precision

WIDE = "fp16"  # What a group that is left out is in

ALGORITHMS = {
    **dict.fromkeys(
        ("FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO", "FP8_PB_REAL", "FP8_BLOCK_SCALES"), "fp8"
    ),
    **dict.fromkeys(("NVFP4", "NVFP4_AWQ", "W4A4_NVFP4"), "nvfp4"),
    **dict.fromkeys(("W4A16_NVFP4", "NVFP4_W4A16"), "nvfp4-wo"),
    **dict.fromkeys(("W4A8_NVFP4_FP8",), "nvfp4-a8"),
    **dict.fromkeys(("MXFP4", "W4A8_MXFP4_FP8", "W4A8_MXFP4_MXFP8", "W4A16_MXFP4"), "mxfp4"),
    **dict.fromkeys(
        ("INT8_SQ", "W8A8_SQ_PER_CHANNEL", "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN", "INT8"),
        "int8-sq",
    ),
    "MXFP8": "mxfp8",
    "W4A8_AWQ": "w4a8",
    "W4A16_AWQ": "awq",
    "W4A16": "int4-wo",
    "W4A16_GPTQ": "gptq",
    "W8A16": "int8-wo",
    "W8A16_GPTQ": "int8-wo",
    "NO_QUANT": WIDE,
}
"""Formats by the ``quant_algo`` of Model Optimizer and TensorRT-LLM."""

METHODS = {
    **dict.fromkeys(
        (
            "fp8",
            "fbgemm_fp8",
            "deepgemm_fp8",
            "ptpc_fp8",
            "w8a8_fp8",
            "finegrained_fp8",
            "modelopt_fp8",
        ),
        "fp8",
    ),
    **dict.fromkeys(("mxfp4", "gpt_oss_mxfp4"), "mxfp4"),
    **dict.fromkeys(("mxfp8", "modelopt_mxfp8"), "mxfp8"),
    **dict.fromkeys(("nvfp4", "modelopt_fp4", "petit_nvfp4"), "nvfp4"),
    **dict.fromkeys(("w8a8_int8", "blockwise_int8"), "int8-sq"),
    **dict.fromkeys(("experts_int8", "tpu_int8"), "int8-wo"),
    "w4afp8": "w4a8",
    "eetq": "eetq",
    "bitnet": "bitnet-2bit",
}
"""Formats of a ``quant_method`` that has one alone."""

OF_EXPERTS = ("mxfp4", "gpt_oss_mxfp4", "experts_int8")  # Methods that narrow routed experts alone

TYPES = {"int": "int", "uint": "int", "float": "float", "fp": "float"}

LEFT_OUT = (
    "ignore",
    "exclude_modules",
    "modules_to_not_convert",
    "llm_int8_skip_modules",
    "skip_modules",
    "exclude",
    "ignored_layers",
)
"""Keys of names that are left in 16 bits."""

PREFIXES = (
    "model.layers",
    "model.language_model.layers",
    "language_model.model.layers",
    "backbone.layers",
    "layers",
    "transformer.h",
)
"""Prefixes of the number of a layer."""

LAYER = re.compile(r"^(?:[\w.]*\.)?(?:layers|h|blocks)\.(\d{1,6})(?:\.(.*))?$", re.DOTALL)
LAYER_PATTERN = re.compile(
    r"^[\^.*\w()?:|\\]*\b(?:layers|h|blocks)\\?\.(\d{1,6})\\?\.(.*)$", re.DOTALL
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A format, and the names of what is in it; None for every linear layer."""

    form: str
    names: Names | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """A list of names and patterns, sorted by the layer that they name; -1 holds the names without
    one.
    """

    plain: Mapping[int, frozenset[str]]
    patterns: Mapping[int, tuple[re.Pattern[str], ...]]

    @classmethod
    def of(cls, names: Iterable[str]) -> Names:
        """Read the names of a list: whole ones, ``re:`` regular expressions, and shell patterns."""
        plain: dict[int, set[str]] = {}
        patterns: dict[int, list[re.Pattern[str]]] = {}
        for name in names:
            marked = name.startswith(("re:", "-:", "+:"))
            text = name[3 if name.startswith("re:") else 2 :] if marked else name.strip(".")
            if not marked and not any(sign in text for sign in "*?[\\"):
                match = LAYER.match(text)
                plain.setdefault(int(match[1]) if match else -1, set()).add(
                    (match[2] or "") if match else text
                )
                continue
            match = LAYER_PATTERN.match(text)
            if marked and match and ("\\" not in text or match[2].startswith("*")):
                match = None  # a dot that stands for any sign, as in "layers.1.*"
            layer, rest = (int(match[1]), match[2]) if match else (-1, text)
            if (pattern := _pattern(rest, marked)) is not None:
                patterns.setdefault(layer, []).append(pattern)
        return cls(
            plain={layer: frozenset(whole_names) for layer, whole_names in plain.items()},
            patterns={layer: tuple(regexes) for layer, regexes in patterns.items()},
        )

    def hold(self, layer: int, name: str) -> bool:
        """Whether a module, by its name within a layer, is among them; of layer -1 by its whole
        name.
        """
        if not self.plain and not self.patterns:
            return False
        runs, leading = _runs(name)
        everywhere = self.plain.get(-1, frozenset())
        in_layer = self.plain.get(layer, frozenset()) if layer >= 0 else frozenset()
        if not (runs.isdisjoint(everywhere) and leading.isdisjoint(in_layer)):
            return True
        if layer >= 0 and any(pattern.match(name) for pattern in self.patterns.get(layer, ())):
            return True
        if -1 not in self.patterns:
            return False
        whole = (
            [f"{prefix}.{layer}.{name}" for prefix in PREFIXES]
            if layer >= 0
            else [name, f"model.{name}"]
        )
        return any(pattern.match(text) for pattern in self.patterns[-1] for text in whole)


@cache
def _runs(name: str) -> tuple[frozenset[str], frozenset[str]]:
    """The runs of parts of a dotted name, and the leading runs with the empty one; of the few
    names of a layer's matrices, each looked up in every layer.
    """
    parts = name.split(".")
    runs = {".".join(parts[a:b]) for a in range(len(parts)) for b in range(a + 1, len(parts) + 1)}
    return frozenset(runs), frozenset(".".join(parts[:b]) for b in range(len(parts) + 1))


def _pattern(text: str, marked: bool) -> re.Pattern[str] | None:
    """The regular expression of a pattern; a shell pattern holds for what is inside a module too.
    None for what is no pattern.

    Raises InputError: one that could be tried without end; a checkpoint comes from anywhere.
    """
    if marked or ".*" in text or "\\" in text:
        if _is_endless(text):
            raise InputError(
                f"quantization_config: the pattern {text[:60]!r} could be tried without end; name"
                " the modules one by one"
            )
        try:
            return re.compile(text if marked else f"(?:.*\\b)?{text}")
        except re.error:
            if marked:
                return None
    return re.compile(f"(?:{fnmatch.translate(text)})|(?:{fnmatch.translate(text + '.*')})")


TOKEN = re.compile(r"\\.|\[\^?\]?[^\]]*\]|\(\?:|\(\??|\{\d*,?\d*\}|.", re.DOTALL)
MANY = re.compile(
    r"\.|\\[wWSDsb]|\[.*", re.DOTALL
)  # Tokens that hold for many letters, so that two repeats of them share a text in many ways
MOST_SHARED = 4  # Such repeats of one pattern, with a plain letter between each two


def _is_endless(text: str) -> bool:
    """Whether a regular expression can split a name in so many ways that trying them takes seconds.

    It repeats a group that holds a repeat or alternatives, or two repeats of ``MANY`` letters
    follow without a plain letter between them.
    """
    tokens = TOKEN.findall(text)
    groups, closed, shared, apart = [False], False, 0, True
    for token, after in zip(tokens, [*tokens[1:], ""], strict=True):
        repeated = after in ("*", "+") or after.startswith("{")
        closed = token == ")" and len(groups) > 1 and groups.pop()
        groups[-1] |= closed or repeated or token == "|"
        if token.startswith("("):
            groups.append(False)
        elif closed and repeated:
            return True
        elif MANY.fullmatch(token) and repeated:
            if not apart or shared == MOST_SHARED:
                return True
            shared, apart = shared + 1, False
        elif (
            not MANY.fullmatch(token)
            and token not in ("*", "+", "?", "|", ")", "$", "^")
            and after not in ("*", "?")
        ):
            apart |= not token.startswith("{")
    return False


def texts(listed: object) -> list[str]:
    """The entries of a list as texts; none where it is no list."""
    return [str(name) for name in listed] if isinstance(listed, list | tuple) else []


def rules_of(quantized: Mapping[str, Any], config: Mapping[str, Any]) -> list[Rule]:
    """The formats of a checkpoint, what names its layers first; an empty format is one that has no
    name.
    """
    method = str(quantized.get("quant_method", "")).lower().replace("-", "_")
    rules = [*_listed(quantized), *_exceptions(quantized, method)]
    usual = _usual(quantized, method)
    if method == "fp8" and config.get("expert_dtype") == "fp4":
        rules.append(Rule(form="mxfp4", names=Names.of(["experts"])))
    everything = Names.of(["experts"]) if method in OF_EXPERTS else None
    return [*rules, *([Rule(form=usual, names=everything)] if usual or not rules else [])]


def _listed(quantized: Mapping[str, Any]) -> Iterator[Rule]:
    """Formats of layers by name: of Model Optimizer with its mixed precision, or else of
    compressed-tensors with its groups.
    """
    layers, groups = quantized.get("quantized_layers"), quantized.get("config_groups")
    by_form: dict[str, list[str]] = {}
    if isinstance(layers, Mapping):
        for name, entry in layers.items():
            algorithm = str(entry.get("quant_algo")).upper() if isinstance(entry, Mapping) else ""
            by_form.setdefault(ALGORITHMS.get(algorithm, ""), []).append(str(name))
        yield from (Rule(form=form, names=Names.of(names)) for form, names in by_form.items())
        if len(by_form) == 1 and quantized.get("quant_algo") == "MIXED_PRECISION":
            # the original's own format, which Model Optimizer did not touch (NVIDIA's DeepSeek V4)
            yield Rule(form="fp8")
    elif isinstance(groups, Mapping):
        everything = []
        for group in groups.values():
            form, targets = (
                _of_group(group),
                texts(group.get("targets")) if isinstance(group, Mapping) else [],
            )
            names = [
                name
                for name in targets
                if "." in name or ":" in name or "*" in name or not name[:1].isupper()
            ]
            if names:
                yield Rule(form=form, names=Names.of(names))
            if len(names) < len(targets) or not targets:
                everything.append(Rule(form=form))
        yield from everything


def _of_group(group: object) -> str:
    """The format of a group of compressed-tensors."""
    weights = group.get("weights") if isinstance(group, Mapping) else None
    if not isinstance(group, Mapping) or not isinstance(weights, Mapping):
        return ""
    inputs = group.get("input_activations")
    bits, activation = (
        weights.get("num_bits"),
        inputs.get("num_bits") if isinstance(inputs, Mapping) else 16,
    )
    kind, size = TYPES.get(str(weights.get("type")), ""), weights.get("group_size")
    whole = isinstance(inputs, Mapping) and TYPES.get(str(inputs.get("type"))) == "int"
    if not isinstance(bits, int) or not isinstance(activation, int):
        return ""
    if bits < EIGHT and whole:  # products of whole numbers, which no format here has
        return ""
    return _numbers(kind, bits, activation, size)


def _numbers(kind: str, bits: int, activation: int, group: object) -> str:
    """A format by the type and bits of a weight, the bits of an activation, and the weights that
    share a scale.
    """
    size = group if isinstance(group, int) and group > 0 else 0
    if kind == "float":
        micro = size == MICRO
        floats = {
            (8, 8): "mxfp8" if micro else "fp8",
            (8, 16): "fp8-wo",
            (4, 16): "mxfp4" if micro else "nvfp4-wo",
        }
        floats |= {(4, 4): "mxfp4" if micro else "nvfp4", (4, 8): "mxfp4" if micro else "nvfp4-a8"}
        return floats.get((bits, activation), "")
    if kind != "int" or not 1 < bits <= EIGHT or activation < EIGHT:
        return ""
    if activation == EIGHT:
        return {8: "int8-sq", 4: "w4a8"}.get(bits, "")
    if not size:
        return {8: "int8-wo", 4: "int4-wo"}.get(bits, f"int{bits}-g0")
    return "gptq" if (bits, size) == (4, 128) else f"int{bits}-g{size}"


MICRO, EIGHT = 32, 8  # Weights that share a scale in OCP's microscaling formats, and bits


def _exceptions(quantized: Mapping[str, Any], method: str) -> Iterator[Rule]:
    """Exceptions of single layers: GPTQModel's ``dynamic``, AutoRound's ``extra_config``, Quark's
    ``layer_quant_config``.
    """
    for key in ("dynamic", "extra_config", "layer_quant_config"):
        entries = quantized.get(key)
        for name, entry in entries.items() if isinstance(entries, Mapping) else ():
            if str(name).startswith("-:"):
                yield Rule(form=WIDE, names=Names.of([str(name)]))
            elif isinstance(entry, Mapping) and key == "layer_quant_config":
                yield Rule(form=_quark(entry), names=Names.of([str(name)]))
            elif isinstance(entry, Mapping) and _whole(entry.get("bits")):
                wide = int(entry["bits"]) >= 2 * EIGHT
                form = WIDE if wide else _usual({**quantized, **entry}, method)
                yield Rule(form=form, names=Names.of([str(name)]))
    if quantized.get("lm_head") is True:
        yield Rule(form=_usual(quantized, method), names=Names.of(["lm_head"]))


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _usual(quantized: Mapping[str, Any], method: str) -> str:
    """The format of whatever no list names; empty where the method has no name, or only lists."""
    if isinstance(quantized.get("quantized_layers"), Mapping) or isinstance(
        quantized.get("config_groups"), Mapping
    ):
        return ""
    if method == "compressed_tensors" and any(quantized.get(key) for key in ALONE):
        return WIDE
    by_numbers = {
        "bitsandbytes": _bitsandbytes,
        "hqq": _hqq,
        "torchao": _torchao,
        "quark": _quark_whole,
        "aqlm": _aqlm,
        "vptq": _vptq,
    }
    if (reader := by_numbers.get(method)) is not None:
        return reader(quantized)
    if "quant_algo" in quantized:  # null where only the KV cache is quantized
        return (
            WIDE
            if quantized["quant_algo"] is None
            else ALGORITHMS.get(str(quantized["quant_algo"]).upper(), "")
        )
    return METHODS.get(method) or _integers(quantized, method)


ALONE = ("kv_cache_scheme", "sparsity_config")  # what compressed-tensors writes without groups

INTEGERS = {
    **dict.fromkeys(
        (
            "gptq",
            "gptq_marlin",
            "gptqmodel",
            "auto_gptq",
            "auto_round",
            "intel/auto_round",
            "inc",
            "marlin",
            "moe_wna16",
        ),
        "gptq",
    ),
    **dict.fromkeys(("awq", "awq_marlin", "gemm"), "awq"),
    **dict.fromkeys(("higgs", "spqr", "quip", "quanto", "fp_quant"), ""),
}


def _integers(quantized: Mapping[str, Any], method: str) -> str:
    """The format of integers in groups: the tool's, its bits, and the group where it is not the
    usual one.
    """
    family = INTEGERS.get(method)
    weights = str(quantized.get("weights", ""))
    bits = quantized.get("bits", quantized.get("w_bit"))
    if method == "quanto":
        return {
            "int8": "int8-wo",
            "int4": "quanto-4bit",
            "int2": "quanto-2bit",
            "float8": "fp8-wo",
        }.get(weights, "")
    if method == "fp_quant":
        return {"mxfp4": "mxfp4", "nvfp4": "nvfp4"}.get(str(quantized.get("forward_dtype")), "")
    if family is None or not _whole(bits) or not 1 < int(str(bits)) <= EIGHT:
        return ""
    packing = str(quantized.get("packing_format", ""))
    family = "awq" if "awq" in packing else family or method
    group = quantized.get("group_size", quantized.get("q_group_size"))
    if "float" in str(quantized.get("data_type", "int")) or "fp" in str(
        quantized.get("data_type", "int")
    ):
        return _numbers("float", int(str(bits)), int(quantized.get("act_bits") or 16), group)
    size = (
        0 if group == -1 or (group is None and bits == EIGHT) else group if _whole(group) else 128
    )
    if size == 0:
        return {8: "int8-wo", 4: "int4-wo"}.get(int(str(bits)), f"int{bits}-g0")
    return find_precision(f"{family}-{bits}bit-g{size}").name


def _bitsandbytes(quantized: Mapping[str, Any]) -> str:
    if quantized.get("load_in_4bit") or quantized.get("_load_in_4bit"):
        return "nf4-dq" if quantized.get("bnb_4bit_use_double_quant") else "nf4"
    return "bnb-int8" if quantized.get("load_in_8bit") or quantized.get("_load_in_8bit") else ""


def _hqq(quantized: Mapping[str, Any]) -> str:
    numbers: Any = quantized.get("quant_config")
    while isinstance(numbers, Mapping) and "nbits" not in numbers:
        numbers = next((value for value in numbers.values() if isinstance(value, Mapping)), None)
    if not isinstance(numbers, Mapping) or not _whole(numbers["nbits"]):
        return ""
    return find_precision(f"hqq-{numbers['nbits']}bit-g{numbers.get('group_size') or 0}").name


def _torchao(quantized: Mapping[str, Any]) -> str:
    kind, data = quantized.get("quant_type"), quantized.get("quant_type_kwargs")
    if isinstance(kind, Mapping):
        kind = kind.get("default", kind)
        data = kind.get("_data") if isinstance(kind, Mapping) else None
        kind = kind.get("_type") if isinstance(kind, Mapping) else None
    name = re.sub(r"[^a-z0-9]", "", str(kind).lower()).removesuffix("config")
    fixed = {
        "int8weightonly": "int8-wo",
        "int8dynamicactivationint8weight": "int8-sq",
        "float8weightonly": "fp8-wo",
    }
    fixed |= dict.fromkeys(
        ("float8dynamicactivationfloat8weight", "float8staticactivationfloat8weight"), "fp8"
    )
    fixed |= dict.fromkeys(
        ("float8dynamicactivationint4weight", "int8dynamicactivationint4weight"), "w4a8"
    )
    size = data.get("group_size") if isinstance(data, Mapping) else None
    if name == "int4weightonly":
        return find_precision(f"torchao-4bit-g{size if _whole(size) else 128}").name
    return fixed.get(name, "")


def _quark_whole(quantized: Mapping[str, Any]) -> str:
    return _quark(quantized.get("global_quant_config"))


def _quark(spec: object) -> str:
    """The format of one of Quark's groups, by the types of weights and inputs."""
    weight = spec.get("weight") if isinstance(spec, Mapping) else None
    if not isinstance(spec, Mapping) or not isinstance(weight, Mapping):
        return WIDE if isinstance(spec, Mapping) and weight is None else ""
    inputs = spec.get("input_tensors")
    match = re.match(r"(u?int|fp|float|mx_?fp)(\d{1,4})", str(weight.get("dtype")))
    width = re.search(r"\d{1,4}", str(inputs.get("dtype"))) if isinstance(inputs, Mapping) else None
    if match is None:
        return ""
    size = weight.get("group_size") if weight.get("qscheme") == "per_group" else None
    return _numbers(
        TYPES.get(match[1], "float"), int(match[2]), int(width[0]) if width else 16, size
    )


def _aqlm(quantized: Mapping[str, Any]) -> str:
    """Codes of ``num_codebooks`` books of ``nbits_per_codebook`` bits for a group of
    ``in_group_size`` weights.
    """
    numbers = [
        quantized.get(key) for key in ("num_codebooks", "nbits_per_codebook", "in_group_size")
    ]
    if not all(_whole(number) and int(str(number)) > 0 for number in numbers):
        return ""
    books, bits, size = (int(str(number)) for number in numbers)
    return f"aqlm-{min(max(books * bits / size / int(str(quantized.get('out_group_size', 1))), 1), EIGHT):g}bit"  # noqa: E501


def _vptq(quantized: Mapping[str, Any]) -> str:
    """The mean bits of an index of the centroids, and of those of the residual, over the length of
    a vector.
    """
    layers = quantized.get("config_for_layers")
    bits = []
    for entry in layers.values() if isinstance(layers, Mapping) else ():
        pairs = [
            (entry.get(key), entry.get("vector_lens"))
            for key in ("num_centroids", "num_res_centroids")
        ]
        sizes = [
            (math.log2(c[1]) if c[1] > 0 else 0.0, v[1])
            for c, v in pairs
            if isinstance(c, list) and isinstance(v, list)
        ]
        if sizes:
            bits.append(sum(size / max(length, 1) for size, length in sizes))
    return f"vptq-{min(max(round(sum(bits) / len(bits), 2), 1), EIGHT):g}bit" if bits else ""

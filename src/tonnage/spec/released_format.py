"""The number format in which a checkpoint is published, by group of its matrices, read from its ``config.json``.

A ``quantization_config`` says in what format matrices are and which of them are left out. Both are lists of names, name by name or as
patterns, that follow the maker's own names of layers. They are matched against the names that the groups of ``spec.precision.GROUPS`` have
in published checkpoints, layer by layer, so that a format of each group and its share of the group's weights come out.

Sources of the forms of ``quantization_config``: Hugging Face transformers, src/transformers/utils/quantization_config.py (the keys of fp8,
fbgemm_fp8, mxfp4, awq, gptq, bitsandbytes, hqq, torchao, eetq, aqlm, vptq, quanto, higgs, spqr, bitnet, fp_quant); compressed-tensors,
src/compressed_tensors/quantization (config_groups with num_bits, type, group_size and targets; ``re:`` before a regular expression); NVIDIA
Model Optimizer, hf_quant_config.json (quant_algo, quantized_layers, exclude_modules), and vLLM, layers/quantization/modelopt.py;
auto_round/export (extra_config); AMD Quark, quark/torch/quantization/config (global_quant_config, layer_quant_config, exclude).
Read on 2026-11-22 and 2026-11-28; the keys of aqlm, vptq, higgs, spqr and fp_quant are recalled.
"""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tonnage.spec.layers import WITH_STATE
from tonnage.spec.precision import EXPERTS, LEAST_SHARE, REST_FP8, TABLES, Part, find_precision, with_parts

if TYPE_CHECKING:
    from tonnage.spec.model import Model
    from tonnage.spec.precision import KvFormat

UNQUANTIZED = "bf16"  # The format of a checkpoint that names none

SIXTEEN_BITS = {"bfloat16": "bf16", "float16": "fp16"}

WIDE = "fp16"  # What a group that is left out is in

ALGORITHMS = {
    **dict.fromkeys(("FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO", "FP8_PB_REAL", "FP8_BLOCK_SCALES"), "fp8"),
    **dict.fromkeys(("NVFP4", "NVFP4_AWQ", "W4A4_NVFP4"), "nvfp4"),
    **dict.fromkeys(("W4A16_NVFP4", "NVFP4_W4A16"), "nvfp4-wo"),
    **dict.fromkeys(("W4A8_NVFP4_FP8",), "nvfp4-a8"),
    **dict.fromkeys(("MXFP4", "W4A8_MXFP4_FP8", "W4A8_MXFP4_MXFP8", "W4A16_MXFP4"), "mxfp4"),
    **dict.fromkeys(("INT8_SQ", "W8A8_SQ_PER_CHANNEL", "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN", "INT8"), "int8-sq"),
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
    **dict.fromkeys(("fp8", "fbgemm_fp8", "deepgemm_fp8", "ptpc_fp8", "w8a8_fp8", "finegrained_fp8", "modelopt_fp8"), "fp8"),
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

LEFT_OUT = ("ignore", "exclude_modules", "modules_to_not_convert", "llm_int8_skip_modules", "skip_modules", "exclude", "ignored_layers")
"""Keys of names that are left in 16 bits."""

PREFIXES = ("model.layers", "model.language_model.layers", "language_model.model.layers", "backbone.layers", "layers", "transformer.h")
"""Prefixes of the number of a layer."""

LAYER = re.compile(r"^(?:[\w.]*\.)?(?:layers|h|blocks)\.(\d+)(?:\.(.*))?$", re.DOTALL)
LAYER_PATTERN = re.compile(r"^[\^.*\w()?:|\\]*\b(?:layers|h|blocks)\\?\.(\d+)\\?\.(.*)$", re.DOTALL)

ATTENTION = ("self_attn", "attn", "attention", "self_attention")
STATE = ("linear_attn", "mamba", "mixer", "linear_attention")
MLP = ("mlp", "feed_forward", "ffn", "mixer")
INNER = {
    "gate": ("gate_proj", "gate_up_proj", "w1", "w13"),
    "up": ("up_proj", "gate_up_proj", "w3", "w13", "fc1", "c_fc", "dense_h_to_4h", "linear_fc1"),
    "down": ("down_proj", "w2", "fc2", "c_proj", "dense_4h_to_h", "linear_fc2"),
}
TABLE_NAMES = {
    "embedding": ("embed_tokens", "embeddings", "wte", "tok_embeddings", "word_embeddings", "embedding"),
    "head": ("lm_head", "output", "embed_out"),
}


def released_format(config: Mapping[str, Any], model: Model) -> str:
    """The format of a checkpoint of that model, as ``spec.precision`` writes it; empty where a part of it has no name there."""
    quantized = config.get("quantization_config")
    if quantized is None:
        return SIXTEEN_BITS.get(str(config.get("torch_dtype", config.get("dtype"))), UNQUANTIZED)
    if not isinstance(quantized, Mapping):
        return ""
    rules = _rules(quantized, config)
    if not rules or any(not rule.form for rule in rules):
        return ""
    excluded = Names.of(name for key in LEFT_OUT for name in _texts(quantized.get(key)))
    shares = {group: _shares(group, model, rules, excluded) for group in (*model.group_parameters, *TABLES)}
    return _written(model, shares)


def released_kv(config: Mapping[str, Any]) -> KvFormat:
    """The format of the KV cache that a checkpoint declares; 16 bits where it declares none."""
    quantized = config.get("quantization_config")
    if not isinstance(quantized, Mapping):
        return "fp16"
    scheme = quantized.get("kv_cache_scheme", quantized.get("kv_cache_quant_config"))
    declared = str(quantized.get("kv_cache_quant_algo", "")).upper()
    if isinstance(scheme, Mapping) and scheme.get("num_bits") == EIGHT:
        declared = "INT8" if scheme.get("type") == "int" else "FP8"
    if isinstance(scheme, Mapping) and "fp8" in str(scheme.get("dtype", "")):
        declared = "FP8"
    return {"FP8": "fp8", "INT8": "int8"}.get(declared, "fp16")  # type: ignore[return-value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A format, and the names of what is in it; None for every linear layer."""

    form: str
    names: Names | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """A list of names and patterns, sorted by the layer that they name; -1 holds the names without one."""

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
                plain.setdefault(int(match[1]) if match else -1, set()).add((match[2] or "") if match else text)
                continue
            match = LAYER_PATTERN.match(text)
            if marked and match and ("\\" not in text or match[2].startswith("*")):
                match = None  # a dot that stands for any sign, as in "layers.1.*"
            layer, rest = (int(match[1]), match[2]) if match else (-1, text)
            if (pattern := _pattern(rest, marked)) is not None:
                patterns.setdefault(layer, []).append(pattern)
        return cls(
            plain={layer: frozenset(found) for layer, found in plain.items()},
            patterns={layer: tuple(found) for layer, found in patterns.items()},
        )

    def hold(self, layer: int, name: str) -> bool:
        """Whether a module, by its name within a layer, is among them; of layer -1 by its whole name."""
        parts = name.split(".")
        runs = {".".join(parts[a:b]) for a in range(len(parts)) for b in range(a + 1, len(parts) + 1)}
        everywhere = self.plain.get(-1, frozenset())
        in_layer = self.plain.get(layer, frozenset()) if layer >= 0 else frozenset()
        if runs & everywhere or "" in in_layer or any(".".join(parts[:b]) in in_layer for b in range(1, len(parts) + 1)):
            return True
        if layer >= 0 and any(pattern.match(name) for pattern in self.patterns.get(layer, ())):
            return True
        whole = [f"{prefix}.{layer}.{name}" for prefix in PREFIXES] if layer >= 0 else [name, f"model.{name}"]
        return any(pattern.match(text) for pattern in self.patterns.get(-1, ()) for text in whole)


def _pattern(text: str, marked: bool) -> re.Pattern[str] | None:
    """The regular expression of a pattern; a shell pattern holds for what is inside a module too. None for what is no pattern."""
    if marked or ".*" in text or "\\" in text:
        try:
            return re.compile(text if marked else f"(?:.*\\b)?{text}")
        except re.error:
            if marked:
                return None
    return re.compile(f"(?:{fnmatch.translate(text)})|(?:{fnmatch.translate(text + '.*')})")


def _texts(listed: object) -> list[str]:
    return [str(name) for name in listed] if isinstance(listed, list | tuple) else []


def _modules(group: str, model: Model) -> Iterator[tuple[tuple[str, ...], float]]:
    """The matrices of a group in one layer: the names that each may have, and its share of the group's weights."""
    if group == "attention":
        yield from _attention_modules(model)
    elif group == "state":
        for names, plain, share in STATE_NAMES:
            yield (*(f"{parent}.{name}" for parent in STATE for name in names), f"self_attn.{plain}"), share
    else:
        parents: tuple[str, ...] = MLP if group == "mlp" else tuple(f"{parent}.{kind}" for parent in MLP for kind in KINDS_OF[group])
        matrices = [leaves for kind, leaves in INNER.items() if model.gated or kind != "gate"]
        for leaves in matrices:
            yield tuple(f"{parent}.{name}" for parent in parents for name in leaves), 1 / len(matrices)


STATE_NAMES = (
    (("in_proj_qkv", "in_proj_qkvz", "in_proj", "qkv_proj"), "q_proj", 1 / 2),
    (("in_proj_z", "in_proj_qkvz", "in_proj", "g_proj"), "k_proj", 1 / 6),
    (("out_proj",), "o_proj", 1 / 3),
)
"""Matrices of a layer with a state under its own names, and where it is called attention (KDA), with shares of its weights."""

KINDS_OF = {"shared": ("shared_experts", "shared_expert"), EXPERTS: ("experts.0", "experts")}


def _attention_modules(model: Model) -> Iterator[tuple[tuple[str, ...], float]]:
    widths: dict[str, tuple[tuple[str, ...], float]]
    if model.has_latent_cache:
        widths = {"q": (("q_proj", "q_a_proj", "q_b_proj", "wq_a", "wq_b"), 0.4), "kv": (("kv_a_proj_with_mqa", "kv_b_proj", "wkv"), 0.2)}
        widths["o"] = ("o_proj", "wo_a", "wo_b"), 0.4
    else:
        both = 2 * (model.heads + model.kv_heads)
        query, value = model.heads / both, model.kv_heads / both
        widths = {
            "q": (("q_proj", "qkv_proj", "wq", "query_key_value", "c_attn"), query),
            "k": (("k_proj", "qkv_proj", "wk", "query_key_value", "c_attn"), value),
            "v": (("v_proj", "qkv_proj", "wv", "query_key_value", "c_attn"), value),
            "o": (("o_proj", "wo", "dense", "c_proj", "out_proj"), query),
        }
    for names, share in widths.values():
        yield (*(f"{parent}.{name}" for parent in ATTENTION for name in names), f"mixer.{names[0]}"), share


def _shares(group: str, model: Model, rules: list[Rule], excluded: Names) -> dict[str, float]:
    """The formats of a group's weights and their shares; a group that the model does not have has none."""
    if group in TABLES:
        named = next(
            (rule.form for rule in rules for name in TABLE_NAMES[group] if rule.names is not None and rule.names.hold(-1, name)), WIDE
        )
        return {named: 1.0}
    if not model.group_parameters[group]:
        return {}
    layers, count = _span(group, model)
    weights: dict[str, float] = {}
    for layer in layers:
        for names, share in _modules(group, model):
            left_out = any(excluded.hold(layer, name) for name in names)
            form = WIDE if left_out else next((rule.form for rule in rules if rule.names is None or _holds(rule.names, layer, names)), "")
            weights[form] = weights.get(form, 0.0) + share
    return _of_count(weights, count, len(layers))


def _holds(listed: Names, layer: int, names: tuple[str, ...]) -> bool:
    return any(listed.hold(layer, name) for name in names)


def _of_count(weights: dict[str, float], count: int, places: int) -> dict[str, float]:
    """Shares of a group that is in ``count`` of the ``places`` where it was looked for: named places count before unnamed ones."""
    named = {form: size for form, size in weights.items() if form}
    total = sum(named.values())
    if count < places and total > count and "" not in weights:
        exceptions = {form: size for form, size in named.items() if size <= count + LEAST_SHARE}
        usual = max(named, key=lambda form: named[form])
        named = {form: size for form, size in exceptions.items() if form != usual}
        named[usual] = max(count - sum(named.values()), 0.0)
        total = sum(named.values())
    rest = max(count - total, 0.0)
    named[WIDE] = named.get(WIDE, 0.0) + rest
    whole = sum(named.values())
    return {form: size / whole for form, size in named.items() if size / whole > LEAST_SHARE}


def _span(group: str, model: Model) -> tuple[range, int]:
    """The layers in which a group may be, and in how many of them it is."""
    if group == "mlp":
        return (range(model.dense_layers), model.dense_layers) if model.is_moe else (range(model.layers), model.inner_layers)
    if group in ("attention", "state"):
        with_state = sum(some.layers for some in model.by_kind if some.mixer.kind in WITH_STATE)
        return range(model.layers), with_state if group == "state" else model.mixing_layers - with_state
    return range(0 if model.mlp_layers else model.dense_layers, model.layers), model.expert_layers


def _written(model: Model, shares: Mapping[str, Mapping[str, float]]) -> str:
    """The name of the formats of all groups: that of the experts, or of most of a dense model's weights, and what differs from it."""
    sizes = model.group_parameters
    totals: dict[str, float] = {}
    for group in (EXPERTS,) if model.is_moe else sizes:
        for name, share in shares[group].items():
            totals[name] = totals.get(name, 0.0) + share * sizes[group]
    base = max(totals, key=lambda name: totals[name])
    around = {name for group in sizes if group != EXPERTS and sizes[group] for name in shares[group]}
    name = base
    if model.is_moe and around == {WIDE} and base != WIDE:
        name = f"{base}+{EXPERTS}"
    elif model.is_moe and around == {"fp8"} and base != "fp8":
        name = f"{base}+{REST_FP8}"
    form = find_precision(name)
    parts = []
    for group, formats in shares.items():
        if group not in TABLES and not sizes[group]:
            continue
        usual = form.forms(group, model.is_moe)[-1][1].weight_format
        for name_of, share in formats.items():
            if name_of != usual:
                whole = 1.0 if share > 1 - LEAST_SHARE else share
                parts.append(Part(group=group, form=find_precision(name_of), share=whole))
    if name == WIDE and not parts:
        return UNQUANTIZED
    return with_parts(form, parts).name


def _rules(quantized: Mapping[str, Any], config: Mapping[str, Any]) -> list[Rule]:
    """The formats of a checkpoint, what names its layers first; an empty format is one that has no name."""
    method = str(quantized.get("quant_method", "")).lower().replace("-", "_")
    rules = [*_listed(quantized), *_exceptions(quantized, method)]
    usual = _usual(quantized, method)
    if method == "fp8" and config.get("expert_dtype") == "fp4":
        rules.append(Rule(form="mxfp4", names=Names.of(["experts"])))
    everything = Names.of(["experts"]) if method in OF_EXPERTS else None
    return [*rules, *([Rule(form=usual, names=everything)] if usual or not rules else [])]


def _listed(quantized: Mapping[str, Any]) -> Iterator[Rule]:
    """Formats of layers by name: of Model Optimizer with its mixed precision, or else of compressed-tensors with its groups."""
    layers, groups = quantized.get("quantized_layers"), quantized.get("config_groups")
    by_form: dict[str, list[str]] = {}
    if isinstance(layers, Mapping):
        for name, entry in layers.items():
            algorithm = str(entry.get("quant_algo")).upper() if isinstance(entry, Mapping) else ""
            by_form.setdefault(ALGORITHMS.get(algorithm, ""), []).append(str(name))
        yield from (Rule(form=form, names=Names.of(names)) for form, names in by_form.items())
        if len(by_form) == 1 and quantized.get("quant_algo") == "MIXED_PRECISION":
            yield Rule(form="fp8")  # the original's own format, which Model Optimizer did not touch (NVIDIA's DeepSeek V4)
    elif isinstance(groups, Mapping):
        everything = []
        for group in groups.values():
            form, targets = _of_group(group), _texts(group.get("targets")) if isinstance(group, Mapping) else []
            names = [name for name in targets if "." in name or ":" in name or "*" in name or not name[:1].isupper()]
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
    bits, activation = weights.get("num_bits"), inputs.get("num_bits") if isinstance(inputs, Mapping) else 16
    kind, size = TYPES.get(str(weights.get("type")), ""), weights.get("group_size")
    return _numbers(kind, bits, activation, size) if isinstance(bits, int) and isinstance(activation, int) else ""


def _numbers(kind: str, bits: int, activation: int, group: object) -> str:
    """A format by the type and bits of a weight, the bits of an activation, and the weights that share a scale."""
    size = group if isinstance(group, int) and group > 0 else 0
    if kind == "float":
        micro = size == MICRO
        floats = {(8, 8): "mxfp8" if micro else "fp8", (8, 16): "fp8-wo", (4, 16): "mxfp4" if micro else "nvfp4-wo"}
        floats |= {(4, 4): "mxfp4" if micro else "nvfp4", (4, 8): "mxfp4" if micro else "nvfp4-a8"}
        return floats.get((bits, activation), "")
    if kind != "int" or not 1 < bits <= EIGHT:
        return ""
    if activation == EIGHT:
        return {8: "int8-sq", 4: "w4a8"}.get(bits, "")
    if not size:
        return {8: "int8-wo", 4: "int4-wo"}.get(bits, f"int{bits}-g0")
    return "gptq" if (bits, size) == (4, 128) else f"int{bits}-g{size}"


MICRO, EIGHT = 32, 8  # Weights that share a scale in OCP's microscaling formats, and bits


def _exceptions(quantized: Mapping[str, Any], method: str) -> Iterator[Rule]:
    """Exceptions of single layers: GPTQModel's ``dynamic``, AutoRound's ``extra_config``, Quark's ``layer_quant_config``."""
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
    if isinstance(quantized.get("quantized_layers"), Mapping) or isinstance(quantized.get("config_groups"), Mapping):
        return ""
    by_numbers = {"bitsandbytes": _bitsandbytes, "hqq": _hqq, "torchao": _torchao, "quark": _quark_whole, "aqlm": _aqlm, "vptq": _vptq}
    if (reader := by_numbers.get(method)) is not None:
        return reader(quantized)
    if "quant_algo" in quantized:  # null where only the KV cache is quantized
        return WIDE if quantized["quant_algo"] is None else ALGORITHMS.get(str(quantized["quant_algo"]).upper(), "")
    return METHODS.get(method) or _integers(quantized, method)


INTEGERS = {
    **dict.fromkeys(
        ("gptq", "gptq_marlin", "gptqmodel", "auto_gptq", "auto_round", "intel/auto_round", "inc", "marlin", "moe_wna16"), "gptq"
    ),
    **dict.fromkeys(("awq", "awq_marlin", "gemm"), "awq"),
    **dict.fromkeys(("higgs", "spqr", "quip", "quanto", "fp_quant"), ""),
}


def _integers(quantized: Mapping[str, Any], method: str) -> str:
    """The format of integers in groups: the tool's, its bits, and the group where it is not the usual one."""
    family = INTEGERS.get(method)
    weights = str(quantized.get("weights", ""))
    bits = quantized.get("bits", quantized.get("w_bit"))
    if method == "quanto":
        return {"int8": "int8-wo", "int4": "quanto-4bit", "int2": "quanto-2bit", "float8": "fp8-wo"}.get(weights, "")
    if method == "fp_quant":
        return {"mxfp4": "mxfp4", "nvfp4": "nvfp4"}.get(str(quantized.get("forward_dtype")), "")
    if family is None or not _whole(bits) or not 1 < int(str(bits)) <= EIGHT:
        return ""
    packing = str(quantized.get("packing_format", ""))
    family = "awq" if "awq" in packing else family or method
    group = quantized.get("group_size", quantized.get("q_group_size"))
    if "float" in str(quantized.get("data_type", "int")) or "fp" in str(quantized.get("data_type", "int")):
        return _numbers("float", int(str(bits)), int(quantized.get("act_bits") or 16), group)
    size = 0 if group == -1 or (group is None and bits == EIGHT) else group if _whole(group) else 128
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
    fixed = {"int8weightonly": "int8-wo", "int8dynamicactivationint8weight": "int8-sq", "float8weightonly": "fp8-wo"}
    fixed |= dict.fromkeys(("float8dynamicactivationfloat8weight", "float8staticactivationfloat8weight"), "fp8")
    fixed |= dict.fromkeys(("float8dynamicactivationint4weight", "int8dynamicactivationint4weight"), "w4a8")
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
    match = re.match(r"(u?int|fp|float|mx_?fp)(\d+)", str(weight.get("dtype")))
    width = re.search(r"\d+", str(inputs.get("dtype"))) if isinstance(inputs, Mapping) else None
    if match is None:
        return ""
    size = weight.get("group_size") if weight.get("qscheme") == "per_group" else None
    return _numbers(TYPES.get(match[1], "float"), int(match[2]), int(width[0]) if width else 16, size)


def _aqlm(quantized: Mapping[str, Any]) -> str:
    """Codes of ``num_codebooks`` books of ``nbits_per_codebook`` bits for a group of ``in_group_size`` weights."""
    numbers = [quantized.get(key) for key in ("num_codebooks", "nbits_per_codebook", "in_group_size")]
    if not all(_whole(number) and int(str(number)) > 0 for number in numbers):
        return ""
    books, bits, size = (int(str(number)) for number in numbers)
    return f"aqlm-{min(max(books * bits / size / int(str(quantized.get('out_group_size', 1))), 1), EIGHT):g}bit"


def _vptq(quantized: Mapping[str, Any]) -> str:
    """The mean bits of an index of the centroids, and of those of the residual, over the length of a vector."""
    layers = quantized.get("config_for_layers")
    bits = []
    for entry in layers.values() if isinstance(layers, Mapping) else ():
        pairs = [(entry.get(key), entry.get("vector_lens")) for key in ("num_centroids", "num_res_centroids")]
        sizes = [(math.log2(c[1]) if c[1] > 0 else 0.0, v[1]) for c, v in pairs if isinstance(c, list) and isinstance(v, list)]
        if sizes:
            bits.append(sum(size / max(length, 1) for size, length in sizes))
    return f"vptq-{min(max(round(sum(bits) / len(bits), 2), 1), EIGHT):g}bit" if bits else ""

"""The number format in which a checkpoint is published, by group of its matrices, read from its
``config.json``.

The names of a ``quantization_config`` follow the maker's own names of layers. They are matched
against the names that the groups of ``spec.precision.GROUPS`` have in published checkpoints, layer
by layer, so that a format of each group and its share of the group's weights come out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tonnage.spec.layers import WITH_STATE
from tonnage.spec.precision import (
    EXPERTS,
    LEAST_SHARE,
    REST_FP8,
    SPARSE,
    TABLES,
    KvFormat,
    Part,
    find_precision,
    with_parts,
)
from tonnage.spec.quantization_config import LEFT_OUT, WIDE, Names, Rule, rules_of, texts

if TYPE_CHECKING:
    from tonnage.spec.model import Model

UNQUANTIZED = "bf16"  # The format of a checkpoint that names none

# formats by the type of a file's numbers; engines load 32 bits as 16
DTYPES = {
    **dict.fromkeys(("", "auto", "None", "bfloat16", "bf16", "float32", "float64"), UNQUANTIZED),
    **dict.fromkeys(("float16", "fp16", "half"), "fp16"),
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2"), "fp8"),
}

ATTENTION = ("self_attn", "attn", "attention", "self_attention")
STATE = ("linear_attn", "mamba", "mixer", "linear_attention")
MLP = ("mlp", "feed_forward", "ffn", "mixer")
INNER = {
    "gate": ("gate_proj", "gate_up_proj", "w1", "w13"),
    "up": ("up_proj", "gate_up_proj", "w3", "w13", "fc1", "c_fc", "dense_h_to_4h", "linear_fc1"),
    "down": ("down_proj", "w2", "fc2", "c_proj", "dense_4h_to_h", "linear_fc2"),
}
TABLE_NAMES = {
    "embedding": (
        "embed_tokens",
        "embeddings",
        "wte",
        "tok_embeddings",
        "word_embeddings",
        "embedding",
    ),
    "head": ("lm_head", "output", "embed_out"),
}


def released_format(config: Mapping[str, Any], model: Model) -> str:
    """The format of a checkpoint of that model, as ``spec.precision`` writes it; empty where a part
    of it has no name there.
    """
    quantized = config.get("quantization_config")
    if quantized is None:
        return DTYPES.get(dtype_of(config), "")
    if not isinstance(quantized, Mapping):
        return ""
    rules = rules_of(quantized, config)
    if not rules or any(not rule.form for rule in rules):
        return ""
    excluded = Names.of(name for key in LEFT_OUT for name in texts(quantized.get(key)))
    shares = {
        group: _shares(group, model, rules, excluded)
        for group in (*model.group_parameters, *TABLES)
    }
    name = _written(model, shares)
    if not _is_sparse(quantized):
        return name
    form = find_precision(name)
    return "" if form.unpacked or form.block_scaled else f"{name}+{SPARSE}"


def dtype_of(config: Mapping[str, Any]) -> str:
    """The type of a file's numbers, such as "bfloat16"; "" where it names none."""
    return str(config.get("torch_dtype") or config.get("dtype") or "").removeprefix("torch.")


def _is_sparse(quantized: Mapping[str, Any]) -> bool:
    """Whether compressed-tensors stores two of every four weights."""
    sparsity = quantized.get("sparsity_config")
    if not isinstance(sparsity, Mapping) or sparsity.get("format") == "dense":
        return False
    return sparsity.get("sparsity_structure") == SPARSE


def has_block_scales(quantized: object) -> bool:
    """Whether FP8 weights have a scale for each block: ``weight_block_size``, or the strategy
    "block" of compressed-tensors.
    """
    if not isinstance(quantized, Mapping):
        return False
    groups = quantized.get("config_groups")
    weights = [
        group.get("weights")
        for group in (groups.values() if isinstance(groups, Mapping) else ())
        if isinstance(group, Mapping)
    ]
    blocks = [part for part in weights if isinstance(part, Mapping) and part.get("strategy")]
    return bool(quantized.get("weight_block_size")) or any(
        part["strategy"] == "block" for part in blocks
    )


KV_KEYS = ("kv_cache_scheme", "kv_cache_quant_config", "kv_cache_quant_algo")
KV_READERS = {
    "modelopt": ("vllm>=0.12", "sglang", "tensorrt-llm", "nim"),
    "compressed_tensors": ("vllm>=0.12", "tensorrt-llm", "nim"),
}
"""Engines that keep the KV cache as a checkpoint of that method declares it, without a flag; of
other methods all do as a plan's command says. vLLM 0.32 ``utils/torch_utils.py`` and
``layers/attention/attention.py``; SGLang ``mem_cache/kv_cache_dtype.py``, which asks for
``kv_cache_quant_algo``; TensorRT-LLM ``llmapi/llm_utils.py``. Read on 2026-11-28; the first version
of vLLM is recalled."""
FAMILIES = ("vllm", "sglang", "tensorrt-llm", "nim", "atom")
INSIDE_FIRST = ("vllm", "sglang")
"""Families that read hf_quant_config.json only where config.json has no ``quantization_config``:
vLLM ``transformers_utils/config.py``, SGLang ``configs/model_config.py``. TensorRT-LLM reads it
first. Read on 2026-11-28."""


def quantization_of(config: Mapping[str, Any]) -> object:
    """The object of a ``config.json`` that says how its checkpoint is quantized, by its present
    name and in its present form.

    compressed-tensors had called it ``compression_config``, MLX calls it ``quantization``; Model
    Optimizer's may be nested.
    """
    keys = ("quantization_config", "compression_config", "quantization")
    quantized = next((config[key] for key in keys if config.get(key) is not None), None)
    if quantized == {}:
        return None
    inner = quantized.get("quantization") if isinstance(quantized, Mapping) else None
    return {"quant_method": "modelopt", **inner} if isinstance(inner, Mapping) else quantized


def merged(inside: object, beside: Mapping[str, Any]) -> object:
    """The ``quantization_config`` of a file next to an hf_quant_config.json, which adds what the
    first leaves open of the weights.
    """
    if inside is None:
        return {"quant_method": "modelopt", **beside}
    return (
        {key: value for key, value in beside.items() if key not in KV_KEYS} | inside
        if isinstance(inside, dict)
        else inside
    )


def released_kv(config: Mapping[str, Any]) -> tuple[KvFormat, tuple[str, ...]]:
    """The format of the KV cache that a checkpoint declares, and the engines that take it; 16 bits
    where it declares none.
    """
    inside, beside = config.get("quantization_config"), config.get("hf_quant_config")
    sides = {
        True: _declared(inside),
        False: _declared(inside if beside is None else {"quant_method": "modelopt", **beside}),
    }
    kv: KvFormat = next((form for form, _ in sides.values() if form != "fp16"), "fp16")
    if kv == "fp16":
        return kv, ()
    takers = {
        first: [name for name in names if name.startswith(INSIDE_FIRST) == first]
        for first, (form, names) in sides.items()
        if form == kv
    }
    return kv, tuple(name for names in takers.values() for name in names)


def uncounted_kv(config: Mapping[str, Any]) -> str:
    """The format of the KV cache that a checkpoint declares and that has no name here; "" for every
    other file.
    """
    sides = (config.get("quantization_config"), config.get("hf_quant_config"))
    words = [_kv_word(side) for side in sides if isinstance(side, Mapping)]
    return next((word for word in words if word not in (*KV_FORMATS, *KV_SIXTEEN)), "")


KV_SIXTEEN = ("", "NONE", "AUTO", "FP16", "BF16", "NO_QUANT")


def _kv_word(quantized: Mapping[str, Any]) -> str:
    """The word or the bits by which one object declares the format of the KV cache."""
    scheme = quantized.get("kv_cache_scheme", quantized.get("kv_cache_quant_config"))
    word = str(quantized.get("kv_cache_quant_algo") or "").upper()
    if isinstance(scheme, Mapping) and isinstance(scheme.get("num_bits"), int):
        bits = scheme["num_bits"]
        word = f"INT{bits}" if scheme.get("type") == "int" else f"FP{bits}"
    if isinstance(scheme, Mapping) and "fp8" in str(scheme.get("dtype", "")):
        word = "FP8"
    return word


KV_FORMATS: dict[str, KvFormat] = {"FP8": "fp8", "INT8": "int8"}


def _declared(quantized: object) -> tuple[KvFormat, tuple[str, ...]]:
    """The format of the KV cache that one object declares, and the engines that read it there."""
    if not isinstance(quantized, Mapping):
        return "fp16", ()
    method = str(quantized.get("quant_method", "")).lower().replace("-", "_")
    method = "modelopt" if method.startswith("modelopt") else method
    return KV_FORMATS.get(_kv_word(quantized), "fp16"), KV_READERS.get(method, FAMILIES)


def _modules(group: str, model: Model) -> Iterator[tuple[tuple[str, ...], float]]:
    """The matrices of a group in one layer: the names that each may have, and its share of the
    group's weights.
    """
    if group == "attention":
        yield from _attention_modules(model)
    elif group == "state":
        for names, plain, share in STATE_NAMES:
            yield (
                (*(f"{parent}.{name}" for parent in STATE for name in names), f"self_attn.{plain}"),
                share,
            )
    else:
        parents: tuple[str, ...] = (
            MLP
            if group == "mlp"
            else tuple(f"{parent}.{kind}" for parent in MLP for kind in KINDS_OF[group])
        )
        matrices = [leaves for kind, leaves in INNER.items() if model.gated or kind != "gate"]
        for leaves in matrices:
            yield (
                tuple(f"{parent}.{name}" for parent in parents for name in leaves),
                1 / len(matrices),
            )


STATE_NAMES = (
    (("in_proj_qkv", "in_proj_qkvz", "in_proj", "qkv_proj"), "q_proj", 1 / 2),
    (("in_proj_z", "in_proj_qkvz", "in_proj", "g_proj"), "k_proj", 1 / 6),
    (("out_proj",), "o_proj", 1 / 3),
)
"""Matrices of a layer with a state under its own names, and where it is called attention (KDA),
with shares of its weights."""

KINDS_OF = {"shared": ("shared_experts", "shared_expert"), EXPERTS: ("experts.0", "experts")}


def _attention_modules(model: Model) -> Iterator[tuple[tuple[str, ...], float]]:
    widths: dict[str, tuple[tuple[str, ...], float]]
    if model.has_latent_cache:
        widths = {
            "q": (("q_proj", "q_a_proj", "q_b_proj", "wq_a", "wq_b"), 0.4),
            "kv": (("kv_a_proj_with_mqa", "kv_b_proj", "wkv"), 0.2),
        }
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
        yield (
            (*(f"{parent}.{name}" for parent in ATTENTION for name in names), f"mixer.{names[0]}"),
            share,
        )


def _shares(group: str, model: Model, rules: list[Rule], excluded: Names) -> dict[str, float]:
    """The formats of a group's weights and their shares; a group that the model does not have has
    none.
    """
    if group in TABLES:
        named = next(
            (
                rule.form
                for rule in rules
                for name in TABLE_NAMES[group]
                if rule.names is not None and rule.names.hold(-1, name)
            ),
            WIDE,
        )
        return {named: 1.0}
    if not model.group_parameters[group]:
        return {}
    layers, count = _span(group, model)
    weights: dict[str, float] = {}
    for layer in layers:
        for names, share in _modules(group, model):
            left_out = any(excluded.hold(layer, name) for name in names)
            form = (
                WIDE
                if left_out
                else next(
                    (
                        rule.form
                        for rule in rules
                        if rule.names is None or _holds(rule.names, layer, names)
                    ),
                    "",
                )
            )
            weights[form] = weights.get(form, 0.0) + share
    return _of_count(weights, count, len(layers))


def _holds(listed: Names, layer: int, names: tuple[str, ...]) -> bool:
    return any(listed.hold(layer, name) for name in names)


def _of_count(weights: dict[str, float], count: int, places: int) -> dict[str, float]:
    """Shares of a group that is in ``count`` of the ``places`` where it was looked for: named
    places count before unnamed ones.
    """
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
        return (
            (range(model.dense_layers), model.dense_layers)
            if model.is_moe
            else (range(model.layers), model.inner_layers)
        )
    if group in ("attention", "state"):
        with_state = sum(
            layer_group.layers
            for layer_group in model.by_kind
            if layer_group.mixer.kind in WITH_STATE
        )
        return range(
            model.layers
        ), with_state if group == "state" else model.mixing_layers - with_state
    return range(0 if model.mlp_layers else model.dense_layers, model.layers), model.expert_layers


def _written(model: Model, shares: Mapping[str, Mapping[str, float]]) -> str:
    """The name of the formats of all groups: that of the experts, or of most of a dense model's
    weights, and what differs from it.
    """
    sizes = model.group_parameters
    totals: dict[str, float] = {}
    for group in (EXPERTS,) if model.is_moe else sizes:
        for name, share in shares[group].items():
            totals[name] = totals.get(name, 0.0) + share * sizes[group]
    base = max(totals, key=lambda name: totals[name])
    around = {
        name for group in sizes if group != EXPERTS and sizes[group] for name in shares[group]
    }
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

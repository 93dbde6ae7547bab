"""What kinds of layers a ``config.json`` describes, where an architecture mixes several or has one
beyond plain attention.

One function per family of models; each reads checked numbers (``config_values``) and returns the
fields of ``Model`` that it knows. ``config_layouts`` says which architecture is of which family.
Sources: the configuration and modelling files of transformers 5.23.0, and the counts of
``../shared/data/modern/formulas.md``, both read on 2026-11-22.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tonnage.spec.attention_layers import (
    BlockSparseAttention,
    CompressedLayer,
    FullAttention,
    LatentAttention,
    LatentLayer,
    SlidingAttention,
    SparseLatentLayer,
)
from tonnage.spec.config_fields import alike, heads_of, looked_up, mixers, predictions
from tonnage.spec.config_fields import layers_of as layers_in
from tonnage.spec.config_layouts import ConfigValues, shown
from tonnage.spec.layers import KimiDeltaAttention, Layers, Mamba2, Mixer

if TYPE_CHECKING:
    from collections.abc import Callable


Fields = dict[str, Any]  # Fields of ``Model``, by name

LINEAR, FULL, SLIDING = "linear_attention", "full_attention", "sliding_attention"


def layers_of(counted: Counter[Mixer]) -> tuple[Layers, ...]:
    """Layers by kind, in the order in which they were met."""
    return tuple(Layers(layers=count, mixer=mixer) for mixer, count in counted.items() if count)


def plain_first(config: ConfigValues) -> Fields:
    """Shared experts and plain first layers, as DeepSeek names them (GLM-4.5 to 4.7, Hunyuan 3)."""
    layers, plain = (
        config.required("num_hidden_layers"),
        config.optional_or("first_k_dense_replace"),
    )
    if plain > layers:
        config.fail("first_k_dense_replace", f"{plain} is more than the {layers} layers")
    kinds = config.config.get("mlp_layer_types")
    if isinstance(kinds, list):
        plain = kinds.count("dense")
    return {
        "shared_experts": config.optional_or("n_shared_experts", "num_shared_experts"),
        "dense_layers": plain,
        "dense_ffn": (
            config.required("dense_intermediate_size", "intermediate_size") if plain else 0
        ),
        "mtp_layers": config.optional_or("num_nextn_predict_layers", "num_mtp_modules"),
    }


def latent_widths(config: ConfigValues) -> LatentAttention:
    """The widths of latent attention."""
    sizes = config.sizes(
        kv_lora_rank="kv_lora_rank", qk_nope_head_dim="qk_nope_head_dim", v_head_dim="v_head_dim"
    )
    zero = {name: config.optional_or(name) for name in ("q_lora_rank", "qk_rope_head_dim")}
    return LatentAttention(**sizes, **zero)


def plain_latent(config: ConfigValues) -> Fields:
    """Latent attention in every layer, with plain first layers (GLM-4.7-Flash)."""
    return {**plain_first(config), "latent": latent_widths(config)}


def indexed_latent(config: ConfigValues) -> Fields:
    """Latent attention to what an indexer chooses (DeepSeek V3.2, GLM-5); in GLM-5.2 some layers
    take an earlier layer's choice.
    """
    layers, types = config.required("num_hidden_layers"), config.config.get("indexer_types")
    full_count = types.count("full") if isinstance(types, list) else layers
    indexed = _indexed(config, reuses=False)
    counted: Counter[Mixer] = Counter(
        {indexed: full_count, _indexed(config, reuses=True): layers - full_count}
    )
    return {**plain_first(config), "mixers": layers_of(counted)}


def _indexed(config: ConfigValues, *, reuses: bool) -> SparseLatentLayer:
    sizes = config.sizes(
        heads="num_attention_heads",
        index_heads="index_n_heads",
        index_dim="index_head_dim",
        topk="index_topk",
    )
    return SparseLatentLayer(
        **sizes,
        widths=latent_widths(config),
        pooled=config.optional_or("index_kpool", absent=1),
        reuses_choice=reuses,
        output_gate=config.flag("gated_mla", False),
    )


def compressed(config: ConfigValues) -> Fields:
    """Windows and compressed stretches (DeepSeek V4). ``compress_ratios`` goes on beyond the layers
    for the MTP module.
    """
    layers, ratios = config.required("num_hidden_layers"), config.numbers("compress_ratios")
    if len(ratios) < layers:
        config.fail("compress_ratios", f"{len(ratios)} ratios are fewer than the {layers} layers")
    owners, indexed = (
        _listed(config, key, layers) for key in ("kv_source_layer_ids", "index_source_layer_ids")
    )
    counted: Counter[Mixer] = Counter(
        replace(
            _compressed(config, ratio, place in indexed and indexed != owners),
            shared_cache=ratio > 0 and place not in owners,
        )
        for place, ratio in enumerate(ratios[:layers])
    )
    return {
        **plain_first(config),
        "mixers": layers_of(counted),
        "residual_streams": config.optional_or("hc_mult", absent=1),
    }


def _listed(config: ConfigValues, key: str, layers: int) -> set[int]:
    """The layers at the places that a file lists; all of them where it lists none."""
    return set(range(layers)) if config.config.get(key) is None else set(config.numbers(key))


def _compressed(config: ConfigValues, ratio: int, chooses: bool) -> CompressedLayer:
    sizes = config.sizes(
        heads="num_attention_heads",
        head_dim="head_dim",
        rope_dim="qk_rope_head_dim",
        window="sliding_window",
    )
    sizes |= config.sizes(q_lora_rank="q_lora_rank", o_groups="o_groups", o_lora_rank="o_lora_rank")
    indexer = (
        config.sizes(index_heads="index_n_heads", index_dim="index_head_dim", topk="index_topk")
        if ratio == 4 or chooses
        else {}
    )
    return CompressedLayer(**sizes, **indexer, ratio=ratio)


def block_sparse(config: ConfigValues) -> Fields:
    """Grouped attention to chosen blocks, and layers that attend to all (MiniMax-M3)."""
    layers, sparse = config.required("num_hidden_layers"), config.part("sparse_attention_config")
    chosen = sum(sparse.numbers("sparse_attention_freq"))
    heads = _heads(config)
    plain = FullAttention(**heads)
    sizes = sparse.sizes(block="sparse_block_size", topk_blocks="sparse_topk_blocks")
    blocks = BlockSparseAttention(
        **heads,
        **sizes,
        **sparse.sizes(index_heads="sparse_num_index_heads", index_dim="sparse_index_dim"),
    )
    dense = config.numbers("moe_layer_freq").count(0)
    return {
        "mixers": layers_of(Counter({plain: layers - chosen, blocks: chosen})),
        "shared_ffn": config.optional_or("shared_intermediate_size"),
        "dense_layers": dense,
        "dense_ffn": config.required("dense_intermediate_size"),
        "mtp_layers": config.optional_or("num_nextn_predict_layers", "num_mtp_modules"),
        "head_norms": True,
    }


def _heads(config: ConfigValues) -> dict[str, Any]:
    return config.sizes(
        heads="num_attention_heads", kv_heads="num_key_value_heads", head_dim="head_dim"
    )


def _layers_and_full(config: ConfigValues) -> tuple[int, int]:
    """Layers, and how many of them have full attention where the others are linear."""
    layers = config.required("num_hidden_layers")
    kinds = config.kinds("layer_types", layers, (LINEAR, FULL))
    interval = config.optional_or("full_attention_interval", absent=4)
    return layers, layers // interval if kinds is None else kinds.count(FULL)


def kimi_hybrid(config: ConfigValues) -> Fields:
    """Kimi delta attention and latent attention (Kimi Linear, Kimi K3)."""
    linear = config.part("linear_attn_config")
    sizes = linear.sizes(
        heads="num_heads", head_dim="head_dim", conv_kernel="short_conv_kernel_size"
    )
    delta = KimiDeltaAttention(**sizes, full_gate=linear.flag("use_full_rank_gate", False))
    gate = config.flag("mla_use_output_gate", False)
    latent = LatentLayer(
        heads=config.required("num_attention_heads"), widths=latent_widths(config), output_gate=gate
    )
    counted: Counter[Mixer] = Counter(
        {delta: len(linear.numbers("kda_layers")), latent: len(linear.numbers("full_attn_layers"))}
    )
    return {
        **plain_first(config),
        "mixers": layers_of(counted),
        "expert_latent": config.optional_or("routed_expert_hidden_size"),
    }


BLOCKS = {
    "M": "mamba",
    "*": "attention",
    "E": "moe",
    "-": "mlp",
    "linear_attention": "mamba",
    "full_attention": "attention",
}
"""Letters of Nemotron-H's pattern of layers and words of transformers 5, by the words of the files
between them."""


def pattern_of(config: ConfigValues) -> list[str]:
    """Read the kind of each layer of a Nemotron-H model from its pattern of letters or its list of
    words.
    """
    pattern = config.config.get("hybrid_override_pattern")
    blocks = config.config.get("layers_block_type")
    words = (
        [BLOCKS.get(word, word) for word in pattern or blocks or ()]
        if isinstance(pattern or blocks, str | list)
        else []
    )
    if not words or any(word not in BLOCKS.values() for word in words):
        key = "layers_block_type" if pattern is None else "hybrid_override_pattern"
        config.fail(
            key,
            f"{shown(pattern or words)} does not say of each layer which of"
            f" {', '.join(BLOCKS.values())} it is",
        )
    return words


def state_space_hybrid(config: ConfigValues) -> Fields:
    """State-space layers, attention, and MLPs or experts, each a separate layer (Nemotron-H,
    Nemotron 3).
    """
    layers, words = config.required("num_hidden_layers"), pattern_of(config)
    if len(words) != layers:
        config.fail("num_hidden_layers", f"{layers} layers, but their pattern has {len(words)}")
    sizes = config.sizes(
        heads="mamba_num_heads",
        head_dim="mamba_head_dim",
        state="ssm_state_size",
        groups="n_groups",
    )
    state = Mamba2(**sizes, conv_kernel=config.required("conv_kernel"))
    attention = FullAttention(
        heads=config.required("num_attention_heads"),
        kv_heads=config.required("num_key_value_heads"),
        head_dim=config.required("head_dim", "attention_head_dim"),
    )
    experts, plain = words.count("moe"), words.count("mlp")
    return {
        "mixers": layers_of(
            Counter({attention: words.count("attention"), state: words.count("mamba")})
        ),
        "mlp_layers": experts + plain,
        "dense_layers": plain if experts else 0,
        "dense_ffn": config.required("intermediate_size") if experts and plain else 0,
        "shared_ffn": config.optional_or("moe_shared_expert_intermediate_size") if experts else 0,
        "expert_latent": config.optional_or("moe_latent_size") if experts else 0,
        "mtp_layers": config.optional_or("num_nextn_predict_layers"),
        "ffn": config.required("moe_intermediate_size" if experts else "intermediate_size"),
    }


def _wider(config: ConfigValues) -> ConfigValues:
    """What differs in layers with full attention: named as theirs, or in transformers 5 the same
    for each of them by its place.
    """
    listed = config.config.get("per_layer_config")
    if not isinstance(listed, dict) or not listed:
        named = {
            key: config.config.get(key) for key in ("global_head_dim", "num_global_key_value_heads")
        }
        return type(config)(config.where, named)
    parts = [part for part in listed.values() if isinstance(part, dict)]
    if len(parts) < len(listed) or any(part != parts[0] for part in parts):
        config.fail("per_layer_config", "its layers differ in several ways; one way is supported")
    return type(config)(f"{config.where}: per_layer_config", parts[0])


def gemma_4(config: ConfigValues) -> Fields:
    """Windows, global layers with their own heads, layers that share a cache, and experts next to
    an MLP (Gemma 4).
    """
    layers = config.required("num_hidden_layers")
    kinds = config.kinds("layer_types", layers, (SLIDING, FULL)) or config.fail(
        "layer_types", "missing"
    )
    heads, shared = _heads(config), config.optional_or("num_kv_shared_layers")
    wider = _wider(config)
    first_shared = layers - shared
    counted: Counter[Mixer] = Counter()
    for place, kind in enumerate(kinds):
        borrows = place >= first_shared
        if kind == SLIDING:
            counted[
                SlidingAttention(
                    **heads, window=config.required("sliding_window"), shared_cache=borrows
                )
            ] += 1
        else:
            wide = FullAttention(
                heads=heads["heads"],
                kv_heads=wider.optional_or(
                    "num_key_value_heads", "num_global_key_value_heads", absent=heads["kv_heads"]
                ),
                head_dim=wider.optional_or("head_dim", "global_head_dim", absent=heads["head_dim"]),
                keys_are_values=config.flag("attention_k_eq_v", False),
                shared_cache=borrows,
            )
            counted[wide] += 1
    experts = config.flag("enable_moe_block", False)
    ffn = alike(config, ("intermediate_size",)) or config.required("intermediate_size")
    fields: Fields = {
        "mixers": layers_of(counted),
        "head_norms": True,
        "further_embeddings": looked_up(config) + predictions(config),
        "ffn": config.required("moe_intermediate_size") if experts else ffn,
        "shared_ffn": ffn if experts else 0,
    }
    if shared and config.flag("use_double_wide_mlp", False):
        fields |= {"dense_layers": shared, "dense_ffn": 2 * ffn}
    return fields


ROUNDED = 32  # Multiple to which a mean width is rounded, so that GPUs share it evenly
# Multiple to which the width of an MLP is rounded up that a file gives in parts of the hidden size
# (Llama-Nemotron)
PUZZLE = 256


MOST_MULTIPLE = 1_000  # Multiples of the hidden size that no MLP is as wide as


def searched(config: ConfigValues) -> Fields:
    """Layers whose attention and MLP a search chose one by one (DeciLM, Llama-Nemotron): MLPs at
    their mean width.

    A matrix in place of attention, or of an MLP, counts as an MLP of a third of the hidden size,
    which has its weights.
    """
    blocks, heads, hidden = (
        config.config["block_configs"],
        heads_of(config),
        config.required("hidden_size"),
    )
    if (
        not isinstance(blocks, list)
        or not all(isinstance(block, dict) for block in blocks)
        or len(blocks) != layers_in(config)
    ):
        config.fail("block_configs", "is no list of an object for every layer")
    counted: Counter[Mixer] = Counter()
    widths = []
    for block in blocks:
        attention, mlp = (
            type(config)(f"{config.where}: block_configs", block).part(name)
            for name in ("attention", "ffn")
        )
        if attention.flag("replace_with_linear", False):
            widths.append(hidden / 3)
        elif not attention.flag("no_op", False):
            several = attention.required("n_heads_in_group")
            if heads["heads"] % several:
                config.fail(
                    "n_heads_in_group", f"{several} does not divide {heads['heads']} query heads"
                )
            counted[FullAttention(**{**heads, "kv_heads": heads["heads"] // several})] += 1
        if mlp.flag("replace_with_linear", False):
            widths.append(hidden / 3)
        elif not mlp.flag("no_op", False):
            widths.append(_searched_width(mlp, hidden))
    layers = max(min(len(widths), len(blocks)), 1)
    width = max(round(sum(widths) / layers / ROUNDED), 1) * ROUNDED
    return {"mixers": layers_of(counted), "mlp_layers": layers, "ffn": width}


def _searched_width(mlp: ConfigValues, hidden: int) -> int:
    """The width of an MLP that is given as such, or in multiples of two thirds of the hidden
    size.
    """
    share = mlp.config.get("ffn_mult")
    if (
        not isinstance(share, int | float)
        or isinstance(share, bool)
        or not 0 < share < MOST_MULTIPLE
    ):
        return mlp.required("intermediate_size")
    return -(-int(2 * share * hidden / 3) // PUZZLE) * PUZZLE


def windows_and_experts(config: ConfigValues) -> Fields:
    """Windows and full attention, a shared expert and plain first layers (Step-3.7, Inkling)."""
    layers, heads = config.required("num_hidden_layers"), _heads(config)
    kinds = config.kinds("layer_types", layers, (SLIDING, FULL)) or config.fail(
        "layer_types", "missing"
    )
    kv_heads = config.optional_or("swa_num_key_value_heads", absent=heads["kv_heads"])
    window = SlidingAttention(
        **{**heads, "kv_heads": kv_heads}, window=config.required("sliding_window")
    )
    counted: Counter[Mixer] = Counter(
        {FullAttention(**heads): kinds.count(FULL), window: kinds.count(SLIDING)}
    )
    shared = config.optional_or("share_expert_dim")
    return {
        **plain_first(config),
        "mixers": layers_of(counted),
        **({"shared_ffn": shared, "shared_experts": 0} if shared else {}),
    }


def mimo_v2(config: ConfigValues) -> Fields:
    """Windows with their own heads, and values narrower than keys (MiMo-V2)."""
    pattern, heads, value = (
        config.numbers("hybrid_layer_pattern"),
        _heads(config),
        config.optional_or("v_head_dim"),
    )
    sizes = config.sizes(
        heads="swa_num_attention_heads", kv_heads="swa_num_key_value_heads", head_dim="swa_head_dim"
    )
    window = SlidingAttention(
        **sizes,
        value_dim=config.optional_or("swa_v_head_dim"),
        window=config.required("sliding_window"),
    )
    whole = FullAttention(**heads, value_dim=value)
    return {
        "mixers": layers_of(
            Counter({whole: pattern.count(0), window: len(pattern) - pattern.count(0)})
        ),
        "dense_layers": config.numbers("moe_layer_freq").count(0),
        "dense_ffn": config.required("intermediate_size"),
    }


def llama_4(config: ConfigValues) -> Fields:
    """A shared expert, and experts in every layer or in every second one; attention within chunks
    counts as full (an upper bound).
    """
    layers, step = (
        config.required("num_hidden_layers"),
        config.optional_or("interleave_moe_layer_step", absent=1),
    )
    plain = layers - layers // step
    return {
        "shared_experts": 1,
        "dense_layers": plain,
        "dense_ffn": config.required("intermediate_size_mlp") if plain else 0,
    }


def minimax_2(config: ConfigValues) -> Fields:
    """Queries and keys normalised over all heads at once; a shared expert where the file gives it a
    width.
    """
    joint = config.config.get("qk_norm_type") == "per_layer"
    shared = config.optional_or("shared_intermediate_size")
    return {
        "joint_norms": joint,
        "shared_ffn": shared,
        "mtp_layers": config.optional_or("num_mtp_modules"),
    }


FAMILIES: dict[str, Callable[[ConfigValues], Fields]] = {
    family.__name__: family
    for family in (
        *(plain_latent, plain_first, indexed_latent, compressed, block_sparse, kimi_hybrid),
        *(state_space_hybrid, gemma_4, windows_and_experts, mimo_v2, llama_4, minimax_2),
    )
}
"""Every family, by name."""

SIGNS: dict[str, Callable[[ConfigValues], Fields]] = {
    "compress_ratios": compressed,
    "sparse_attention_config": block_sparse,
    "linear_attn_config": kimi_hybrid,
    "hybrid_override_pattern": state_space_hybrid,
    "indexer_types": indexed_latent,
    "global_head_dim": gemma_4,
    "num_kv_shared_layers": gemma_4,
    "intermediate_size_mlp": llama_4,
    "block_configs": searched,
}
"""Fields that only the files of one family have."""


def kinds_by_sign(config: ConfigValues) -> Fields:
    """The kinds of layers of any file: as the family that a field shows has them, else as the
    fields list them.
    """
    blocks = config.config.get("layers_block_type")
    family = next(
        (family for key, family in SIGNS.items() if config.config.get(key) is not None), None
    )
    if isinstance(blocks, list) and not {"moe", "mlp"}.isdisjoint(map(str, blocks)):
        family = state_space_hybrid
    fields = {} if family is None else family(config)
    return fields if "mixers" in fields else {**fields, "mixers": mixers(config)}

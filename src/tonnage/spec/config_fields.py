"""Reads from the fields of a ``config.json`` which kind each layer is and what its MLP is, whatever
its architecture is called.

The words and keys are those of the configuration classes of transformers 5.24.0
(``models/*/configuration_*.py``) and of published files (``tests/spec/published_configs.py``),
both read 2026-11-28. A file whose fields leave something open is refused with the field that would
decide.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tonnage.errors import InputError, UnsupportedModel
from tonnage.spec.attention_layers import (
    CompressedLayer,
    FullAttention,
    LatentAttention,
    LatentLayer,
    SlidingAttention,
    SparseLatentLayer,
)
from tonnage.spec.config_layouts import (
    ACTIVATIONS,
    FFN,
    GATED,
    HEADS,
    HIDDEN,
    KV_HEADS,
    LAYERS,
    ConfigValues,
    shown,
)
from tonnage.spec.layers import (
    GatedDeltaNet,
    KimiDeltaAttention,
    Layers,
    Mamba1,
    Mamba2,
    Mixer,
    ShortConvolution,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


Fields = dict[str, Any]  # Fields of ``Model``, by name

FULL, SLIDING, LINEAR, STATE, CONVOLUTION, PARALLEL, CROSS = (
    "full",
    "sliding",
    "linear",
    "state",
    "convolution",
    "parallel",
    "cross",
)
STRETCHES, CHOSEN_STRETCHES = "stretches", "chosen-stretches"

WORDS: dict[str, str] = {
    **dict.fromkeys(
        (
            "full_attention",
            "attention",
            "global_attention",
            "global",
            "full",
            "chunked_attention",
            "indexed_attention",
        ),
        FULL,
    ),
    **dict.fromkeys(
        ("qwen_sparse_attention", "deepseek_sparse_attention", "sparse_attention"), FULL
    ),
    **dict.fromkeys(
        ("sliding_attention", "sliding_window_attention", "local_attention", "local"), SLIDING
    ),
    "linear_attention": LINEAR,
    **dict.fromkeys(("mamba", "mamba2"), STATE),
    "conv": CONVOLUTION,
    "heavily_compressed_attention": STRETCHES,
    "compressed_sparse_attention": CHOSEN_STRETCHES,
}
"""What files call a layer; attention within chunks counts as full, an upper bound."""

EXPERTS = (
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
    "moe_num_experts",
    "num_routed_experts",
)
HEAD_WIDTHS = ("head_dim", "kv_channels", "attention_head_dim", "head_size")
USED = (
    *(
        "num_experts_per_tok",
        "num_experts_per_token",
        "moe_topk",
        "moe_top_k",
        "moe_k",
        "top_k_experts",
        "num_experts_per_topk",
    ),
    *("experts_per_token", "num_selected_experts", "moe_router_topk"),
)
EXPERT_WIDTHS = ("moe_intermediate_size", "expert_ffn_hidden_size", "moe_ffn_hidden_size")
SHARED_WIDTHS = (
    *(
        "shared_expert_intermediate_size",
        "moe_shared_expert_intermediate_size",
        "shared_intermediate_size",
        "share_expert_dim",
    ),
    *("moe_share_expert_intermediate_size",),
)
SHARED = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert")
PLAIN_FIRST = ("first_k_dense_replace", "moe_layer_start_index", "num_dense_layers")
NARROWED = ("moe_latent_size", "routed_expert_hidden_size", "moe_hidden_size")
NO_EXPERTS = ("is_moe", "use_moe", "enable_moe_block")
PLAIN_WIDTHS = ("dense_intermediate_size", "intermediate_size_mlp", *FFN)
PASSED_ON = ("zero_expert_num",)  # experts that pass a token on as it is
DRAFTS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "mtp_num_layers")


MOST_LAYERS = 10_000  # More than any model has; each of them is looked at


def layers_of(config: ConfigValues) -> int:
    """Read the number of layers."""
    layers = config.required(*LAYERS)
    if layers > MOST_LAYERS:
        config.fail(LAYERS[0], f"{layers:,} is not between 1 and {MOST_LAYERS:,}")
    return layers


def by_fields(config: ConfigValues) -> Fields:
    """Every field of ``Model`` that heads and MLPs decide."""
    return {
        **heads_of(config),
        **mlps(config),
        "mtp_layers": config.optional_or(*DRAFTS),
        "head_norms": any(
            config.config.get(key) is True
            for key in ("use_qk_norm", "qk_norm", "use_qk_layernorm", "qk_layernorm")
        ),
        "further_embeddings": looked_up(config) + predictions(config),
        "residual_streams": config.optional_or("hc_mult", "altup_num_inputs", absent=1),
    }


def looked_up(config: ConfigValues) -> int:
    """Weights of tables next to the embedding: inputs of every layer (Gemma 4), n-grams of some
    (Qwen4-Exp, DeepSeek V4.1).
    """
    layers, rows = layers_of(config), config.optional_or("vocab_size_per_layer_input")
    tables = layers * rows * config.optional_or("hidden_size_per_layer_input")
    for key, width in (
        ("ple_layer_ids", "ple_embed_dim"),
        ("engram_num_embeddings", "engram_head_dim"),
    ):
        listed = config.numbers(key) if config.config.get(key) else []
        rows = (
            len(listed) * config.optional_or("ngram_vocab_size_base")
            if key == "ple_layer_ids"
            else sum(listed)
        )
        tables += rows * config.optional_or(width)
    return tables


def predictions(config: ConfigValues) -> int:
    """Weights of Gemma 3n's small matrices: between its predictions (AltUp), LAuREL, inputs of
    every layer, unread keys and values.
    """
    streams, layers, hidden = (
        config.optional_or("altup_num_inputs"),
        layers_of(config),
        config.required(*HIDDEN),
    )
    if not streams:
        return 0
    narrow, rank = (
        config.required("hidden_size_per_layer_input"),
        config.optional_or("laurel_rank", absent=64),
    )
    heads = heads_of(config)
    unread: int = (
        config.optional_or("num_kv_shared_layers")
        * 2
        * hidden
        * heads["kv_heads"]
        * heads["head_dim"]
    )
    return 2 * (streams - 1) * hidden * hidden + layers * hidden * (3 * narrow + 2 * rank) + unread


# What mixes tokens.


PLACES: dict[str, tuple[str, str]] = {
    "attn_layer_indices": (FULL, STATE),
    "full_attn_idxs": (FULL, CONVOLUTION),
    "cross_attention_layers": (CROSS, FULL),
}
"""Fields that list some layers by their place: the kind of these, and of the others."""


def kinds_of_layers(config: ConfigValues) -> list[str]:
    """The kind of each layer, by the first field that says so; layers that are all alike are
    full.
    """
    layers, values = layers_of(config), config.config
    key = next(
        (key for key in ("layer_types", "layers_block_type") if isinstance(values.get(key), list)),
        None,
    )
    if key is not None:
        words = values[key][:layers]
        if len(words) < layers:
            config.fail(key, f"{len(words)} kinds of layers are fewer than the {layers} layers")
        if unknown := [word for word in words if not isinstance(word, str) or word not in WORDS]:
            config.fail(key, f"{shown(unknown[0])} is no kind of layer that is known here")
        return [WORDS[word] for word in words]
    if values.get("attn_type_list") is not None:
        return [FULL if kind else LINEAR for kind in config.numbers("attn_type_list")[:layers]]
    key = next((key for key in PLACES if values.get(key) is not None), None)
    if key is not None:
        places, (kind, rest) = set(config.numbers(key)), PLACES[key]
    elif values.get("attn_layer_period") is not None:
        places, kind, rest = (
            set(
                range(
                    config.optional_or("attn_layer_offset"),
                    layers,
                    config.required("attn_layer_period"),
                )
            ),
            FULL,
            STATE,
        )
    elif values.get("linear_num_value_heads") is not None:
        interval = config.optional_or("full_attention_interval", absent=4)
        places, kind, rest = set(range(interval - 1, layers, interval)), FULL, LINEAR
    elif values.get("mamba_d_ssm") is not None:
        places, kind, rest = set(), FULL, PARALLEL
    elif values.get("mamba_d_state") is not None:
        config.fail("layer_types", "missing, and some layers keep a state")
    else:
        return _by_window(config, layers)
    return [kind if place in places else rest for place in range(layers)]


def _by_window(config: ConfigValues, layers: int) -> list[str]:
    """Layers with a window among others, as a pattern or the layer from which they begin says; all
    full where all are alike.
    """
    pattern = next(
        (
            config.config[key]
            for key in ("sliding_window_pattern", "_sliding_window_pattern")
            if config.config.get(key)
        ),
        None,
    )
    if not config.optional_or("sliding_window") or config.config.get("use_sliding_window") is False:
        return [FULL] * layers
    if config.config.get("hybrid_layer_pattern") is not None:
        return [SLIDING if kind else FULL for kind in config.numbers("hybrid_layer_pattern")]
    if isinstance(pattern, str) and set(pattern) <= {"L", "G"}:
        return [
            SLIDING if pattern[place % len(pattern)] == "L" else FULL for place in range(layers)
        ]
    if pattern is not None:
        period = config.number("sliding_window_pattern", pattern)
        return [SLIDING if (place + 1) % period else FULL for place in range(layers)]
    first = config.optional_or("max_window_layers", absent=layers)
    return [SLIDING if place >= first else FULL for place in range(layers)]


def mixers(config: ConfigValues) -> tuple[Layers, ...]:
    """Layers by kind, those with a cache of the whole context first."""
    kinds = kinds_of_layers(config)
    if set(kinds) == {SLIDING}:
        kinds = [FULL] * len(kinds)  # an upper bound, which the notes say
    counted: Counter[Mixer] = Counter()
    for kind, count in sorted(Counter(kinds).items(), key=lambda item: list(MAKERS).index(item[0])):
        for mixer in MAKERS[kind](config):
            # a layer of LongCat attends twice
            counted += _apart(config, mixer, 2 * count if config.optional_or(*PASSED_ON) else count)
    return tuple(Layers(layers=count, mixer=mixer) for mixer, count in counted.items())


def heads_of(config: ConfigValues) -> dict[str, Any]:
    """Query heads, key/value heads and the width of a head; one key/value head per query head where
    no field says otherwise.
    """
    heads = config.required(*HEADS)
    count = config.optional(*KV_HEADS)
    if count is None:
        count = 1 if config.config.get("multi_query") is True else heads
    if heads % count:
        config.fail(KV_HEADS[0], f"{count} key/value heads do not divide {heads} query heads")
    hidden = config.required(*HIDDEN)
    width = config.optional(
        *(("v_head_dim",) if config.optional_or("kv_lora_rank") else ()), *HEAD_WIDTHS
    )
    if width is None and hidden % heads:
        config.fail(
            "head_dim",
            f"missing, and a hidden_size of {hidden} is not divisible by the {heads} heads",
        )
    return {"heads": heads, "kv_heads": count, "head_dim": width or hidden // heads}


def latent_widths(config: ConfigValues) -> LatentAttention:
    """The widths of latent attention."""
    sizes = config.sizes(kv_lora_rank="kv_lora_rank", qk_nope_head_dim="qk_nope_head_dim")
    zero = {name: config.optional_or(name) for name in ("q_lora_rank", "qk_rope_head_dim")}
    value = config.optional("v_head_dim")
    if value is None:
        # MiniCPM3 leaves it to the model's code
        value = config.required(*HIDDEN) // config.required(*HEADS)
    return LatentAttention(**sizes, **zero, v_head_dim=value)


def _full(config: ConfigValues) -> tuple[Mixer, ...]:
    if config.optional_or("kv_lora_rank"):
        heads, widths = config.required(*HEADS), latent_widths(config)
        gate = any(config.config.get(key) is True for key in ("mla_use_output_gate", "gated_mla"))
        if not config.optional_or("index_topk"):
            return (LatentLayer(heads=heads, widths=widths, output_gate=gate),)
        sizes = config.sizes(
            index_heads="index_n_heads", index_dim="index_head_dim", topk="index_topk"
        )
        return (
            SparseLatentLayer(
                heads=heads,
                widths=widths,
                **sizes,
                pooled=config.optional_or("index_kpool", absent=1),
                output_gate=gate,
            ),
        )
    return (
        FullAttention(
            **heads_of(config),
            value_dim=config.optional_or("v_head_dim"),
            output_gate=_gated_output(config),
        ),
    )


def _apart(config: ConfigValues, mixer: Mixer, count: int) -> Counter[Mixer]:
    """``count`` layers of a kind, grouped by what the file says of their caches: heads of each
    layer, or layers that share one (cla).
    """
    if not isinstance(mixer, FullAttention):
        return Counter({mixer: count})
    if config.config.get("num_key_value_heads_per_layer") is not None:
        listed = config.numbers("num_key_value_heads_per_layer")
        if len(listed) != count or any(
            not 0 < heads <= mixer.heads or mixer.heads % heads for heads in listed
        ):
            config.fail(
                "num_key_value_heads_per_layer",
                f"does not say of {count} layers how many heads share {mixer.heads} query heads",
            )
        return Counter(
            {replace(mixer, kv_heads=heads): layers for heads, layers in Counter(listed).items()}
        )
    sharing = (
        config.optional_or("cla_share_factor", absent=1) if config.flag("use_cla", False) else 1
    )
    keep = -(-count // sharing)
    return Counter({mixer: keep, replace(mixer, shared_cache=True): count - keep})


def _gated_output(config: ConfigValues) -> bool:
    """Whether queries have a gate: as a flag says, else where the file names the gate's kind or has
    gated delta nets, as Qwen's have.
    """
    named = any(
        config.config.get(key) is not None for key in ("output_gate_type", "linear_num_key_heads")
    )
    return config.flag("attn_output_gate", named)


def _stretches(config: ConfigValues, rate: str = "") -> tuple[Mixer, ...]:
    """A window, and with a ``rate`` entries that stand for so many tokens (DeepSeek V4 as
    transformers 5 writes it).
    """
    sizes = config.sizes(
        heads="num_attention_heads",
        head_dim="head_dim",
        rope_dim="qk_rope_head_dim",
        window="sliding_window",
    )
    sizes |= config.sizes(q_lora_rank="q_lora_rank", o_groups="o_groups", o_lora_rank="o_lora_rank")
    sizes["ratio"] = config.part("compress_rates").required(rate) if rate else 0
    if rate == "compressed_sparse_attention":
        sizes |= config.sizes(
            index_heads="index_n_heads", index_dim="index_head_dim", topk="index_topk"
        )
    return (CompressedLayer(**sizes),)


def _sliding(config: ConfigValues) -> tuple[Mixer, ...]:
    if config.optional_or("o_lora_rank"):
        return _stretches(config)
    sizes = heads_of(config)
    for name, keys in (("heads", HEADS), ("kv_heads", KV_HEADS), ("head_dim", ("head_dim",))):
        sizes[name] = config.optional_or(f"swa_{keys[0]}", absent=sizes[name])
    value = config.optional_or("swa_v_head_dim", "v_head_dim")
    return (
        SlidingAttention(
            **sizes,
            value_dim=value,
            window=config.required("sliding_window"),
            output_gate=_gated_output(config),
        ),
    )


def _cross(config: ConfigValues) -> tuple[Mixer, ...]:
    return (FullAttention(**heads_of(config), cross=True),)


def _linear(config: ConfigValues) -> tuple[Mixer, ...]:
    """Linear attention or states: transformers 5 has one word for all of them, and the widths say
    which.
    """
    if config.optional_or("mamba_d_state", "ssm_state_size"):
        return _state(config)
    if any(config.config.get(key) is not None for key in LIGHTNING):
        sizes = heads_of(config)
        width, heads = sizes["head_dim"], sizes["heads"]
        return (Mamba2(heads=heads, head_dim=width, state=width, groups=heads, conv_kernel=1),)
    if config.optional_or("linear_num_heads") and config.optional_or("linear_head_dim"):
        sizes = config.sizes(
            heads="linear_num_heads",
            head_dim="linear_head_dim",
            conv_kernel="linear_conv_kernel_dim",
        )
        return (KimiDeltaAttention(**sizes),)
    sizes = config.sizes(
        key_heads="linear_num_key_heads",
        value_heads="linear_num_value_heads",
        conv_kernel="linear_conv_kernel_dim",
    )
    return (
        GatedDeltaNet(
            **sizes,
            **config.sizes(key_dim="linear_key_head_dim", value_dim="linear_value_head_dim"),
        ),
    )


LIGHTNING = ("attn_type_list", "linear_attn_alpha_factor", "layernorm_linear_attention_alpha")
"""Fields of files whose linear attention is lightning attention (arXiv 2501.08313): it has the
projections and the state of a state-space layer with a group for each head."""


def _state(config: ConfigValues) -> tuple[Mixer, ...]:
    hidden, kernel = config.required(*HIDDEN), config.required("mamba_d_conv", "conv_kernel")
    state, heads = (
        config.required("mamba_d_state", "ssm_state_size"),
        config.optional("mamba_n_heads", "mamba_num_heads"),
    )
    expanded = config.optional_or(
        "mamba_d_ssm", absent=hidden * config.optional_or("mamba_expand", "expand", absent=2)
    )
    if heads is None:
        rank = config.config.get("mamba_dt_rank")
        narrow = -(-hidden // 16) if rank in (None, "auto") else config.required("mamba_dt_rank")
        return (Mamba1(channels=expanded, state=state, rank=narrow, conv_kernel=kernel),)
    width = config.config.get("mamba_d_head", config.config.get("mamba_head_dim"))
    dim = (
        expanded // heads
        if width in (None, "auto")
        else config.required("mamba_d_head", "mamba_head_dim")
    )
    groups = config.optional_or("mamba_n_groups", "n_groups", absent=1)
    return (Mamba2(heads=heads, head_dim=dim, state=state, groups=groups, conv_kernel=kernel),)


def _convolution(config: ConfigValues) -> tuple[Mixer, ...]:
    return (
        ShortConvolution(
            channels=config.required("conv_dim", *HIDDEN),
            conv_kernel=config.required("conv_L_cache"),
        ),
    )


MAKERS: dict[str, Callable[[ConfigValues], tuple[Mixer, ...]]] = {
    FULL: _full,
    PARALLEL: lambda config: (*_full(config), *_state(config)),
    STRETCHES: lambda config: _stretches(config, "heavily_compressed_attention"),
    CHOSEN_STRETCHES: lambda config: _stretches(config, "compressed_sparse_attention"),
    SLIDING: _sliding,
    CROSS: _cross,
    LINEAR: _linear,
    STATE: _state,
    CONVOLUTION: _convolution,
}


# MLPs and experts.


def mlps(config: ConfigValues) -> Fields:
    """Widths of MLPs, experts and shared experts, and which layers have experts."""
    experts, width = config.optional_or(*EXPERTS), alike(config, EXPERT_WIDTHS)
    if experts <= 1 or any(config.config.get(key) is False for key in NO_EXPERTS):
        unread = [
            key
            for key in config.config
            if "num" in key and "expert" in key and key not in (*EXPERTS, *USED, *SHARED)
        ]
        if experts == 0 and (
            key := next((key for key in unread if config.optional_or(key) > 1), None)
        ):
            config.fail(key, "counts experts in a way that is not known here")
        return {"ffn": _dense_width(config), "experts": 1, "experts_per_token": 1}
    used = alike(config, USED) or config.required(*USED)
    if used > experts:
        config.fail(
            next(key for key in USED if key in config.config),
            f"{used} is more than the {experts} experts",
        )
    layers = layers_of(config)
    plain = layers - len(layers_with_experts(config, layers))
    inner = width or config.required(*FFN)
    shared, count = config.optional_or(*SHARED_WIDTHS), alike(config, SHARED)
    # LongCat: some experts of a token are none, and a layer has two MLPs next to its experts
    if passed := config.optional_or(*PASSED_ON):
        used, shared = (
            max(round(used * experts / (experts + passed)), 1),
            2 * config.required("ffn_hidden_size"),
        )
    return {
        "ffn": inner,
        "experts": experts,
        "experts_per_token": used,
        "shared_ffn": shared,
        "shared_experts": 0 if shared else count,
        "expert_latent": config.optional_or(*NARROWED),
        "dense_layers": plain,
        "dense_ffn": config.required(*PLAIN_WIDTHS) if plain else 0,
    }


def alike(config: ConfigValues, keys: Sequence[str]) -> int:
    """The number under the first of ``keys``, which may be a list of one number for every layer; 0
    without one.
    """
    key = next((key for key in keys if config.config.get(key) is not None), None)
    if key is None or not isinstance(config.config[key], list):
        return config.optional_or(*keys)
    values = set(config.numbers(key))
    if len(values) > 1:
        config.fail(
            key,
            f"{shown(config.config[key])} differs by layer; one number for all of them is needed",
        )
    return values.pop()


def _dense_width(config: ConfigValues) -> int:
    """Width of the only MLP, 1 where a file lists them. Without experts Granite's is that of the
    shared one, and LFM2 narrows its own.
    """
    if config.config.get("block_configs") is not None:
        return 1
    if "num_local_experts" in config.config and config.optional_or("shared_intermediate_size"):
        return config.required("shared_intermediate_size")
    width = config.optional("block_ff_dim") or alike(config, FFN) or config.required(*FFN)
    if config.config.get("block_auto_adjust_ff_dim") is True:
        several = config.optional_or("block_multiple_of", absent=256)
        factor = config.config.get("block_ffn_dim_multiplier", 1.0)
        narrowed = int((factor if isinstance(factor, int | float) else 1.0) * (2 * width // 3))
        return -(-narrowed // several) * several
    return width


def layers_with_experts(config: ConfigValues, layers: int) -> set[int]:
    """The places of the layers that have experts: every rule of the file must hold for one."""
    values, places = config.config, set(range(layers))
    places -= set(range(config.optional_or(*PLAIN_FIRST)))
    if values.get("mlp_only_layers"):
        places -= set(config.numbers("mlp_only_layers"))
    if isinstance(kinds := values.get("mlp_layer_types"), list):
        places -= {place for place, kind in enumerate(kinds) if kind == "dense"}
    if isinstance(listed := values.get("moe_layers_enum"), str):
        places &= {place for place in places if str(place) in re.split(r"[\s,]+", listed)}
    if isinstance(values.get("moe_layer_freq"), list):
        return places & {
            place for place, freq in enumerate(config.numbers("moe_layer_freq")) if freq
        }
    if isinstance(values.get("moe_layers"), list) and values["moe_layers"]:
        return places & set(config.numbers("moe_layers"))
    if values.get("moe_layer_end_index") is not None:
        places &= set(range(config.optional_or("moe_layer_end_index") + 1))
    for key in ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval"):
        places = (
            {place for place in places if (place + 1) % config.optional_or(key, absent=1) == 0}
            if values.get(key)
            else places
        )
    period, offset = (
        config.optional_or("expert_layer_period", "moe_layer_freq", absent=1),
        config.optional_or("expert_layer_offset"),
    )
    return {place for place in places if place % period == offset}


# Encoders of images and sound.

ENCODERS = ("vision_config", "visual", "vit_config", "vision_tower_config", "audio_config")
GATED_ENCODERS = ("pixtral", "gemma4_vision")  # three matrices of an MLP whatever the activation


def encoders_of(config: ConfigValues) -> tuple[ConfigValues, ...]:
    """Read each of the encoders of a file, and how patches are merged."""
    around = {
        key: config.config[key] for key in ("spatial_merge_size", *SHUFFLED) if key in config.config
    }
    parts = [part for key in ENCODERS if isinstance(part := config.config.get(key), dict)]
    return tuple(type(config)(config.where, around | part) for part in parts)


SHUFFLED = ("downsample_ratio", "pixel_shuffle_ratio")  # sides of merged patches, as shares


def encoder_weights(part: ConfigValues, hidden: int) -> int:
    """Weights of an encoder's layers and of the two matrices that lead from merged patches to a
    decoder of width ``hidden``; 0 where the file leaves one of their sizes open.
    """
    values = part.config
    try:
        layers = part.optional(
            "num_hidden_layers", "depth", "encoder_layers", "num_layers", "vt_num_hidden_layers"
        )
        width = part.optional("embed_dim", "hidden_size", "d_model", "vt_hidden_size", "width")
        inner = part.optional("intermediate_size", "encoder_ffn_dim", "vt_intermediate_size")
        merge = part.optional_or("spatial_merge_size", absent=1)
        further = part.optional_or("num_global_layers")
    except InputError:
        return 0
    ratio = values.get("mlp_ratio")
    if inner is None and width and isinstance(ratio, int | float) and 0 < ratio < MOST_RATIO:
        inner = round(ratio * width)
    if not layers or not width or not inner or inner > MOST_RATIO * width:
        return 0
    if share := next((values[key] for key in SHUFFLED if isinstance(values.get(key), float)), 0):
        merge = round(1 / share) if 1 / MOST_RATIO < share < 1 else merge
    by_type = values.get("model_type") in GATED_ENCODERS
    gated = by_type or next(
        (values.get(key) in GATED for key in ACTIVATIONS if key in values), False
    )
    levels = values.get("deepstack_visual_indexes")
    mergers = 1 + (len(levels) if isinstance(levels, list) else 0)
    layer = width * (4 * width + (3 if gated else 2) * inner)
    patches = merge**2 * width
    leading = patches * (patches + hidden) if merge > 1 else hidden * (width + hidden)
    return (layers + further) * layer + mergers * leading


MOST_RATIO = 8  # times its width that no encoder's MLP is as wide, and patches that none merges


def _scalings(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Read the scaling of rotary positions: of all layers first, then by kind of layer."""
    listed: list[Any] = [config.get("rope_scaling"), config.get("rope_parameters")]
    whole = [part for part in listed if isinstance(part, dict)]
    return whole + [inner for part in whole for inner in part.values() if isinstance(inner, dict)]


def _stretch(scaling: Mapping[str, Any], *kinds: str) -> float:
    """The factor of a scaling of one of the kinds; 0 of another one."""
    factor = scaling.get("factor")
    if scaling.get("rope_type", scaling.get("type")) not in kinds:
        return 0.0
    return float(factor) if isinstance(factor, int | float) and 1 < factor < MOST_STRETCH else 0.0


def linear_stretch(config: Mapping[str, Any]) -> float:
    """The factor by which a file stretches its rotary positions linearly; 0 where it does not."""
    return next((size for part in _scalings(config) if (size := _stretch(part, "linear"))), 0.0)


def stretched_context(config: Mapping[str, Any], context: int) -> int:
    """The longest context in tokens as engines derive it (vLLM's ``_get_and_verify_max_len``): the
    original one times the factor of YaRN, or the file's times a linear or dynamic factor.

    A base for the positions of windows says that this is done already (Gemma 3).
    """
    scaling = next(iter(_scalings(config)), {})
    original = scaling.get("original_max_position_embeddings")
    if isinstance(original, int) and (factor := _stretch(scaling, "yarn")):
        return max(context, round(factor * original))
    two_bases = config.get("rope_local_base_freq") is not None
    factor = 0.0 if two_bases else _stretch(scaling, "linear", "dynamic")
    return round(context * max(factor, 1))


MOST_STRETCH = 1_000


OPEN: dict[str, str] = {
    "lru_width": "its recurrent layers are of no kind that is known here",
    "num_mem_blocks": "its layers share one block of attention",
    "mask_token_id": (
        "it fills in masks in place of writing from left to right, so that it keeps no KV cache"
    ),
    "ffn_config": "its dimensions are nested in attn_config and ffn_config",
    "ffn_multipliers": "its layers differ in their widths",
    "draft_vocab_size": "it is a drafter of speculative decoding, which runs next to its model",
    "total_ut_steps": "its layers are run several times",
    "mean_recurrence": "its layers are run several times",
    "num_layers_per_stack": "its layers are run several times",
    "n_recurrent_loops": "its layers are run several times",
    "per_layer_config": "its layers differ in their widths",
}
"""Fields whose meaning no kind of layer here has, and what they mean."""


def check_open(config: ConfigValues, name: str) -> None:
    """Raises UnsupportedModel: a field says that the layers are of no kind that is known here."""
    for key, reason in OPEN.items():
        value = config.config.get(key)
        if value not in (None, 0, False, [], {}) and not (
            isinstance(value, list) and set(map(str, value)) == {"1"}
        ):
            raise UnsupportedModel(
                f"{config.where}: {shown(name)} is not supported: {key}: {reason}"
            )

"""Where each supported architecture keeps its numbers in a ``config.json``, and why others are
refused.

Every layout says which key holds which number, and its library's default for an absent key. Source
of both: the configuration classes of ``transformers`` (``models/*/configuration_*.py``, read
2026-11-21 and 2026-11-22).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from tonnage.errors import InputError

Config = dict[str, Any]

# How files spell the numbers that every model has; the first is the usual one.

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HIDDEN = ("hidden_size", "n_embd", "d_model", "n_embed", "dim")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
KV_HEADS = (
    *("num_key_value_heads", "num_attention_groups", "multi_query_group_num"),
    *("num_kv_heads", "n_head_kv", "n_kv_heads", "kv_n_heads", "num_query_groups"),
)
FFN = ("intermediate_size", "ffn_hidden_size", "ffn_dim", "n_inner", "d_ff", "hidden_dim")
CONTEXT = (
    "max_position_embeddings",
    "max_seq_len",
    "seq_length",
    "n_positions",
    "n_ctx",
    "max_sequence_length",
    "model_max_length",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What the fields of a file leave open, and where an architecture keeps its numbers; several
    keys are spellings of the same number.
    """

    layers: tuple[str, ...] = LAYERS
    hidden: tuple[str, ...] = HIDDEN
    heads: tuple[str, ...] = HEADS
    # keys of the key/value heads; empty where every query head has its own
    kv_heads: tuple[str, ...] = ("num_key_value_heads",)
    # an absent or null number of key/value heads means one per query head
    kv_absent_means_all: bool = False
    head_dim: str = "head_dim"  # key of the head width; empty where it is always hidden / heads
    # the library's default is not hidden / heads, so the key must be there
    head_dim_required: bool = False
    ffn: tuple[str, ...] = FFN
    # width of the MLP in multiples of hidden where its key is absent or null; 0 where it must be
    # there
    ffn_times_hidden: int = 0
    # whether an MLP has three matrices; None where its activation says so
    gated: bool | None = True
    vocab: tuple[str, ...] = ("padded_vocab_size", "vocab_size")
    context: tuple[str, ...] = CONTEXT
    # longest context where the key is absent, in tokens; 0 where it must be there
    context_default: int = 0
    # whether embedding and head are one table where ``tie_word_embeddings`` is absent; None: they
    # are in a file that the library wrote, as it leaves out what its base class has, but not where
    # the text decoder's numbers are in their own object
    tied: bool | None = False
    # whether attention and MLP of a layer run side by side where ``parallel_key`` is absent or
    # empty
    parallel: bool = False
    parallel_key: str = ""  # key that says so; empty where the architecture decides
    experts: tuple[str, ...] = ()  # keys of the number of experts; empty for a dense model
    # multi-head latent attention, with shared experts and plain first layers as DeepSeek has them;
    # every key must be there
    latent: bool = False
    # the key that switches a sliding window on ("sliding_window" by its own presence); empty for
    # none
    window: str = ""
    # layers with a window and without alternate, one in so many without, where neither
    # ``layer_types`` nor ``sliding_window_pattern`` says so; 0 where all layers are alike
    pattern: int = 0
    head_norms: bool = False  # query and key heads are normalised
    # which function of ``config_kinds`` reads the kinds of its layers; empty for layers that are
    # all alike
    family: str = ""
    used: tuple[str, ...] = ("num_experts_per_tok",)  # keys of the experts that a token uses
    # there is an encoder of images as well, and the numbers of the text decoder may be in their own
    # object
    wrapped: bool = False
    # the MLP's width in the file is that of gate and product together (Qwen 1)
    halved: bool = False
    # object that holds further keys, which are read as if they were outside
    inside: tuple[str, ...] = ()
    experts_optional: bool = False  # without the key of the experts the model is dense
    # the library's values of keys that a file may lack, as pairs of key and value
    absent: tuple[tuple[str, Any], ...] = ()


# Mixtures of experts as most of them name their numbers
ROUTED = Layout(ffn=("moe_intermediate_size",), experts=("n_routed_experts",))

MINIMAX_3 = replace(
    ROUTED,
    head_dim_required=True,
    ffn=("intermediate_size",),
    experts=("num_local_experts",),
    family="block_sparse",
)
KIMI = replace(
    ROUTED,
    head_dim="v_head_dim",
    experts=("num_experts",),
    used=("num_experts_per_token", "num_experts_per_tok"),
    family="kimi_hybrid",
)
GEMMA_4 = Layout(
    head_dim_required=True,
    ffn=("intermediate_size",),
    tied=True,
    experts=("num_experts",),
    used=("top_k_experts",),
    experts_optional=True,
    family="gemma_4",
)
MPT = Layout(
    layers=("n_layers",),
    hidden=("d_model",),
    heads=("n_heads",),
    kv_heads=("kv_n_heads",),
    kv_absent_means_all=True,
    head_dim="",
    ffn=("ffn_hidden_size",),
    ffn_times_hidden=4,
    gated=False,
    context=("max_seq_len",),
    tied=True,
    inside=("attn_config",),
)
GPT_2 = Layout(
    layers=("n_layer",),
    hidden=("n_embd",),
    heads=("n_head",),
    kv_heads=(),
    head_dim="",
    ffn=("n_inner",),
    ffn_times_hidden=4,
    gated=False,
    context=("n_positions", "n_ctx"),
    tied=True,
)
BAICHUAN = Layout(
    kv_heads=(),
    head_dim="",
    context=("max_position_embeddings", "model_max_length"),
    context_default=4096,
)
CHATGLM = Layout(
    layers=("num_layers",),
    kv_heads=("multi_query_group_num",),
    head_dim="kv_channels",
    ffn=("ffn_hidden_size",),
    vocab=("padded_vocab_size", "vocab_size"),
    context=("seq_length",),
)

DEEPSEEK = Layout(
    head_dim="v_head_dim",
    head_dim_required=True,
    ffn=("moe_intermediate_size",),
    experts=("n_routed_experts",),
    latent=True,
)

# An architecture whose files say themselves what their layers are
BY_FIELDS = Layout(family="by_fields", gated=None)

WITH_IMAGES = replace(BY_FIELDS, wrapped=True)  # The same with an encoder of images

# Any architecture that is not in ``LAYOUTS``
OPEN_LAYOUT = replace(BY_FIELDS, wrapped=True, tied=None)

LAYOUTS: dict[str, Layout] = {
    "LlamaForCausalLM": Layout(kv_absent_means_all=True),
    "MistralForCausalLM": Layout(window="sliding_window"),
    "MixtralForCausalLM": Layout(experts=("num_local_experts",), window="sliding_window"),
    "Qwen2ForCausalLM": Layout(head_dim="", window="use_sliding_window"),
    "Qwen3ForCausalLM": Layout(
        head_dim_required=True, window="use_sliding_window", head_norms=True
    ),
    "Qwen3MoeForCausalLM": Layout(
        head_dim_required=True,
        ffn=("moe_intermediate_size",),
        experts=("num_experts", "num_local_experts"),
        window="use_sliding_window",
        head_norms=True,
    ),
    "FalconForCausalLM": Layout(
        layers=("num_hidden_layers", "n_layer"),
        heads=("num_attention_heads", "n_head"),
        kv_heads=("num_kv_heads", "n_head_kv"),
        kv_absent_means_all=True,
        head_dim="",
        ffn=("ffn_hidden_size",),
        ffn_times_hidden=4,
        gated=False,
        context_default=2048,
        tied=True,
        parallel=True,
        parallel_key="parallel_attn",
    ),
    "GPTJForCausalLM": replace(GPT_2, context=("n_positions",), tied=False, parallel=True),
    "GPTNeoXForCausalLM": Layout(
        kv_heads=(), head_dim="", gated=False, parallel=True, parallel_key="use_parallel_residual"
    ),
    "Phi3ForCausalLM": Layout(kv_absent_means_all=True, head_dim="", window="sliding_window"),
    "GemmaForCausalLM": Layout(head_dim_required=True, tied=True),
    "Gemma2ForCausalLM": Layout(head_dim_required=True, tied=True, window="sliding_window"),
    "Gemma3ForCausalLM": Layout(head_dim_required=True, tied=True, pattern=6, head_norms=True),
    "GptOssForCausalLM": Layout(head_dim_required=True, experts=("num_local_experts",), pattern=2),
    "DeepseekV2ForCausalLM": DEEPSEEK,
    "DeepseekV3ForCausalLM": DEEPSEEK,
    "Starcoder2ForCausalLM": Layout(head_dim="", gated=False, tied=True, window="sliding_window"),
    # mixtures of experts and mixed layers of 2025 and 2026
    "DeepseekV32ForCausalLM": replace(ROUTED, head_dim="v_head_dim", family="indexed_latent"),
    "DeepseekV4ForCausalLM": replace(ROUTED, ffn=("moe_intermediate_size",), family="compressed"),
    "GlmMoeDsaForCausalLM": replace(ROUTED, head_dim="v_head_dim", family="indexed_latent"),
    "Glm5NextForCausalLM": BY_FIELDS,
    "Glm4MoeForCausalLM": replace(ROUTED, family="plain_first", head_norms=True),
    "Glm4MoeLiteForCausalLM": replace(ROUTED, head_dim="v_head_dim", family="plain_latent"),
    "HYV3ForCausalLM": replace(
        ROUTED, experts=("num_experts", "n_routed_experts"), family="plain_first", head_norms=True
    ),
    "MiniMaxM2ForCausalLM": replace(
        ROUTED,
        ffn=("intermediate_size",),
        experts=("num_local_experts",),
        family="minimax_2",
        head_norms=True,
    ),
    "MiniMaxM3ForCausalLM": MINIMAX_3,
    "MiniMaxM3SparseForCausalLM": MINIMAX_3,
    "MiniMaxM3SparseForConditionalGeneration": replace(MINIMAX_3, wrapped=True),
    "MiMoForCausalLM": Layout(head_dim_required=True, window="use_sliding_window"),
    "MiMoV2FlashForCausalLM": replace(ROUTED, family="mimo_v2"),
    "Step3p7FlashForCausalLM": replace(
        ROUTED, experts=("num_experts",), family="windows_and_experts"
    ),
    "InklingForCausalLM": replace(
        ROUTED, experts=("num_experts", "n_routed_experts"), family="windows_and_experts"
    ),
    "KimiLinearForCausalLM": KIMI,
    "KimiK3ForConditionalGeneration": replace(KIMI, wrapped=True),
    **dict.fromkeys(
        ("KimiK25ForConditionalGeneration", "Kimi_K25ForConditionalGeneration"),
        replace(DEEPSEEK, wrapped=True),
    ),
    "Qwen2MoeForCausalLM": replace(BY_FIELDS, absent=(("use_sliding_window", False),)),
    "Qwen3NextForCausalLM": replace(BY_FIELDS, gated=True, head_norms=True),
    **dict.fromkeys(
        ("Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"),
        replace(WITH_IMAGES, head_norms=True),
    ),
    "Qwen3VLForConditionalGeneration": Layout(
        head_dim_required=True, head_norms=True, wrapped=True
    ),
    "Qwen3VLMoeForConditionalGeneration": Layout(
        head_dim_required=True,
        ffn=("moe_intermediate_size",),
        experts=("num_experts", "num_local_experts"),
        head_norms=True,
        wrapped=True,
    ),
    "Gemma4ForConditionalGeneration": replace(GEMMA_4, wrapped=True),
    "Gemma4ForCausalLM": GEMMA_4,
    "Llama4ForConditionalGeneration": Layout(
        head_dim_required=True, experts=("num_local_experts",), family="llama_4", wrapped=True
    ),
    "NemotronHForCausalLM": Layout(
        head_dim="",
        ffn=("moe_intermediate_size", "intermediate_size"),
        gated=False,
        experts=("n_routed_experts",),
        experts_optional=True,
        family="state_space_hybrid",
    ),
    # dense families before them, many of which TensorRT-LLM has run since 2023
    "BloomForCausalLM": Layout(
        layers=("n_layer", "num_hidden_layers"),
        hidden=("hidden_size", "n_embed"),
        heads=("n_head", "num_attention_heads"),
        kv_heads=(),
        head_dim="",
        ffn=("n_inner",),
        ffn_times_hidden=4,
        gated=False,
        context=("seq_length",),
        context_default=2048,
        tied=True,
    ),
    "OPTForCausalLM": Layout(kv_heads=(), head_dim="", ffn=("ffn_dim",), gated=False, tied=True),
    "MPTForCausalLM": MPT,
    "MptForCausalLM": MPT,
    "GPT2LMHeadModel": GPT_2,
    "GPTBigCodeForCausalLM": replace(GPT_2, kv_heads=("multi_query",)),
    "BaichuanForCausalLM": BAICHUAN,
    "BaiChuanForCausalLM": BAICHUAN,
    "ChatGLMModel": CHATGLM,
    "ChatGLMForConditionalGeneration": CHATGLM,
    "QWenLMHeadModel": Layout(
        kv_heads=(), head_dim="", context=("seq_length", "max_position_embeddings"), halved=True
    ),
    "PhiForCausalLM": Layout(
        kv_heads=("num_key_value_heads", "n_head_kv"),
        kv_absent_means_all=True,
        head_dim="",
        ffn_times_hidden=4,
        gated=False,
        parallel=True,
    ),
    "StableLmForCausalLM": Layout(kv_absent_means_all=True, head_dim=""),
    "InternLMForCausalLM": Layout(kv_heads=(), head_dim=""),
    "InternLM2ForCausalLM": Layout(kv_absent_means_all=True, head_dim=""),
    "InternLM3ForCausalLM": Layout(kv_absent_means_all=True),
    "CohereForCausalLM": Layout(kv_absent_means_all=True, head_dim="", tied=True, parallel=True),
    "OlmoForCausalLM": Layout(kv_absent_means_all=True, head_dim=""),
    "Olmo2ForCausalLM": Layout(kv_absent_means_all=True, head_dim="", head_norms=True),
    "GraniteForCausalLM": Layout(kv_absent_means_all=True, head_dim=""),
    "NemotronForCausalLM": Layout(kv_absent_means_all=True, gated=False),
    "SmolLM3ForCausalLM": Layout(kv_absent_means_all=True, head_dim="", tied=True),
    "ExaoneForCausalLM": Layout(
        layers=("num_layers", "num_hidden_layers"), kv_absent_means_all=True
    ),
    "Glm4ForCausalLM": Layout(head_dim_required=True),
    # architectures whose files say what their layers are, with what they leave open
    "Mistral3ForConditionalGeneration": WITH_IMAGES,
    "LlavaForConditionalGeneration": WITH_IMAGES,
    "LlavaNextForConditionalGeneration": WITH_IMAGES,
    "MllamaForConditionalGeneration": WITH_IMAGES,
    "Qwen2VLForConditionalGeneration": replace(
        WITH_IMAGES, absent=(("use_sliding_window", False),)
    ),
    "Qwen2_5_VLForConditionalGeneration": replace(
        WITH_IMAGES, absent=(("use_sliding_window", False),)
    ),
    "Gemma3ForConditionalGeneration": replace(
        WITH_IMAGES,
        gated=True,
        tied=True,
        head_norms=True,
        absent=(("_sliding_window_pattern", 6),),
    ),
    "Cohere2ForCausalLM": replace(
        BY_FIELDS, tied=True, parallel=True, absent=(("sliding_window_pattern", 4),)
    ),
    "Exaone4ForCausalLM": replace(BY_FIELDS, head_norms=True),
    "SeedOssForCausalLM": BY_FIELDS,
    "PhimoeForCausalLM": BY_FIELDS,
    "PhiMoEForCausalLM": BY_FIELDS,
    "OlmoeForCausalLM": replace(BY_FIELDS, head_norms=True),
    "MiniCPM3ForCausalLM": replace(BY_FIELDS, tied=True),
    "GraniteMoeForCausalLM": BY_FIELDS,
    "GraniteMoeSharedForCausalLM": BY_FIELDS,
    "GraniteMoeHybridForCausalLM": BY_FIELDS,
    "BambaForCausalLM": BY_FIELDS,
    "FalconH1ForCausalLM": BY_FIELDS,
    "JambaForCausalLM": replace(
        BY_FIELDS,
        absent=(
            *(
                ("attn_layer_period", 8),
                ("attn_layer_offset", 4),
                ("expert_layer_period", 2),
                ("expert_layer_offset", 1),
            ),
        ),
    ),
    "Lfm2ForCausalLM": replace(BY_FIELDS, gated=True, tied=True, head_norms=True),
    "Ernie4_5ForCausalLM": replace(BY_FIELDS, tied=True),
    "Ernie4_5_MoeForCausalLM": replace(BY_FIELDS, tied=True),
    "Dots1ForCausalLM": replace(BY_FIELDS, head_norms=True),
    **dict.fromkeys(
        ("ArceeForCausalLM", "ApertusForCausalLM", "PersimmonForCausalLM"),
        replace(BY_FIELDS, gated=False),
    ),
    "BitNetForCausalLM": replace(BY_FIELDS, gated=True),
    "MistralLarge3ForCausalLM": BY_FIELDS,
    **dict.fromkeys(
        (
            "LongcatFlashForCausalLM",
            "MiniMaxText01ForCausalLM",
            "MiniMaxM1ForCausalLM",
            "DeciLMForCausalLM",
        ),
        BY_FIELDS,
    ),
    "MiniMaxForCausalLM": replace(BY_FIELDS, absent=(("linear_attn_alpha_factor", 1),)),
    "Gemma3nForCausalLM": replace(BY_FIELDS, gated=True, tied=True),
    "Gemma3nForConditionalGeneration": replace(WITH_IMAGES, gated=True, tied=True),
    "HYV4ForCausalLM": BY_FIELDS,
    "DbrxForCausalLM": replace(BY_FIELDS, gated=True, inside=("attn_config", "ffn_config")),
    "PaliGemmaForConditionalGeneration": replace(WITH_IMAGES, gated=True, tied=True),
    "MuseGlimmerForCausalLM": replace(BY_FIELDS, absent=(("attn_output_gate", True),)),
    "MuseGlimmerForConditionalGeneration": replace(
        WITH_IMAGES, absent=(("attn_output_gate", True),)
    ),
    "MuseSparkForCausalLM": replace(BY_FIELDS, absent=(("attn_output_gate", True),)),
    "MuseSparkForConditionalGeneration": replace(WITH_IMAGES, absent=(("attn_output_gate", True),)),
    "GPTNeoForCausalLM": replace(
        GPT_2, layers=LAYERS, hidden=HIDDEN, heads=HEADS, ffn=FFN, context=CONTEXT
    ),
    "CodeGenForCausalLM": replace(GPT_2, context=("n_positions",), tied=False, parallel=True),
}

LAYER_TYPES = ("sliding_attention", "full_attention")

# Objects that hold the numbers of a text decoder, and the library's values of what its files leave
# out, by type of decoder (``configuration_*.py`` of transformers 5.24.0, read 2026-11-28).

TEXT_PARTS = (
    "text_config",
    "llm_config",
    "language_config",
    "thinker_config",
    "language_model_config",
)
_SIZES = (
    *(
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
    ),
    *("vocab_size", "max_position_embeddings", "hidden_act", "tie_word_embeddings"),
)
_DEFAULTS: dict[str, tuple[int | str | bool | None, ...]] = {
    "llama": (4096, 11008, 32, 32, None, None, 32000, 2048, "silu", False),
    "mistral": (4096, 14336, 32, 32, 8, None, 32000, 131072, "silu", False),
    "mixtral": (4096, 14336, 32, 32, 8, None, 32000, 131072, "silu", False),
    "gemma": (3072, 24576, 28, 16, 16, 256, 256000, 8192, None, True),
    "gemma2": (2304, 9216, 26, 8, 4, 256, 256000, 8192, None, True),
    "gemma3_text": (2304, 9216, 26, 8, 4, 256, 262208, 131072, None, True),
    "qwen2": (4096, 22016, 32, 32, 32, None, 151936, 32768, "silu", False),
    "qwen2_vl_text": (8192, 29568, 80, 64, 8, None, 152064, 32768, "silu", False),
    "qwen2_5_vl_text": (8192, 29568, 80, 64, 8, None, 152064, 32768, "silu", False),
    "qwen3": (4096, 22016, 32, 32, 32, 128, 151936, 32768, "silu", False),
    "phi": (2048, 8192, 24, 32, None, None, 51200, 2048, "gelu_new", False),
    "phi3": (3072, 8192, 32, 32, None, None, 32064, 4096, "silu", False),
    "glm4v_text": (4096, 13696, 40, 32, 2, None, 151552, 32768, "silu", False),
    "cohere2": (8192, 22528, 40, 64, None, 128, 256000, 8192, "silu", True),
    "granite": (4096, 11008, 32, 32, None, None, 32000, 2048, "silu", False),
}
TEXT_DEFAULTS: dict[str, Config] = {
    kind: {key: value for key, value in zip(_SIZES, values, strict=True) if value is not None}
    for kind, values in _DEFAULTS.items()
}

# Activations, and whether an MLP with them has three matrices.

ACTIVATIONS = (
    "hidden_act",
    "hidden_activation",
    "mlp_hidden_act",
    "activation_function",
    "activation",
)
GATED = ("silu", "swish", "swiglu", "silu_and_mul", "swigluoai", "situ")
NOT_GATED = ("relu2", "relu_squared", "squared_relu", "relu", "xielu", "gelu_new")
# A key that only files of gated MLPs have (Gemma and its relatives)
ALWAYS_GATED = ("hidden_activation",)

# What shows that a file with an unknown name is of an encoder.

ENCODER_KEYS = (
    "type_vocab_size",
    "encoder_layers",
    "num_encoder_layers",
    "encoder_config",
    "decoder_layers",
)
ENCODER_NAMES = (
    "ForMaskedLM",
    "Classification",
    "QuestionAnswering",
    "ForPreTraining",
    "BertModel",
    "EncoderModel",
)

_STATE = "state-space layers keep no KV cache"
ENCODER = "it has an encoder; only decoders are supported"
ONE_PASS = (
    "it is a decoder that answers in one pass; name its language model, {decoder}, in architectures"
    " and size it with outputs of 1 token"
)
VISION = "it takes images; only text decoders are supported"

REFUSED: dict[str, str] = {
    **{f"{name}ForCausalLM": _STATE for name in ("Mamba", "Mamba2", "FalconMamba", "Rwkv")},
    **{f"{name}ForConditionalGeneration": ENCODER for name in ("T5", "Bart", "Whisper")},
    **dict.fromkeys(("BertModel", "BertForMaskedLM", "RobertaForMaskedLM"), ENCODER),
    "JetMoeForCausalLM": "its attention has experts too",
}


# Checked numbers and switches out of one ``config.json``; a wrong one is reported with the file and
# the key.


MAX_VALUE = 100_000_000  # no dimension of a published model comes near


class ConfigValues:
    """The values of one file, each by its key.

    Attributes:
        where: the file, for messages.
        config: what it holds.
    """

    def __init__(self, where: str, config: Config) -> None:
        self.where = where
        self.config = config

    def fail(self, key: str, problem: str) -> NoReturn:
        """Refuse the file for what is at a key. Raises InputError: always."""
        raise InputError(f"{self.where}: {key}: {problem}")

    def optional(self, *keys: str) -> int | None:
        """The number under the first of ``keys`` that is there and not null."""
        return next(
            (
                self.number(key, value)
                for key in keys
                if (value := self.config.get(key)) is not None
            ),
            None,
        )

    def required(self, *keys: str) -> int:
        """Read a value, and refuse a file without it."""
        value = self.optional(*keys)
        if value is None:
            self.fail(keys[0], "missing")
        return value

    def sizes(self, **keys: str) -> dict[str, Any]:
        """Required numbers, each by the name that it is to have and its key."""
        return {name: self.required(key) for name, key in keys.items()}

    def number(self, key: str, value: object) -> int:
        """A dimension: a whole number of 1 or more."""
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(key, f"{shown(value)} is not a whole number")
        if not 0 < value <= MAX_VALUE:
            self.fail(key, f"{shown(value)} is not between 1 and {MAX_VALUE:,}")
        return value

    def flag(self, key: str, absent: bool) -> bool:
        """True or false; ``absent`` where the file says neither."""
        value = self.config.get(key)
        if value is None:
            return absent
        if not isinstance(value, bool):
            self.fail(key, f"{shown(value)} is neither true nor false")
        return value

    def whole(self, key: str) -> int:
        """A number that may be 0 or null, which is the same, but not absent: the library's defaults
        are no file's numbers.
        """
        if key not in self.config:
            self.fail(key, "missing")
        return self.optional_or(key)

    def optional_or(self, *keys: str, absent: int = 0) -> int:
        """The number under the first of ``keys`` that is there and not null, which may be 0;
        ``absent`` without one.
        """
        key = next((key for key in keys if self.config.get(key) is not None), None)
        if key is None:
            return absent
        value = self.config[key]
        return 0 if value == 0 and value is not False else self.number(key, value)

    def numbers(self, key: str) -> list[int]:
        """A list of whole numbers from 0."""
        value = self.config.get(key)
        if (
            not isinstance(value, list)
            or not value
            or any(
                isinstance(number, bool) or not isinstance(number, int) or number < 0
                for number in value
            )
        ):
            self.fail(key, f"{shown(value)} is not a list of whole numbers")
        return value

    def kinds(self, key: str, count: int, words: tuple[str, ...]) -> list[str] | None:
        """A list with one of the ``words`` words for each of ``count`` layers; None where the key
        is absent.
        """
        value = self.config.get(key)
        if value is None:
            return None
        if (
            not isinstance(value, list)
            or len(value) != count
            or any(kind not in words for kind in value)
        ):
            self.fail(key, f"{shown(value)} is not a list of {count} times {' or '.join(words)}")
        return value

    def part(self, key: str) -> ConfigValues:
        """The object at a key, with its own values."""
        value = self.config.get(key)
        if not isinstance(value, dict):
            self.fail(key, f"{shown(value)} is not an object")
        return ConfigValues(f"{self.where}: {key}", value)


def shown(value: object) -> str:
    """A value for a message: as in the file, cut short."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**18:
        return "a number of more than 18 digits"
    try:
        text = json.dumps(value, ensure_ascii=True)
    except RecursionError:
        return "a value nested too deeply"
    return text if len(text) <= 60 else f"{text[:57]}..."

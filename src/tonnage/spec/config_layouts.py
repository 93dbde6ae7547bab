"""Where each supported architecture keeps its numbers in a ``config.json``, and why others are refused.

Every layout says which key holds which number, and which of its own library's defaults stands for an absent key. Source of both:
the configuration classes of ``transformers`` (``models/*/configuration_*.py``, read 2026-11-21).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where one architecture keeps its numbers; several keys are spellings of the same number.

    Attributes:
        kv_heads: keys of the key/value heads; empty where every query head has its own.
        kv_absent_means_all: an absent or null number of key/value heads means one per query head.
        head_dim: key of the head width; empty where it is always hidden / heads.
        head_dim_required: the library's default is not hidden / heads, so the key must be there.
        ffn_times_hidden: width of the MLP in multiples of hidden where its key is absent or null; 0 where it must be there.
        context_default: longest context where the key is absent, in tokens; 0 where it must be there.
        tied: whether embedding and head are one table where ``tie_word_embeddings`` is absent.
        parallel: whether attention and MLP of a layer run side by side where ``parallel_key`` is absent or empty.
        parallel_key: key that says so; empty where the architecture decides.
        experts: keys of the number of experts; empty for a dense model.
        latent: multi-head latent attention, with shared experts and plain first layers as DeepSeek has them; every key must be there.
        window: the key that switches a sliding window on ("sliding_window" by its own presence); empty for none.
        pattern: layers with a window and without alternate, one in so many without, where neither ``layer_types`` nor
            ``sliding_window_pattern`` says so; 0 where all layers are alike.
        head_norms: query and key heads are normalised.
    """

    layers: tuple[str, ...] = ("num_hidden_layers",)
    hidden: tuple[str, ...] = ("hidden_size",)
    heads: tuple[str, ...] = ("num_attention_heads",)
    kv_heads: tuple[str, ...] = ("num_key_value_heads",)
    kv_absent_means_all: bool = False
    head_dim: str = "head_dim"
    head_dim_required: bool = False
    ffn: tuple[str, ...] = ("intermediate_size",)
    ffn_times_hidden: int = 0
    gated: bool = True
    vocab: tuple[str, ...] = ("vocab_size",)
    context: tuple[str, ...] = ("max_position_embeddings",)
    context_default: int = 0
    tied: bool = False
    parallel: bool = False
    parallel_key: str = ""
    experts: tuple[str, ...] = ()
    latent: bool = False
    window: str = ""
    pattern: int = 0
    head_norms: bool = False


DEEPSEEK = Layout(head_dim="v_head_dim", head_dim_required=True, ffn=("moe_intermediate_size",), experts=("n_routed_experts",), latent=True)

LAYOUTS: dict[str, Layout] = {
    "LlamaForCausalLM": Layout(kv_absent_means_all=True),
    "MistralForCausalLM": Layout(window="sliding_window"),
    "MixtralForCausalLM": Layout(experts=("num_local_experts",), window="sliding_window"),
    "Qwen2ForCausalLM": Layout(head_dim="", window="use_sliding_window"),
    "Qwen3ForCausalLM": Layout(head_dim_required=True, window="use_sliding_window", head_norms=True),
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
    "GPTJForCausalLM": Layout(
        layers=("n_layer",),
        hidden=("n_embd",),
        heads=("n_head",),
        kv_heads=(),
        head_dim="",
        ffn=("n_inner",),
        ffn_times_hidden=4,
        gated=False,
        context=("n_positions",),
        parallel=True,
    ),
    "GPTNeoXForCausalLM": Layout(kv_heads=(), head_dim="", gated=False, parallel=True, parallel_key="use_parallel_residual"),
    "Phi3ForCausalLM": Layout(kv_absent_means_all=True, head_dim="", window="sliding_window"),
    "GemmaForCausalLM": Layout(head_dim_required=True, tied=True),
    "Gemma2ForCausalLM": Layout(head_dim_required=True, tied=True, window="sliding_window"),
    "Gemma3ForCausalLM": Layout(head_dim_required=True, tied=True, pattern=6, head_norms=True),
    "GptOssForCausalLM": Layout(head_dim_required=True, experts=("num_local_experts",), pattern=2),
    "DeepseekV2ForCausalLM": DEEPSEEK,
    "DeepseekV3ForCausalLM": DEEPSEEK,
    "Starcoder2ForCausalLM": Layout(head_dim="", gated=False, tied=True, window="sliding_window"),
}

LAYER_TYPES = ("sliding_attention", "full_attention")

_SPARSE = "its attention picks the tokens that it reads"
_STATE = "state-space layers keep no KV cache"
_HYBRID = "it mixes attention with state-space or linear layers"
ENCODER = "it has an encoder; only decoders are supported"
VISION = "it takes images; only text decoders are supported"

REFUSED: dict[str, str] = {
    "DeepseekV32ForCausalLM": _SPARSE,
    "MambaForCausalLM": _STATE,
    "Mamba2ForCausalLM": _STATE,
    "FalconMambaForCausalLM": _STATE,
    "RwkvForCausalLM": _STATE,
    "JambaForCausalLM": _HYBRID,
    "BambaForCausalLM": _HYBRID,
    "Zamba2ForCausalLM": _HYBRID,
    "NemotronHForCausalLM": _HYBRID,
    "FalconH1ForCausalLM": _HYBRID,
    "Qwen3NextForCausalLM": _HYBRID,
    "RecurrentGemmaForCausalLM": _HYBRID,
    "T5ForConditionalGeneration": ENCODER,
    "BartForConditionalGeneration": ENCODER,
    "WhisperForConditionalGeneration": ENCODER,
    "BertModel": ENCODER,
    "BertForMaskedLM": ENCODER,
    "RobertaForMaskedLM": ENCODER,
    "LlavaForConditionalGeneration": VISION,
    "MllamaForConditionalGeneration": VISION,
    "Llama4ForConditionalGeneration": VISION,
    "Qwen2VLForConditionalGeneration": VISION,
    "Qwen2_5_VLForConditionalGeneration": VISION,
    "Gemma3ForConditionalGeneration": VISION,
    "Qwen2MoeForCausalLM": "a shared expert stands beside the routed ones",
    "DbrxForCausalLM": "its dimensions are nested in attn_config and ffn_config",
}

"""Reads a Hugging Face ``config.json`` as a ``Model``; what it cannot count exactly it refuses by name.

Every supported architecture has one explicit layout: which key holds which number, and which of
its own library's defaults stand for an absent key. Source of both: the configuration classes of
``transformers`` (``models/*/configuration_*.py``, read 2026-11-21). Biases and norms are not counted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypedDict

from tonnage.errors import InputError, UnsupportedModel
from tonnage.spec.model import LatentAttention, Model

MAX_FILE_BYTES = 4_000_000
MAX_VALUE = 100_000_000  # no dimension of a published model comes near

Config = dict[str, object]


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
_ENCODER = "it has an encoder; only decoders are priced"
_VISION = "it takes images; only text decoders are priced"

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
    "T5ForConditionalGeneration": _ENCODER,
    "BartForConditionalGeneration": _ENCODER,
    "WhisperForConditionalGeneration": _ENCODER,
    "BertModel": _ENCODER,
    "BertForMaskedLM": _ENCODER,
    "RobertaForMaskedLM": _ENCODER,
    "LlavaForConditionalGeneration": _VISION,
    "MllamaForConditionalGeneration": _VISION,
    "Llama4ForConditionalGeneration": _VISION,
    "Qwen2VLForConditionalGeneration": _VISION,
    "Qwen2_5_VLForConditionalGeneration": _VISION,
    "Gemma3ForConditionalGeneration": _VISION,
    "Qwen2MoeForCausalLM": "a shared expert stands beside the routed ones",
    "DbrxForCausalLM": "its dimensions are nested in attn_config and ffn_config",
}


def read_config(path: str | Path) -> Model:
    """The model that a ``config.json`` describes; ``path`` is the file or the folder that holds it.

    Raises:
        UnsupportedModel: an architecture that is not priced, by name and with the reason.
        InputError: no such file, not a JSON object, or a value that is absent or impossible.
    """
    file = _file_of(Path(path))
    config = _load(file)
    return _Reader(str(file), config).model(_name_of(file))


def _file_of(path: Path) -> Path:
    try:
        if path.is_dir():
            if not (path / "config.json").is_file():
                raise InputError(f"{path}: the folder holds no config.json")
            return path / "config.json"
        if not path.is_file():
            raise InputError(f"{path}: no such file; give a config.json, its folder or a model of `tonnage catalog`")
    except (OSError, ValueError) as error:
        raise InputError(f"{path!s:.200}: cannot be opened: {_one_line(error)}") from None
    return path


def _load(file: Path) -> Config:
    try:
        size = file.stat().st_size
        if size > MAX_FILE_BYTES:
            raise InputError(f"{file}: {size:,} bytes are too many for a config.json; weights live in other files")
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{file}: not a text file in UTF-8, so not a config.json") from None
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {_one_line(error)}") from None
    try:
        loaded = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file}: not JSON: {_one_line(error)}") from None
    if not isinstance(loaded, dict):
        raise InputError(f"{file}: holds a {type(loaded).__name__}, but a config.json is one JSON object")
    return loaded


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]


def _name_of(file: Path) -> str:
    stem = file.resolve().parent.name if file.name == "config.json" else file.stem
    return "-".join(stem.lower().split()) or "model"


class WindowParts(TypedDict, total=False):
    """Fields of ``Model`` that only a layout with and without windows fills."""

    window: int
    windowed_layers: int


class LatentParts(TypedDict, total=False):
    """Fields of ``Model`` that only a layout with latent attention fills."""

    shared_experts: int
    dense_layers: int
    dense_ffn: int
    latent: LatentAttention


class _Reader:
    """Takes numbers out of one config and says where a wrong one stands."""

    def __init__(self, where: str, config: Config) -> None:
        self.where = where
        self.config = config

    def fail(self, key: str, problem: str) -> NoReturn:
        raise InputError(f"{self.where}: {key}: {problem}")

    def model(self, name: str) -> Model:
        architecture = self.architecture()
        layout = LAYOUTS[architecture]
        hidden, heads = self.required(layout.hidden), self.required(layout.heads)
        experts, used = self.experts(layout)
        return Model(
            name=name,
            layers=self.required(layout.layers),
            hidden=hidden,
            heads=heads,
            kv_heads=self.kv_heads(architecture, layout, heads),
            head_dim=self.head_dim(layout, hidden, heads),
            ffn=self.ffn(layout, hidden),
            gated=layout.gated,
            vocab=self.required(layout.vocab),
            max_context=self.optional(layout.context) or layout.context_default or self.required(layout.context),
            experts=experts,
            experts_per_token=used,
            tied_embeddings=self.flag("tie_word_embeddings", layout.tied),
            parallel_block=self.flag(layout.parallel_key, layout.parallel) if layout.parallel_key else layout.parallel,
            head_norms=layout.head_norms,
            block_fp8=self.scales_blocks(),
            source=f"{self.where} ({architecture})",
            notes=" ".join(self.notes(layout)),
            **(self.latent_parts() if layout.latent else LatentParts()),
            **self.windows(layout),
        )

    def windows(self, layout: Layout) -> WindowParts:
        """The window of the layers that have one, and their number, where others do not."""
        window = self.optional(("sliding_window",)) if layout.pattern else None
        if window is None:
            return WindowParts()
        layers, kinds = self.required(layout.layers), self.config.get("layer_types")
        if kinds is None:
            every = self.optional(("sliding_window_pattern", "_sliding_window_pattern")) or layout.pattern
            return WindowParts(window=window, windowed_layers=layers - layers // every)
        if not isinstance(kinds, list) or len(kinds) != layers or any(kind not in LAYER_TYPES for kind in kinds):
            self.fail("layer_types", f"{_shown(kinds)} is not a list of {layers} times {' or '.join(LAYER_TYPES)}")
        return WindowParts(window=window, windowed_layers=kinds.count(LAYER_TYPES[0]))

    def latent_parts(self) -> LatentParts:
        """Latent attention, shared experts and plain first layers."""
        if self.whole("moe_layer_freq") != 1:
            raise UnsupportedModel(f"{self.where}: moe_layer_freq: experts in every layer after the first plain ones only are supported")
        plain, layers = self.whole("first_k_dense_replace"), self.required(("num_hidden_layers",))
        if plain >= layers:
            self.fail("first_k_dense_replace", f"{plain} plain layers leave none of the {layers} for experts")
        return LatentParts(
            shared_experts=self.whole("n_shared_experts"),
            dense_layers=plain,
            dense_ffn=self.required(("intermediate_size",)),
            latent=LatentAttention(
                q_lora_rank=self.whole("q_lora_rank"),
                kv_lora_rank=self.required(("kv_lora_rank",)),
                qk_nope_head_dim=self.required(("qk_nope_head_dim",)),
                qk_rope_head_dim=self.required(("qk_rope_head_dim",)),
                v_head_dim=self.required(("v_head_dim",)),
            ),
        )

    def whole(self, key: str) -> int:
        """A number that may be 0 or null, which is the same, but not absent: the library's defaults are no file's numbers."""
        if key not in self.config:
            self.fail(key, "missing")
        value = self.config[key]
        return 0 if value is None or (value == 0 and value is not False) else self.number(key, value)

    def architecture(self) -> str:
        """The architecture's name, if it is one that is priced."""
        listed = self.config.get("architectures")
        if not isinstance(listed, list) or len(listed) != 1 or not isinstance(listed[0], str):
            self.fail("architectures", f'{_shown(listed)} is not a list of one name such as ["LlamaForCausalLM"]')
        name = str(listed[0])
        if name not in LAYOUTS:
            reason = REFUSED.get(name, "its layout is not known here")
            raise UnsupportedModel(f"{self.where}: {_shown(name)} is not supported: {reason}; supported: {', '.join(LAYOUTS)}")
        if self.config.get("is_encoder_decoder") is True:
            raise UnsupportedModel(f"{self.where}: {name} is not supported with is_encoder_decoder: {_ENCODER}")
        for key in ("vision_config", "audio_config", "text_config"):
            if self.config.get(key) is not None:
                raise UnsupportedModel(f"{self.where}: {name} is not supported with {key}: {_VISION}")
        return name

    def optional(self, keys: tuple[str, ...]) -> int | None:
        """The number under the first of ``keys`` that is there and not null."""
        for key in keys:
            value = self.config.get(key)
            if value is not None:
                return self.number(key, value)
        return None

    def required(self, keys: tuple[str, ...]) -> int:
        value = self.optional(keys)
        if value is None:
            self.fail(keys[0], "missing")
        return value

    def number(self, key: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(key, f"{_shown(value)} is not a whole number")
        if not 0 < value <= MAX_VALUE:
            self.fail(key, f"{_shown(value)} is not between 1 and {MAX_VALUE:,}")
        return value

    def flag(self, key: str, absent: bool) -> bool:
        value = self.config.get(key)
        if value is None:
            return absent
        if not isinstance(value, bool):
            self.fail(key, f"{_shown(value)} is neither true nor false")
        return value

    def kv_heads(self, architecture: str, layout: Layout, heads: int) -> int:
        if not layout.kv_heads:
            return heads
        if architecture == "FalconForCausalLM" and not self.flag("new_decoder_architecture", False):
            return 1 if self.flag("multi_query", True) else heads
        count = self.optional(layout.kv_heads)
        if count is None and not layout.kv_absent_means_all:
            self.fail(layout.kv_heads[0], "missing")
        count = count or heads
        if heads % count:
            self.fail(layout.kv_heads[0], f"{count} key/value heads do not divide {heads} query heads")
        return count

    def head_dim(self, layout: Layout, hidden: int, heads: int) -> int:
        given = self.optional((layout.head_dim,)) if layout.head_dim else None
        if given is not None:
            return given
        if layout.head_dim_required:
            self.fail(layout.head_dim, "missing")
        if hidden % heads:
            self.fail(layout.hidden[0], f"{hidden} is not divisible by the {heads} heads")
        return hidden // heads

    def ffn(self, layout: Layout, hidden: int) -> int:
        given = self.optional(layout.ffn)
        if given is None and layout.ffn_times_hidden:
            return layout.ffn_times_hidden * hidden
        return given or self.required(layout.ffn)

    def experts(self, layout: Layout) -> tuple[int, int]:
        """Experts per layer and experts per token; (1, 1) for a dense model."""
        if not layout.experts:
            return 1, 1
        experts, used = self.required(layout.experts), self.required(("num_experts_per_tok",))
        if used > experts:
            self.fail("num_experts_per_tok", f"{used} is more than the {experts} experts")
        if self.config.get("mlp_only_layers") not in (None, []):
            raise UnsupportedModel(f"{self.where}: mlp_only_layers: some layers without experts are not supported")
        if self.config.get("decoder_sparse_step") not in (None, 1):
            raise UnsupportedModel(f"{self.where}: decoder_sparse_step: experts in every layer only are supported")
        return experts, used

    def notes(self, layout: Layout) -> list[str]:
        """What a user should know about the numbers."""
        notes = ["Multi-head latent attention: fitted to measurements of current engines alone."] if layout.latent else []
        if self.config.get("num_nextn_predict_layers"):
            notes.append("The module for multi-token prediction is left out.")
        if layout.window and self.windowed(layout.window):
            window = self.required(("sliding_window",))
            notes.append(
                f"Attends within a sliding window of {window:,} tokens; priced as full attention, an upper bound of KV cache and time."
            )
        quantized = self.config.get("quantization_config")
        if quantized is not None:
            if not isinstance(quantized, dict):
                self.fail("quantization_config", f"{_shown(quantized)} is not an object")
            method = _shown(quantized.get("quant_method", "an unnamed method"))
            notes.append(f"The checkpoint is quantized ({method}); weights are priced at the precision asked for, whatever the file holds.")
        if layout.context_default and self.optional(layout.context) is None:
            notes.append(f"No {layout.context[0]} in the file: {layout.context_default:,}, the default of its library.")
        return notes

    def scales_blocks(self) -> bool:
        """Whether the checkpoint is in FP8 with a scale per block of weights."""
        quantized = self.config.get("quantization_config")
        return isinstance(quantized, dict) and bool(quantized.get("weight_block_size"))

    def windowed(self, key: str) -> bool:
        if key == "sliding_window":
            return self.config.get(key) is not None
        return self.flag(key, False)


def _shown(value: object) -> str:
    """A value for a message: as in the file, cut short."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**18:
        return "a number of more than 18 digits"
    try:
        text = json.dumps(value, ensure_ascii=True)
    except RecursionError:
        return "a value nested too deeply"
    return text if len(text) <= 60 else f"{text[:57]}..."

"""Reads a Hugging Face ``config.json`` as a ``Model``; what it cannot count exactly it refuses by
name.

``config_layouts`` says where each architecture keeps its numbers. Biases and norms are not counted.
"""

from __future__ import annotations

import math
import re
from dataclasses import fields, replace
from os.path import isdir, isfile
from pathlib import Path

from tonnage.csv_file import read_text
from tonnage.errors import InputError, InputErrors, UnknownName, UnsupportedModel, option
from tonnage.spec.attention_layers import LatentAttention
from tonnage.spec.config_fields import (
    by_fields,
    check_open,
    encoder_weights,
    encoders_of,
    linear_stretch,
    stretched_context,
)
from tonnage.spec.config_kinds import (
    FAMILIES,
    Fields,
    kinds_by_sign,
    pattern_of,
    state_space_hybrid,
)
from tonnage.spec.config_layouts import (
    ACTIVATIONS,
    ALWAYS_GATED,
    ENCODER,
    ENCODER_KEYS,
    ENCODER_NAMES,
    GATED,
    LAYER_TYPES,
    LAYOUTS,
    NOT_GATED,
    ONE_PASS,
    OPEN_LAYOUT,
    REFUSED,
    TEXT_DEFAULTS,
    TEXT_PARTS,
    VISION,
    Config,
    ConfigValues,
    Layout,
    shown,
)
from tonnage.spec.model import Model
from tonnage.spec.released_format import (
    dtype_of,
    has_block_scales,
    merged,
    quantization_of,
    released_format,
    released_kv,
    uncounted_kv,
)
from tonnage.spec.typed_values import parse_json, read_as

MAX_FILE_BYTES = 4_000_000

LEFT_OUT_ENCODER = "the weights of its encoder are left out, as config.json does not say its sizes"
TEXT_PART = f"Images count as the prompt tokens that they become; {LEFT_OUT_ENCODER}."
WITH_ENCODERS = "Its encoders' {} million weights are counted; images count as prompt tokens."

COUNTED_SO = {
    "block_configs": "MLPs of different widths count at their mean width.",
    "attn_type_list": (
        "Lightning attention counts as a state-space layer with a group for each head, which has"
        " its projections and state."
    ),
    "zero_expert_num": (
        "A layer attends twice and has two MLPs next to its experts, which count as used by every"
        " token."
    ),
    "altup_num_inputs": (
        "The small matrices of its predictions and of per-layer inputs count as kept but not as"
        " multiplied."
    ),
}
"""What the notes say of a file with such a field."""

# files in which AutoGPTQ and AutoAWQ said the format before config.json did: the method, and
# their own names of its keys
BESIDE: dict[str, dict[str, str]] = {
    "quantize_config.json": {"": "gptq"},
    "quant_config.json": {"": "awq", "w_bit": "bits", "q_group_size": "group_size"},
}

NO_CACHE = "none of its layers keeps a KV cache, so that there is no pool of blocks to plan"


def read_config(path: str | Path, layout: str = "") -> Model:
    """The model that a ``config.json``, or a model file in the catalog's form, describes.

    Args:
        path: the file or the folder that holds it.
        layout: the architecture as which it is read, such as "LlamaForCausalLM"; "" for its own.

    An architecture that is not known is read from the fields of the file, and the model says so
    (``Model.layout_mark``).

    Raises UnsupportedModel: what cannot be planned, or fields that leave something open, with the
    reason; UnknownName: no such layout; InputError: no such file, not a JSON object, or a value
    that is absent or impossible.
    """
    file = _file_of(Path(path))
    config = _load(file)
    if {"layers", "hidden"} <= config.keys():
        return _model_file(str(file), config)
    quantized = quantization_of(config)
    config = config | {"quantization_config": quantized}
    for name, keys in BESIDE.items() if quantized is None else ():
        if (beside := file.parent / name).is_file():
            entries = {keys.get(key, key): value for key, value in _load(beside).items()}
            config = config | {"quantization_config": {"quant_method": keys[""], **entries}}
    beside = file.parent / "hf_quant_config.json"
    if beside.is_file() and isinstance(quantized := _load(beside).get("quantization"), dict):
        config = config | {
            "hf_quant_config": quantized,
            "quantization_config": merged(config.get("quantization_config"), quantized),
        }
    if layout and layout not in LAYOUTS:
        raise UnknownName("layout", shown(layout).strip('"'), LAYOUTS)
    return _read(str(file), config, _name_of(file), layout)


def _read(where: str, config: Config, name: str, layout: str) -> Model:
    """The model by its layout, or by its fields where its architecture is not known or is to be
    read as another one.
    """
    reader = _Reader(where, config)
    architecture = reader.architecture()
    if layout not in ("", architecture):
        model = _as_requested(where, config, name, layout)
        return replace(model, architecture=architecture, layout=layout, layout_requested=True)
    if architecture in LAYOUTS:
        try:
            return reader.model(name, architecture, LAYOUTS[architecture])
        except InputError:
            if not str(config.get("transformers_version")).startswith("5"):
                raise
            # transformers 5 lists kinds of layers in place of other numbers
            return _as_requested(where, config, name, architecture)
    try:
        model = reader.model(name, architecture, OPEN_LAYOUT)
    except UnsupportedModel:
        raise
    except InputError as error:
        fault, counts = str(error).removeprefix(f"{where}: "), _counts(where, config)
        choices = " or ".join(
            f"{option('layout')} {near} ({billions:.3g} billion)"
            for billions, near in list(counts.items())[:2]
        )
        advice = f"choose {choices}" if choices else "write a model file instead (docs/catalog.md)"
        reason = (
            f"the architecture {shown(architecture)} is not known, and its fields leave it open:"
            f" {fault}"
        )
        raise UnsupportedModel(f"{where}: {reason}; {advice}") from None
    near = min(
        _counts(where, config, model).items(),
        key=lambda item: abs(math.log(item[0] * 1e9 / model.parameters)),
        default=(0, ""),
    )[1]
    return replace(model, architecture=architecture, layout=near)


def _as_requested(where: str, config: Config, name: str, architecture: str) -> Model:
    """The model as an architecture has it: what the fields leave open where they say the rest, else
    all of it.
    """
    layout = LAYOUTS[architecture]
    settled = {
        part: getattr(layout, part)
        for part in ("gated", "tied", "parallel", "parallel_key", "head_norms", "absent")
    }
    try:
        return _Reader(where, config).model(name, architecture, replace(OPEN_LAYOUT, **settled))
    except InputError:
        return _Reader(where, config).model(name, architecture, layout)


def _counts(where: str, config: Config, model: Model | None = None) -> dict[float, str]:
    """The first known layout for each number of parameters that layouts give a file, in billions;
    of a model, those with its kinds.
    """
    counts: dict[float, str] = {}
    # takes long, and counts no weights
    config = {key: value for key, value in config.items() if key != "quantization_config"}
    for name, layout in LAYOUTS.items():
        reader = _Reader(where, config)
        try:
            read = (
                _as_requested(where, config, "", name)
                if model is None
                else reader.model("", name, layout)
            )
        except InputError:
            continue
        if model is None or (reader.inside == layout.wrapped and read.kinds == model.kinds):
            counts.setdefault(read.parameters / 1e9, name)
    return counts


def _model_file(where: str, written: Config) -> Model:
    """A model in the form of the catalog's files, for layers that no ``config.json`` says.

    Raises InputErrors: unknown or missing keys, and values that cannot be, each with its key.
    """
    model = read_as(
        Model,
        {"name": "model", **{key: value for key, value in written.items() if key != "aliases"}},
        where,
        InputErrors,
    )
    needed = (
        "layers",
        "hidden",
        "heads",
        "kv_heads",
        "head_dim",
        "ffn",
        "vocab",
        "max_context",
        "experts",
        "experts_per_token",
    )
    faults = [
        f"{where}: {key}: {getattr(model, key)} is not possible; write 1 or more"
        for key in needed
        if getattr(model, key) < 1
    ]
    negative = [
        part.name
        for part in fields(model)
        if isinstance(value := getattr(model, part.name), int) and value < 0
    ]
    faults += [
        f"{where}: {key}: is below 0; write 0 or more" for key in negative if key not in needed
    ]
    InputErrors.raise_if(faults)
    if (
        model.heads % model.kv_heads
        or model.experts_per_token > model.experts
        or model.dense_layers > model.inner_layers
    ):
        raise InputError(
            f"{where}: kv_heads must divide heads, experts_per_token be at most experts, and"
            " dense_layers at most the layers"
        )
    return replace(
        _Reader(where, {}).checked(model), name="-".join(model.name.lower().split()), source=where
    )


def _file_of(path: Path) -> Path:
    try:
        if isdir(path):
            if not (path / "config.json").is_file():
                raise InputError(f"{path}: the folder holds no config.json")
            return path / "config.json"
        if not isfile(path):
            raise InputError(
                f"{path}: no such file; give a config.json, its folder or a model of `tonnage"
                " catalog`"
            )
    except (OSError, ValueError) as error:
        raise InputError(f"{path!s:.200}: cannot be opened: {_one_line(error)}") from None
    return path


def _load(file: Path) -> Config:
    loaded = parse_json(
        read_text(file, give="a config.json", most_bytes=MAX_FILE_BYTES),
        str(file),
        "give a config.json",
    )
    if not isinstance(loaded, dict):
        raise InputError(
            f"{file}: holds a {type(loaded).__name__}, but a config.json is one JSON object"
        )
    return loaded


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]


def _name_of(file: Path) -> str:
    stem = file.resolve().parent.name if file.name == "config.json" else file.stem
    return "-".join(stem.lower().split()) or "model"


class _Reader(ConfigValues):
    """Makes a model of one config."""

    tied_if_absent = False  # an absent ``tie_word_embeddings`` means one table
    images = False  # there is an encoder of images or sound next to the text decoder
    encoders: tuple[ConfigValues, ...] = ()  # what the file says of each, with what is around it
    inside = False  # the text decoder's numbers were in their own object

    def model(self, name: str, architecture: str, layout: Layout) -> Model:
        """The model as a layout reads it."""
        self.unwrap(layout)
        quantized = self.config.get("quantization_config")
        fields: Fields = {
            "name": name,
            "layers": self.required(*layout.layers),
            "hidden": self.required(*layout.hidden),
            "gated": self.gated(layout),
            "vocab": self.required(*layout.vocab),
            "max_context": (
                self.optional(*layout.context)
                or layout.context_default
                or self.required(*layout.context)
            ),
            "tied_embeddings": self.flag(
                "tie_word_embeddings", self.tied_if_absent if layout.tied is None else layout.tied
            ),
            "parallel_block": (
                self.flag(layout.parallel_key, layout.parallel)
                if layout.parallel_key
                else layout.parallel
            ),
            "head_norms": layout.head_norms,
            "block_fp8": has_block_scales(quantized),
            "source": f"{self.where} ({architecture})",
        }
        fields["rotary_rows"] = round(fields["max_context"] * linear_stretch(self.config))
        fields["max_context"] = stretched_context(self.config, fields["max_context"])
        if layout.family == by_fields.__name__:
            if not layout.inside:
                check_open(self, architecture)
            counted = by_fields(self) | kinds_by_sign(self)
            counted["head_norms"] |= layout.head_norms
        else:
            counted = self.sizes_by_key(architecture, layout) | (
                FAMILIES[layout.family](self) if layout.family else {}
            )
        encoders = sum(encoder_weights(part, fields["hidden"]) for part in self.encoders)
        reading = [LEFT_OUT_ENCODER] if (self.images or self.encoders) and not encoders else []
        if cache := uncounted_kv(self.config):
            reading.append(
                f"config.json declares a KV cache in {cache}, which is counted in 16 bits"
            )
        model = self.checked(
            Model(**(fields | counted), encoder_parameters=encoders, reading="; ".join(reading))
        )
        released = released_format(self.config, model)
        notes = " ".join(self.notes(layout, model, released))
        kv, readers = released_kv(self.config)
        return replace(model, released=released, released_kv=kv, kv_readers=readers, notes=notes)

    def sizes_by_key(self, architecture: str, layout: Layout) -> Fields:
        """Heads, MLPs and windows by the keys of a layout."""
        hidden, heads = self.required(*layout.hidden), self.required(*layout.heads)
        experts, used = self.experts(layout)
        return dict(
            heads=heads,
            kv_heads=self.kv_heads(architecture, layout, heads),
            head_dim=self.head_dim(layout, hidden, heads),
            ffn=self.ffn(layout, hidden),
            experts=experts,
            experts_per_token=used,
            **(self.latent_parts() if layout.latent else {}),
            **self.windows(layout),
        )

    def unwrap(self, layout: Layout) -> None:
        """Read the text decoder's numbers of a model with an encoder, and keys that are in their
        own object.
        """
        outer = {
            key: self.config[key]
            for key in ("tie_word_embeddings", "quantization_config", "hf_quant_config")
            if self.config.get(key) is not None
        }
        blocks = any(
            self.config.get(key) is not None
            for key in ("hybrid_override_pattern", "layers_block_type")
        )
        if (
            blocks
            and layout.family in (state_space_hybrid.__name__, by_fields.__name__)
            and "num_hidden_layers" not in self.config
        ):
            self.config = {**self.config, "num_hidden_layers": len(pattern_of(self))}
        self.images = layout.wrapped and any(
            word in key for key in self.config for word in ("vision", "visual", "audio", "image")
        )
        self.tied_if_absent = "transformers_version" in self.config
        self.encoders = encoders_of(self) if layout.wrapped else ()
        while layout.wrapped and not any(self.config.get(key) is not None for key in layout.layers):
            self.inside = True
            self.tied_if_absent = False
            key = next(
                (key for key in TEXT_PARTS if isinstance(self.config.get(key), dict)), TEXT_PARTS[0]
            )
            self.config = {
                key: value for key, value in self.part(key).config.items() if value is not None
            } | outer
            self.config = TEXT_DEFAULTS.get(str(self.config.get("model_type")), {}) | self.config
            self.encoders += encoders_of(self)
        self.config = {
            **self.config,
            **{key: value for key, value in layout.absent if self.config.get(key) is None},
        }
        for key in layout.inside:
            if isinstance(inner := self.config.get(key), dict):
                self.config = inner | self.config

    def gated(self, layout: Layout) -> bool:
        """Whether an MLP has three matrices: as the layout has it, else as the activation says."""
        if layout.gated is not None:
            return layout.gated
        key = next((key for key in ACTIVATIONS if self.config.get(key) is not None), None)
        if key in ALWAYS_GATED:
            return True
        if key is not None and self.config[key] not in (*GATED, *NOT_GATED):
            self.fail(
                key,
                f"{shown(self.config[key])} does not say whether an MLP has two matrices or three",
            )
        return key is None or self.config[key] in GATED

    def checked(self, model: Model) -> Model:
        """The model, once its layers by kind and its plain ones go into its own."""
        if model.dense_layers > model.inner_layers or (model.is_moe and model.expert_layers == 0):
            self.fail(
                "first_k_dense_replace",
                f"{model.dense_layers} plain layers leave none of the {model.layers} for experts",
            )
        if (
            model.mixing_layers > 2 * model.layers
            or model.mixing_layers == 0
            or not model.growing_layers
        ):
            raise UnsupportedModel(f"{self.where}: {model.name} is not supported: {NO_CACHE}")
        return model

    def windows(self, layout: Layout) -> Fields:
        """The window of the layers that have one, and their number, where others do not."""
        window = self.optional("sliding_window") if layout.pattern else None
        if window is None:
            return {}
        layers = self.required(*layout.layers)
        kinds = self.kinds("layer_types", layers, LAYER_TYPES)
        if kinds is None:
            period = (
                self.optional("sliding_window_pattern", "_sliding_window_pattern") or layout.pattern
            )
            return {"window": window, "windowed_layers": layers - layers // period}
        return {"window": window, "windowed_layers": kinds.count(LAYER_TYPES[0])}

    def latent_parts(self) -> Fields:
        """Latent attention, shared experts and plain first layers."""
        if self.whole("moe_layer_freq") != 1:
            raise UnsupportedModel(
                f"{self.where}: moe_layer_freq: experts in every layer after the first plain ones"
                " only are supported"
            )
        plain, layers = self.whole("first_k_dense_replace"), self.required("num_hidden_layers")
        if plain >= layers:
            self.fail(
                "first_k_dense_replace",
                f"{plain} plain layers leave none of the {layers} for experts",
            )
        return {
            "shared_experts": self.whole("n_shared_experts"),
            "dense_layers": plain,
            "dense_ffn": self.required("intermediate_size"),
            "latent": LatentAttention(
                q_lora_rank=self.whole("q_lora_rank"),
                kv_lora_rank=self.required("kv_lora_rank"),
                qk_nope_head_dim=self.required("qk_nope_head_dim"),
                qk_rope_head_dim=self.required("qk_rope_head_dim"),
                v_head_dim=self.required("v_head_dim"),
            ),
        }

    def architecture(self) -> str:
        """The name of the architecture, which is one of the supported."""
        listed = self.config.get("architectures")
        if listed is None and "quantization" in self.config:
            raise UnsupportedModel(
                f"{self.where}: says how a checkpoint is quantized, and not what it is; give the"
                " config.json beside it"
            )
        if not isinstance(listed, list) or len(listed) != 1 or not isinstance(listed[0], str):
            self.fail(
                "architectures",
                f'{shown(listed)} is not a list of one name such as ["LlamaForCausalLM"]',
            )
        name = str(listed[0])
        if name in REFUSED:
            raise UnsupportedModel(f"{self.where}: {shown(name)} is not supported: {REFUSED[name]}")
        encodes = any(self.config.get(key) for key in ENCODER_KEYS) or name.endswith(ENCODER_NAMES)
        decoder = re.sub(r"For(Sequence|Token)Classification$", "ForCausalLM", name)
        if decoder != name and decoder in LAYOUTS:
            one_pass = ONE_PASS.format(decoder=shown(decoder))
            raise UnsupportedModel(f"{self.where}: {shown(name)} is not supported: {one_pass}")
        if self.config.get("is_encoder_decoder") is True or (name not in LAYOUTS and encodes):
            raise UnsupportedModel(f"{self.where}: {shown(name)} is not supported: {ENCODER}")
        for key in (
            ()
            if name not in LAYOUTS or LAYOUTS[name].wrapped
            else ("vision_config", "audio_config", "text_config")
        ):
            if self.config.get(key) is not None:
                raise UnsupportedModel(
                    f"{self.where}: {name} is not supported with {key}: {VISION}"
                )
        return name

    def kv_heads(self, architecture: str, layout: Layout, heads: int) -> int:
        if not layout.kv_heads:
            return heads
        old_falcon = architecture == "FalconForCausalLM" and not self.flag(
            "new_decoder_architecture", False
        )
        if old_falcon or layout.kv_heads == ("multi_query",):
            return 1 if self.flag("multi_query", True) else heads
        count = self.optional(*layout.kv_heads)
        if count is None and not layout.kv_absent_means_all:
            self.fail(layout.kv_heads[0], "missing")
        count = count or heads
        if heads % count:
            self.fail(
                layout.kv_heads[0], f"{count} key/value heads do not divide {heads} query heads"
            )
        return count

    def head_dim(self, layout: Layout, hidden: int, heads: int) -> int:
        width = self.optional(layout.head_dim) if layout.head_dim else None
        if width is not None:
            return width
        if layout.head_dim_required:
            self.fail(layout.head_dim, "missing")
        if hidden % heads:
            self.fail(layout.hidden[0], f"{hidden} is not divisible by the {heads} heads")
        return hidden // heads

    def ffn(self, layout: Layout, hidden: int) -> int:
        width = self.optional(*layout.ffn)
        if layout.halved:
            return self.required(*layout.ffn) // 2
        if width is None and layout.ffn_times_hidden:
            return layout.ffn_times_hidden * hidden
        return width or self.required(*layout.ffn)

    def experts(self, layout: Layout) -> tuple[int, int]:
        """Experts per layer and experts per token; (1, 1) for a dense model."""
        if not layout.experts or (
            layout.experts_optional and self.optional(*layout.experts) is None
        ):
            return 1, 1
        experts, used = self.required(*layout.experts), self.required(*layout.used)
        if used > experts:
            self.fail(layout.used[0], f"{used} is more than the {experts} experts")
        if self.config.get("mlp_only_layers") not in (None, []):
            raise UnsupportedModel(
                f"{self.where}: mlp_only_layers: some layers without experts are not supported"
            )
        if self.config.get("decoder_sparse_step") not in (None, 1):
            raise UnsupportedModel(
                f"{self.where}: decoder_sparse_step: experts in every layer only are supported"
            )
        return experts, used

    def notes(self, layout: Layout, model: Model, released: str) -> list[str]:
        """The remarks that a user should read about the numbers."""
        notes = (
            ["Multi-head latent attention: fitted to measurements of current engines alone."]
            if layout.latent
            else []
        )
        if self.config.get("num_nextn_predict_layers"):
            notes.append("The module for multi-token prediction is left out.")
        if self.images or self.encoders:
            weights = round(model.encoder_parameters / 1e6)
            notes.append(WITH_ENCODERS.format(f"{weights:,}") if weights else TEXT_PART)
        notes += [note for key, note in COUNTED_SO.items() if self.config.get(key) is not None]
        in_all = (
            layout.family == by_fields.__name__
            and self.config.get("use_sliding_window") is not False
            and "full" in model.kinds
        )
        by_presence = (
            layout.window == "sliding_window" or (in_all and "sliding" not in model.kinds)
        ) and self.optional_or("sliding_window")
        if by_presence or (
            layout.window not in ("", "sliding_window") and self.flag(layout.window, False)
        ):
            window = self.required("sliding_window")
            notes.append(
                f"Attends within a sliding window of {window:,} tokens; estimated as full"
                " attention, an upper bound of KV cache and time."
            )
        quantized = self.config.get("quantization_config")
        if quantized is not None:
            if not isinstance(quantized, dict):
                self.fail("quantization_config", f"{shown(quantized)} is not an object")
            method = shown(quantized.get("quant_method", "an unnamed method"))
            counted = (
                f"counted as {released} unless another is requested"
                if released
                else "that format has no name here"
            )
            notes.append(f"The checkpoint is quantized ({method}); {counted}.")
        elif not released:
            notes.append(f"Its numbers are of the type {dtype_of(self.config)}, which has no name.")
        if layout.context_default and self.optional(*layout.context) is None:
            notes.append(
                f"No {layout.context[0]} in the file: {layout.context_default:,}, the default of"
                " its library."
            )
        return notes

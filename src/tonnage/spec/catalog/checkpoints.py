"""Published checkpoints of the models, and the tools that create unpublished ones.

``checkpoints.yaml`` names them by model; ``quantisation.yaml`` says which engines read which kind,
where each name was seen, and which tool makes a format.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from tonnage.errors import DataError, InputError
from tonnage.spec.catalog import entries, find_model
from tonnage.spec.catalog.entries import shipped_yaml
from tonnage.spec.catalog.repositories import find_repository
from tonnage.spec.precision import SPARSE, Precision, find_precision
from tonnage.spec.typed_values import read_as, read_entries, strict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tonnage.spec.engine import EnginePreset
    from tonnage.spec.hardware import Gpu
    from tonnage.spec.model import Model

HALF = ("fp16", "bf16")  # Formats of 16 bits, each of which an engine casts to the other


@strict
class Method:
    """A quantisation method of checkpoints, as in ``quantization_config`` of their
    ``config.json``.
    """

    name: str  # key that ``checkpoints.yaml`` uses
    told: str  # description
    # engine families that read it, optionally with the first version: "vllm", "tensorrt-llm>=1.2"
    engines: tuple[str, ...]
    vendors: tuple[str, ...] = ()  # GPU vendors that support it; empty for all
    # engine families that take the KV cache in FP8 for its checkpoints where nobody says it,
    # because these declare it
    kv_8bit: tuple[str, ...] = ()
    # source, date: source of the list of engines, and date of the lookup
    source: str
    date: str


@strict
class Seen:
    """A source of checkpoint names, and the date of the lookup."""

    name: str
    source: str
    date: str


@strict
class Makes:
    """A number format that a tool creates: the tool's scheme, and the engines that read the
    result.
    """

    format: str
    scheme: str
    engines: tuple[str, ...]


@strict
class Maker:
    """A tool that quantises a 16-bit checkpoint."""

    tool: str  # its name
    # its command line, with the placeholders ``{repository}``, ``{scheme}`` and ``{folder}``
    command: str
    # source, date: source of the command line, and date of the lookup
    source: str
    date: str
    makes: tuple[Makes, ...]  # number formats


@strict
class _Quantisation:
    """``quantisation.yaml``."""

    methods: tuple[Method, ...]
    seen: tuple[Seen, ...]
    makers: tuple[Maker, ...]


@strict
class _CheckpointEntry:
    """A checkpoint as ``checkpoints.yaml`` writes it, below its model."""

    repository: str
    format: str
    method: str
    seen: str
    gated: bool = False


@strict
class _ModelEntry:
    """A model with its checkpoints as ``checkpoints.yaml`` writes them."""

    name: str
    licence: str
    checkpoints: tuple[_CheckpointEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A published checkpoint."""

    model: str  # catalog id
    repository: str  # Hugging Face name, "owner/name"
    format: str  # number format of the weights, as in ``spec.precision``
    method: str  # quantisation method, the name of a ``Method``; "none" for 16 bits
    # engines, vendors: engines and GPU vendors that support the method
    engines: tuple[str, ...]
    vendors: tuple[str, ...]
    licence: str  # licence of the model; "" if unknown
    gated: bool  # whether users must request access
    # source, date: source of the name, and date of the lookup
    source: str
    date: str

    @property
    def half(self) -> bool:
        """Whether its weights have 16 bits."""
        return self.format in HALF


@cache
def _quantisation() -> _Quantisation:
    return read_as(_Quantisation, shipped_yaml("quantisation.yaml"), "catalog/quantisation.yaml")


@cache
def _by_model() -> Mapping[str, tuple[Checkpoint, ...]]:
    """Checkpoints by model. Raises DataError: a repository is listed twice, or its method or source
    is not defined.
    """
    where = "catalog/checkpoints.yaml"
    methods = {method.name: method for method in _quantisation().methods}
    places = {place.name: place for place in _quantisation().seen}
    by_model: dict[str, tuple[Checkpoint, ...]] = {}
    repositories: set[str] = set()
    for model in read_entries(_ModelEntry, shipped_yaml("checkpoints.yaml"), where):
        for entry in model.checkpoints:
            if entry.repository.lower() in repositories:
                raise DataError(f"{where}: '{entry.repository}' is given twice")
            if entry.method not in methods or entry.seen not in places:
                raise DataError(
                    f"{where}: {entry.repository}: no method '{entry.method}' or no place"
                    f" '{entry.seen}' in quantisation.yaml"
                )
            repositories.add(entry.repository.lower())
        by_model[model.name] = tuple(
            _checkpoint(model, entry, methods[entry.method], places[entry.seen])
            for entry in model.checkpoints
        )
    return MappingProxyType(by_model)


def _checkpoint(
    model: _ModelEntry, entry: _CheckpointEntry, method: Method, place: Seen
) -> Checkpoint:
    values = {name: value for name, value in asdict(entry).items() if name != "seen"}
    sources = {
        "engines": method.engines,
        "vendors": method.vendors,
        "source": place.source,
        "date": place.date,
    }
    return Checkpoint(**values, model=model.name, licence=model.licence, **sources)  # type: ignore[arg-type]


def find_method(name: str) -> Method:
    """A quantisation method by its name in ``quantisation.yaml``. Raises DataError: it is not
    there.
    """
    quantisation_method = next(
        (method for method in _quantisation().methods if method.name == name), None
    )
    if quantisation_method is None:
        raise DataError(f"catalog/quantisation.yaml: no method '{name}'")
    return quantisation_method


def listed_checkpoints() -> tuple[Checkpoint, ...]:
    """Every published checkpoint, by model. Raises DataErrors: a data file is damaged."""
    return tuple(checkpoint for checkpoints in _by_model().values() for checkpoint in checkpoints)


def find_checkpoints(model: str) -> tuple[Checkpoint, ...]:
    """The published checkpoints of a model, by any of its spellings, the author's first; empty if
    none is known, and for files.

    Of a model that ``checkpoints.yaml`` leaves out it is the repository that it is named after.
    """
    if model.endswith(".json"):
        return ()
    try:
        known_model = find_model(model)
    except InputError:
        return ()
    return _by_model().get(known_model.name) or _named_after(known_model)


METHODS = {
    "": "none",
    "bf16": "none",
    "fp16": "none",
    "awq": "awq",
    "gptq": "gptq",
    "mxfp4": "mxfp4",
    "fp8": "compressed-tensors-fp8",
}
"""Methods by number format of the checkpoints that ``checkpoints.yaml`` leaves out;
compressed-tensors for other formats."""


@cache
def _named_after(model: Model) -> tuple[Checkpoint, ...]:
    """The repository whose config.json the model's figures are from; empty where there is none."""
    spellings = (
        alias
        for alias, owner in entries.model_shelf().aliases.items()
        if owner == model.name and "/" in alias
    )
    aliases = (alias for alias in spellings if f"huggingface.co/{alias}" in model.source)
    repository = find_repository(model.name)
    name = next(aliases, model.repository) if repository is None else repository.name
    if not name:
        return ()
    method = (
        "block-fp8"
        if model.block_fp8 and model.released == "fp8"
        else METHODS.get(model.released, "compressed-tensors")
    )
    gated = repository is not None and repository.gated
    written = _CheckpointEntry(
        repository=name, format=model.released, method=method, seen="", gated=gated
    )
    place = Seen(name="", source=model.source, date=model.date)
    return (
        _checkpoint(
            _ModelEntry(name=model.name, licence="", checkpoints=()),
            written,
            find_method(method),
            place,
        ),
    )


def reads(engines: Sequence[str], engine: EnginePreset) -> bool:
    """Whether an engine preset matches an entry of ``Method.engines``."""
    for supported in engines:
        family, _, least = supported.partition(">=")
        if family == engine.family:
            return _version(engine.since) >= _version(least)
    return False


def published(
    model: str, precision: Precision, engine: EnginePreset, vendor: str = "NVIDIA"
) -> Checkpoint | None:
    """The published checkpoint of a model in a number format that an engine reads; None if none is
    known.

    A checkpoint in exactly the plan's format is preferred; one that keeps other matrices wider or
    narrower is the second choice. For TensorRT-LLM, checkpoints of NVIDIA's Model Optimizer are
    preferred: per-tensor scales run on every GPU with FP8, block scales do not.
    """

    def rank(checkpoint: Checkpoint) -> tuple[bool, bool]:
        return (
            not same_weights(checkpoint.format, precision.weights),
            engine.family == "tensorrt-llm" and checkpoint.method != "modelopt",
        )

    checkpoints = [
        checkpoint
        for checkpoint in find_checkpoints(model)
        if reads(checkpoint.engines, engine)
        and (not checkpoint.vendors or vendor in checkpoint.vendors)
    ]
    near = [
        checkpoint
        for checkpoint in checkpoints
        if same_weights(checkpoint.format.partition("+")[0], precision.weight_format)
        and SPARSE not in precision.weights
    ]
    return min(near, key=rank, default=None)


OF_MODEL_OPTIMIZER = ("tensorrt-llm", "nim")
"""Families whose checkpoints are made by Model Optimizer, whose recipes narrow the KV cache with
8-bit and FP4 weights (hf_ptq.py)."""


def as_run(precision: Precision, model: Model, engine: EnginePreset, gpu: Gpu) -> Precision:
    """The precision as an engine runs a model on a GPU: its KV cache where nobody says the format,
    and what is unpacked to 16 bits.

    FP8 of a model whose only checkpoint of 8 bits is MXFP8 is that (MiniMax-M3).
    """
    if (precision.weight_format, model.released) == ("fp8", "mxfp8") and published(
        model.name, precision, engine, gpu.vendor
    ) is None:
        precision = find_precision(precision.name.replace("fp8", "mxfp8", 1))
    run = engine.runs(precision, gpu)
    # kernels that convert need its instructions
    if run.kernels and gpu.fp8_tflops is None and not run.names_kv and run.kv == "fp8":
        return engine.runs(precision.with_kv("fp16"), gpu)
    return engine.runs(_with_default_kv(precision, model, engine, gpu.vendor), gpu)


def _with_default_kv(
    precision: Precision, model: Model, engine: EnginePreset, vendor: str
) -> Precision:
    """The precision with the KV cache that an engine takes where nobody says its format.

    Engines keep 16 bits unless the checkpoint that they load declares another format
    (``kv_cache_scheme``, ``kv_cache_quant_algo``): vLLM ``resolve_kv_cache_dtype_string``
    (utils/torch_utils.py), SGLang ``configure_kv_cache_dtype``, TensorRT-LLM
    ``kv_cache_config.dtype: auto``; read on 2026-11-28. What a catalog's checkpoint declares
    follows from its method (``Method.kv_8bit``).
    """
    if precision.names_kv or precision.kv == "fp32":
        return precision
    if not model.date and precision.weights == model.released:
        return precision.with_kv(model.released_kv if reads(model.kv_readers, engine) else "fp16")
    checkpoint = published(model.name, precision, engine, vendor) if model.date else None
    if precision.kv == "fp16":
        return precision
    if checkpoint is None:
        narrowed = engine.family in OF_MODEL_OPTIMIZER and precision.weights != model.released
        return precision if narrowed or engine.family == "nim" else precision.with_kv("fp16")
    return (
        precision
        if reads(find_method(checkpoint.method).kv_8bit, engine)
        else precision.with_kv("fp16")
    )


def narrows_kv(precision: Precision, model: Model, engine: EnginePreset, gpu: Gpu) -> bool:
    """Whether an engine keeps the KV cache in fewer than 16 bits where nobody says its format,
    because the checkpoint declares that.
    """
    return as_run(find_precision(precision.weights), model, engine, gpu).kv != HALF[0]


def same_weights(first: str, second: str) -> bool:
    """Whether two formats are the same for an engine, which casts 16 bits to 16 bits."""
    return first == second or {first, second} <= set(HALF)


def quantised_at_start(model: str, precision: Precision, engine: EnginePreset) -> tuple[str, ...]:
    """The arguments with which an engine quantises the 16-bit checkpoint at start; empty if it
    cannot.
    """
    words = () if engine.launch is None else engine.launch.quantizing(precision.weights)
    return () if precision.experts_only and not find_model(model).is_moe else words


def loaded(
    named: Model, precision: Precision, engine: EnginePreset, vendor: str
) -> tuple[str, tuple[str, ...]]:
    """The repository that an engine loads of a model, and the arguments that make it quantise that
    at start.

    It is the one by which the model was named where that is in the format, and the model's own name
    where no repository is known.
    """
    if named.repository and same_weights(named.released, precision.weights):
        return named.repository, ()
    model = named.name
    checkpoint = published(model, precision, engine, vendor)
    if checkpoint is not None:
        return checkpoint.repository, ()
    words, half = quantised_at_start(model, precision, engine), half_of(model)
    return (half.repository, words) if words and half is not None else (model, ())


def half_of(model: str) -> Checkpoint | None:
    """The 16-bit checkpoint of a model; None if none is known."""
    return next((checkpoint for checkpoint in find_checkpoints(model) if checkpoint.half), None)


def loadable(model: str, precision: Precision, engine: EnginePreset, vendor: str) -> bool:
    """Whether an engine has a checkpoint to load: a published one, one that it makes at start, or a
    folder of a model in 16 bits.
    """
    own_folder = same_weights(precision.weights, HALF[0]) and not find_checkpoints(model)
    return (
        own_folder
        or published(model, precision, engine, vendor) is not None
        or bool(quantised_at_start(model, precision, engine))
    )


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)))


def find_maker(format: str, engine: EnginePreset) -> tuple[Maker, Makes] | None:
    """The tool that creates a number format for an engine; None if none is known. Raises
    DataErrors: ``quantisation.yaml`` is damaged.
    """
    pairs = ((maker, makes) for maker in _quantisation().makers for makes in maker.makes)
    return next(
        (
            (maker, makes)
            for maker, makes in pairs
            if makes.format == format and reads(makes.engines, engine)
        ),
        None,
    )

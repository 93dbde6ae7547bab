"""What an engine loads for a plan's number format: a published checkpoint, one that it quantises at its start, or one that must be made."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from tonnage.errors import InputError, option
from tonnage.spec.catalog import find_engine, find_model
from tonnage.spec.catalog.checkpoints import HALF, Checkpoint, find_checkpoints, find_maker, reads
from tonnage.spec.engine import EngineSpec
from tonnage.spec.precision import SPARSE, Precision, find_precision

FOLDER = "/models"
"""Where an instance finds checkpoints that are not fetched from a hub."""

GATED = "It is gated: ask for access at its page."


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """What an engine loads.

    Attributes:
        checkpoint: a name at a hub, or a folder of the instance.
        told: what it is and why, as sentences in Markdown.
        words: further words of the engine's command, by which it quantises what it loads.
        make: commands that make what is loaded, to be run first, a line each; empty where it is there, or nothing known makes it.
        named: whether the caller named it.
    """

    checkpoint: str
    told: str
    words: tuple[str, ...] = ()
    make: tuple[str, ...] = ()
    named: bool = False


def loading(model: str, precision: str, engine: str, *, vendor: str = "NVIDIA", asked: str | None = None) -> Loading:
    """What an engine loads.

    Args:
        model: catalog id, or path of a config.json.
        precision: the plan's number format.
        engine: preset.
        vendor: of the GPUs.
        asked: what the caller named, which is taken as it is; None for what the catalog knows.

    Raises:
        InputError: what was named is no name.
        UnknownName: no such model, number format or preset.
    """
    if asked is not None:
        if not asked.strip() or asked.startswith("-") or any(letter.isspace() for letter in asked.strip()):
            raise InputError(f"{option('checkpoint')}: '{asked}' is no name of a checkpoint; write owner/name or a folder")
        return Loading(checkpoint=asked.strip(), told=f"The engine loads `{asked.strip()}`, as was asked.", named=True)
    wanted, spec = find_precision(precision), find_engine(engine)
    found = published(model, wanted, spec, vendor)
    if found is not None:
        return Loading(checkpoint=found.repository, told=_of_published(found, wanted))
    return _made_at_start(model, wanted, spec) or _made_first(model, wanted, spec)


def published(model: str, wanted: Precision, engine: EngineSpec, vendor: str = "NVIDIA") -> Checkpoint | None:
    """The published checkpoint of a model in a number format that an engine reads; None where none is known.

    One whose other matrices have another format than the plan's counts where there is none in the very format. TensorRT-LLM gets those of
    NVIDIA's own tool first: its scales per tensor run on every GPU with FP8, unlike scales per block.
    """

    def rank(one: Checkpoint) -> tuple[bool, bool]:
        return not _same(one.format, wanted.weights), engine.family == "tensorrt-llm" and one.method != "modelopt"

    known = [one for one in find_checkpoints(model) if reads(one.engines, engine) and (not one.vendors or vendor in one.vendors)]
    near = [one for one in known if _same(one.format.partition("+")[0], wanted.weight_format) and SPARSE not in wanted.weights]
    return min(near, key=rank, default=None)


def _same(first: str, second: str) -> bool:
    return first == second or {first, second} <= set(HALF)


def _of_published(found: Checkpoint, wanted: Precision) -> str:
    licence = f"licence: {found.licence}" if found.licence else "its licence is not known here"
    told = [f"The engine loads `{found.repository}`, {found.model} in {found.format}; {licence}."]
    if not _same(found.format, wanted.weights):
        told.append(f"The plan counts on {wanted.weights}: for this checkpoint's own numbers size again with `--precision {found.format}`.")
    if found.gated:
        told.append(GATED)
    return " ".join(told)


def _made_at_start(model: str, wanted: Precision, engine: EngineSpec) -> Loading | None:
    """The 16-bit checkpoint, with what makes the engine quantise it; None where it cannot."""
    words = () if engine.launch is None else engine.launch.quantizing(wanted.weights)
    if not words or (wanted.experts_only and not find_model(model).is_moe):
        return None
    half = _half(model)
    name = half.repository if half else _folder(model, HALF[1])
    told = (
        f"The engine loads `{name}` in 16 bits and makes {wanted.weights} of it at its start (`{shlex.join(words)}`): no checkpoint of "
        f"{model} in {wanted.weights} that {engine.name} reads is known."
    )
    if half is None:
        told += " Put the model's 16-bit checkpoint in that folder of every instance."
    elif half.gated:
        told += f" {GATED}"
    return Loading(checkpoint=name, told=told, words=words)


def _made_first(model: str, wanted: Precision, engine: EngineSpec) -> Loading:
    """A folder, with what makes the checkpoint in it."""
    folder = _folder(model, wanted.weights)
    told = f"The engine loads `{folder}`: no checkpoint of {model} in {wanted.weights} that {engine.name} reads is known."
    maker = find_maker(wanted.weights, engine)
    if maker is None:
        return Loading(
            checkpoint=folder, told=f"{told} No tool is known here that makes one: put yours there, or name it with `--checkpoint`."
        )
    tool, made = maker
    return Loading(
        checkpoint=folder,
        told=f"{told} Make it with {tool.tool}, and put it in that folder of every instance:",
        make=(tool.command.format(repository=source_of(model), scheme=made.scheme, folder=folder),),
    )


def source_of(model: str) -> str:
    """What a tool quantises: the 16-bit checkpoint of a model, or where none is published the author's own, or a folder."""
    half = _half(model)
    return half.repository if half else next((one.repository for one in find_checkpoints(model)), _folder(model, HALF[1]))


def _half(model: str) -> Checkpoint | None:
    return next((one for one in find_checkpoints(model) if one.half), None)


def _folder(model: str, weights: str) -> str:
    """Where a checkpoint lies that is made by hand."""
    name = Path(model).parent.name or Path(model).stem if model.endswith(".json") else model
    return f"{FOLDER}/{re.sub(r'[^A-Za-z0-9._-]+', '-', f'{name}-{weights}')}"

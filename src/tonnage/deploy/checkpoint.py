"""The checkpoint of a plan: published, quantised by the engine at start, or a folder with the
command that fills it.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from os.path import isdir, isfile
from pathlib import Path

from tonnage.errors import InputError, option
from tonnage.plan.notes import Judged
from tonnage.spec.catalog import find_engine
from tonnage.spec.catalog.accuracy import published_loss
from tonnage.spec.catalog.checkpoints import (
    HALF,
    Checkpoint,
    find_checkpoints,
    find_maker,
    half_of,
    published,
    quantised_at_start,
    same_weights,
)
from tonnage.spec.engine import EnginePreset
from tonnage.spec.model_hubs import HUB_NAME
from tonnage.spec.precision import Precision, find_precision

FOLDER = "/models"  # Folder of local checkpoints inside an instance
MANIFEST = "tonnage-compress.json"  # File that ``compress`` writes last into a checkpoint's folder

GATED = "It is gated: request access on its page, and give a token."


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """The checkpoint that an engine loads."""

    checkpoint: str  # Hugging Face name, or a folder inside the instance
    told: str  # description and reason, as sentences in Markdown
    # arguments added to the engine's command, which make it quantise the checkpoint at start
    words: tuple[str, ...] = ()
    # commands that create the checkpoint, one per line; empty if it is published, or if no tool for
    # it is known
    make: tuple[str, ...] = ()
    named: bool = False  # whether the caller chose the checkpoint


def loading(
    model: str,
    precision: str,
    engine: str,
    *,
    vendor: str = "NVIDIA",
    named_checkpoint: str | None = None,
    planned: Sequence[str] = (),
) -> Loading:
    """The checkpoint that an engine (a preset) loads of a model (a catalog id, or the path of a
    config.json) in a number format.

    ``named_checkpoint`` is the caller's checkpoint, used unchanged; None chooses one from the
    catalog, or takes the repository that the words of the ``planned`` command name, where that is
    in the format. Raises InputError: ``named_checkpoint`` is not a checkpoint name; UnknownName:
    unknown model, number format or preset.
    """
    if named_checkpoint is not None:
        if (
            not named_checkpoint.strip()
            or named_checkpoint.startswith("-")
            or any(letter.isspace() for letter in named_checkpoint.strip())
        ):
            raise InputError(
                f"{option('checkpoint')}: '{named_checkpoint}' is no name of a checkpoint; write"
                " owner/name or a folder"
            )
        _check_made(named_checkpoint.strip(), find_precision(precision))
        return Loading(
            checkpoint=named_checkpoint.strip(),
            told=f"The engine loads `{named_checkpoint.strip()}`, given with `--checkpoint`.",
            named=True,
        )
    target, spec = find_precision(precision), find_engine(engine)
    checkpoint = published(model, target, spec, vendor)
    repository = next((word for word in planned if re.fullmatch(HUB_NAME, word)), "")
    words = quantised_at_start(model, target, spec)
    quantised = bool(words) and tuple(planned[-len(words) :]) == words
    if (
        repository
        and not quantised
        and repository
        not in (published_checkpoint.repository for published_checkpoint in find_checkpoints(model))
    ):
        return Loading(
            checkpoint=repository,
            told=f"The engine loads `{repository}`, for which the plan was made.",
        )
    listed = next(
        (
            published_checkpoint
            for published_checkpoint in find_checkpoints(model)
            if published_checkpoint.repository == repository
        ),
        None,
    )
    if listed is not None and same_weights(listed.format, target.weights):
        checkpoint = listed
    if checkpoint is not None:
        return Loading(checkpoint=checkpoint.repository, told=_of_published(checkpoint, target))
    return _made_at_start(model, target, spec) or _made_first(model, target, spec)


def judged(model: str) -> Judged | None:
    """What ``compress`` found of a checkpoint next to its original; None for a model that it did
    not make.

    ``model`` is the folder, its config.json, or any other name of a model. Raises InputError: its
    manifest is damaged.
    """
    place = Path(model)
    file = (
        place / MANIFEST if isdir(place) else place.with_name(MANIFEST) if isfile(place) else place
    )
    if file.name != MANIFEST or not isfile(file):
        return None
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
        figures = manifest["figures"]
        text = next((name for name in ("held_back", "calibration") if name in figures), "")
        quality = (
            {
                name: figures[text][name]
                for name in ("perplexity_original", "perplexity", "top1_agreement")
            }
            if text
            else {}
        )
        scores = {
            task: (score["original"], score["made"])
            for task, score in figures.get("tasks", {}).items()
        }
        precision, original = find_precision(manifest["precision"]), manifest["original"]
        like, loss = published_loss(precision, manifest["parameters"]) or ("", 0.0)
        return Judged(
            precision=precision.name,
            original=original,
            text=text,
            scores=scores,
            like=like,
            loss=loss,
            **quality,
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError(
            f"{file}: is no manifest of tonnage compress; make the checkpoint again"
        ) from None


def _check_made(folder: str, planned_precision: Precision) -> None:
    """Refuse what ``compress`` wrote in another format than the plan's. Raises InputError: with
    both.
    """
    judgement = judged(folder)
    if judgement is None:
        return
    precision = find_precision(judgement.precision)
    if (
        not same_weights(precision.weight_format, planned_precision.weight_format)
        or precision.sparse != planned_precision.sparse
    ):
        raise InputError(
            f"{option('checkpoint')}: {folder} is in {precision.name}, and the plan is for"
            f" {planned_precision.name}; size again with {option('precision')} {precision.name},"
            " or make the plan's by tonnage compress"
        )


def _of_published(checkpoint: Checkpoint, planned_precision: Precision) -> str:
    sentences = [
        f"The engine loads `{checkpoint.repository}`: {checkpoint.model} in {checkpoint.format},"
        f" licence {checkpoint.licence or 'unknown'}."
    ]
    if not same_weights(checkpoint.format, planned_precision.weights):
        sentences.append(
            f"The plan assumes {planned_precision.weights}; for the numbers of this checkpoint,"
            f" size again with `--precision {checkpoint.format}`."
        )
    if checkpoint.gated:
        sentences.append(GATED)
    return " ".join(sentences)


def _made_at_start(
    model: str, planned_precision: Precision, engine: EnginePreset
) -> Loading | None:
    """The 16-bit checkpoint, with the arguments that make the engine quantise it; None if the
    engine cannot.
    """
    words = quantised_at_start(model, planned_precision, engine)
    if not words:
        return None
    half = half_of(model)
    name = half.repository if half else _folder(model, HALF[1])
    text = (
        f"The engine loads `{name}` in 16 bits and quantises it to {planned_precision.weights} at"
        " start"
        f" (`{shlex.join(words)}`), because no published {planned_precision.weights} checkpoint of"
        f" {model} is known that {engine.name} reads."
    )
    if half is None:
        text += " Put the model's 16-bit checkpoint into this folder of every instance."
    elif half.gated:
        text += f" {GATED}"
    return Loading(checkpoint=name, told=text, words=words)


def _made_first(model: str, planned_precision: Precision, engine: EnginePreset) -> Loading:
    """A folder, with the command that creates the checkpoint in it."""
    folder = _folder(model, planned_precision.weights)
    sentence = (
        f"The engine loads the folder `{folder}`: no published {planned_precision.weights}"
        f" checkpoint of {model} is known that {engine.name} reads."
    )
    maker = find_maker(planned_precision.weights, engine)
    if maker is None:
        return Loading(
            checkpoint=folder,
            told=(
                f"{sentence} No tool that creates one is known: put your own into this folder of"
                " every instance, or give `--checkpoint`."
            ),
        )
    tool, makes = maker
    return Loading(
        checkpoint=folder,
        told=f"{sentence} Create it with {tool.tool}, and put it into this folder of every"
        " instance:",
        make=(
            tool.command.format(repository=source_of(model), scheme=makes.scheme, folder=folder),
        ),
    )


def source_of(model: str) -> str:
    """The checkpoint that a tool quantises: the 16-bit one, or the author's own if there is none in
    16 bits, or a folder.
    """
    half = half_of(model)
    return (
        half.repository
        if half
        else next(
            (checkpoint.repository for checkpoint in find_checkpoints(model)),
            _folder(model, HALF[1]),
        )
    )


def _folder(model: str, weights: str) -> str:
    """The folder of a checkpoint that the user creates."""
    name = Path(model).parent.name or Path(model).stem if model.endswith(".json") else model
    return f"{FOLDER}/{re.sub(r'[^A-Za-z0-9._-]+', '-', f'{name}-{weights}')}"

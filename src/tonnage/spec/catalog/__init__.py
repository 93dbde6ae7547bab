"""Models, GPUs, systems and engines that Tonnage knows by name, each with its source and date,
found by any of their spellings.

A spelling matches when it equals an id or an alias once case, spaces and underscores are
ignored; for models also once the owner ("meta-llama/"), the month of a release ("-2507") and the
words that only say how a checkpoint was tuned or packed ("-instruct", "-hf") are taken off; for
GPUs whatever the order of the words, and without the maker's name and words such as "GPU".
"""

from __future__ import annotations

import os.path
import re
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from tonnage.errors import InputError, UnknownName, option
from tonnage.scope import refused
from tonnage.spec.catalog import entries, repositories
from tonnage.spec.catalog.entries import Shelf, T, plain, shipped_yaml
from tonnage.spec.engine import EnginePreset
from tonnage.spec.hardware import (
    ARCHES,
    Gpu,
    System,
    is_hardware_file,
    mig_slice,
    read_hardware,
    read_system,
)
from tonnage.spec.kv_tiers import PLAIN, Offloading
from tonnage.spec.model import Model
from tonnage.spec.model_hubs import HUB_NAME, readers

if TYPE_CHECKING:
    from tonnage.spec.images import Encoder


Entry = Model | Gpu | System | EnginePreset

MOST_GPUS = 72  # Most GPUs of a server that is named by their number

_SHAPE = re.compile(r"^(\d{1,3})\s*[x×*]\s*-?(.+)$")
_SHAPE_BEHIND = re.compile(r"^(.+?)-?[x×*]-?(\d{1,2})$")  # "h100x8"
_MIG = re.compile(r"^(.+?)-(?:mig-)?(\d)g\.(\d{1,3})gb$")
_VERSION = re.compile(
    r"^(.*?)[\s:=v@-]*(\d{1,9}(?:\.\d{1,9})*)(?:[.+-]?(?:rc|post|dev|cpu|cu|rocm|amd|mi)[\w.]*)*$"
)


def _shown(spelling: str) -> str:
    """Shorten a requested name to one line of a message."""
    return "".join(letter if letter.isprintable() else "?" for letter in spelling[:80])


def find_model(name_or_path: str, layout: str = "") -> Model:
    """The model of that name, or of the ``config.json`` at that path (a file, or a folder that
    holds one).

    ``layout`` is the architecture as which the file is read, "" for its own.

    Raises UnknownName: no model of that name and no such file; InputError: the file cannot be read
    as a model.
    """
    if name_or_path.endswith(".json") or ("/" in name_or_path and os.path.exists(name_or_path)):
        from tonnage.spec.config_json import read_config

        return read_config(name_or_path, layout)
    exact = entries.model_shelf().by_name.get(plain(name_or_path)) or (
        None if layout else _kept.get(plain(name_or_path))
    )
    return exact or _model_named(name_or_path, layout)


_kept: dict[str, Model] = {}  # models that a hub or a plan had, by spelling


def keep(model: Model, *spellings: str) -> Model:
    """Know a model by its name and by further spellings from now on, such as one that a plan
    holds.
    """
    _kept.update({plain(spelling): model for spelling in (model.name, *spellings)})
    return model


def _model_named(name: str, layout: str) -> Model:
    """The model of a name that is no catalog id: a repository, another spelling, a known name with
    a format behind it, or a fine-tune's.
    """
    repository = repositories.find_repository(name)
    model = repository.model if repository is not None else entries.model_shelf().find(name)
    if model is None and refused("model", name):
        raise UnknownName("model", _shown(name), ())
    model, why = model or repositories.by_format(name), ""
    for reader in readers() if model is None and re.fullmatch(HUB_NAME, name) else ():
        read = reader(name, layout)
        if isinstance(read, Model):
            return keep(read, name)
        why = read
    model = model or repositories.by_words(name)
    if model is None:
        raise UnknownName(
            "model", _shown(name), _of_like_size(name), "the path of a config.json", why
        )
    return replace(model, reading=f"{model.reading}; {why.partition('; ')[0]}") if why else model


_BILLIONS = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)(t|b|m)(?![a-z0-9])", re.IGNORECASE)
_UNITS = {"t": 1e12, "b": 1e9, "m": 1e6}
# The most by which a model that a hint names may be larger or smaller than the size in the name
LIKE_SIZE = 1.5


def _of_like_size(name: str) -> list[str]:
    """The models that a name of that size may mean; all of them where it has no size."""
    match = _BILLIONS.search(name)
    if match is None:
        return list(entries.model_shelf().by_name)
    size = float(match[1]) * _UNITS[match[2].lower()]
    return [
        model.name for model in models() if size / LIKE_SIZE <= model.parameters <= size * LIKE_SIZE
    ]


def gpu_spelled(name: str) -> Gpu | None:
    """The GPU of that name, or the MIG slice of one ("h100-mig-3g.40gb"); None where there is none.

    Raises InputError: a virtual GPU with a part of a card's memory, which others share by time.
    """
    gpu = entries.gpu_shelf().find(name) or _virtual(name)
    match = _MIG.match(plain(name)) if gpu is None else None
    whole = entries.gpu_shelf().find(match[1]) if match else None
    return gpu if match is None or whole is None else mig_slice(whole, int(match[2]), int(match[3]))


# NVIDIA vGPU: the card, gigabytes and a letter, such as L40S-48Q
_VIRTUAL = re.compile(r"^(?:nvidia-)?(?:grid-)?(.+?)-(\d{1,3})[abcq]$")


def _virtual(name: str) -> Gpu | None:
    """The card of a virtual GPU that has all of its memory; None where the name is of none. Raises
    InputError: it has a part.
    """
    match = _VIRTUAL.match(plain(name))
    if match is None:
        return None
    base, shelf = re.sub(r"^rtx(?=[a\d])", "rtx-", match[1]), entries.gpu_shelf()
    card = shelf.find(f"{base}-{match[2]}gb") or shelf.find(base)
    if card is None or int(match[2]) == round(card.memory_gb):
        return card
    shares = (
        f"is a virtual GPU with {match[2]} of the {card.memory_gb:g} GB of {card.name}, whose"
        " arithmetic others share by time"
    )
    raise InputError(
        f"GPU '{_shown(name)}' {shares}; plan the card, {card.name}, or describe what you get of it"
        " in a YAML file"
    )


def find_gpu(name_or_path: str) -> Gpu:
    """The GPU of that name, of the system of that name ("gb200-nvl72"), or of the YAML file at that
    path.

    Where a spelling leaves the board open it is the SXM one.

    Raises:
        UnknownName: no GPU of that name.
        InputError: the file cannot be read as an accelerator.
    """
    if is_hardware_file(name_or_path):
        return read_hardware(name_or_path)
    gpu = gpu_spelled(name_or_path)
    if gpu is not None:
        return gpu
    system = system_spelled(name_or_path)
    if system is None:
        _refuse_generation(name_or_path)
        raise UnknownName(
            "GPU", _shown(name_or_path), entries.gpu_shelf().by_name, "the path of a YAML file"
        )
    return gpu_of(system)


def _refuse_generation(name: str) -> None:
    """Raises InputError: it names a generation of GPUs, such as "Hopper", "gfx942" or "sm_90"."""
    code = re.sub(r"[\s_-]", "", name.casefold())
    generation = ARCHES.get(code, code).casefold().replace(" ", "")
    gpus = [
        gpu
        for gpu in entries.gpu_shelf().by_name.values()
        if gpu.arch.casefold().replace(" ", "") == generation
    ]
    if gpus:
        names = ", ".join(gpu.name for gpu in gpus)
        raise InputError(
            f"GPU '{_shown(name)}' is a generation, {gpus[0].arch}; name one of its GPUs: {names}"
        )


def machine_meant(name: str) -> System | None:
    """The system that a GPU's name means, such as "gb200-nvl72" and "p5.48xlarge"; None where it is
    a GPU's own, or a file's.
    """
    return None if is_hardware_file(name) or gpu_spelled(name) else system_spelled(name)


def find_system(name: str) -> System:
    """The system of that name, such as "dgx-h100", "8xl40s" or "4xl40s", a cloud's machine type, or
    the YAML file at that path.

    Raises UnknownName: no system of that name; InputError: the file cannot be read as a system.
    """
    if is_hardware_file(name):
        return read_system(name)
    system = system_spelled(name)
    if system is None:
        otherwise = (
            "a number of GPUs such as 4xl40s, a cloud's machine type such as p5.48xlarge, or the"
            " path of a YAML file"
        )
        raise UnknownName("system", _shown(name), entries.system_shelf().by_name, otherwise)
    return system


def system_spelled(name: str) -> System | None:
    """The system of that name, so many of a GPU, or the machine type of a cloud; None where there
    is none.
    """
    spelling = _LAMBDA.sub(r"\1x\2", re.sub(r"^(?:nvidia|amd)-", "", plain(name)))
    system = (
        entries.system_shelf().find(spelling)
        or _of_gpus(spelling)
        or _of_gpus(_SHAPE_BEHIND.sub(r"\2x\1", spelling))
    )
    return system or instance_types().get(level_type(name))


def _of_gpus(spelling: str) -> System | None:
    """A server with a number of one GPU, such as "4xl40s"; the catalog's own system where that has
    as many.
    """
    match = _SHAPE.match(spelling)
    gpu = gpu_spelled(match[2]) if match else None
    if match is None or gpu is None or not 1 <= int(match[1]) <= MOST_GPUS:
        return None
    system = system_of(gpu)
    return system if system.gpus == int(match[1]) else entries.generic_system(gpu, int(match[1]))


def gpu_of(system: System) -> Gpu:
    """The GPU that a system holds. Raises UnknownName: it is not in the catalog; InputError: its
    file cannot be read.
    """
    return find_gpu(system.gpu_file or system.gpu)


def system_of(gpu: Gpu) -> System:
    """The first system built of that GPU; a generic one of eight where no server is known."""
    matching = (
        system for system in entries.system_shelf().by_name.values() if system.gpu == gpu.name
    )
    return next(matching, None) or entries.generic_system(gpu)


def find_offloading(name: str) -> Offloading:
    """The offloader of that name. Raises UnknownName: there is none."""
    by_name = {offloading.name: offloading for offloading in entries.offloadings()}
    if name not in by_name:
        raise UnknownName("offloader", _shown(name), by_name)
    return by_name[name]


def usual_offloading(family: str) -> Offloading:
    """The usual offloader of the engines of a family; one without memories where none is known."""
    return next(
        (offloading for offloading in entries.offloadings() if family in offloading.engines), PLAIN
    )


def find_encoder(model: str) -> Encoder:
    """The image encoder of a model of the catalog. Raises InputError: it takes no images, or its
    encoder is not known.
    """
    encoders = entries.encoders()
    image_encoder = next((encoder for encoder in encoders if model in encoder.models), None)
    if image_encoder is None:
        examples = ", ".join(encoder.models[0] for encoder in encoders)
        raise InputError(
            f"{option('images')}: no image encoder of {model} is known; those of {examples} and"
            " their families are"
        )
    return image_encoder


def find_engine(name: str) -> EnginePreset:
    """The engine preset of that name, or of the nearest version at or below: "vllm 0.19.1" is
    "vllm-0.19".

    Raises UnknownName: no engine of that family, or none that old.
    """
    engine_preset = entries.engine_shelf().find(name)
    if engine_preset is not None:
        return engine_preset
    match = _VERSION.match(plain(name))
    if match:
        stem = entries.engine_shelf().find(match[1])
        version = _numbers(match[2])
        family = [
            spec
            for spec in entries.engine_shelf().by_name.values()
            if stem and spec.family == stem.family
        ]
        at_or_below = [spec for spec in family if _numbers(spec.since) <= version]
        if at_or_below:
            return max(at_or_below, key=lambda spec: _numbers(spec.since))
    raise UnknownName("engine", _shown(name), entries.engine_shelf().by_name)


def newer_than_known(name: str) -> str:
    """The preset that answers for a newer version of its engine than any preset is of, such as
    "vllm-0.32" for "vllm 0.33"; else "".
    """
    match = _VERSION.match(plain(name))
    preset = find_engine(name)
    if match is None or entries.engine_shelf().find(name) is not None:
        return ""
    newest = max(_numbers(spec.since) for spec in engines() if spec.family == preset.family)
    version = _numbers(match[2])[: len(newest)]
    return (
        preset.name
        if preset.since and _numbers(preset.since) == newest and version > newest
        else ""
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def models() -> tuple[Model, ...]:
    """Every model of the catalog, by name."""
    return tuple(entries.model_shelf().by_name.values())


def gpus() -> tuple[Gpu, ...]:
    """Every GPU of the catalog, in the order of its file."""
    return tuple(entries.gpu_shelf().by_name.values())


def systems() -> tuple[System, ...]:
    """Every system of the catalog, the generic ones of eight at the end."""
    return tuple(entries.system_shelf().by_name.values())


def engines() -> tuple[EnginePreset, ...]:
    """Every engine preset of the catalog."""
    return tuple(entries.engine_shelf().by_name.values())


def search(text: str) -> tuple[Entry, ...]:
    """Every entry whose name, other spellings, source or notes contain all words of ``text``.

    Where none does, the MIG slice or the model of the repository of that name.
    """
    words = plain(text).split("-")
    matches: list[Entry] = []
    matches += _matching(entries.model_shelf(), words)
    matches += _matching(entries.gpu_shelf(), words)
    matches += _matching(entries.system_shelf(), words)
    matches += _matching(entries.engine_shelf(), words)
    piece = None if matches else gpu_spelled(text) or _known_model(text)
    return tuple(matches) if piece is None else (piece,)


def _known_model(name: str) -> Model | None:
    """The model of that name, which the catalog holds or guesses; None where it has none, or does
    not read its format.
    """
    repository = repositories.find_repository(name)
    try:
        return (
            repositories.by_format(name) or repositories.by_words(name)
            if repository is None
            else repository.model
        )
    except InputError:
        return None


def _matching(shelf: Shelf[T], words: list[str]) -> list[T]:
    spellings: dict[str, str] = {
        name: f"{name} {entry.source} {entry.notes}" for name, entry in shelf.by_name.items()
    }
    for alias, name in shelf.aliases.items():
        spellings[name] += f" {alias}"
    return [
        shelf.by_name[name]
        for name, text in spellings.items()
        if all(word in plain(text) for word in words)
    ]


# Machines that clouds rent out, by the name of their type, such as "p5.48xlarge".


_LAMBDA = re.compile(r"^gpu-(\d{1,2})x-(.+)$")  # Lambda's types say their GPUs: "gpu_8x_h100_sxm5"


def level_type(name: str) -> str:
    """A type's name in lower case with hyphens, without Azure's "Standard_" and the word
    "series".
    """
    return plain(name).removeprefix("standard-").removesuffix("-series")


@cache
def instance_types() -> dict[str, System]:
    """Every machine type, by its name as ``level_type`` writes it; with and without the provider's
    name before it.
    """
    from tonnage.spec.catalog.price_list import catalog_prices

    rows = [{"max_power_w": None, **row} for row in shipped_yaml("instances.yaml")]
    machine_types = dict(entries.shelf_of(System, rows, "instances.yaml", level_type).by_spelling)
    for offer in catalog_prices().cloud:
        if len(offer.machine_gpus) != 1 or not offer.terms:
            continue
        name = offer.offer.removeprefix(offer.provider).split(f" {offer.terms}")[0].strip()
        if " " in name or not any(map(str.isdigit, name)) or gpu_spelled(name) is not None:
            continue  # no name of a type, or a cloud that names its machines after their GPU alone
        price = offer.usd_per_gpu_hour
        source = f"a machine type of {offer.provider}: {price.source}"
        machine = System(
            name=name,
            gpu=offer.gpu,
            gpus=offer.machine_gpus[0],
            max_power_w=None,
            source=source,
            date=price.date,
        )
        machine_types.setdefault(level_type(name), machine)
        machine_types.setdefault(
            level_type(f"{offer.provider} {name}"), machine_types[level_type(name)]
        )
    return machine_types

"""Reads the data files of the catalog into values; each file is read once, when first asked for."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tonnage.errors import DataError
from tonnage.spec.deployment import EngineKnobs
from tonnage.spec.engine import EngineSpec, MemoryDefault
from tonnage.spec.hardware import Gpu, System
from tonnage.spec.model import LatentAttention, Model

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_HERE = resources.files("tonnage.spec.catalog")

T = TypeVar("T", Model, Gpu, System, EngineSpec)
Raw = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf(Generic[T]):
    """One kind of entries.

    Attributes:
        by_name: entry by id, in the order of the files.
        aliases: id by other spelling, as written in the files.
    """

    by_name: Mapping[str, T]
    aliases: Mapping[str, str]


def _shelf(entries: Iterable[tuple[T, list[str]]], where: str) -> Shelf[T]:
    by_name: dict[str, T] = {}
    aliases: dict[str, str] = {}
    for entry, others in entries:
        if entry.name in by_name:
            raise DataError(f"{where}: '{entry.name}' stands there twice")
        if not (entry.source and entry.date):
            raise DataError(f"{where}: '{entry.name}' has no source or no date")
        by_name[entry.name] = entry
        aliases.update((other, entry.name) for other in others)
    return Shelf(by_name=MappingProxyType(by_name), aliases=MappingProxyType(aliases))


def _yaml(name: str) -> list[Raw]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        loaded = yaml.load(_HERE.joinpath(name).read_text(encoding="utf-8"), Loader=loader)
    except (OSError, yaml.YAMLError) as error:
        raise DataError(f"catalog/{name} cannot be read: {error}") from None
    return [dict(entry, date=str(entry["date"])) for entry in loaded]


def _make(kind: type[T], raw: Raw, where: str) -> T:
    known = {field.name for field in fields(kind)}
    try:
        return kind(**{key: value for key, value in raw.items() if key in known})
    except TypeError as error:
        raise DataError(f"{where}: '{raw.get('name')}': {error}") from None


@cache
def model_shelf() -> Shelf[Model]:
    """The models of ``models/*.json``."""
    entries = []
    for path in sorted(_HERE.joinpath("models").iterdir(), key=lambda file: file.name):
        if path.name.endswith(".json"):
            raw = json.loads(path.read_text(encoding="utf-8"))
            entries.append((_model(raw, f"models/{path.name}"), raw["aliases"]))
    return _shelf(entries, "models")


def _model(raw: Raw, where: str) -> Model:
    latent = raw.get("latent")
    try:
        made = LatentAttention(**latent) if latent is not None else None
    except TypeError as error:
        raise DataError(f"{where}: '{raw.get('name')}': latent: {error}") from None
    return _make(Model, {**raw, "latent": made}, where)


@cache
def gpu_shelf() -> Shelf[Gpu]:
    """The accelerators of ``gpus.yaml``."""
    return _shelf(((_make(Gpu, raw, "gpus.yaml"), raw["aliases"]) for raw in _yaml("gpus.yaml")), "gpus.yaml")


@cache
def system_shelf() -> Shelf[System]:
    """The servers of ``systems.yaml``, and a generic one of eight for every GPU that is in none of them."""
    entries = [(_make(System, raw, "systems.yaml"), list(raw["aliases"])) for raw in _yaml("systems.yaml")]
    taken = {system.gpu for system, _ in entries}
    for gpu in gpu_shelf().by_name.values():
        if gpu.name not in taken:
            entries.append((generic_system(gpu), []))
    return _shelf(entries, "systems.yaml")


def generic_system(gpu: Gpu) -> System:
    """Eight of a GPU in one server, for counting where no server is known."""
    return System(
        name=f"8x{gpu.name}",
        gpu=gpu.name,
        gpus=8,
        max_power_w=None,
        source="generic: eight of the GPU in one server, an assumption for counting",
        date=gpu.date,
    )


@cache
def engine_shelf() -> Shelf[EngineSpec]:
    """The engine presets of ``engines.yaml``."""
    return _shelf(((_engine(raw), raw["aliases"]) for raw in _yaml("engines.yaml")), "engines.yaml")


def _engine(raw: Raw) -> EngineSpec:
    defaults = [
        MemoryDefault(
            min_bytes=default["min_gib"] * 2**30,
            excluded=default.get("except", ""),
            max_batch_size=default["max_batch_size"],
            max_num_tokens=default["max_num_tokens"],
            kv_fraction=default.get("kv_fraction"),
        )
        for default in raw.get("by_memory", [])
    ]
    knobs = EngineKnobs(**{field.name: raw[field.name] for field in fields(EngineKnobs) if field.name in raw})
    rest = dict(raw, vendors=tuple(raw["vendors"]), without=tuple(raw.get("without", ())), by_memory=tuple(defaults), knobs=knobs)
    return _make(EngineSpec, rest, "engines.yaml")

"""Reads the data files of the catalog into values; each file is read once, when first asked for.

A key that a class does not have, or a value of another kind, is refused with the file, the entry and the field.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tonnage.errors import DataError, InputError
from tonnage.spec.deployment import EngineKnobs
from tonnage.spec.engine import EnginePreset, Launch, MemoryDefault
from tonnage.spec.hardware import Gpu, System
from tonnage.spec.images import Encoder
from tonnage.spec.kv_tiers import Offloading
from tonnage.spec.model import Model
from tonnage.spec.typed_values import parse_yaml, read_entries, strict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Raw = Mapping[str, Any]


_HERE = resources.files("tonnage.spec.catalog")

T = TypeVar("T", Model, Gpu, System, EnginePreset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf(Generic[T]):
    """One kind of entries.

    Attributes:
        by_name: entry by id, in the order of the files.
        aliases: id by other spelling, as written in the files.
    """

    by_name: Mapping[str, T]
    aliases: Mapping[str, str]


@strict
class ModelEntry(Model):
    """A model as its file writes it."""

    aliases: tuple[str, ...]


@strict
class GpuEntry(Gpu):
    """A GPU as ``gpus.yaml`` writes it."""

    aliases: tuple[str, ...]


@strict
class SystemEntry(System):
    """A system as ``systems.yaml`` writes it."""

    aliases: tuple[str, ...]


def _shelf(entries: Iterable[tuple[T, tuple[str, ...]]], where: str) -> Shelf[T]:
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


def shipped_yaml(name: str) -> Any:
    """The plain values of one of the catalog's YAML files. Raises DataError: the file is not YAML, or gives a key twice."""
    try:
        return parse_yaml(_HERE.joinpath(name).read_text(encoding="utf-8"), f"catalog/{name}", shipped=True)
    except (OSError, InputError) as error:
        raise DataError(f"catalog/{name} cannot be read: {error}") from None


def _value(kind: type[T], entry: T) -> T:
    """The entry without what only its file says."""
    return kind(**{part.name: getattr(entry, part.name) for part in fields(kind)})


@cache
def model_shelf() -> Shelf[Model]:
    """The models of ``models/*.json``. Raises DataErrors: a file has unknown keys or values of another kind."""
    files = sorted(_HERE.joinpath("models").iterdir(), key=lambda file: file.name)
    raw = [json.loads(path.read_text(encoding="utf-8")) for path in files if path.name.endswith(".json")]
    return _shelf(((_value(Model, entry), entry.aliases) for entry in read_entries(ModelEntry, raw, "models")), "models")


@cache
def gpu_shelf() -> Shelf[Gpu]:
    """The accelerators of ``gpus.yaml``. Raises DataErrors: the file has unknown keys or values of another kind."""
    entries = read_entries(GpuEntry, shipped_yaml("gpus.yaml"), "gpus.yaml")
    return _shelf(((_value(Gpu, entry), entry.aliases) for entry in entries), "gpus.yaml")


@cache
def system_shelf() -> Shelf[System]:
    """The servers of ``systems.yaml``, and a generic one of eight for every GPU that is in none of them.

    Raises DataErrors: the file has unknown keys or values of another kind.
    """
    read = read_entries(SystemEntry, shipped_yaml("systems.yaml"), "systems.yaml")
    entries = [(_value(System, entry), entry.aliases) for entry in read]
    taken = {system.gpu for system, _ in entries}
    for gpu in gpu_shelf().by_name.values():
        if gpu.name not in taken:
            entries.append((generic_system(gpu), ()))
    return _shelf(entries, "systems.yaml")


@cache
def offloadings() -> tuple[Offloading, ...]:
    """The offloaders of ``offloading.yaml``. Raises DataErrors: the file has unknown keys or values of another kind."""
    return read_entries(Offloading, shipped_yaml("offloading.yaml"), "offloading.yaml")


@cache
def encoders() -> tuple[Encoder, ...]:
    """The image encoders of ``encoders.yaml``. Raises DataErrors: the file has unknown keys or values of another kind."""
    return read_entries(Encoder, shipped_yaml("encoders.yaml"), "encoders.yaml")


def generic_system(gpu: Gpu, gpus: int = 8) -> System:
    """So many of a GPU in one server, for counting where no server is known."""
    return System(
        name=f"{gpus}x{gpu.name}",
        gpu=gpu.name,
        gpus=gpus,
        max_power_w=None,
        source=f"generic: {'eight' if gpus == 8 else gpus} of the GPU in one server, an assumption for counting",
        date=gpu.date,
    )


@cache
def engine_shelf() -> Shelf[EnginePreset]:
    """The engine presets of ``engines.yaml``. Raises DataErrors: the file has unknown keys or values of another kind."""
    return _shelf(read_presets(shipped_yaml("engines.yaml"), "engines.yaml"), "engines.yaml")


# The presets of ``engines.yaml``: ``extends`` takes over every key of another preset that is not given, but those of ``OWN``.


OWN = ("name", "aliases", "notes", "extends")
"""Keys that a preset does not take over from the one that it extends."""


@strict
class MemoryEntry:
    """A ``MemoryDefault`` as the file writes it: memory in GiB."""

    min_gib: int
    excluded: str = ""
    max_batch_size: int
    max_num_tokens: int
    kv_fraction: float | None = None

    def value(self) -> MemoryDefault:
        """The limits with memory in bytes."""
        return MemoryDefault(
            min_bytes=self.min_gib * 2**30,
            excluded=self.excluded,
            max_batch_size=self.max_batch_size,
            max_num_tokens=self.max_num_tokens,
            kv_fraction=self.kv_fraction,
        )


@strict
class EngineEntry(EngineKnobs):
    """An ``EnginePreset`` as the file writes it, its knobs among the other keys."""

    name: str
    aliases: tuple[str, ...] = ()
    family: str
    since: str
    vendors: tuple[str, ...]
    coefficients: str
    replicated_embedding: bool
    narrow_activation_bytes_per_hidden: float
    logit_bytes_per_vocabulary_row: float
    reserve_bytes: int
    communication_bytes: int | None = None
    by_memory: tuple[MemoryEntry, ...] = ()
    without: tuple[str, ...] = ()
    front_ends_per_rank: bool = False
    before_rows: bool = False
    launch: Launch | None = None
    source: str
    date: str
    notes: str = ""

    def value(self) -> EnginePreset:
        """The preset."""
        knobs = EngineKnobs(**{part.name: getattr(self, part.name) for part in fields(EngineKnobs)})
        same = {part.name: getattr(self, part.name) for part in fields(EnginePreset) if part.name not in ("knobs", "by_memory")}
        return EnginePreset(**same, knobs=knobs, by_memory=tuple(default.value() for default in self.by_memory))


def read_presets(rows: Sequence[Raw], where: str) -> Iterable[tuple[EnginePreset, tuple[str, ...]]]:
    """The presets of the file with their other names.

    Raises DataError: a preset extends one that is not there, or itself; DataErrors: unknown keys and values of another kind, all of them.
    """
    by_name = {row["name"]: row for row in rows if "name" in row}
    entries = read_entries(EngineEntry, [_resolved(row, by_name, where) for row in rows], where)
    return [(entry.value(), entry.aliases) for entry in entries]


def _resolved(row: Raw, by_name: Mapping[str, Raw], where: str, below: tuple[str, ...] = ()) -> dict[str, Any]:
    """A preset with everything that it takes over."""
    own = {key: value for key, value in row.items() if key != "extends"}
    parent = row.get("extends")
    if parent is None:
        return own
    if parent not in by_name:
        raise DataError(f"{where}: {row['name']}: extends: there is no preset '{parent}'")
    if parent in (row["name"], *below):
        raise DataError(f"{where}: {row['name']}: extends: '{parent}' extends this preset in turn")
    taken = _resolved(by_name[parent], by_name, where, (*below, row["name"]))
    return {**{key: value for key, value in taken.items() if key not in OWN}, **own}

"""The presets of ``engines.yaml``: one engine over one range of versions each, written as what differs from another.

A preset that says ``extends: NAME`` takes every key from the preset of that name that it does not give itself, but not
``name``, ``aliases`` and ``notes``, which are about one preset alone.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from tonnage.errors import DataError
from tonnage.spec.deployment import EngineKnobs
from tonnage.spec.engine import EnginePreset, LaunchEntry, MemoryDefault
from tonnage.spec.typed_values import read_entries, strict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Raw = Mapping[str, Any]

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
    launch: LaunchEntry | None = None
    source: str
    date: str
    notes: str = ""

    def value(self) -> EnginePreset:
        """The preset."""
        knobs = EngineKnobs(**{part.name: getattr(self, part.name) for part in fields(EngineKnobs)})
        same = {part.name: getattr(self, part.name) for part in fields(EnginePreset) if part.name not in ("knobs", "by_memory", "launch")}
        launch = None if self.launch is None else self.launch.value()
        return EnginePreset(**same, knobs=knobs, by_memory=tuple(default.value() for default in self.by_memory), launch=launch)


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

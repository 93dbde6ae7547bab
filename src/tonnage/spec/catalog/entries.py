"""Reads the data files of the catalog into values; each file is read once, when first asked for.

A key that a class does not have, or a value of another kind, is refused with the file, the entry
and the field.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tonnage.errors import DataError, InputError, option
from tonnage.spec.engine import EnginePreset
from tonnage.spec.hardware import Gpu, HostCpu, System
from tonnage.spec.images import Encoder
from tonnage.spec.kv_tiers import Offloading
from tonnage.spec.lengths import RecordedLengths
from tonnage.spec.model import Model
from tonnage.spec.typed_values import parse_yaml, read_entries

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Raw = Mapping[str, Any]


_HERE = resources.files("tonnage.spec.catalog")

T = TypeVar("T", Model, Gpu, System, EnginePreset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf(Generic[T]):
    """One kind of entries."""

    by_name: Mapping[str, T]  # entry by id, in the order of the files
    aliases: Mapping[str, str]  # id by other spelling, as written in the files
    level: Callable[[str], str]  # what makes two spellings of an entry the same text
    by_spelling: Mapping[str, T]  # entry by every such text

    def find(self, spelling: str) -> T | None:
        """The entry of that name or alias; None where there is none."""
        return self.by_spelling.get(self.level(spelling))


_TUNING = re.compile(r"-(instruct|thinking|chat|hf|it|base|2[3-6](?:0[1-9]|1[0-2])|0[1-9][0-3]\d)$")
_MAKERS = re.compile(r"^(?:(?:nvidia|amd|intel|google|tesla|instinct)-)+")
_KIND_OF_GPU = re.compile(r"-(?:tensor-core-gpu|accelerator|graphics|gpu|oam)$")
_LLAMA = re.compile(r"^(?:meta-)?llama-?v?(\d)(?:[.p-](\d)(?=-))?-?(?=\d)")


def plain(spelling: str) -> str:
    """Lower case, with one hyphen for every run of blanks, underscores and hyphens."""
    return re.sub(r"[\s_-]+", "-", spelling.strip().lower())


def _level_gpu(spelling: str) -> str:
    """A GPU's spelling without its maker, the word GPU and the generation of its socket, and with
    its words in one order.
    """
    name = _KIND_OF_GPU.sub("", _MAKERS.sub("", plain(spelling)))
    name = re.sub(r"\bsxm\d\b", "sxm", re.sub(r"(?<=\d)-(?=gi?b\b)", "", name))
    first, *rest = name.split("-")
    return "-".join((first, *sorted(rest)))


def _level_model(spelling: str) -> str:
    """A model's spelling without owner and tuning words, Llama's versions written as
    "llama-3.1-".
    """
    name = plain(spelling).rsplit("/", 1)[-1].replace(":", "-")
    shorter = _TUNING.sub("", name)
    while shorter != name:
        name, shorter = shorter, _TUNING.sub("", shorter)
    match = _LLAMA.match(name)
    if match:
        version = f"{match[1]}.{match[2]}" if match[2] else match[1]
        name = f"llama-{version}-{name[match.end() :]}"
    return name


def shelf_of(
    kind: type[T], rows: Sequence[Raw], where: str, level: Callable[[str], str] = plain
) -> Shelf[T]:
    """The entries of a file, whose rows have other spellings as ``aliases``."""
    plain_rows = [{key: value for key, value in row.items() if key != "aliases"} for row in rows]
    by_name: dict[str, T] = {}
    for entry in read_entries(kind, plain_rows, where):
        if entry.name in by_name:
            raise DataError(f"{where}: '{entry.name}' stands there twice")
        if not (entry.source and entry.date):
            raise DataError(f"{where}: '{entry.name}' has no source or no date")
        by_name[entry.name] = entry
    aliases = {spelling: str(row["name"]) for row in rows for spelling in row.get("aliases", ())}
    spelled = {level(alias): by_name[name] for alias, name in aliases.items()} | {
        level(name): entry for name, entry in by_name.items()
    }
    return Shelf(
        by_name=MappingProxyType(by_name),
        aliases=MappingProxyType(aliases),
        level=level,
        by_spelling=MappingProxyType(spelled),
    )


def shipped_yaml(name: str) -> Any:
    """The plain values of one of the catalog's YAML files. Raises DataError: the file is not YAML,
    or gives a key twice.
    """
    try:
        return parse_yaml(
            _HERE.joinpath(name).read_text(encoding="utf-8"), f"catalog/{name}", shipped=True
        )
    except (OSError, InputError) as error:
        raise DataError(f"catalog/{name} cannot be read: {error}") from None


@cache
def model_shelf() -> Shelf[Model]:
    """The models of ``models/*.json`` and of the lines of ``models.jsonl``.

    Raises DataErrors: a file has unknown keys or values of another kind.
    """
    files = sorted(_HERE.joinpath("models").iterdir(), key=lambda file: file.name)
    written = [path.read_text(encoding="utf-8") for path in files if path.name.endswith(".json")]
    written += _HERE.joinpath("models.jsonl").read_text(encoding="utf-8").splitlines()
    return shelf_of(Model, [json.loads(text) for text in written], "models", _level_model)


@cache
def gpu_shelf() -> Shelf[Gpu]:
    """The accelerators of ``gpus.yaml``. Raises DataErrors: the file has unknown keys or values of
    another kind.
    """
    return shelf_of(Gpu, shipped_yaml("gpus.yaml"), "gpus.yaml", _level_gpu)


@cache
def system_shelf() -> Shelf[System]:
    """The servers of ``systems.yaml``, and a generic one of eight for every GPU that is in none of
    them.

    Raises DataErrors: the file has unknown keys or values of another kind.
    """
    rows = shipped_yaml("systems.yaml")
    listed_gpus = {row["gpu"] for row in rows}
    generic = [
        asdict(generic_system(gpu))
        for gpu in gpu_shelf().by_name.values()
        if gpu.name not in listed_gpus
    ]
    return shelf_of(System, [*rows, *generic], "systems.yaml")


@cache
def offloadings() -> tuple[Offloading, ...]:
    """The offloaders of ``offloading.yaml``. Raises DataErrors: the file has unknown keys or values
    of another kind.
    """
    return read_entries(Offloading, shipped_yaml("offloading.yaml"), "offloading.yaml")


@cache
def host_cpus() -> dict[str, HostCpu]:
    """The classes of host CPUs of ``host_cpus.yaml`` by name. Raises DataErrors: unknown keys or
    values of another kind.
    """
    return {
        cpu.name: cpu
        for cpu in read_entries(HostCpu, shipped_yaml("host_cpus.yaml"), "host_cpus.yaml")
    }


def host_speed_of(host: float | str) -> float:
    """The speed of a host's core over the measured hosts': a number, a class of ``host_cpus``, or
    the CPU's name as ``lscpu`` prints it.

    Raises InputError: no number, and no CPU of a known class.
    """
    if not isinstance(host, str):
        return float(host)
    text = host.strip()
    try:
        return float(text)
    except ValueError:
        classes = host_cpus()
    for cpu in classes.values():
        if text == cpu.name or re.search(cpu.models, text, re.IGNORECASE):
            return cpu.speed
    raise InputError(
        f"{option('host_speed')}: the speed of '{text}' is not known; write a number such as 0.7,"
        f" or one of {', '.join(classes)}"
    )


@cache
def recorded_lengths() -> Mapping[str, RecordedLengths]:
    """The traces of ``recorded_lengths.yaml`` by name. Raises DataErrors: the file has unknown keys
    or values of another kind.
    """
    rows = read_entries(
        RecordedLengths, shipped_yaml("recorded_lengths.yaml"), "recorded_lengths.yaml"
    )
    return {row.name: row for row in rows}


@cache
def encoders() -> tuple[Encoder, ...]:
    """The image encoders of ``encoders.yaml``. Raises DataErrors: the file has unknown keys or
    values of another kind.
    """
    return read_entries(Encoder, shipped_yaml("encoders.yaml"), "encoders.yaml")


def generic_system(gpu: Gpu, gpus: int = 8) -> System:
    """A server with ``gpus`` of one GPU, for counting where no server is known."""
    return System(
        name=f"{gpus}x{gpu.name}",
        gpu=gpu.name,
        gpus=gpus,
        max_power_w=None,
        source=(
            f"generic: {'eight' if gpus == 8 else gpus} of the GPU in one server, an assumption for"
            " counting"
        ),
        date=gpu.date,
    )


@cache
def engine_shelf() -> Shelf[EnginePreset]:
    """The engine presets of ``engines.yaml``. Raises DataErrors: the file has unknown keys or
    values of another kind.
    """
    return read_presets(shipped_yaml("engines.yaml"), "engines.yaml")


# The presets of ``engines.yaml``: ``extends`` takes over every key of another preset that is not
# given, but those of ``OWN``.


# Keys that a preset does not take over from the one that it extends
OWN = ("name", "aliases", "notes", "extends")


def read_presets(rows: Sequence[Raw], where: str) -> Shelf[EnginePreset]:
    """The presets of the file.

    Raises DataError: a preset extends one that is not there, or itself; DataErrors: unknown keys
    and values of another kind, all of them.
    """
    by_name = {row["name"]: row for row in rows if "name" in row}
    return shelf_of(EnginePreset, [_resolved(row, by_name, where) for row in rows], where)


def _resolved(
    row: Raw, by_name: Mapping[str, Raw], where: str, below: tuple[str, ...] = ()
) -> dict[str, Any]:
    """A preset with everything that it takes over."""
    own_values = {key: value for key, value in row.items() if key != "extends"}
    parent = row.get("extends")
    if parent is None:
        return own_values
    if parent not in by_name:
        raise DataError(f"{where}: {row['name']}: extends: there is no preset '{parent}'")
    if parent in (row["name"], *below):
        raise DataError(f"{where}: {row['name']}: extends: '{parent}' extends this preset in turn")
    inherited = _resolved(by_name[parent], by_name, where, (*below, row["name"]))
    return {**{key: value for key, value in inherited.items() if key not in OWN}, **own_values}

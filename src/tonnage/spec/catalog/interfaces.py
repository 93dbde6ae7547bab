"""What each version of an engine takes and publishes, as ``tools/interfaces.py`` reads it from that
version's own source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from itertools import chain
from types import MappingProxyType
from typing import Any

from tonnage.spec.catalog.entries import shipped_yaml
from tonnage.spec.engine import EnginePreset
from tonnage.spec.hardware import Gpu
from tonnage.spec.kv_tiers import Offloading
from tonnage.spec.typed_values import read_entries, strict


@strict
class Interface:
    """The flags, metrics and image of the version that an engine preset speaks for."""

    name: str  # of the preset
    version: str  # of the engine
    # image, image_source: its container with its tag, and what is known of the tag
    image: str
    image_source: str
    date: str  # of the reading
    source: str  # wheel and files, or that it is recalled
    # values, switches: flags with a value and without, apart by blanks
    values: str
    switches: str
    # values of a flag, or of a key of the configuration file, where these are limited
    choices: dict[str, tuple[str, ...]]
    metrics: str  # names for Prometheus, apart by blanks
    # upper bounds of histograms in seconds, ascending, without infinity
    buckets: dict[str, tuple[float, ...]]
    keys: str = ""  # of the configuration file, with dots between the levels, apart by blanks
    # amd, amd_source: the container with ROCm, by architecture of AMD's GPUs, and what is known of
    # its tag
    amd: dict[str, str] = field(default_factory=dict)
    amd_source: str = ""

    @property
    def recalled(self) -> bool:
        """Whether no source of this version was at hand."""
        return self.source.startswith("recalled")

    def image_on(self, gpu: Gpu) -> str:
        """The container for a GPU; empty where none is known."""
        return {"NVIDIA": self.image, "AMD": self.amd.get(gpu.arch, "")}.get(gpu.vendor, "")

    def fault(self, argv: Sequence[str], file: Mapping[str, Any]) -> str:
        """What this version does not take in a command and its configuration file, as a clause;
        empty if it takes everything.
        """
        return next(chain(self._faults(argv), self._wrong_keys(file, "")), "")

    def _faults(self, argv: Sequence[str]) -> Iterator[str]:
        values, switches = set(self.values.split()), set(self.switches.split())
        words = iter(argv)
        for word in words:
            flag, equals, value = word.partition("=")
            if not flag.startswith("-") or flag == "-m":
                continue
            if flag in values:
                value = value if equals else next(words, "")
                if value.startswith("--") or not value:
                    yield f"{flag} lacks its value"
                yield from self._chosen(flag, value)
            elif flag not in switches or equals:
                yield f"{self.name} ({self.version}) has no flag {word}"

    def _wrong_keys(self, file: Mapping[str, Any], before: str) -> Iterator[str]:
        for name, value in file.items():
            key = f"{before}{name}"
            if isinstance(value, Mapping):
                yield from self._wrong_keys(value, f"{key}.")
            elif key not in self.keys.split():
                yield f"{self.name} ({self.version}) has no key {key} in its configuration file"
            else:
                yield from self._chosen(key, str(value))

    def _chosen(self, name: str, value: str) -> Iterator[str]:
        allowed = self.choices.get(name)
        if allowed and value not in allowed:
            yield (
                f"{name} of {self.name} ({self.version}) is one of {', '.join(allowed)}, not"
                f" {value}"
            )


@cache
def _interfaces() -> Mapping[str, Interface]:
    interfaces = read_entries(Interface, shipped_yaml("interfaces.yaml"), "catalog/interfaces.yaml")
    return MappingProxyType({interface.name: interface for interface in interfaces})


def find_interface(preset: str) -> Interface | None:
    """The interface of an engine preset; None where none is known. Raises DataErrors:
    ``interfaces.yaml`` is damaged.
    """
    return _interfaces().get(preset)


def starts_offloading(rules: Offloading, engine: EnginePreset) -> bool:
    """Whether the command of an engine, or its file, switches an offloader on, as its version takes
    it.
    """
    interface, launch = find_interface(engine.name), engine.launch
    if (
        interface is None
        or launch is None
        or not (rules.flags or (rules.file_keys and launch.file_flag))
    ):
        return False
    return set(rules.file_keys.values()) <= set(interface.keys.split()) and not interface.fault(
        rules.flags, {}
    )

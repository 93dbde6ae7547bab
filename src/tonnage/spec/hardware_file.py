"""Reads a user's own accelerator, as a YAML file describes it, as a ``Gpu``.

Four keys are needed; the others have values that say "not known". The datasheet's rates need not be reached: what a calibration with
terms of its own fits is the share of them that is (``calibration.own_terms``).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from tonnage.errors import InputError, InputErrors
from tonnage.spec.hardware import Gpu, LinkKind
from tonnage.spec.typed_values import FORBID, read_as
from tonnage.spec.yaml_text import parse_yaml

SUFFIXES = (".yaml", ".yml")

ANY_VENDOR = "other"
"""The vendor of hardware that its file does not name; it is taken to run the engine that it is asked about."""

MOST_BYTES = 100_000
"""The largest file that is read."""

PAST_ANY = 1e9
"""No datasheet says a number as large as this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareFile:
    """The file as it was written; the fields are those of ``Gpu``."""

    __pydantic_config__ = FORBID

    name: str
    fp16_tflops: float
    memory_gb: float
    memory_bandwidth_gb_s: float
    vendor: str = ANY_VENDOR
    arch: str = "other"
    fp8_tflops: float | None = None
    int8_tops: float | None = None
    fp4_tflops: float | None = None
    memory_bytes: int = 0
    link: LinkKind = "pcie"
    link_gb_s: float = 0.0
    pcie_gb_s: float = 64.0
    tdp_w: float | None = None
    bf16: bool = True
    notes: str = ""

    def faults(self) -> list[str]:
        """What is wrong with the values, each with its key."""
        needed = ("fp16_tflops", "memory_gb", "memory_bandwidth_gb_s")
        found = [] if self.name.strip() else ["name: is empty"]
        for part in fields(self):
            value = getattr(self, part.name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            least = "above 0" if part.name in needed else "0 or more"
            if value < 0 or (part.name in needed and value == 0) or value > (PAST_ANY**2 if part.name == "memory_bytes" else PAST_ANY):
                found.append(f"{part.name}: {value:g} is not possible; write a number {least}")
        return found


def is_hardware_file(text: str) -> bool:
    """Whether a text in place of a GPU's name is the path of such a file."""
    return text.lower().endswith(SUFFIXES)


def read_hardware(path: str | Path) -> Gpu:
    """The accelerator that a YAML file describes.

    Raises:
        InputError: no such file, or not YAML.
        InputErrors: unknown or missing keys and values that cannot be, each with its key.
    """
    file = Path(path)
    try:
        if file.stat().st_size > MOST_BYTES:
            raise InputError(f"{file}: is too large for the description of an accelerator")
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else "not a text file in UTF-8"
        raise InputError(f"{file!s:.200}: cannot be read ({said}); give a YAML file with name, fp16_tflops, memory_gb and so on") from None
    found = read_as(HardwareFile, parse_yaml(text, str(file)), str(file), InputErrors)
    InputErrors.raise_if([f"{file}: {fault}" for fault in found.faults()])
    return _gpu(found, str(file))


def _gpu(found: HardwareFile, where: str) -> Gpu:
    said = {part.name: getattr(found, part.name) for part in fields(found)}
    return Gpu(
        **{
            **said,
            "name": "-".join(found.name.lower().split()),
            "memory_bytes": found.memory_bytes or round(found.memory_gb * 1e9),
            "memory_source": "memory_bytes of the file" if found.memory_bytes else "memory_gb of the file",
        },
        source=where,
        date="",
        verified="",
    )

"""Reads a user's own server, as a YAML file describes it, as a ``System``; its name is the path of the file, by which it is read again."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from tonnage.errors import InputError, InputErrors
from tonnage.spec.hardware import System
from tonnage.spec.hardware_file import is_hardware_file, read_hardware
from tonnage.spec.typed_values import FORBID, read_as
from tonnage.spec.yaml_text import parse_yaml

MOST_GPUS = 1_024
MOST_BYTES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemFile:
    """The file as it was written.

    Attributes:
        gpu: a catalog id, or the path of the YAML file of an accelerator of one's own, from the folder of this file.
        gpus: how many it holds.
        max_power_w: of the whole server, in watts; null where it is not known.
        usd: what one costs to buy; null where that is not known, or is said as a price.
        notes: anything a reader should know.
    """

    __pydantic_config__ = FORBID

    gpu: str
    gpus: int
    max_power_w: float | None = None
    usd: float | None = None
    notes: str = ""


def read_system(path: str) -> System:
    """The server that a YAML file describes.

    Raises:
        InputError: no such file, or not YAML.
        InputErrors: unknown or missing keys and values that cannot be, each with its key.
        UnknownName: no GPU of that name.
    """
    from tonnage.spec.catalog.lookup import find_gpu

    file = Path(path)
    try:
        if file.stat().st_size > MOST_BYTES:
            raise InputError(f"{file}: is too large for the description of a server")
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else "not a text file in UTF-8"
        raise InputError(f"{file!s:.200}: cannot be read ({said}); give a YAML file with gpu, gpus and so on") from None
    found = read_as(SystemFile, parse_yaml(text, path), path, InputErrors)
    faults = [] if 1 <= found.gpus <= MOST_GPUS else [f"{path}: gpus: {found.gpus} is not possible; write 1 to {MOST_GPUS:,}"]
    for name in ("max_power_w", "usd"):
        value = getattr(found, name)
        if value is not None and not (math.isfinite(value) and 0 < value <= 1e12):
            faults.append(f"{path}: {name}: {value:g} is not possible; write a number above 0, or null")
    InputErrors.raise_if(faults)
    gpu_file = str(file.parent / found.gpu) if is_hardware_file(found.gpu) else ""
    gpu = read_hardware(gpu_file) if gpu_file else find_gpu(found.gpu)
    return System(
        name=path,
        gpu=gpu.name,
        gpus=found.gpus,
        max_power_w=found.max_power_w,
        source=path,
        date="",
        notes=found.notes,
        gpu_file=gpu_file,
        usd=found.usd,
    )

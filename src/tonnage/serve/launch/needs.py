"""What an engine needs of a machine beside memory: the maker and the generation of its GPUs, and their driver."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tonnage.spec.precision import Precision

if TYPE_CHECKING:
    from tonnage.serve.machine.machine import Device, Machine
    from tonnage.spec.engine import EngineSpec
    from tonnage.spec.hardware import Gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class Cuda:
    """What the builds of an engine that are published need.

    Attributes:
        version: of CUDA that they are built with.
        driver: oldest driver that runs it.
        capability: oldest generation of GPUs.
    """

    version: str
    driver: str
    capability: str


CUDA_12 = Cuda(version="12", driver="525.60.13", capability="7.0")
CUDA_13 = Cuda(version="13", driver="580.65.06", capability="7.5")
"""Oldest drivers of CUDA 12 and 13 with minor-version compatibility (NVIDIA, CUDA Toolkit release notes, table 2; recalled, 2026-11-22)."""

NEEDS: tuple[tuple[str, str, Cuda], ...] = (
    ("vllm", "0.20", CUDA_13),
    ("vllm", "0", CUDA_12),
    ("sglang", "0.5.9", Cuda(version="13", driver="580.65.06", capability="8.0")),
    ("sglang", "0", Cuda(version="12", driver="525.60.13", capability="8.0")),
    ("tensorrt-llm", "1.1", Cuda(version="13", driver="580.65.06", capability="8.0")),
    ("tensorrt-llm", "0", Cuda(version="12", driver="525.60.13", capability="8.0")),
    ("nim", "0", CUDA_12),
)
"""Family of engines, first version, and what it needs. That vLLM's default builds are of CUDA 13 from 0.20 on, and that it takes GPUs from
7.5 on, was read in its installation page and release notes (2026-11-22); those of the others are recalled. A build for an older CUDA may
be installed in their place."""


def cuda_of(engine: EngineSpec) -> Cuda:
    """What the published builds of an engine need."""
    return next(need for family, since, need in NEEDS if family == engine.family and numbers(engine.since) >= numbers(since))


def numbers(version: str) -> tuple[int, ...]:
    """A version as numbers, to be compared."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def missing(engine: EngineSpec, machine: Machine, devices: tuple[Device, ...]) -> str:
    """What these GPUs or their driver lack for an engine, as a clause; empty where they lack nothing.

    Args:
        engine: the preset.
        machine: that has the driver.
        devices: GPUs of it.
    """
    vendors = {one.vendor for one in devices}
    for vendor in vendors - set(engine.vendors):
        return f"{engine.name} runs on GPUs of {', '.join(engine.vendors)}, and these are of {vendor}"
    if vendors != {"NVIDIA"}:
        return ""
    need = cuda_of(engine)
    if machine.driver and numbers(machine.driver) < numbers(need.driver):
        return f"driver {machine.driver} is too old: {engine.name} is built with CUDA {need.version}, which needs {need.driver} or newer"
    old = next((one for one in devices if one.capability and numbers(one.capability) < numbers(need.capability)), None)
    if old is not None:
        return f"{old.name} has compute capability {old.capability}, and {engine.name} needs {need.capability}"
    return ""


def lacks(engine: EngineSpec, gpu: Gpu, precision: Precision) -> str:
    """Why a GPU under an engine cannot run a number format, as a clause; empty where it can."""
    lacking = gpu.lacks(precision)
    if lacking:
        return f"{gpu.name} ({gpu.arch}) has {lacking} for {precision.name}"
    return engine.lacks(precision)

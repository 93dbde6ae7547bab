"""NVIDIA's GPUs by the driver's management library (NVML), through the package ``nvidia-ml-py``."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from tonnage.serve.machine.machine import Device
from tonnage.serve.machine.names import catalog_gpu

LINKS = 18
"""Most NVLinks that a GPU has (Hopper, Blackwell)."""


def nvidia_devices(library: Any) -> tuple[tuple[Device, ...], str]:
    """The GPUs and the version of their driver.

    Args:
        library: the module ``pynvml``, or something that acts like it.

    Raises:
        library.NVMLError: there is no driver.
    """
    library.nvmlInit()
    try:
        handles = [library.nvmlDeviceGetHandleByIndex(place) for place in range(library.nvmlDeviceGetCount())]
        buses = [_text(library.nvmlDeviceGetPciInfo(handle).busId) for handle in handles]
        order = sorted(range(len(handles)), key=lambda place: buses[place].lower())
        handles, buses = [handles[place] for place in order], [buses[place] for place in order]
        found = [_device(library, place, handle, buses) for place, handle in enumerate(handles)]
        return tuple(found), _text(library.nvmlSystemGetDriverVersion())
    finally:
        library.nvmlShutdown()


def _device(library: Any, place: int, handle: Any, buses: list[str]) -> Device:
    name, memory = _text(library.nvmlDeviceGetName(handle)), library.nvmlDeviceGetMemoryInfo(handle)
    major, minor = library.nvmlDeviceGetCudaComputeCapability(handle)
    return Device(
        index=place,
        name=name,
        gpu=catalog_gpu(name, int(memory.total)),
        vendor="NVIDIA",
        memory_bytes=int(memory.total),
        used_bytes=int(memory.used),
        capability=f"{major}.{minor}",
        numa=_numa(buses[place]),
        linked=_linked(library, handle, buses, place),
    )


def _linked(library: Any, handle: Any, buses: list[str], own: int) -> tuple[int, ...]:
    """GPUs that NVLink joins: all others where links lead to a switch."""
    found: set[int] = set()
    for link in range(LINKS):
        with contextlib.suppress(library.NVMLError):
            if not library.nvmlDeviceGetNvLinkState(handle, link):
                continue
            remote = _text(library.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId).lower()
            ends = [place for place, bus in enumerate(buses) if bus.lower() == remote]
            found.update(ends or range(len(buses)))
    return tuple(sorted(found - {own}))


def _numa(bus: str) -> int | None:
    """The node that the kernel says the device is nearest to."""
    domain, _, rest = bus.lower().partition(":")
    with contextlib.suppress(OSError, ValueError):
        node = int(Path(f"/sys/bus/pci/devices/{domain[-4:]}:{rest}/numa_node").read_text())
        return node if node >= 0 else None
    return None


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

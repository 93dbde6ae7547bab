"""This machine, as it is: NVIDIA's GPUs by NVML, AMD's by a child process, cores and memory by the operating system."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tonnage.deploy.kubernetes.workload import MARGIN, PRODUCTS
from tonnage.serve.machine import amd
from tonnage.serve.machine.machine import Device, Machine
from tonnage.spec.catalog import gpus

# Which GPU of the catalog a driver speaks of.


_NOISE = re.compile(r"\b(NVIDIA|AMD|Instinct|Tesla|GeForce|Graphics)\b[ -]*")

_SIZE = re.compile(r"-\d+gb.*$")


def catalog_gpu(name: str, memory_bytes: int) -> str:
    """The catalog id of a GPU by its driver's name ("NVIDIA H100 80GB HBM3"), and its memory where boards share a name; "" if none."""
    hyphened = name.strip().replace(" ", "-")
    for gpu, product in PRODUCTS.items():
        if product == hyphened:
            return gpu
    wanted = _plain(_NOISE.sub("", name))
    near = [gpu for gpu in gpus() if abs(gpu.memory_bytes / memory_bytes - 1) <= MARGIN]
    stems = {gpu.name: _plain(_SIZE.sub("", gpu.name)) for gpu in near}
    alike = sorted((name for name, stem in stems.items() if wanted.startswith(stem)), key=lambda name: -len(stems[name]))
    if alike:
        return alike[0]
    begun = [gpu.name for gpu in near if wanted and _plain(gpu.name).startswith(wanted)]
    return begun[0] if len(begun) == 1 else ""


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


# NVIDIA's GPUs by the driver's management library (NVML), through the package ``nvidia-ml-py``.


LINKS = 18
"""Most NVLinks that a GPU has (Hopper, Blackwell)."""


def nvidia_devices(library: Any) -> tuple[tuple[Device, ...], str]:
    """The GPUs and the version of their driver, by ``pynvml`` or what acts like it. Raises library.NVMLError: there is no driver."""
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


AMD_S = 20.0
"""Seconds that AMD's library may take."""

LEFT_OUT = ("RAY_ADDRESS", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""Variables that would hide GPUs from AMD's library, as Ray sets them for its workers."""

AMD_DRIVER = Path("/sys/module/amdgpu")


def detect() -> Machine:
    """This machine."""
    devices, driver, notes = _nvidia()
    if not devices and AMD_DRIVER.exists():
        devices, driver, told = _amd()
        notes = (*notes, *told)
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(devices=devices, driver=driver, cpus=cpus, memory_bytes=memory, notes=notes)


Found = tuple[tuple[Device, ...], str, tuple[str, ...]]


def _nvidia() -> Found:
    try:
        library: Any = importlib.import_module("pynvml")
    except ImportError:
        seen = Path("/proc/driver/nvidia/version").exists()
        return (), "", ("NVIDIA's driver is there, and the package nvidia-ml-py, which asks it, is not installed",) if seen else ()
    try:
        devices, driver = nvidia_devices(library)
    except library.NVMLError as fault:
        return (), "", (f"NVIDIA's driver cannot be asked ({' '.join(str(fault).split())[:80]})",)
    return devices, driver, ()


def _amd() -> Found:
    environment = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    try:
        done = subprocess.run(
            [sys.executable, amd.__file__],
            capture_output=True,
            text=True,
            check=False,
            timeout=AMD_S,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
        return amd_devices(done.stdout) if done.returncode == 0 else ((), "", ("AMD's driver is there, and amdsmi cannot ask it",))
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError):
        return (), "", ("AMD's driver is there, and amdsmi does not answer",)


def amd_devices(text: str) -> Found:
    """What the child process printed, as devices; every GPU of such a machine is joined with every other.

    Raises:
        ValueError, KeyError: it is something else.
    """
    found = json.loads(text)
    rows = found["devices"]
    devices = [
        Device(
            index=int(row["index"]),
            name=str(row["name"]),
            gpu=catalog_gpu(str(row["name"]), int(row["memory_bytes"])),
            vendor="AMD",
            memory_bytes=int(row["memory_bytes"]),
            used_bytes=int(row["used_bytes"]),
            linked=tuple(int(other["index"]) for other in rows if other is not row),
        )
        for row in rows
    ]
    return tuple(devices), str(found["driver"]), ()

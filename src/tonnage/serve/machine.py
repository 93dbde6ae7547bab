"""The machine that engines are started on: its GPUs, their driver and how they are joined, from a
file or the vendor's tools.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tonnage.csv_file import read_text
from tonnage.deploy.workload import MARGIN, PRODUCTS
from tonnage.errors import InputErrors, option
from tonnage.serve import amd
from tonnage.spec.catalog import gpus
from tonnage.spec.typed_values import parse_yaml, read_as, strict

# Share of a GPU's memory that others may use while it still counts as free: a display, a context,
# an exporter
OTHERS_USE = 0.05


@strict
class Device:
    """One GPU."""

    index: int  # its number in PCI bus order, as ``CUDA_VISIBLE_DEVICES`` counts
    name: str  # as the driver calls it, such as "NVIDIA H100 80GB HBM3"
    gpu: str = ""  # catalog id; "" where the catalog does not have it
    vendor: str = "NVIDIA"  # "NVIDIA" or "AMD"
    memory_bytes: int  # and used_bytes: of its memory
    used_bytes: int = 0
    # compute capability of NVIDIA's GPUs, such as "9.0"; "" where it is not known
    capability: str = ""
    numa: int | None = None  # node of the memory that it is nearest to; None where it is not known
    linked: tuple[int, ...] = ()  # indices of the GPUs that NVLink or Infinity Fabric joins it with

    @property
    def free(self) -> bool:
        """Whether other processes leave the device nearly unused."""
        return self.used_bytes <= OTHERS_USE * self.memory_bytes


@strict
class Machine:
    """One machine."""

    devices: tuple[Device, ...] = ()
    driver: str = ""  # version of their driver; "" without one
    cpus: int  # cores that this process may use
    memory_bytes: int  # main memory
    notes: tuple[str, ...] = ()  # what could not be found out, in words

    @property
    def free(self) -> tuple[Device, ...]:
        """The GPUs that no other process uses."""
        return tuple(device for device in self.devices if device.free)

    @property
    def gpu(self) -> str:
        """Catalog id of its GPUs; "" where there are none, or the catalog does not have them, or
        they differ.
        """
        kinds = {device.gpu for device in self.devices}
        return kinds.pop() if len(kinds) == 1 else ""

    @property
    def label(self) -> str:
        """Describe the machine in a line, such as "8 × NVIDIA H100 80GB HBM3, driver 580.65.06, 224
        cores, 2,000 GiB".
        """
        counted: dict[str, int] = {}
        for device in self.devices:
            counted[device.name] = counted.get(device.name, 0) + 1
        gpus = ", ".join(f"{count} × {name}" for name, count in counted.items()) or "no GPU"
        driver = f", driver {self.driver}" if self.driver else ""
        return f"{gpus}{driver}, {self.cpus} cores, {self.memory_bytes / 2**30:,.0f} GiB"

    def to_json(self) -> dict[str, Any]:
        """The values as JSON has them, by name."""
        return asdict(self)


def read_machine(path: Path) -> Machine:
    """A machine that a YAML file describes by these attributes. Raises InputError: unreadable, or
    no machine.
    """
    values = parse_yaml(read_text(path, option("machine")), str(path))
    return read_as(Machine, values, str(path), InputErrors)


def groups(devices: Sequence[Device], size: int) -> tuple[tuple[Device, ...], ...]:
    """As many groups of ``size`` GPUs as there can be: first those within an island of NVLink, and
    in it those near one node.

    GPUs that are left over in an island make further groups across islands at the end.
    """
    gpu_groups: list[tuple[Device, ...]] = []
    remaining: list[Device] = []
    for island in _islands(devices):
        spare: list[Device] = []
        for node in sorted({-1 if device.numa is None else device.numa for device in island}):
            near = [
                device for device in island if (-1 if device.numa is None else device.numa) == node
            ]
            whole = len(near) // size * size
            gpu_groups += [tuple(near[place : place + size]) for place in range(0, whole, size)]
            spare += near[whole:]
        whole = len(spare) // size * size
        gpu_groups += [tuple(spare[place : place + size]) for place in range(0, whole, size)]
        remaining += spare[whole:]
    gpu_groups += [
        tuple(remaining[place : place + size])
        for place in range(0, len(remaining) // size * size, size)
    ]
    return tuple(gpu_groups)


def joined(group: Sequence[Device]) -> bool:
    """Whether every GPU of a group is joined with every other."""
    return all(
        peer.index in device.linked for device in group for peer in group if peer is not device
    )


def _islands(devices: Sequence[Device]) -> list[list[Device]]:
    """The GPUs that are joined directly or through others, in the order of their first."""
    islands: list[list[Device]] = []
    unvisited = {gpu.index: gpu for gpu in sorted(devices, key=lambda gpu: gpu.index)}
    while unvisited:
        _, first = next(iter(unvisited.items()))
        island, edge = [], [first.index]
        while edge:
            device = unvisited.pop(edge.pop(), None)
            if device is not None:
                island.append(device)
                edge += device.linked
        islands.append(sorted(island, key=lambda gpu: gpu.index))
    return islands


_NOISE = re.compile(r"\b(NVIDIA|AMD|Instinct|Tesla|GeForce|Graphics)\b[ -]*")

_SIZE = re.compile(r"-\d+gb.*$")


def catalog_gpu(name: str, memory_bytes: int) -> str:
    """The catalog id of a GPU by its driver's name ("NVIDIA H100 80GB HBM3"), and its memory where
    boards share a name; "" if none.
    """
    hyphened = name.strip().replace(" ", "-")
    for gpu, product in PRODUCTS.items():
        if product == hyphened:
            return gpu
    cleaned = _plain(_NOISE.sub("", name))
    near = [gpu for gpu in gpus() if abs(gpu.memory_bytes / memory_bytes - 1) <= MARGIN]
    stems = {gpu.name: _plain(_SIZE.sub("", gpu.name)) for gpu in near}
    alike = sorted(
        (name for name, stem in stems.items() if cleaned.startswith(stem)),
        key=lambda name: -len(stems[name]),
    )
    if alike:
        return alike[0]
    begun = [gpu.name for gpu in near if cleaned and _plain(gpu.name).startswith(cleaned)]
    return begun[0] if len(begun) == 1 else ""


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


LINKS = 18  # Most NVLinks that a GPU has (Hopper, Blackwell)


def nvidia_devices(library: Any) -> tuple[tuple[Device, ...], str]:
    """The GPUs and the version of their driver, by ``pynvml`` or what acts like it. Raises
    library.NVMLError: there is no driver.
    """
    library.nvmlInit()
    try:
        handles = [
            library.nvmlDeviceGetHandleByIndex(place)
            for place in range(library.nvmlDeviceGetCount())
        ]
        buses = [_text(library.nvmlDeviceGetPciInfo(handle).busId) for handle in handles]
        order = sorted(range(len(handles)), key=lambda place: buses[place].lower())
        handles, buses = [handles[place] for place in order], [buses[place] for place in order]
        devices = [_device(library, place, handle, buses) for place, handle in enumerate(handles)]
        return tuple(devices), _text(library.nvmlSystemGetDriverVersion())
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


def _linked(library: Any, handle: Any, buses: list[str], own_bus: int) -> tuple[int, ...]:
    """GPUs that NVLink joins: all others where links lead to a switch."""
    peers: set[int] = set()
    for link in range(LINKS):
        with contextlib.suppress(library.NVMLError):
            if not library.nvmlDeviceGetNvLinkState(handle, link):
                continue
            remote = _text(library.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId).lower()
            ends = [place for place, bus in enumerate(buses) if bus.lower() == remote]
            peers.update(ends or range(len(buses)))
    return tuple(sorted(peers - {own_bus}))


def _numa(bus: str) -> int | None:
    """The node that the kernel says the device is nearest to."""
    domain, _, rest = bus.lower().partition(":")
    with contextlib.suppress(OSError, ValueError):
        node = int(Path(f"/sys/bus/pci/devices/{domain[-4:]}:{rest}/numa_node").read_text())
        return node if node >= 0 else None
    return None


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


AMD_S = 20.0  # Seconds that AMD's library may take

LEFT_OUT = ("RAY_ADDRESS", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""Variables that would hide GPUs from AMD's library, as Ray sets them for its workers."""

AMD_DRIVER = Path("/sys/module/amdgpu")


def detect() -> Machine:
    """This machine."""
    devices, driver, notes = _nvidia()
    if not devices and AMD_DRIVER.exists():
        devices, driver, amd_notes = _amd()
        notes = (*notes, *amd_notes)
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(devices=devices, driver=driver, cpus=cpus, memory_bytes=memory, notes=notes)


Found = tuple[tuple[Device, ...], str, tuple[str, ...]]


def _nvidia() -> Found:
    try:
        library: Any = importlib.import_module("pynvml")
    except ImportError:
        has_driver = Path("/proc/driver/nvidia/version").exists()
        return (
            (),
            "",
            (
                (
                    (
                        "NVIDIA's driver is there, and the package nvidia-ml-py, which asks it, is"
                        " not installed"
                    ),
                )
                if has_driver
                else ()
            ),
        )
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
        return (
            amd_devices(done.stdout)
            if done.returncode == 0
            else ((), "", ("AMD's driver is there, and amdsmi cannot ask it",))
        )
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError):
        return (), "", ("AMD's driver is there, and amdsmi does not answer",)


def amd_devices(text: str) -> Found:
    """What the child process printed, as devices, each joined with every other. Raises ValueError,
    KeyError: it is something else.
    """
    document = json.loads(text)
    rows = document["devices"]
    devices = [
        Device(
            index=int(row["index"]),
            name=str(row["name"]),
            gpu=catalog_gpu(str(row["name"]), int(row["memory_bytes"])),
            vendor="AMD",
            memory_bytes=int(row["memory_bytes"]),
            used_bytes=int(row["used_bytes"]),
            linked=tuple(int(peer["index"]) for peer in rows if peer is not row),
        )
        for row in rows
    ]
    return tuple(devices), str(document["driver"]), ()

"""Machines that are described, not there."""

from __future__ import annotations

from dataclasses import replace

from tonnage.serve.machine import Device, Machine
from tonnage.spec.catalog import find_gpu

GIB = 2**30


def of(
    gpu: str = "h100-sxm-80gb",
    *,
    count: int = 8,
    gib: float | None = None,
    driver: str = "580.65.06",
    capability: str = "9.0",
) -> Machine:
    """A server of so many GPUs, all joined by NVLink, four at each node of main memory; with the
    catalog's memory if none is said."""
    memory = find_gpu(gpu).memory_bytes if gib is None else round(gib * GIB)
    devices = tuple(
        Device(
            index=place,
            name=gpu.upper(),
            gpu=gpu,
            memory_bytes=memory,
            capability=capability,
            numa=place // 4,
            linked=tuple(other for other in range(count) if other != place),
        )
        for place in range(count)
    )
    return Machine(devices=devices, driver=driver, cpus=224, memory_bytes=2_000 * GIB)


NO_GPU = Machine(cpus=2, memory_bytes=24 * GIB)


def busy(machine: Machine, *used: int) -> Machine:
    """The same with some GPUs used by others."""
    devices = tuple(
        replace(one, used_bytes=one.memory_bytes // 2 if one.index in used else 0)
        for one in machine.devices
    )
    return replace(machine, devices=devices)

"""How a process is told which GPUs are its own."""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.serve.machine.machine import Device


def pinned(devices: Sequence[Device]) -> dict[str, str]:
    """The environment variables by which only these GPUs are seen, counted in PCI bus order."""
    if not devices:
        return {}
    seen = ",".join(str(one.index) for one in devices)
    if devices[0].vendor == "AMD":
        return {"HIP_VISIBLE_DEVICES": seen}
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": seen}


def container_gpus(devices: Sequence[Device]) -> str:
    """What ``docker run --gpus`` takes for them."""
    return '"device=' + ",".join(str(one.index) for one in devices) + '"'

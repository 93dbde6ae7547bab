"""This machine, as it is: NVIDIA's GPUs by NVML, AMD's by a child process, cores and memory by the operating system."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tonnage.serve.machine import amd
from tonnage.serve.machine.machine import Device, Machine
from tonnage.serve.machine.names import catalog_gpu
from tonnage.serve.machine.nvidia import nvidia_devices

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

"""The GPUs of this machine while a run lasts, by NVIDIA's management library, where the client runs beside the server.

It needs the package ``nvidia-ml-py``, which nothing else here does; without it, or without a driver, the question is refused before
anything is sent. A server elsewhere is watched by its DCGM exporter (``metrics_url``).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from tonnage.errors import InputError, option

Reading = Callable[[Any, Any], float]


def _power(library: Any, handle: Any) -> float:
    return float(library.nvmlDeviceGetPowerUsage(handle)) / 1e3


def _use(library: Any, handle: Any) -> float:
    return float(library.nvmlDeviceGetUtilizationRates(handle).gpu)


def _memory(library: Any, handle: Any) -> float:
    return float(library.nvmlDeviceGetMemoryInfo(handle).used)


def _clock(library: Any, handle: Any) -> float:
    return float(library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM))


def _temperature(library: Any, handle: Any) -> float:
    return float(library.nvmlDeviceGetTemperature(handle, library.NVML_TEMPERATURE_GPU))


READINGS: Mapping[str, Reading] = {
    "power_w": _power,
    "utilization_percent": _use,
    "memory_used_bytes": _memory,
    "sm_clock_mhz": _clock,
    "temperature_c": _temperature,
}
"""What is read of each GPU, by its name in the record."""


class Nvml:
    """The GPUs that the driver shows.

    Attributes:
        gpus: the name of each.
    """

    def __init__(self) -> None:
        """Load the library and count the GPUs.

        Raises:
            InputError: the package, the driver or a GPU is missing.
        """
        where = option("gpu_metrics")
        try:
            pynvml: Any = importlib.import_module("pynvml")
        except ImportError:
            raise InputError(f"{where}: needs the package nvidia-ml-py; install it, or read a DCGM exporter") from None
        self._library = pynvml
        try:
            pynvml.nvmlInit()
            self._handles = [pynvml.nvmlDeviceGetHandleByIndex(place) for place in range(pynvml.nvmlDeviceGetCount())]
        except pynvml.NVMLError as error:
            raise InputError(f"{where}: the driver cannot be asked ({' '.join(str(error).split())[:80]}); leave it out") from None
        if not self._handles:
            raise InputError(f"{where}: the driver shows no GPU; leave it out")
        self.gpus = tuple(_text(pynvml.nvmlDeviceGetName(handle)) for handle in self._handles)

    def samples(self) -> dict[str, float]:
        """The readings of every GPU by name, such as ``nvml:power_w{gpu="0"}``; what a GPU does not tell is absent."""
        found = {}
        for place, handle in enumerate(self._handles):
            for name, read in READINGS.items():
                try:
                    found[f'nvml:{name}{{gpu="{place}"}}'] = read(self._library, handle)
                except self._library.NVMLError:
                    continue
        return found


def _text(name: object) -> str:
    """A name as text: older versions of the package give bytes."""
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)

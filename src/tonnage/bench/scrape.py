"""The server's own metrics while a run lasts: Prometheus text, read once a second by a thread.

Kept are the gauges and counters of the names below, as vLLM, SGLang, TensorRT-LLM, Triton and the
DCGM exporter call them: queue length, running requests, KV use, GPU power and use. Format:
Prometheus text exposition 0.0.4. The GPUs of this machine may be read with them, by NVIDIA's
management library (package ``nvidia-ml-py``) or AMD's (package ``amdsmi``).
"""

from __future__ import annotations

import contextlib
import http.client
import importlib
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

from tonnage.bench.client import Client
from tonnage.bench.conductor import Conductor, TalkConductor
from tonnage.bench.recorder import TokenTimes
from tonnage.bench.reply import Exchange
from tonnage.errors import InputError, option

if TYPE_CHECKING:
    from numpy.typing import NDArray

Reading = Callable[[Any, Any], float]


NVML: Mapping[str, Reading] = {
    "power_w": lambda library, gpu: float(library.nvmlDeviceGetPowerUsage(gpu)) / 1e3,
    "utilization_percent": lambda library, gpu: float(
        library.nvmlDeviceGetUtilizationRates(gpu).gpu
    ),
    "memory_used_bytes": lambda library, gpu: float(library.nvmlDeviceGetMemoryInfo(gpu).used),
    "sm_clock_mhz": lambda library, gpu: float(
        library.nvmlDeviceGetClockInfo(gpu, library.NVML_CLOCK_SM)
    ),
    "energy_j": lambda library, gpu: float(library.nvmlDeviceGetTotalEnergyConsumption(gpu)) / 1e3,
    "temperature_c": lambda library, gpu: float(
        library.nvmlDeviceGetTemperature(gpu, library.NVML_TEMPERATURE_GPU)
    ),
}
"""What is read of each of NVIDIA's GPUs, by its name in the record."""

AMDSMI: Mapping[str, Reading] = {
    "power_w": lambda library, gpu: _socket_watts(library.amdsmi_get_power_info(gpu)),
    "utilization_percent": lambda library, gpu: float(
        library.amdsmi_get_gpu_activity(gpu)["gfx_activity"]
    ),
    "memory_used_bytes": lambda library, gpu: (
        float(library.amdsmi_get_gpu_vram_usage(gpu)["vram_used"]) * 2**20
    ),
    "energy_j": lambda library, gpu: _counted_joules(library.amdsmi_get_energy_count(gpu)),
}
"""The same of AMD's, by its SMI library (its documentation, read 2026-11-25)."""


def _socket_watts(metrics: Mapping[str, Any]) -> float:
    """The power of now, or the average where a generation tells only that; the other is then
    "N/A".
    """
    return float(
        next(
            metrics[name]
            for name in ("current_socket_power", "average_socket_power")
            if isinstance(metrics.get(name), int | float)
        )
    )


def _counted_joules(metrics: Mapping[str, Any]) -> float:
    """The accumulator, which versions before 6.2.1 call power, in units of ``counter_resolution``
    microjoules.
    """
    return (
        float(metrics.get("energy_accumulator", metrics.get("power")))
        * float(metrics["counter_resolution"])
        / 1e6
    )


AMD_DRIVER, NVIDIA_DRIVER = Path("/sys/module/amdgpu"), Path("/proc/driver/nvidia/version")
"""Where the drivers are loaded; AMD's library may end the process that asks it without one."""


class DriverGpus:
    """The GPUs that the drivers of this machine show: AMD's where only its driver is loaded, else
    NVIDIA's.
    """

    def __init__(self) -> None:
        """Load the library and count the GPUs. Raises InputError: the package, the driver or a GPU
        is missing.
        """
        where, library = option("gpu_metrics"), _imported("pynvml")
        of_amd = AMD_DRIVER.exists() and (library is None or not NVIDIA_DRIVER.exists())
        faults: tuple[type[Exception], ...]
        if of_amd:
            library = _imported("amdsmi")
            if library is None:
                raise InputError(
                    f"{where}: needs AMD's Python package amdsmi, which ROCm brings; install it, or"
                    " read its metrics exporter"
                )
            faults = (library.AmdSmiException, KeyError, TypeError, ValueError, StopIteration)
        elif library is None:
            raise InputError(
                f"{where}: needs the package nvidia-ml-py; install it, or read a DCGM exporter"
            )
        else:
            faults = (library.NVMLError,)
        self._ask = (
            ("amdsmi", AMDSMI, library, faults) if of_amd else ("nvml", NVML, library, faults)
        )
        try:
            # gpus: the name of each
            self._handles, self.gpus = (_of_amd if of_amd else _of_nvidia)(library)
        except faults as error:
            raise InputError(
                f"{where}: the driver cannot be asked ({' '.join(str(error).split())[:80]}); leave"
                " it out"
            ) from None
        if not self._handles:
            raise InputError(f"{where}: the driver shows no GPU; leave it out")

    def samples(self) -> dict[str, float]:
        """The readings of every GPU by name, such as ``nvml:power_w{gpu="0"}``; what a GPU does not
        tell is absent.
        """
        gauges, (prefix, readings, library, faults) = {}, self._ask
        for place, handle in enumerate(self._handles):
            for name, read in readings.items():
                with contextlib.suppress(*faults):
                    gauges[f'{prefix}:{name}{{gpu="{place}"}}'] = read(library, handle)
        return gauges | host_joules()


def _imported(package: str) -> Any:
    """Import a package; None where it is absent."""
    try:
        return importlib.import_module(package)
    except ImportError:
        return None


def _of_nvidia(library: Any) -> tuple[list[Any], tuple[str, ...]]:
    library.nvmlInit()
    handles = [
        library.nvmlDeviceGetHandleByIndex(place) for place in range(library.nvmlDeviceGetCount())
    ]
    return handles, tuple(_text(library.nvmlDeviceGetName(handle)) for handle in handles)


def _of_amd(library: Any) -> tuple[list[Any], tuple[str, ...]]:
    library.amdsmi_init()
    handles = list(library.amdsmi_get_processor_handles())
    return handles, tuple(
        str(library.amdsmi_get_gpu_asic_info(handle)["market_name"]) for handle in handles
    )


# Where Linux publishes the energy counters of CPU packages, in microjoules; often for root alone
RAPL = Path("/sys/class/powercap")


def host_joules() -> dict[str, float]:
    """The energy counter of each CPU package of this machine, in joules; none where they cannot be
    read.
    """
    package_joules = {}
    for file in sorted(RAPL.glob("intel-rapl:[0-9]*/energy_uj")):
        if file.parent.name.count(":") == 1:
            with contextlib.suppress(OSError, ValueError):
                package_joules[f'rapl:energy_j{{package="{file.parent.name}"}}'] = (
                    float(file.read_text()) / 1e6
                )
    return package_joules


def _text(name: object) -> str:
    """Decode a name: older versions of the package give bytes."""
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)


EVERY_S = 1.0
MOST_BYTES = 16_777_216
AMD = ("gpu_package_power", "gpu_average_package_power")
PDU = "rPDU2DeviceStatusPower"
NAMES = (
    "vllm:",
    "sglang:",
    "trtllm_",
    "nv_inference_",
    "nv_trt_llm_",
    "nv_gpu_",
    "nv_energy_",
    "DCGM_FI_DEV_",
    *AMD,
    PDU,
)
_LEFT_OUT = ("_bucket", "_created")
_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(\{.*\})?\s+(\S+)(?:\s+-?\d+)?$", re.ASCII)


def samples(text: str) -> dict[str, float]:
    """The samples of a page that are kept, by name with labels; lines that are none are passed
    over.
    """
    page_samples = {}
    for line in text.splitlines():
        if not line.startswith(NAMES):
            continue
        match = _SAMPLE.match(line)
        if match is None or match[1].endswith(_LEFT_OUT):
            continue
        try:
            page_samples[match[1] + (match[2] or "")] = float(match[3])
        except ValueError:
            continue
    return page_samples


def fetch(url: str, timeout_s: float = 2.0) -> str:
    """The text behind a URL; "" where it cannot be read."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=timeout_s)
    try:
        connection.request(
            "GET", (parts.path or "/metrics") + (f"?{parts.query}" if parts.query else "")
        )
        response = connection.getresponse()
        return (
            response.read(MOST_BYTES).decode("utf-8", "replace") if response.status == 200 else ""
        )
    except (OSError, http.client.HTTPException, ValueError):
        return ""
    finally:
        connection.close()


class Scraper:
    """Reads some pages again and again, from the beginning of a run to its end."""

    def __init__(
        self, urls: tuple[str, ...], *, gpus: DriverGpus | None = None, every_s: float = EVERY_S
    ) -> None:
        """Prepare to read the pages, and this machine's GPUs if any, every ``every_s`` seconds;
        nothing is read yet.
        """
        self._urls, self._gpus = urls, gpus
        self._every = every_s
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._start_ns = 0
        self.rows: list[tuple[int, str, float]] = []

    def begin(self, conductor: Conductor | TalkConductor, client: Client) -> None:
        """Start reading; times count from the beginning of the run."""
        self.start(conductor.start_ns)

    def start(self, start_ns: int) -> None:
        """Start reading; times count from a moment of the monotonic clock."""
        self._start_ns = start_ns
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def seen(self, exchange: Exchange, times: TokenTimes) -> None:
        """Ignore the exchange: the server's metrics come from the server."""

    def end(self) -> None:
        """Read no more."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def _read(self) -> None:
        """Once at the beginning, then again and again, and once at the end."""
        ended = False
        while True:
            for url in self._urls:
                now = time.monotonic_ns() - self._start_ns
                self.rows.extend((now, name, value) for name, value in samples(fetch(url)).items())
            if self._gpus is not None:
                now = time.monotonic_ns() - self._start_ns
                self.rows.extend((now, name, value) for name, value in self._gpus.samples().items())
            if ended:
                return
            ended = self._stop.wait(self._every)

    def energy(self, seconds: float, tokens: int) -> dict[str, Any]:
        """Joules of the GPUs, and of the CPU packages, in the first ``seconds`` of a run with
        ``tokens`` output tokens; empty where they were not read.
        """
        gpus, by = joules(self.rows, GPU_COUNTERS, seconds), "energy counters"
        # a counter of AMD's that did not move was reported (github.com/ROCm/amdsmi issue 22)
        if not gpus:
            gpus, by = joules(self.rows, GPU_WATTS, seconds), "power read once a second"
        if gpus is None:
            return {}
        host, pdu = joules(self.rows, HOST_COUNTERS, seconds), joules(self.rows, PDU_WATTS, seconds)
        return {
            "gpu_joules": gpus,
            "mean_gpu_watts": gpus / seconds,
            "joules_per_output_token": gpus / tokens if tokens else None,
            "by": by,
            "host_joules": host,
            **({} if pdu is None else {"pdu_joules": pdu}),
        }

    def summary(self) -> dict[str, Any]:
        """For each series, how often it was read and its first, mean, greatest and last value."""
        by_name: dict[str, list[float]] = {}
        for _, name, value in self.rows:
            by_name.setdefault(name, []).append(value)
        return {
            name: {
                "read": len(v),
                "first": v[0],
                "mean": sum(v) / len(v),
                "max": max(v),
                "last": v[-1],
            }
            for name, v in sorted(by_name.items())
        }

    def write(self, path: Path) -> None:
        """Write ``time_ns, name, value``: one row for each reading of each series, times as in
        ``requests.parquet``.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        times, names, values = zip(*self.rows, strict=True) if self.rows else ((), (), ())
        columns = {
            "time_ns": pa.array(times, type=pa.int64()),
            "name": pa.array(names, type=pa.string()).dictionary_encode(),
            "value": pa.array(values, type=pa.float64()),
        }
        pq.write_table(pa.table(columns), path, compression="zstd")


GPU_COUNTERS = {
    "nvml:energy_j": 1.0,
    "amdsmi:energy_j": 1.0,
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 1e-3,
    "nv_energy_consumption": 1.0,
}
"""Joules per unit of the counters of NVML, AMD's library, the DCGM exporter (millijoules) and
Triton (names recalled, 2026-11-25)."""
GPU_WATTS = {
    "nvml:power_w": 1.0,
    "amdsmi:power_w": 1.0,
    "DCGM_FI_DEV_POWER_USAGE": 1.0,
    "nv_gpu_power_usage": 1.0,
    **dict.fromkeys(AMD, 1.0),
}
"""Watts by NVML, AMD's SMI library, the DCGM exporter, Triton, and AMD's device metrics exporter
(names recalled, 2026-11-25)."""
HOST_COUNTERS = {"rapl:energy_j": 1.0}
PDU_WATTS = {PDU: 10.0}
"""Watts of a rack's power distribution unit, in hundredths of a kW: APC's PowerNet-MIB by
snmp_exporter (recalled, 2026-11-25)."""


def joules(
    rows: Sequence[tuple[int, str, float]], units: Mapping[str, float], seconds: float
) -> float | None:
    """Joules from the beginning of a run on, of all series of the first name that was read; None
    where none was read twice.

    ``rows`` are nanoseconds since the beginning, name with labels, and value; ``units`` joules, or
    watts, per unit of a series by its name. Before the first reading and after the last one the
    power is that of the next.
    """
    for name, unit in units.items():
        series: dict[str, list[tuple[float, float]]] = {}
        for at_ns, labelled, value in rows:
            if labelled.partition("{")[0] == name:
                series.setdefault(labelled, []).append((at_ns / 1e9, unit * value))
        read = [np.array(values).T for values in series.values() if len(values) > 1]
        if read:
            return sum(
                _grown(times, values, seconds, watts=units in (GPU_WATTS, PDU_WATTS))
                for times, values in read
            )
    return None


def _grown(
    times: NDArray[np.float64], values: NDArray[np.float64], seconds: float, *, watts: bool
) -> float:
    """Joules of one series between 0 and ``seconds``: a counter that began again counts from
    there.
    """
    steps = np.diff(times)
    grown = (
        steps * (values[1:] + values[:-1]) / 2
        if watts
        else np.where(np.diff(values) >= 0, np.diff(values), values[1:])
    )
    total = np.concatenate([[0.0], np.cumsum(grown)])
    first, last = (values[0], values[-1]) if watts else (grown[0] / steps[0], grown[-1] / steps[-1])

    def at(moment: float) -> float:
        if moment < times[0]:
            return float((moment - times[0]) * first)
        return float(
            total[-1] + (moment - times[-1]) * last
            if moment > times[-1]
            else np.interp(moment, times, total)
        )

    return at(seconds) - at(0.0)

"""GPUs, systems and the links between them: datasheet facts, no behaviour."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, fields, replace
from os.path import isfile
from pathlib import Path
from typing import Any, Literal

from tonnage.csv_file import read_text
from tonnage.errors import InputError, InputErrors, option
from tonnage.spec.kv_tiers import SystemTier
from tonnage.spec.precision import BITS, Arithmetic, Precision
from tonnage.spec.typed_values import parse_yaml, read_as, strict

LinkKind = Literal["nvlink", "nvlink-bridge", "pcie", "other"]

BEFORE_SPARSITY = ("Volta", "Turing")
"""NVIDIA's generations before Ampere, whose matrix units came first to skip the zeros of 2:4
(Ampere architecture whitepaper, 2020)."""

GENERATIONS = {"7.0": "Volta", "7.5": "Turing", "8.0": "Ampere"}
"""NVIDIA's oldest generations that engines still run on, by their least compute capability (CUDA
C++ Programming Guide, recalled)."""


def older_generations(capability: str) -> tuple[str, ...]:
    """NVIDIA's generations below a compute capability, such as Volta and Turing below "8.0"."""
    supported = float(capability or 0)
    return tuple(name for least, name in GENERATIONS.items() if float(least) < supported)


ARCHES = {
    "gfx90a": "CDNA2",
    "gfx942": "CDNA3",
    "gfx950": "CDNA4",
    "gfx1100": "RDNA3",
    "gfx1201": "RDNA4",
    "sm70": "Volta",
    "sm75": "Turing",
    "sm80": "Ampere",
    "sm86": "Ampere",
    "sm89": "Ada",
    "sm90": "Hopper",
    "sm100": "Blackwell",
    "sm103": "Blackwell Ultra",
    "sm120": "Blackwell",
    "sm121": "Blackwell",
}
"""The generation that a compiler's target names (LLVM, AMDGPU usage; CUDA C++ Programming Guide;
recalled)."""


@strict
class Gpu:
    """One accelerator, as its datasheet describes it (dense rates, no sparsity)."""

    name: str  # lower-case id, such as "h100-sxm-80gb"
    # vendor, arch: such as "NVIDIA" and "Hopper"
    vendor: str
    arch: str
    fp16_tflops: float  # dense FP16/BF16 matrix rate in TFLOP/s
    fp8_tflops: float | None  # dense FP8 matrix rate in TFLOP/s; None where the hardware has none
    int8_tops: float | None  # dense INT8 matrix rate in TOP/s; None where the hardware has none
    # dense FP4 matrix rate in TFLOP/s of blocks with a scale each; None where the hardware has none
    fp4_tflops: float | None
    memory_gb: float  # memory as sold, decimal gigabytes
    memory_bytes: int  # memory that the driver reports, in bytes
    memory_bandwidth_gb_s: float  # datasheet bandwidth in GB/s
    link: LinkKind  # how GPUs of one system are joined
    # bandwidth of that link per GPU, both directions together, in GB/s; 0 for "pcie"
    link_gb_s: float
    pcie_gb_s: float  # bandwidth of the PCIe slot, both directions together, in GB/s
    tdp_w: float | None  # board power in watts; None where unknown
    bf16: bool  # whether the matrix units take BF16
    # source, date: where the figures come from and when they were taken down
    source: str
    date: str
    verified: str  # which of the fields were read from that source; the rest are recalled
    notes: str = ""  # anything a user should know
    memory_source: str = ""  # where ``memory_bytes`` comes from
    bridge_gpus: int = 2  # how many GPUs an NVLink bridge joins
    bridged: bool = False  # whether a user states that NVLink bridges join the cards
    # whether the driver lets GPUs read each other's memory over PCIe; else sums go through the
    # host's memory
    p2p: bool = True
    # how many GPUs a node joins pair by pair, each pair by an equal share of the links; 0 where a
    # switch joins them
    mesh_gpus: int = 0
    power_cap_w: float | None = None  # power limit below the board power, in watts; None for none
    clock: float = 1.0  # share of the clock that the multiprocessors are locked to
    host_speed: float = 1.0  # of a core of its host, over those of the hosts that were measured
    # tf32_tflops, fp32_tflops: rates of 32-bit products, in the matrix units and in the FP32 cores;
    # None where the catalog has none
    tf32_tflops: float | None = None
    fp32_tflops: float | None = None

    def flops(self, arithmetic: Arithmetic) -> float | None:
        """Dense matrix rate in FLOP/s (INT8: in OP/s) for that arithmetic, or None where the
        hardware has none.
        """
        rate: float | None = (
            self.int8_tops if arithmetic == "int8" else getattr(self, f"{arithmetic}_tflops")
        )
        return None if rate is None else rate * 1e12

    def executes(self, precision: Precision) -> Precision:
        """The precision as this hardware runs it: block-scaled formats that other hardware knows
        how to unpack are unpacked to 16 bits.
        """
        if precision.weight_format == "mxfp4" and self.fp4_tflops is None:
            return replace(precision, arithmetic="fp16", unpacked=True, block_scaled=False)
        return precision

    def lacks(self, precision: Precision) -> str:
        """What of a precision the hardware cannot do, such as "no FP8 matrix units"; empty where it
        can do all of it.
        """
        return next(
            filter(None, map(self._lacks, (precision, *(part.form for part in precision.parts)))),
            "",
        )

    def _lacks(self, precision: Precision) -> str:
        run = self.executes(precision)
        if run.weight_format == "bf16" and not self.bf16:
            return "no BF16 matrix units"
        if (
            run.weight_format == "mxfp8"
            and run.block_scaled
            and self.fp4_tflops is None
            and self.fp8_tflops is not None
        ):
            return "no matrix units for the block scales of MXFP8"
        if self.flops(run.arithmetic) is None or (run.block_scaled and self.fp4_tflops is None):
            return (
                f"no {run.arithmetic.upper()}"
                f" {'rate in the catalog' if run.value_bits > BITS['fp16'] else 'matrix units'}"
            )
        if run.weight_format == "nvfp4" and self.vendor != "NVIDIA":
            return "no matrix units for the block scales of NVFP4"
        if run.sparse and (
            self.vendor != "NVIDIA" or self.arch in BEFORE_SPARSITY or run.arithmetic == "fp32"
        ):
            return "no matrix units that skip the zeros of 2:4 sparsity"
        return ""

    def supports(self, precision: Precision) -> bool:
        """Whether the hardware can compute in that precision."""
        return not self.lacks(precision)

    def tp_link(self, tp: int) -> LinkKind:
        """The link that a tensor-parallel group of ``tp`` GPUs runs over; a bridge joins
        ``bridge_gpus``.
        """
        return "pcie" if self.link == "nvlink-bridge" and tp > self.bridge_gpus else self.link

    def tp_link_bytes_s(self, tp: int) -> float:
        """One-way bandwidth per GPU of that link, in bytes/s: in a mesh, of the links to the other
        GPUs of the group.
        """
        both_ways = self.pcie_gb_s if self.tp_link(tp) == "pcie" else self.link_gb_s
        used = (tp - 1) / (self.mesh_gpus - 1) if 1 < tp < self.mesh_gpus else 1.0
        return used * both_ways / 2 * 1e9


LEAST_CAP, LEAST_CLOCK = 0.6, 0.5
"""The lowest power limit and clock, as shares, that rates are known for: below, published rates
fall steeply and apart (docs/cost.md)."""

_CAP = re.compile(r"^(\d+(?:\.\d+)?)\s*(w|kw|%)?$", re.IGNORECASE)


def capped(gpu: Gpu, text: str) -> Gpu:
    """The GPU under a power limit such as "500W" or "70%" of its board power; as it is where the
    limit is no lower than that.

    Raises InputError: no such limit, a board of unknown power, or a limit too low for any published
    rate.
    """
    match = _CAP.match(str(text).strip())
    if match is None:
        raise InputError(
            f"{option('power_cap')}: '{text!s:.40}' is not a power of a GPU; write for example 500W"
            " or 70%"
        )
    if "-mig-" in gpu.name:
        raise InputError(
            f"{option('power_cap')}: a power limit is one of a whole GPU, and {gpu.name} is a"
            " slice; leave it out"
        )
    if gpu.tdp_w is None:
        raise InputError(
            f"{option('power_cap')}: the board power of {gpu.name} is not known; leave it out"
        )
    unit = (match[2] or "w").lower()
    watts = float(match[1]) * {"w": 1.0, "kw": 1_000.0, "%": gpu.tdp_w / 100}[unit]
    if watts < LEAST_CAP * gpu.tdp_w:
        least = f"{LEAST_CAP:.0%}, {LEAST_CAP * gpu.tdp_w:g} W of {gpu.name}"
        raise InputError(
            f"{option('power_cap')}: {text} is too low for a prediction; write at least {least}, or"
            " measure it with bench"
        )
    return gpu if watts >= gpu.tdp_w else replace(gpu, power_cap_w=watts)


def clocked(gpu: Gpu, share: float) -> Gpu:
    """The GPU with its multiprocessors locked to a share of their clock. Raises InputError: no such
    share.
    """
    if not LEAST_CLOCK <= share <= 1:
        raise InputError(
            f"{option('gpu_clock')}: {share:g} is not a share that rates are known for; write 50%"
            " to 100%"
        )
    return replace(gpu, clock=share)


def hosted(gpu: Gpu, speed: float) -> Gpu:
    """The GPU in a host whose cores have that speed, over the measured ones. Raises InputError: no
    such speed.
    """
    if not SLOWEST_HOST <= speed <= FASTEST_HOST:
        raise InputError(
            f"{option('host_speed')}: {speed:g} is not a speed of cores; write {SLOWEST_HOST:g} to"
            f" {FASTEST_HOST:g}"
        )
    return replace(gpu, host_speed=speed)


SLOWEST_HOST, FASTEST_HOST = 0.1, 3.0

FABRICS = ("nvlink", "other")  # Links that are not PCIe
SLOT, BRIDGE, P2P_OFF = "pcie", "bridge", "p2p-off"
_PCIE = re.compile(r"^pcie([3-6])-x(4|8|16)$")
# of one lane, both directions together (PCI-SIG), by generation
_LANE_GB_S = {3: 2.0, 4: 4.0, 5: 8.0, 6: 16.0}
_NEAR = ("PIX", "PXB", "PHB")
"""What ``nvidia-smi topo -m`` calls paths over PCIe within one root of a CPU; NCCL copies through
memory over longer ones (its default)."""


def linked(gpu: Gpu, text: str, tp: int = 2) -> Gpu:
    """The GPU with the link between the GPUs of a system that ``text`` states, or a file with the
    output of ``nvidia-smi topo -m``.

    Args:
        text: ``pcie4-x16`` (generations 3 to 6, 4, 8 or 16 lanes), ``pcie`` for the card's own,
            ``bridge`` or ``p2p-off``; several with commas.
        tp: how many GPUs of a file count.

    Raises InputError: another word, a file without such a table, or a link for GPUs that NVLink or
    another fabric joins.
    """
    if gpu.link in FABRICS:
        raise InputError(
            f"{option('link')}: {gpu.name} is joined by"
            f" {gpu.link if gpu.link == 'nvlink' else 'its own fabric'}, not by PCIe; leave it out"
        )
    changed_gpu = gpu if gpu.link == "pcie" else replace(gpu, link="pcie")
    for word in link_words(text, tp).lower().split(","):
        lanes = _PCIE.match(word.strip())
        if lanes is not None:
            changed_gpu = replace(
                changed_gpu, pcie_gb_s=min(gpu.pcie_gb_s, _LANE_GB_S[int(lanes[1])] * int(lanes[2]))
            )
        elif word.strip() == BRIDGE:
            if gpu.link != "nvlink-bridge":
                raise InputError(
                    f"{option('link')}: {gpu.name} takes no NVLink bridge; write pcie4-x16,"
                    " pcie5-x16 or p2p-off"
                )
            changed_gpu = replace(changed_gpu, link=gpu.link, bridged=True)
        elif word.strip() == P2P_OFF:
            changed_gpu = replace(changed_gpu, p2p=False)
        elif word.strip() != SLOT:
            raise InputError(
                f"{option('link')}: '{word.strip():.40}' is not a link; write pcie, pcie4-x16,"
                " pcie5-x16, bridge or p2p-off, or a file with the output of nvidia-smi topo -m"
            )
    return changed_gpu


def link_words(text: str, tp: int) -> str:
    """The words of ``linked``; of a file with the output of ``nvidia-smi topo -m``, for the longest
    path between its first ``tp`` GPUs.

    Raises InputError: the file has no such table.
    """
    path = Path(text)
    if not isfile(path):
        return text
    rows = [
        line.split() for line in read_text(path).splitlines() if re.match(r"^\s*GPU\d+\s", line)
    ]
    table = [row[1:] for row in rows if "X" in row]
    if len(table) < 2 or any(len(row) < len(table) for row in table):
        raise InputError(
            f"{option('link')}: {path} has no table of two GPUs or more; write the output of"
            " nvidia-smi topo -m to it"
        )
    used = min(max(tp, 2), len(table))
    paths = {table[first][second] for first in range(used) for second in range(first)}
    if all(path.startswith("NV") for path in paths):
        return BRIDGE
    return SLOT if all(path in _NEAR or path.startswith("NV") for path in paths) else P2P_OFF


_MIG = {"h100": 7, "h200": 7, "h20": 7, "gh200": 7, "a100": 7, "b200": 7, "gb200": 7, "a30": 4}
"""Slices of compute of the GPUs that MIG divides; their memory has the next power of two (NVIDIA's
MIG user guide, 2026-11-25)."""
# Eighths of the memory that go with so many sevenths of the compute
_MIG_MEMORY = {1: (1, 2), 2: (2,), 3: (4,), 4: (4,), 7: (8,)}


def small_slices(gpu: Gpu) -> tuple[int, str] | None:
    """Into how many small MIG slices a GPU divides, each with a quarter of its memory, and the name
    of one; None where MIG does not divide it, or it is a slice.
    """
    if "-mig-" in gpu.name:
        return None
    small = mig_slice(gpu, 1, round(gpu.memory_gb / SMALL_SLICES))
    return None if small is None else (SMALL_SLICES, small.name)


SMALL_SLICES = 4  # Of a GPU, each with one unit of compute


def mig_slice(gpu: Gpu, slices: int, memory_gb: int) -> Gpu | None:
    """The MIG slice of that profile ("3g.40gb": 3 slices of compute, 40 GB); None where the GPU has
    no such profile.

    Rates, bandwidth and power are the slice's share of the whole GPU's; slices share no link, so
    that a model runs within one.
    """
    whole = _MIG.get(gpu.name.partition("-")[0], 0)
    parts = {7: 8, 4: 4}.get(whole, 0)
    fitting = (
        _MIG_MEMORY.get(slices, ()) if whole == 7 else (slices,) if slices in (1, 2, 4) else ()
    )
    share = next(
        (
            part / parts
            for part in fitting
            if parts and abs(gpu.memory_gb * part / parts - memory_gb) <= 1
        ),
        None,
    )
    if share is None:
        return None
    rates = (
        "fp16_tflops",
        "fp8_tflops",
        "int8_tops",
        "fp4_tflops",
        "tf32_tflops",
        "fp32_tflops",
        "tdp_w",
    )
    scaled: dict[str, Any] = {
        name: rate * (slices / whole) for name in rates if (rate := getattr(gpu, name)) is not None
    }
    return replace(
        gpu,
        name=f"{gpu.name}-mig-{slices}g.{memory_gb}gb",
        **scaled,
        memory_gb=memory_gb,
        memory_bytes=int(gpu.memory_bytes * share),
        memory_bandwidth_gb_s=gpu.memory_bandwidth_gb_s * share,
        link="pcie",
        link_gb_s=0.0,
        memory_source=f"{share:g} of the whole GPU's",
        source=(
            f"shares of {gpu.name} ({gpu.source}); profiles: NVIDIA's MIG user guide, Supported MIG"
            " Profiles"
        ),
        date="2026-11-25",
        verified="",
        notes=(
            f"MIG slice: {slices}/{whole} of the compute, {share:g} of memory and bandwidth;"
            " estimated until calibrated"
        ),
    )


@strict
class HostCpu:
    """A class of host CPUs by what one core of it does."""

    name: str  # such as "epyc-9005"
    models: str  # pattern of the names that lscpu prints as "Model name"
    # of a core with one thread at work, over those of the hosts on which the shipped terms were
    # measured
    speed: float
    # source, date: of the scores, and when they were taken down
    source: str
    date: str


@strict
class System:
    """A server of several GPUs, such as ``dgx-h100``."""

    name: str  # lower-case id
    gpu: str  # id of its GPU in the catalog
    gpus: int  # how many it holds
    max_power_w: float | None  # of the whole server, in watts; None where unknown
    # source, date: where the figures come from
    source: str
    date: str
    notes: str = ""
    gpu_file: str = ""  # the YAML file of its GPU where that is not in the catalog; else ""
    usd: float | None = None  # what one costs to buy, where its own file says so; None otherwise
    # memories that can keep KV blocks below the cache; empty where none is known
    kv_tiers: tuple[SystemTier, ...] = ()


# Reads a user's own accelerator, as a YAML file describes it, as a ``Gpu``. Four keys are needed;
# the others have values that say "not known". The datasheet's rates need not be reached: what a
# calibration with its own terms fits is the share of them that is (``spec.calibration.OWN_TERMS``).


SUFFIXES = (".yaml", ".yml")

# The vendor of hardware that its file does not name; it runs the engine of the question
ANY_VENDOR = "other"

MOST_BYTES = 100_000  # The largest file that is read

PAST_ANY = 1e9  # No datasheet says a number as large as this


@strict
class HardwareFile:
    """The file as it was written; the fields are those of ``Gpu``."""

    name: str
    fp16_tflops: float
    memory_gb: float
    memory_bandwidth_gb_s: float
    vendor: str = ANY_VENDOR
    arch: str = "other"
    fp8_tflops: float | None = None
    int8_tops: float | None = None
    fp4_tflops: float | None = None
    tf32_tflops: float | None = None
    fp32_tflops: float | None = None
    memory_bytes: int = 0
    link: LinkKind = "pcie"
    link_gb_s: float = 0.0
    pcie_gb_s: float = 64.0
    tdp_w: float | None = None
    bf16: bool = True
    notes: str = ""

    def faults(self) -> list[str]:
        """The faults of the values, each with its key."""
        needed = ("fp16_tflops", "memory_gb", "memory_bandwidth_gb_s")
        faults = [] if self.name.strip() else ["name: is empty"]
        for part in fields(self):
            value = getattr(self, part.name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            least = "above 0" if part.name in needed else "0 or more"
            if (
                value < 0
                or (part.name in needed and value == 0)
                or value > (PAST_ANY**2 if part.name == "memory_bytes" else PAST_ANY)
            ):
                faults.append(f"{part.name}: {value:g} is not possible; write a number {least}")
        return faults


def is_hardware_file(text: str) -> bool:
    """Whether a text in place of a GPU's name is the path of such a file."""
    return text.lower().endswith(SUFFIXES)


def read_hardware(path: str | Path) -> Gpu:
    """The accelerator that a YAML file describes.

    Raises InputError: no such file, or not YAML; InputErrors: unknown or missing keys and values
    that cannot be, each with its key.
    """
    where = str(path)
    text = read_text(
        path, give="a YAML file with name, fp16_tflops, memory_gb and so on", most_bytes=MOST_BYTES
    )
    hardware_file = read_as(HardwareFile, parse_yaml(text, where), where, InputErrors)
    InputErrors.raise_if([f"{where}: {fault}" for fault in hardware_file.faults()])
    values = {
        **{part.name: getattr(hardware_file, part.name) for part in fields(hardware_file)},
        "name": "-".join(hardware_file.name.lower().split()),
        "memory_bytes": hardware_file.memory_bytes or round(hardware_file.memory_gb * 1e9),
        "memory_source": (
            "memory_bytes of the file" if hardware_file.memory_bytes else "memory_gb of the file"
        ),
    }
    return Gpu(**values, source=where, date="", verified="")


# Reads a user's own server, as a YAML file describes it, as a ``System``; its name is the path of
# the file, by which it is read again.


MOST_GPUS = 1_024


@strict
class SystemFile:
    """The file as it was written."""

    # a catalog id, or the path of the YAML file of the user's accelerator, from the folder of this
    # file
    gpu: str
    gpus: int  # how many it holds
    max_power_w: float | None = None  # of the whole server, in watts; null where it is not known
    # what one costs to buy; null where that is unknown, or given as a price
    usd: float | None = None
    notes: str = ""  # anything a reader should know


def read_system(path: str) -> System:
    """The server that a YAML file describes.

    Raises InputError: no such file, or not YAML; InputErrors: unknown or missing keys and values
    that cannot be, each with its key; UnknownName: no GPU of that name.
    """
    from tonnage.spec.catalog import find_gpu

    text = read_text(path, give="a YAML file with gpu, gpus and so on", most_bytes=MOST_BYTES)
    system_file = read_as(SystemFile, parse_yaml(text, path), path, InputErrors)
    faults = (
        []
        if 1 <= system_file.gpus <= MOST_GPUS
        else [f"{path}: gpus: {system_file.gpus} is not possible; write 1 to {MOST_GPUS:,}"]
    )
    for name in ("max_power_w", "usd"):
        value = getattr(system_file, name)
        if value is not None and not (math.isfinite(value) and 0 < value <= 1e12):
            faults.append(
                f"{path}: {name}: {value:g} is not possible; write a number above 0, or null"
            )
    InputErrors.raise_if(faults)
    gpu_file = str(Path(path).parent / system_file.gpu) if is_hardware_file(system_file.gpu) else ""
    gpu = read_hardware(gpu_file) if gpu_file else find_gpu(system_file.gpu)
    return System(
        **asdict(replace(system_file, gpu=gpu.name)),
        name=path,
        source=path,
        date="",
        gpu_file=gpu_file,
    )

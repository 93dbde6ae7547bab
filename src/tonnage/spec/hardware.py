"""GPUs, systems and the links between them: datasheet facts, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from tonnage.spec.precision import Arithmetic, Precision

LinkKind = Literal["nvlink", "nvlink-bridge", "pcie", "other"]

BEFORE_SPARSITY = ("Volta", "Turing")
"""NVIDIA's generations before Ampere, whose matrix units came first to skip the zeros of 2:4 (Ampere architecture whitepaper, 2020)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One accelerator, as its datasheet describes it (dense rates, no sparsity).

    Attributes:
        name: lower-case id, such as "h100-sxm-80gb".
        vendor, arch: such as "NVIDIA" and "Hopper".
        fp16_tflops: dense FP16/BF16 matrix rate in TFLOP/s.
        fp8_tflops: dense FP8 matrix rate in TFLOP/s; None where the hardware has none.
        int8_tops: dense INT8 matrix rate in TOP/s; None where the hardware has none.
        fp4_tflops: dense FP4 matrix rate in TFLOP/s of blocks with a scale each; None where the hardware has none.
        memory_gb: memory as sold, decimal gigabytes.
        memory_bytes: memory that the driver reports, in bytes.
        memory_source: where ``memory_bytes`` comes from.
        memory_bandwidth_gb_s: datasheet bandwidth in GB/s.
        link: how GPUs of one system are joined.
        link_gb_s: bandwidth of that link per GPU, both directions together, in GB/s; 0 for "pcie".
        pcie_gb_s: bandwidth of the PCIe slot, both directions together, in GB/s.
        tdp_w: board power in watts; None where unknown.
        bf16: whether the matrix units take BF16.
        bridge_gpus: how many GPUs an NVLink bridge joins.
        mesh_gpus: how many GPUs a node joins pair by pair, each pair by an equal share of the links; 0 where a switch joins them.
        source, date: where the figures come from and when they were taken down.
        verified: which of the fields were read from that source; the rest are recalled.
        notes: anything a user should know.
    """

    name: str
    vendor: str
    arch: str
    fp16_tflops: float
    fp8_tflops: float | None
    int8_tops: float | None
    fp4_tflops: float | None
    memory_gb: float
    memory_bytes: int
    memory_bandwidth_gb_s: float
    link: LinkKind
    link_gb_s: float
    pcie_gb_s: float
    tdp_w: float | None
    bf16: bool
    source: str
    date: str
    verified: str
    notes: str = ""
    memory_source: str = ""
    bridge_gpus: int = 2
    mesh_gpus: int = 0

    def flops(self, arithmetic: Arithmetic) -> float | None:
        """Dense matrix rate in FLOP/s (INT8: in OP/s) for that arithmetic, or None where the hardware has none."""
        rates = {"fp16": self.fp16_tflops, "fp8": self.fp8_tflops, "int8": self.int8_tops, "fp4": self.fp4_tflops}
        rate = rates[arithmetic]
        return None if rate is None else rate * 1e12

    def executes(self, precision: Precision) -> Precision:
        """The precision as this hardware runs it: block-scaled formats that other hardware knows how to unpack are unpacked to 16 bits."""
        if precision.weight_format == "mxfp4" and self.fp4_tflops is None:
            return replace(precision, arithmetic="fp16", unpacked=True, block_scaled=False)
        return precision

    def lacks(self, precision: Precision) -> str:
        """What of a precision the hardware cannot do, such as "no FP8 matrix units"; empty where it can do all of it."""
        run = self.executes(precision)
        if run.weight_format == "bf16" and not self.bf16:
            return "no BF16 matrix units"
        if self.flops(run.arithmetic) is None or (run.block_scaled and self.fp4_tflops is None):
            return f"no {run.arithmetic.upper()} matrix units"
        if run.weight_format == "nvfp4" and self.vendor != "NVIDIA":
            return "no matrix units for the block scales of NVFP4"
        if run.sparse and (self.vendor != "NVIDIA" or self.arch in BEFORE_SPARSITY):
            return "no matrix units that skip the zeros of 2:4 sparsity"
        return ""

    def supports(self, precision: Precision) -> bool:
        """Whether the hardware can compute in that precision."""
        return not self.lacks(precision)

    def tp_link(self, tp: int) -> LinkKind:
        """The link that a tensor-parallel group of ``tp`` GPUs runs over; a bridge joins ``bridge_gpus``."""
        if self.link == "nvlink-bridge" and tp > self.bridge_gpus:
            return "pcie"
        return self.link

    def tp_link_bytes_s(self, tp: int) -> float:
        """One-way bandwidth per GPU of that link, in bytes/s: in a mesh, of the links to the other GPUs of the group."""
        both_ways = self.pcie_gb_s if self.tp_link(tp) == "pcie" else self.link_gb_s
        used = (tp - 1) / (self.mesh_gpus - 1) if 1 < tp < self.mesh_gpus else 1.0
        return used * both_ways / 2 * 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A server of several GPUs, such as ``dgx-h100``.

    Attributes:
        name: lower-case id.
        gpu: id of its GPU in the catalog.
        gpus: how many it holds.
        max_power_w: of the whole server, in watts; None where unknown.
        source, date: where the figures come from.
        gpu_file: the YAML file of its GPU where that is not in the catalog; else "".
        usd: what one costs to buy, where its own file says so; None otherwise.
    """

    name: str
    gpu: str
    gpus: int
    max_power_w: float | None
    source: str
    date: str
    notes: str = ""
    gpu_file: str = ""
    usd: float | None = None

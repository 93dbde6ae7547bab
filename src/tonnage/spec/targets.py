"""What each deployment target runs: engines, vendors, splits, formats and routers, for the search
and for the files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tonnage.errors import InputError, option
from tonnage.spec.precision import find_precision

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tonnage.spec.deployment import Parallelism
    from tonnage.spec.engine import EnginePreset
    from tonnage.spec.hardware import Gpu

FAMILIES = ("vllm", "sglang", "tensorrt-llm")

BALANCED = (
    "least-outstanding",
    "round-robin",
    "random",
    "power-of-two",
    "least-tokens",
    "least-kv",
    "session",
    "prefix-aware",
)
"""Routers of ``tonnage gateway``."""

# The simulated routers nearest to a picker by prefix, queue and KV cache
PICKED = ("least-outstanding", "prefix-aware", "least-kv")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRuns:
    """The deployments that one target runs."""

    engines: tuple[str, ...] = FAMILIES  # families
    # simulated routers that its own is, or is nearest to; the first one by default
    routers: tuple[str, ...] = BALANCED
    pools: bool = False  # whether it runs prefill and decode in two pools
    ranks: tuple[str, ...] = FAMILIES  # families whose attention may run in data-parallel ranks
    stages: bool = True  # whether an instance may be a pipeline
    across: tuple[str, ...] = ()  # families of which an instance may span several machines
    vendors: tuple[str, ...] = ("NVIDIA",)  # of GPUs
    # weights that an engine family is limited to
    formats: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


BOTH = ("NVIDIA", "AMD")

# Families whose instances a LeaderWorkerSet spreads over systems, each by its own flags for nodes
SPANNING = ("vllm", "sglang")

COMPILED = ("fp16", "bf16", "fp8", "nvfp4", "int8-sq", "awq", "w4a8", "int8-wo", "int4-wo")
"""Formats of which Triton's backend of TensorRT-LLM has compiled engines
(examples/quantization/quantize.py, read 2026-11-23)."""

TARGETS: dict[str, TargetRuns] = {
    "compose": TargetRuns(vendors=BOTH),
    "kubernetes": TargetRuns(routers=("random",), across=SPANNING, vendors=BOTH),
    "kserve": TargetRuns(routers=(*PICKED, "random"), vendors=BOTH),
    "llm-d": TargetRuns(
        engines=SPANNING, routers=PICKED, pools=True, across=SPANNING, vendors=BOTH
    ),
    "dynamo": TargetRuns(routers=PICKED, pools=True, ranks=("tensorrt-llm",)),
    "production-stack": TargetRuns(
        engines=("vllm",), routers=("round-robin", "prefix-aware", "session"), vendors=BOTH
    ),
    "ray-serve": TargetRuns(engines=("vllm",), routers=("power-of-two",), ranks=()),
    "nim": TargetRuns(engines=(*FAMILIES, "nim"), routers=("random",), ranks=()),
    "triton": TargetRuns(
        engines=("vllm", "tensorrt-llm"), ranks=(), stages=False, formats={"tensorrt-llm": COMPILED}
    ),
}


TRAYS = {"gb200-186gb": 4, "gb300-279gb": 4, "vr200-288gb": 4, "mi455x": 4}
"""GPUs of one machine of the racks whose machines NVLink joins (18 trays of four; a machine of a
cloud is p6e-gb200.36xlarge)."""


def machine_gpus(gpu: str, gpus_per_system: int) -> int:
    """GPUs of one machine: of a system, or where that is a rack of one of its trays."""
    return min(TRAYS.get(gpu, gpus_per_system), gpus_per_system)


def target_runs(name: str, *, at: str = "target") -> TargetRuns:
    """Look up what the target of that name runs. Raises InputError: there is none."""
    if name not in TARGETS:
        raise InputError(
            f"{option(at)}: no files are written for '{name}'; there are {', '.join(TARGETS)}"
        )
    return TARGETS[name]


def target_lacks(
    name: str,
    *,
    engine: EnginePreset,
    gpu: Gpu,
    split: Parallelism,
    gpus_per_system: int,
    precision: str,
) -> str:
    """The reason why a target cannot run an instance, as a clause; empty if it can."""
    runs, family, weights = TARGETS[name], engine.family, find_precision(precision).weights
    reasons = {
        f"{name} runs only {' and '.join(runs.engines)}, not {engine.name}": (
            family not in runs.engines
        ),
        f"deploy writes only NVIDIA GPUs for {name}, not {gpu.name} by {gpu.vendor}": (
            gpu.vendor not in runs.vendors
        ),
        f"deploy writes whole GPUs for {name}, no MIG slice such as {gpu.name}": (
            "-mig-" in gpu.name
        ),
        f"an instance of {split.gpus} GPUs spans several machines, which deploy does not write for {family} on {name}": (  # noqa: E501
            split.gpus > machine_gpus(gpu.name, gpus_per_system) and family not in runs.across
        ),
        f"deploy writes no data-parallel attention of {family} for {name}": (
            split.dp > 1 and family not in runs.ranks
        ),
        f"deploy writes no pipelines for {name}": split.pp > 1 and not runs.stages,
        f"{name}'s backend of {family} needs a compiled engine, which does not exist in {weights}": (  # noqa: E501
            weights not in runs.formats.get(family, (weights,))
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")

"""Engines: the programs that run a model, with the defaults of one range of versions each."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tonnage.spec.deployment import EngineKnobs
from tonnage.spec.hardware import Gpu
from tonnage.spec.launch import Launch
from tonnage.spec.precision import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryDefault:
    """Batch limits that an engine chooses on GPUs with at least ``min_bytes`` of memory.

    Attributes:
        min_bytes: memory of the GPU from which this holds, in bytes.
        excluded: GPUs whose id contains this text do not count; empty for none.
        max_batch_size, max_num_tokens: as in ``EngineKnobs``.
        kv_fraction: as in ``EngineKnobs``; None where it does not depend on the memory.
    """

    min_bytes: int
    excluded: str
    max_batch_size: int
    max_num_tokens: int
    kv_fraction: float | None = None

    def applies_to(self, gpu: Gpu) -> bool:
        """Whether the engine would choose these limits on that GPU."""
        return gpu.memory_bytes >= self.min_bytes and not (self.excluded and self.excluded in gpu.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """The defaults of one engine over one range of versions.

    Attributes:
        name: lower-case id, such as "tensorrt-llm-0.15".
        family: "tensorrt-llm", "nim", "vllm" or "sglang".
        since: first version that these defaults speak for, such as "0.14".
        vendors: makers of the accelerators that it runs on.
        knobs: defaults where no ``by_memory`` applies.
        coefficients: name of the fitted preset under ``perf/coefficients``.
        replicated_embedding: every GPU of an instance keeps the whole embedding table.
        narrow_activation_bytes_per_hidden: further activations per token of a full step and element of the residual
            stream, in bytes, where weights are narrower than 16 bits.
        logit_bytes_per_vocabulary_row: logits and sampling buffers per slot and row of the vocabulary, in bytes.
        communication_bytes: buffers between the first two GPUs of an instance, in bytes per GPU; None where those
            measured on TensorRT-LLM stand for them.
        reserve_bytes: workspaces and CUDA graphs beside context and communication, in bytes per GPU.
        by_memory: batch limits by GPU memory; the first that applies wins.
        without: number formats that it has no kernels for.
        front_ends_per_rank: an instance is run with a front end for each rank of data-parallel attention, not with one for all.
        launch: how its server is started; None where it is not known.
        source, date: where the defaults come from and when they were taken down.
    """

    name: str
    family: str
    since: str
    vendors: tuple[str, ...]
    knobs: EngineKnobs
    coefficients: str
    replicated_embedding: bool
    narrow_activation_bytes_per_hidden: float
    logit_bytes_per_vocabulary_row: float
    reserve_bytes: int
    communication_bytes: int | None = None
    by_memory: tuple[MemoryDefault, ...] = ()
    without: tuple[str, ...] = ()
    front_ends_per_rank: bool = False
    launch: Launch | None = None
    source: str = ""
    date: str = ""
    notes: str = ""

    def lacks(self, precision: Precision) -> str:
        """Why the engine cannot run a precision, such as "vllm has no int8-wo"; empty where it can."""
        return f"{self.name} has no {precision.weight_format}" if precision.weight_format in self.without else ""


def default_knobs(engine: EngineSpec, gpu: Gpu, ranks: int = 1) -> EngineKnobs:
    """The knobs that an engine runs with on a GPU when its operator sets none; ``ranks`` of attention may each have a front end."""
    knobs = _by_memory(engine, gpu)
    return replace(knobs, front_ends=ranks) if engine.front_ends_per_rank else knobs


def _by_memory(engine: EngineSpec, gpu: Gpu) -> EngineKnobs:
    for default in engine.by_memory:
        if default.applies_to(gpu):
            fraction = engine.knobs.kv_fraction if default.kv_fraction is None else default.kv_fraction
            knobs = replace(engine.knobs, max_batch_size=default.max_batch_size, max_num_tokens=default.max_num_tokens)
            return replace(knobs, kv_fraction=fraction)
    return engine.knobs

"""Instances of one deployment that play one role: all of the serving, or its prefill or decode half."""

from __future__ import annotations

from dataclasses import field, fields
from typing import Any, Literal

from tonnage.plan.fleet import Fleet
from tonnage.spec.deployment import EngineKnobs, Parallelism
from tonnage.spec.typed_values import strict

# What the GPUs of a deployment draw.


@strict
class Power:
    """Predicted power of the GPUs, in watts of one of them; hosts, fans and cooling are not in it (``perf.power``)."""

    watts: float  # at the peak
    # low, high: between which a measurement is expected with a probability of 80 %
    low: float
    high: float
    # idle_watts, tdp_watts: without work, and at most
    idle_watts: float
    tdp_watts: float
    joules_per_output_token: float  # at the peak, of all GPUs of an instance
    # requests per second of one instance, from 0 on in rising order, and the watts of each of its GPUs
    by_load: tuple[tuple[float, float], ...]

    def share_at(self, requests_per_second: float) -> float:
        """Watts over the highest at a load of one instance, between the loads of ``by_load`` on a straight line."""
        (low, below), *others = self.by_load
        for high, above in others:
            if requests_per_second <= high:
                return (below + (above - below) * (requests_per_second - low) / (high - low)) / self.tdp_watts
            low, below = high, above
        return below / self.tdp_watts


@strict
class GpuLimit:
    """A power limit below the board power of each GPU, or its locked clocks."""

    cap_watts: float | None  # the power limit; None where the clocks are locked
    board_watts: float | None  # without it; None where unknown
    clock: float  # share of its rate that arithmetic keeps


# What a deployment is called: the words that tell one from another in a plan.


@strict
class Identity:
    """A deployment by name."""

    gpu: str  # catalog id
    precision: str  # number format, such as "fp8"
    # tp, pp, dp, ep: tensor-parallel and pipeline-parallel degree, data-parallel attention ranks, expert-parallel degree
    tp: int
    pp: int = 1
    dp: int = 1
    ep: int = 1
    engine: str  # with its version and its speculative decoding, such as "vllm-0.32 + eagle k=3"
    engine_preset: str = ""  # the range of versions that was simulated, such as "vllm-0.32"; "" where the engine was measured

    @property
    def parallelism(self) -> Parallelism:
        """How an instance is split."""
        return Parallelism(tp=self.tp, pp=self.pp, dp=self.dp, ep=self.ep)

    @property
    def identity(self) -> Identity:
        """These names alone, of a value that holds more."""
        return Identity(**{part.name: getattr(self, part.name) for part in fields(Identity)})


# Where the memory of one GPU goes.


MemoryUse = Literal["weights", "drafter", "adapters", "encoder", "activations", "reserve", "kv_cache", "unused"]
"""``reserve`` is the CUDA context, communication buffers and CUDA graphs."""


@strict
class MemoryPart:
    """One use of the memory of each GPU, in bytes, and as a share of all of it."""

    part: MemoryUse
    bytes_per_gpu: int
    share: float


Role = Literal["serve", "prefill", "decode"]


@strict
class Pool(Identity):
    """So many instances of one deployment."""

    role: Role = "serve"  # "serve" does everything; "prefill" and "decode" share the work
    model: str  # catalog id
    system: str  # catalog id of the systems that the instances are in
    gpus_per_system: int  # GPUs in one of them
    knobs: EngineKnobs | None  # of the engine; None where a benchmark did not say them
    instances: int  # spare ones included
    systems: int  # spare ones included; two pools on one kind of system are in the same ones, and both name all of them
    memory: tuple[MemoryPart, ...] = ()  # where the memory of each GPU goes; empty where it is not known
    kv_tokens: int | None = None  # tokens that the KV cache of one instance holds; None where it is not known
    # the command that starts the engine of one instance, as an argument list; empty where no command is known. What makes it a prefill or a
    # decode instance is not in it: that depends on what runs it, and ``tonnage deploy`` adds it.
    launch: tuple[str, ...] = ()
    # the configuration file that this command names ``plan.launch.FILE``, as nested values; empty where it needs none
    launch_file: dict[str, Any] = field(default_factory=dict)

    @property
    def fleet(self) -> Fleet:
        """Its systems, and what an instance takes of them."""
        return Fleet(systems=self.systems, gpus_per_instance=self.parallelism.gpus, gpus_per_system=self.gpus_per_system)

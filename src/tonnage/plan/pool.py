"""Instances of one deployment that play one role: all of the serving, or its prefill or decode half."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from tonnage.plan.fleet import Fleet
from tonnage.plan.identity import Identity
from tonnage.plan.memory import MemoryPart
from tonnage.spec.deployment import EngineKnobs
from tonnage.spec.typed_values import FORBID

Role = Literal["serve", "prefill", "decode"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool(Identity):
    """So many instances of one deployment.

    Attributes:
        role: "serve" does everything; "prefill" and "decode" share the work.
        model: catalog id.
        system: catalog id of the systems that the instances stand in.
        gpus_per_system: GPUs in one of them.
        knobs: of the engine; None where a benchmark did not say them.
        instances: spare ones included.
        systems: spare ones included; two pools on one kind of system stand in the same ones, and both name all of them.
        memory: where the memory of each GPU goes; empty where it is not known.
        kv_tokens: tokens that the KV cache of one instance holds; None where it is not known.
        launch: the command that starts the engine of one instance, as an argument list; empty where no command is known. What makes it
            a prefill or a decode instance is not in it: that depends on what runs it, and ``tonnage deploy`` adds it.
        launch_file: the configuration file that this command names ``plan.launch.FILE``, as nested values; empty where it needs none.
    """

    __pydantic_config__ = FORBID

    role: Role = "serve"
    model: str
    system: str
    gpus_per_system: int
    knobs: EngineKnobs | None
    instances: int
    systems: int
    memory: tuple[MemoryPart, ...] = ()
    kv_tokens: int | None = None
    launch: tuple[str, ...] = ()
    launch_file: dict[str, Any] = field(default_factory=dict)

    @property
    def fleet(self) -> Fleet:
        """Its systems, and what an instance takes of them."""
        return Fleet(systems=self.systems, gpus_per_instance=self.parallelism.gpus, gpus_per_system=self.gpus_per_system)

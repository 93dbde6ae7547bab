"""What carries a load: what its cost is computed from."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.plan.fleet import Fleet
from tonnage.spec.typed_values import FORBID


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """The instance that carries a load, and the system that it stands in.

    Attributes:
        gpu, system: catalog ids.
        gpus_per_instance, gpus_per_system: whole GPUs.
        requests_per_second_per_instance: what the plan counts on: the highest load inside the limits at the asked confidence.
        system_watts: highest power of one system; None where unknown.
        watts_from: where that comes from, in words.
        spare: systems owned on top of what the load needs.
        systems: the systems that a plan decided on, spare ones included: its simulation of the whole fleet may ask
            for more than the capacity of one instance says. None leaves the count to the capacity.
    """

    __pydantic_config__ = FORBID

    gpu: str
    system: str
    gpus_per_instance: int
    gpus_per_system: int
    requests_per_second_per_instance: float
    system_watts: float | None
    watts_from: str
    spare: int = 0
    systems: int | None = None

    @property
    def fleet(self) -> Fleet:
        """No systems yet, with what an instance takes of one: ``fleet.of(3)`` are three of them."""
        return Fleet(systems=0, gpus_per_instance=self.gpus_per_instance, gpus_per_system=self.gpus_per_system)

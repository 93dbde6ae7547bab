"""The best deployment that serves the other way: in two pools, prefill and decode, or by instances that do both."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.plan.identity import Identity
from tonnage.spec.typed_values import FORBID


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherServing:
    """What the same question is answered with where prefill and decode are kept apart, or where they are not.

    Attributes:
        deployment: what runs.
        ratio: prefill to decode instances, such as "3:5"; "" where instances do both.
        instances: of both pools, spare ones included.
        system: what is bought, a catalog id.
        systems, gpus: how many, spare ones included.
        systems_exact: before rounding up, without spare.
        saved: GPUs that the plan's choice has more than this; negative where it has fewer.
    """

    __pydantic_config__ = FORBID

    deployment: Identity
    ratio: str
    instances: int
    system: str
    systems: int
    gpus: int
    systems_exact: float
    saved: int

"""The best deployment on another GPU type, beside the choice."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.plan.identity import Identity
from tonnage.spec.typed_values import FORBID


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerUp:
    """What one would run on GPUs of another type: the cheapest of them, or where prices are not known the fewest GPUs.

    Attributes:
        deployment: what runs on them.
        system: what is bought, a catalog id.
        systems, gpus: how many, spare ones included.
        systems_exact: before rounding up, without spare.
        usd_per_year: of the cheapest way to own or rent them; None where no price is known.
        more_usd_per_year: what that is more than the cheapest way to own or rent the choice, negative where it is less; None likewise.
    """

    __pydantic_config__ = FORBID

    deployment: Identity
    system: str
    systems: int
    gpus: int
    systems_exact: float
    usd_per_year: float | None
    more_usd_per_year: float | None

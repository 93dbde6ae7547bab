"""What a choice aims at: what is to be as little as possible, and what must not be exceeded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tonnage.spec.scenario import Objective
from tonnage.spec.typed_values import FORBID

BudgetOf = Literal["purchase", "year"]

RACK_KW = 42.0
"""Kilowatts of a rack where nothing is said: four DGX H100 of 10.2 kW (NVIDIA DGX SuperPOD reference architecture for DGX H100, 2023)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What a choice aims at.

    Attributes:
        objective: what is to be as little as possible: GPUs, the cost of a year, the power of the systems, or the latency at the peak.
        budget_usd: most that may be spent; None for no limit. ``budget_of`` says on what: the purchase, or a year of serving.
        max_kw: most kW that the systems may draw together; None for no limit.
        max_racks: most racks that they may stand in; None for no limit.
        rack_kw: kW that one rack can feed and cool.
    """

    __pydantic_config__ = FORBID

    objective: Objective = "gpus"
    budget_usd: float | None = None
    budget_of: BudgetOf = "purchase"
    max_kw: float | None = None
    max_racks: int | None = None
    rack_kw: float = RACK_KW

    @property
    def caps(self) -> bool:
        """Whether anything must not be exceeded."""
        return any(cap is not None for cap in (self.budget_usd, self.max_kw, self.max_racks))

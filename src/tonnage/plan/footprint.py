"""What systems take of a building: racks, power, heat."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tonnage.plan.aim import RACK_KW
from tonnage.spec.typed_values import FORBID

BTU_PER_HOUR = 3412.14
"""Heat of one kW in BTU per hour (1 BTU = 1,055.06 J)."""

KW_PER_TON = 3.51685
"""One ton of refrigeration, 12,000 BTU per hour, in kW."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What systems take of a building at their highest power.

    Attributes:
        systems: how many.
        kw: of all of them; ``kw_from`` says where the power of one comes from.
        racks: by power alone, ``per_rack`` systems in each; a system that is itself a rack, or draws more than one, takes one.
        rack_kw: kW that one rack can feed and cool.
        building_kw: with the power usage effectiveness of the building.
    """

    __pydantic_config__ = FORBID

    systems: int
    kw: float
    kw_from: str
    racks: int
    per_rack: int
    rack_kw: float = RACK_KW
    building_kw: float

    @property
    def btu_per_hour(self) -> float:
        """Heat to be taken away: all of the power becomes heat."""
        return self.kw * BTU_PER_HOUR

    @property
    def cooling_tons(self) -> float:
        """The same in tons of refrigeration."""
        return self.kw / KW_PER_TON


def footprint(systems: int, watts: float, watts_from: str, *, rack_kw: float = RACK_KW, pue: float = 1.0) -> Footprint:
    """The footprint of so many systems of so many watts each."""
    per_rack = max(1, math.floor(rack_kw / (watts / 1e3) + 1e-9))
    kw = systems * watts / 1e3
    return Footprint(
        systems=systems,
        kw=kw,
        kw_from=watts_from,
        racks=math.ceil(systems / per_rack),
        per_rack=per_rack,
        rack_kw=rack_kw,
        building_kw=kw * pue,
    )

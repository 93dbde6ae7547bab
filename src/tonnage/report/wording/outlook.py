"""When owning pays off, and what systems take of a building, in words."""

from __future__ import annotations

import calendar
import math
from typing import TYPE_CHECKING

from tonnage.report.numbers import counted, dollars, number, plain

if TYPE_CHECKING:
    from tonnage.plan.footprint import Footprint
    from tonnage.plan.outlook import PaysOff


def pays_off_text(found: PaysOff) -> str:
    """The month in which bought systems have cost no more than the rented GPUs, in one sentence."""
    if found.months is None:
        return "Within ten years bought systems do not come to cost less than GPUs rented by the hour."
    month = ""
    if found.date:
        year, number_of = found.date.split("-")
        month = f", in {calendar.month_name[int(number_of)]} {year} if they are bought today"
    after = f"after {counted(max(1, math.ceil(found.months)), 'month')}"
    saved = f"they then save {dollars(found.saved_usd_per_month)} USD a month"
    return f"Bought systems have cost less than GPUs rented by the hour {after}{month}; {saved}."


def footprint_text(found: Footprint) -> str:
    """Racks, power and heat in one sentence."""
    racks = f"{counted(found.racks, 'rack')} of {plain(found.rack_kw)} kW ({found.per_rack:,} in each)"
    power = f"{number(found.kw)} kW, {number(found.building_kw)} kW with the building"
    heat = f"{dollars(found.btu_per_hour)} BTU/h, {number(found.cooling_tons)} tons of refrigeration"
    take = "takes" if found.systems == 1 else "take"
    return f"{counted(found.systems, 'system')} {take} {racks} and at most {power}; their heat is {heat} ({found.kw_from})."

"""What stands by for failures, in words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tonnage.report.numbers import counted, number, plain

if TYPE_CHECKING:
    from tonnage.plan.standby import Standby


def share_text(share: float) -> str:
    """A probability with as many nines as it has, never rounded up: "99.97%"."""
    digits = 1 if share <= 0 or share >= 1 else max(1, math.ceil(-math.log10(1 - share)) - 1 + 1)
    scale = 10.0**digits
    return f"{math.floor(100 * share * scale + 1e-6) / scale:.{digits}f}%"


def standby_text(found: Standby) -> str:
    """How many units there are beyond those that the peak needs, and how often enough of them work, in one line."""
    spare = found.standing - found.needed
    units = f"{counted(found.standing, found.unit)}, {found.needed:,} needed at the peak, so that {spare:,} may fail"
    if found.availability is None or found.mtbf_hours is None or found.repair_hours is None:
        return units
    asked = "" if found.asked is None else f" ({100 * found.asked:.9g}% asked)"
    repairs = "" if found.repairers is None else f", {counted(found.repairers, 'repair')} at once"
    times = f"{plain(found.mtbf_hours)} h between failures of each, {plain(found.repair_hours)} h to repair{repairs}"
    return f"{units}: enough of them work {share_text(found.availability)} of the time{asked}, all but {_short(found)} a year; {times}"


def _short(found: Standby) -> str:
    hours = found.short_hours_per_year or 0.0
    return f"{number(hours)} h" if hours >= 1 else f"{number(60 * hours)} min"

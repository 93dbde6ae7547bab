"""How long the systems of a plan are enough for a load that grows, and how many it takes later, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.report.numbers import counted, number

if TYPE_CHECKING:
    from tonnage.plan.growth import Growth


def growth_text(growth: Growth, systems: int) -> str:
    """Such as "at 5.0% a month 2 systems are enough for 3 months, the next is needed in month 4; 3 in 12 months (180 requests/s), …"."""
    now = f"{counted(systems, 'system')} {'is' if systems == 1 else 'are'} enough"
    left = growth.months_left
    if left is None:
        lasts = f"{now} for fifty years" if growth.per_month > 0 else now
    elif left == 0:
        lasts = f"{now} today, the next is needed in month 1"
    else:
        lasts = f"{now} for {counted(left, 'month')}, the next is needed in month {left + 1}"
    counts = ("no number" if one.systems is None else f"{one.systems:,}" for one in growth.ahead)
    loads = (f"in {one.months} months ({number(one.requests_per_second)} requests/s)" for one in growth.ahead)
    later = ", ".join(map(" ".join, zip(counts, loads, strict=True)))
    return f"at {growth.per_month:.1%} a month {lasts}{f'; {later}' if later else ''}"

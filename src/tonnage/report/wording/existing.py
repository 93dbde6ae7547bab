"""What systems that exist can carry, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.report.numbers import number, percent, plain
from tonnage.report.wording.limits import bound_text

if TYPE_CHECKING:
    from tonnage.plan.existing import Existing, OwnedGroup

NOTHING_RUNS = "no deployment on these systems meets the limits"


def breaks_first_text(group: OwnedGroup) -> str:
    """What breaks first on one kind of system; why nothing runs where nothing does."""
    return NOTHING_RUNS if group.binds is None else bound_text(group.binds)


def _room(change: float) -> str:
    return f"{percent(abs(change))} {'more' if change >= 0 else 'less'}"


def existing_text(existing: Existing) -> str:
    """What the systems carry beside today's load, and how long that lasts, in one clause."""
    systems = " + ".join(f"{group.count:,} × {group.system}" for group in existing.groups)
    total, today, growth, left = (
        existing.requests_per_second,
        existing.asked_requests_per_second,
        existing.growth_per_month,
        existing.months_left,
    )
    if total == 0 or existing.breaks_first is None:
        return f"{systems}: {NOTHING_RUNS}"
    carry = "carries" if sum(group.count for group in existing.groups) == 1 else "carry"
    room = "" if today is None else f", {_room(total / today - 1.0)} than today's {plain(today)}"
    text = f"{systems} {carry} {number(total)} requests/s inside the limits{room}; what breaks first is {bound_text(existing.breaks_first)}"
    if growth is None or left == -1:
        return text
    if left is None:
        return f"{text}; at {growth:.1%} growth a month that lasts beyond fifty years" if growth > 0 else text
    return f"{text}; at {growth:.1%} growth a month it is enough for {left} months and runs out in month {left + 1}"

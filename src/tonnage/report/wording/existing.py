"""What systems that exist can carry, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.report.numbers import number, percent, plain
from tonnage.report.wording.limits import bound_text

if TYPE_CHECKING:
    from tonnage.plan.existing import ADay, Existing, OwnedGroup

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


def day_text(day: ADay) -> str:
    """A working day of the highest load, such as "2.04 million requests in a working day of 8 h: 679,000 users at 3 a day"."""
    mean = "" if day.peak_factor == 1 else f", whose peak is {plain(day.peak_factor)} × its mean"
    tokens = f"{_many(day.input_tokens)} tokens in and {_many(day.output_tokens)} out"
    text = f"{_many(day.requests)} requests in a working day of {plain(day.hours)} h{mean}, {tokens}"
    if day.users is None or day.requests_per_user is None:
        return text
    return f"{text}: {_many(day.users)} users at {plain(day.requests_per_user)} requests a day"


def _many(count: float) -> str:
    """A count to three digits: "679,000", "2.04 million", "4.07 billion"."""
    for scale, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if count >= scale:
            return f"{number(count / scale)} {name}"
    return f"{float(f'{count:.3g}'):,.0f}" if count >= 100 else number(count)

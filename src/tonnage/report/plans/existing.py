"""Systems that exist: what they carry, how much room is left, and until when; and how long those that are bought are enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.report.blocks import section
from tonnage.report.document import Section, Table, Text
from tonnage.report.numbers import ABSENT, counted, number, percent, plain
from tonnage.report.plans.deployments import deployment_text, name_of
from tonnage.report.plans.latencies import bound_text

if TYPE_CHECKING:
    from tonnage.plan.demand import ADay, Existing, Growth, OwnedGroup
    from tonnage.plan.plan import Plan

NOTHING_RUNS = "no deployment on these systems meets the limits"


def existing_title(plan: Plan) -> str:
    """Such as "3 × dgx-h100 carry 60.6 requests/s of llama-3.1-70b"; "" where nothing exists."""
    found = plan.existing
    if found is None:
        return ""
    systems = " and ".join(f"{group.count:,} × {group.system}" for group in found.groups)
    return f"{systems} carry {number(found.requests_per_second)} requests/s of {plan.scenario.model}"


def running(found: Existing) -> str:
    """What runs on the systems, such as "8 instances of FP8, TP 2, vllm-0.32 on h100-sxm-80gb on 2 × dgx-h100"."""
    return "; ".join(
        f"{counted(group.instances, 'instance')} of {name_of(group.deployment)}, on {group.count:,} × {group.system}"
        for group in found.groups
        if group.deployment is not None
    )


def existing_glance(plan: Plan) -> tuple[tuple[str, str], ...]:
    """The numbers to see first of systems that exist."""
    found = plan.existing
    if found is None:
        return ()
    months = found.months_left
    rows = [
        ("requests/s inside the limits", number(found.requests_per_second)),
        ("requests/s today, at the peak", number(found.asked_requests_per_second)),
        ("headroom now", percent(found.headroom)),
        ("months left", ABSENT if months is None else "none" if months < 0 else f"{months}"),
    ]
    return tuple(row for row in rows if row[1] != ABSENT)


def existing_section(plan: Plan) -> Section:
    """One row per kind of system; empty where nothing exists."""
    found = plan.existing
    if found is None:
        return section("existing", "Systems that exist")
    rows = tuple(
        (
            f"{group.count:,} × {group.system}",
            ABSENT if group.deployment is None else deployment_text(group.deployment),
            str(group.instances),
            number(group.requests_per_second),
            breaks_first_text(group),
        )
        for group in found.groups
    )
    header = ("systems", "best deployment on them", "instances", "requests/s inside the limits", "what breaks first")
    growth = found.growth_per_month
    grows = None if growth is None else Text(text=f"The load is taken to grow by {growth:.1%} a month.")
    return section("existing", "Systems that exist", Table(caption="What they carry", header=header, rows=rows), grows)


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
    return f"{text}; at {growth:.1%} growth a month that lasts for {left} months and runs out in month {left + 1}"


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

"""What a measurement of the choice would buy, in words, and the commands that take it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tonnage.plan.candidate import percent_key
from tonnage.plan.provenance import CALIBRATED, PLAN
from tonnage.report.blocks import section
from tonnage.report.document import Command, Section, Table, Text
from tonnage.report.numbers import ABSENT, counted, dollars, number, span

if TYPE_CHECKING:
    from tonnage.plan.plan import Plan
    from tonnage.plan.provenance import Measurement

TITLE = "What a measurement would buy"


def measurement_text(found: Measurement | None) -> str:
    """The number of systems with its interval, before and after, and what that saves; "" where a measurement would not narrow it.

    Such as "10 points (20 min of one system) would narrow 10 systems (9 to 11) to 9 (9 to 10); on average 0.6 fewer, 89,300 USD a year".
    """
    if found is None or not found.narrows:
        return ""
    taken = f"{found.points} points ({span(_whole_minutes(found.seconds))} of one system) would narrow"
    now, after = _interval(found.systems, found.confidence), _interval(found.after, found.confidence)
    return f"{taken} {now} to {after.replace(' systems', '').replace(' system', '')}{_saved(found)}"


def _interval(systems: dict[str, int | None], asked: float) -> str:
    """Such as "10 systems (9 to 11)": at the asked confidence, and from 50 to 95 %."""
    low, count, high = (systems.get(key) for key in ("50", percent_key(asked), "95"))
    ends = f"{'none' if low is None else f'{low:,}'} to {'…' if high is None else f'{high:,}'}"
    return f"{'no number' if count is None else counted(count, 'system')} ({ends})"


def _saved(found: Measurement) -> str:
    """What is saved on average; "" where nothing is."""
    if not found.gains:
        return ""
    year = "" if found.saved_usd_per_year is None else f", {dollars(found.saved_usd_per_year)} USD a year"
    return f"; on average {number(found.saved_systems, 2)} fewer{year}"


def _whole_minutes(seconds: float) -> float:
    return round(seconds / 60) * 60.0


def measurement_section(plan: Plan) -> Section:
    """The numbers at each confidence before and after, and the commands; empty where a measurement would not narrow them."""
    found = plan.measurement
    if found is None or not found.narrows:
        return section("measurement", TITLE)
    rows = tuple(
        (f"{level} %", *(ABSENT if count is None else f"{count:,}" for count in (found.systems[level], found.after[level])))
        for level in found.systems
    )
    caption = "Systems for each confidence, now and after the calibration if steps take as long as predicted"
    paid = "" if found.usd is None else f" That costs {dollars(found.usd)} USD."
    counted_on = (
        "" if found.expected_systems is None else f" On average over what it may find the answer is {number(found.expected_systems)}."
    )
    words = (
        f"The {found.points} loads below were chosen one by one, each as the one that tells most about the deciding prediction. One system "
        f"takes {span(_whole_minutes(found.seconds))} for them.{paid}{counted_on} Start one instance of the choice as the plan says, "
        f"measure, calibrate, and size again with --coefficients {CALIBRATED}; {PLAN} is this plan."
    )
    commands = (Command(text=shlex.join(argv)) for argv in (*found.bench, found.calibrate))
    return section(
        "measurement", TITLE, Table(caption=caption, header=("confidence", "now", "after"), rows=rows), Text(text=words), *commands
    )

"""From the load that systems carry to a working day of it: requests, tokens, and the people whose load that is."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from tonnage.errors import InputError, option
from tonnage.plan.demand import ADay
from tonnage.sizing.demand import HOURS_PER_DAY, WORKING_HOURS
from tonnage.spec.scenario import DemandAsked

if TYPE_CHECKING:
    from tonnage.plan.plan import Plan


OF_A_DAY = ("requests_per_user_day", "working_hours", "working_days", "peak_factor")
"""What is said of a day without saying a load."""


def says_no_load(asked: DemandAsked) -> bool:
    """Whether a demand says at most how a working day is, and no load."""
    return replace(asked, **dict.fromkeys(OF_A_DAY)) == DemandAsked()


def check_day(asked: DemandAsked) -> None:
    """Refuse a working day that is none.

    Raises:
        InputError: hours, requests of a user, or a factor out of range.
    """
    hours, each, factor = asked.working_hours, asked.requests_per_user_day, asked.peak_factor
    if hours is not None and not 0 < hours <= HOURS_PER_DAY:
        raise InputError(f"{option('working_hours')}: {hours:g} is not a working day; write hours a day above 0, at most 24")
    if each is not None and not (math.isfinite(each) and 0 < each <= 1e15):
        raise InputError(f"{option('requests_per_user_day')}: {each:g} is not a number of them; write a number above 0")
    if factor is not None and not (math.isfinite(factor) and factor >= 1):
        raise InputError(f"{option('peak_factor')}: {factor:g} is not a factor; write how many times the mean the peak is, 1 or more")


def with_day(plan: Plan, asked: DemandAsked) -> Plan:
    """The plan of existing systems with a working day of what they carry; as it is where nothing exists or runs."""
    found = plan.existing
    if found is None or found.requests_per_second <= 0 or plan.demand.offline:
        return plan
    hours, factor = asked.working_hours or float(WORKING_HOURS), asked.peak_factor or 1.0
    requests = found.requests_per_second / factor * hours * 3_600
    each = asked.requests_per_user_day
    day = ADay(
        hours=hours,
        peak_factor=factor,
        requests=requests,
        input_tokens=requests * plan.scenario.mean_isl,
        output_tokens=requests * plan.scenario.mean_osl,
        requests_per_user=each,
        users=None if each is None else requests / each,
    )
    return replace(plan, existing=replace(found, a_day=day))

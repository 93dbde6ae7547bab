"""How a fleet may be scaled, read from what was asked, and put into its plan."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tonnage.errors import InputError, option
from tonnage.spec.scenario import ScalingAsked
from tonnage.units import parse_duration

if TYPE_CHECKING:
    from tonnage.plan.demand import Demand
    from tonnage.plan.plan import Plan
    from tonnage.sizing.question import Question
    from tonnage.spec.scenario import Mode, Scenario

LONGEST_START_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """What is asked of a controller's rule.

    Attributes:
        broken_share: of the hours, in which limits may be broken.
        start_s: seconds from a decision until a new instance serves; None where it was not said.
    """

    broken_share: float = 0.0
    start_s: float | None = None


def scaling_of(asked: ScalingAsked) -> Scaling | None:
    """What is asked of a rule; None where none is asked for.

    Raises:
        InputError: a part without ``autoscale``, or a value out of range.
    """
    if not asked.autoscale:
        alone = next((name for name in ("broken_hours", "start_time") if getattr(asked, name) is not None), None)
        if alone is not None:
            raise InputError(f"{option(alone)}: goes with {option('autoscale')}; ask for it too, or leave this out")
        return None
    start = None if asked.start_time is None else parse_duration(asked.start_time, option("start_time"))
    if start is not None and start > LONGEST_START_S:
        raise InputError(f"{option('start_time')}: {asked.start_time} is longer than a day; write for example 3min")
    return Scaling(broken_share=0.0 if asked.broken_hours is None else _share(asked.broken_hours), start_s=start)


def check_scaling(scenario: Scenario, demand: Demand | None, mode: Mode) -> None:
    """Refuse a rule where there are no hours to scale over, or nothing to hold.

    Raises:
        InputError: naming what is missing.
    """
    if scaling_of(scenario.scaling) is None or demand is None:
        return
    where = option("autoscale")
    if mode == "offline" or scenario.search.load == "closed":
        what = "a job" if mode == "offline" else "a closed loop"
        raise InputError(f"{where}: {what} has no hours to scale over; ask for requests that come by the hour, or leave this out")
    if demand.profile is None and scenario.demand.trace is None:
        raise InputError(
            f"{where}: needs the load by the hour; give {option('profile')} with 24 or 168 hourly loads, {option('users')} with their "
            f"working hours, or {option('trace')}"
        )


def with_autoscaling(plan: Plan, question: Question, scenario: Scenario) -> Plan:
    """The plan with a rule for its choice, where one was asked for."""
    asked = scaling_of(scenario.scaling)
    if asked is None:
        return plan
    from tonnage.sizing.fleet.autoscaling import autoscaling

    return replace(plan, autoscaling=autoscaling(question, plan, broken_share=asked.broken_share, start_s=asked.start_s))


def _share(text: float | str) -> float:
    """Read 5, "5%" or 0.05 as the share 0.05.

    Raises:
        InputError: no number from 0 to below 100 %.
    """
    written = str(text).strip()
    try:
        value = float(written.removesuffix("%"))
    except ValueError:
        value = math.nan
    share = value if 0 < value < 1 and not written.endswith("%") else value / 100
    if not 0 <= share < 1:
        raise InputError(f"{option('broken_hours')}: '{written[:20]}' is not a share of the hours; write for example 5%")
    return share

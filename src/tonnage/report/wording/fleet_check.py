"""What the simulation of the whole fleet showed, in one clause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.report.numbers import counted
from tonnage.report.wording.limits import breach_text

if TYPE_CHECKING:
    from tonnage.plan.fleet_check import FleetCheck, FleetRun


def fleet_check_text(check: FleetCheck) -> str:
    """The verdict, such as "4 instances on 2 systems, simulated together, meet every limit"."""
    first, systems = check.runs[0], check.systems
    shown = f"{first.simulated_instances:,} of " if first.instances > first.simulated_instances else ""
    alone = first.instances == 1
    fleet = f"{shown}{counted(first.instances, 'instance')} on {_systems(first.systems)}, simulated{'' if alone else ' together'}"
    meets, breaks = ("meets", "breaks") if alone else ("meet", "break")
    if systems > check.by_division:
        return f"{fleet}, {breaks} a limit ({_worst(first)}); {_systems(systems)} meet all of them, and the plan takes these"
    return f"{fleet}, {meets} every limit"


def _worst(run: FleetRun) -> str:
    return "" if run.worst is None else breach_text(run.worst)


def _systems(count: int) -> str:
    return f"{count:,} system{'' if count == 1 else 's'}"

"""What a choice aims at and what stands by, read from what was asked."""

from __future__ import annotations

import math
import re
from dataclasses import fields

from tonnage.errors import InputError, option
from tonnage.plan.fleet import Unit
from tonnage.plan.limit import RACK_KW, Aim, BudgetOf
from tonnage.sizing.fleet.standby import Failures, Reserve
from tonnage.spec.scenario import ChoiceAsked, Scenario, StandbyAsked
from tonnage.spec.written_numbers import number_of
from tonnage.units import parse_duration

_TIME = re.compile(r"^(.*?)\s*(?:(?:/|per|a|p\.?)\s*(year|yr|y|a|annum|month|mo)\.?)$", re.IGNORECASE)
MONTHS = 12
MOST_SPARE_INSTANCES = 1_000_000
_NO_BUDGET: tuple[float | None, BudgetOf] = (None, "purchase")


def aim_of(asked: ChoiceAsked) -> Aim | None:
    """What the choice aims at; None where nothing was said of it.

    Raises:
        InputError: a budget, a power or a number of racks that is none.
    """
    if asked == ChoiceAsked():
        return None
    usd, of = _NO_BUDGET if asked.budget is None else budget_of(asked.budget)
    for name, value in (("max_kw", asked.max_kw), ("rack_kw", asked.rack_kw)):
        if value is not None and not (math.isfinite(value) and 0 < value <= 1e9):
            raise InputError(f"{option(name)}: {value:g} is not a power; write kW above 0")
    if asked.max_racks is not None and asked.max_racks < 1:
        raise InputError(f"{option('max_racks')}: {asked.max_racks} is not a number of racks; write 1 or more")
    return Aim(
        objective=asked.objective or "gpus",
        budget_usd=usd,
        budget_of=of,
        max_kw=asked.max_kw,
        max_racks=asked.max_racks,
        rack_kw=asked.rack_kw or RACK_KW,
    )


def said_of_choice(scenario: Scenario) -> str | None:
    """The first thing that is said of the choice, of what stands by or of how it is scaled, by its name; None where nothing is."""
    asked = (scenario.choice, scenario.standby, scenario.scaling)
    return next((one.name for part in asked for one in fields(part) if getattr(part, one.name) is not None), None)


def budget_of(text: str) -> tuple[float, BudgetOf]:
    """Read "500k USD" as what may be spent to buy, "200k USD/year" or "20k USD/month" as what a year may cost.

    Raises:
        InputError: none of these forms.
    """
    written = str(text).strip()
    match = _TIME.match(written)
    usd = number_of(match[1] if match else written, "usd")
    times = MONTHS if match is not None and match[2].lower().startswith("mo") else 1
    if usd is None or not 0 < usd <= 1e15:
        raise InputError(f"{option('budget')}: '{written[:40]}' is not a budget in US dollars; write for example 500k USD or 200k USD/year")
    return usd * times, "purchase" if match is None else "year"


def reserve_of(asked: StandbyAsked) -> Reserve | None:
    """What stands by; None where nothing was said of it.

    Raises:
        InputError: a part without the others that it needs, or a number out of range.
    """
    if asked == StandbyAsked():
        return None
    share = None if asked.availability is None else _share(asked.availability)
    if (asked.mtbf is None) != (asked.repair_time is None):
        missing, given = ("mtbf", "repair_time") if asked.mtbf is None else ("repair_time", "mtbf")
        raise InputError(
            f"{option(given)}: goes with {option(missing)}; give both, such as {option('mtbf')} 8000h {option('repair_time')} 24h"
        )
    if asked.mtbf is None and (share is not None or asked.repairers is not None or asked.failing is not None):
        name = "availability" if share is not None else "repairers" if asked.repairers is not None else "failing"
        raise InputError(f"{option(name)}: goes with {option('mtbf')} and {option('repair_time')}, such as 8000h and 24h")
    if asked.repairers is not None and not 1 <= asked.repairers <= MOST_SPARE_INSTANCES:
        raise InputError(f"{option('repairers')}: {asked.repairers} is not a number of repairs; write 1 or more")
    spare = asked.spare_instances or 0
    if not 0 <= spare <= MOST_SPARE_INSTANCES:
        raise InputError(f"{option('spare_instances')}: {spare} is not a number of instances to add; write 0 to {MOST_SPARE_INSTANCES:,}")
    return Reserve(unit=_unit(asked), asked=share, failures=_failures(asked), spare_instances=spare)


def _unit(asked: StandbyAsked) -> Unit:
    """What fails at once; instances where only spare ones were asked for."""
    return asked.failing or ("instance" if asked.spare_instances is not None and asked.mtbf is None else "system")


def _failures(asked: StandbyAsked) -> Failures | None:
    if asked.mtbf is None or asked.repair_time is None:
        return None
    hours = {name: parse_duration(getattr(asked, name), option(name)) / 3600 for name in ("mtbf", "repair_time")}
    for name, value in hours.items():
        if not 1e-6 <= value <= 1e9:
            raise InputError(f"{option(name)}: '{getattr(asked, name)}' is not a time that failures take; write for example 8000h or 24h")
    return Failures(mtbf_hours=hours["mtbf"], repair_hours=hours["repair_time"], repairers=asked.repairers)


def _share(text: float | str) -> float:
    """Read 99.9, "99.9%" or 0.999 as the share 0.999.

    Raises:
        InputError: no number, or no probability below 1.
    """
    written = str(text).strip()
    try:
        value = float(written.removesuffix("%"))
    except ValueError:
        value = math.nan
    share = value if 0 < value < 1 and not written.endswith("%") else value / 100
    if not 0.5 <= share <= 0.999_999_999:
        raise InputError(f"{option('availability')}: '{written[:20]}' is not a probability; write 50% to 99.9999999%, such as 99.9%")
    return share

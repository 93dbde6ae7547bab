"""What autoscaling saves in the cloud: the instances that a rule holds, hour by hour, beside all of them all year."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from tonnage.cost.cost import serving_of
from tonnage.cost.options import Rent, rents_of
from tonnage.plan.autoscaling import Autoscaling, AutoscalingCost, OverHours
from tonnage.plan.cost import HOURS_PER_YEAR
from tonnage.plan.note import NoCost

if TYPE_CHECKING:
    from tonnage.plan.plan import Plan
    from tonnage.spec.prices import Prices


def with_rent(plan: Plan, prices: Prices) -> Autoscaling | None:
    """The plan's autoscaling with what the first proposal and the fixed fleet cost a year, where the price of a GPU and hour is known.

    What is rented at once may hold several instances: of these so many are paid for as hold the instances of each moment, and both fleets
    are rented as costs least for them. The hours that were simulated are taken to repeat for a year.
    """
    found = plan.autoscaling
    if found is None or found.best is None or found.fixed is None or plan.choice is None:
        return found
    rents = rents_of(serving_of(plan.choice, plan.scenario.spare_systems), prices)
    if isinstance(rents, NoCost):
        return found
    (fixed, _), (scaled, rent) = (min(((_yearly(run, rent), rent) for rent in rents), key=_usd) for run in (found.fixed, found.best.run))
    return replace(found, cost=AutoscalingCost(fixed_usd_per_year=fixed, scaled_usd_per_year=scaled, offer=rent.offer))


def _yearly(run: OverHours, rent: Rent) -> float:
    """USD a year of what the run holds."""
    return run.rented_hours(rent.instances) / math.fsum(each.hours for each in run.held) * HOURS_PER_YEAR * rent.usd


def _usd(priced: tuple[float, Rent]) -> float:
    return priced[0]

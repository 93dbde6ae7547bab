"""What autoscaling saves in the cloud: the instances that a rule holds, hour by hour, beside all of them all year."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from tonnage.cost.cost import serving_of
from tonnage.cost.options import Rent, rent_of
from tonnage.plan.autoscaling import Autoscaling, AutoscalingCost
from tonnage.plan.traffic import HOURS_PER_YEAR

if TYPE_CHECKING:
    from tonnage.plan.plan import Plan
    from tonnage.spec.prices import Prices


def with_rent(plan: Plan, prices: Prices) -> Autoscaling | None:
    """The plan's autoscaling with what the first proposal and the fixed fleet cost a year, where the price of a GPU and hour is known.

    What is rented at once may hold several instances: of these so many are paid for as hold the instances of each moment. The hours that
    were simulated are taken to repeat for a year.
    """
    found = plan.autoscaling
    if found is None or found.best is None or found.fixed is None or plan.choice is None:
        return found
    rent = rent_of(serving_of(plan.choice, plan.scenario.spare_systems), prices)
    if not isinstance(rent, Rent):
        return found

    def yearly(rented_hours: float, hours: float) -> float:
        return rented_hours / hours * HOURS_PER_YEAR * rent.usd

    fixed, scaled = (
        yearly(run.rented_hours(rent.instances), math.fsum(each.hours for each in run.held)) for run in (found.fixed, found.best.run)
    )
    return replace(found, cost=AutoscalingCost(fixed_usd_per_year=fixed, scaled_usd_per_year=scaled, offer=rent.offer))

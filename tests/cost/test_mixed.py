"""The cost of a fleet of two kinds."""

from __future__ import annotations

import json

import pytest

from tests.questions import SMALL, plans_with, question
from tests.sizing.fleet.two_kinds import kinds_of
from tonnage.api.sizing import answer, ask
from tonnage.cost.mixed import owned_usd
from tonnage.plan.plan import Plan
from tonnage.spec.catalog.price_list import catalog_prices

few_parts = plans_with()


def test_a_plan_carries_the_whole_fleet_and_what_it_costs() -> None:
    (plan,) = answer(
        ask(**{**SMALL, "tp": "1", "have": "2x8xl40s", "gpu": "h100,l40s", "peak_rps": 900})
    )
    assert plan.mixed is not None
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    prices = catalog_prices()
    name, count = next(iter(plan.mixed.added.items()))
    asked = question(tp="1", have="2x8xl40s", gpu="h100,l40s")
    price = {kind.system.name: owned_usd(kind.system, prices) or 0 for kind in kinds_of(asked)}
    assert plan.mixed.usd_per_year == pytest.approx(count * price[name])
    for other in plan.mixed.instead:
        assert other.usd_per_year == pytest.approx(other.systems * price[other.system])
        assert other.usd_per_year >= plan.mixed.usd_per_year
    for retirement in plan.mixed.retirements:
        assert retirement.worth == (
            retirement.instead_usd_per_year < retirement.upkeep_usd_per_year
        )

"""What a cost comes to: hand-computed years, the month in which owning has paid off, racks and heat."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given, settings

from tests.cost.cost_cases import COURSE_PRICES, COURSE_SERVING, COURSE_TRAFFIC, servings, traffics
from tests.plan.candidates import candidate, plan_of
from tonnage.cost.planned import compare, spent, with_outlook
from tonnage.plan.cost import Serving, Traffic
from tonnage.plan.fleet import footprint
from tonnage.report.plans.cost import footprint_text, pays_off_text
from tonnage.sizing.demand import demand_of


def test_the_courses_fleet_over_three_and_five_years() -> None:
    """Five systems: 1.6 M USD on the first day, and 5 × (3,000 + 8 × 4,500) USD a year."""
    demand = demand_of(users=100_000, requests_per_user_day=10)
    plan = plan_of(demand, candidate(systems=5))
    cost = with_outlook(compare(COURSE_TRAFFIC, COURSE_SERVING, COURSE_PRICES, model="course"), plan, COURSE_PRICES, date(2026, 11, 22))
    found = cost.outlook
    owned = next(way for way in found.ways if way.where == "on-prem")
    assert owned.usd["3"] == pytest.approx(5 * 320_000 + 3 * 5 * 39_000)
    assert owned.usd["5"] == pytest.approx(5 * 320_000 + 5 * 5 * 39_000)
    assert owned.usd_per_user_month == pytest.approx(595_000 / 12 / 100_000)
    place = found.footprint
    assert (place.kw, place.per_rack, place.racks) == (pytest.approx(51.0), 4, 2)
    assert place.building_kw == pytest.approx(51 * 1.58)
    assert place.btu_per_hour == pytest.approx(174_019, rel=1e-4)
    assert place.cooling_tons == pytest.approx(14.5, abs=0.01)
    assert footprint_text(place).startswith("5 systems take 2 racks of 42 kW (4 in each) and at most 51.0 kW")


@given(traffics(), servings())
@settings(max_examples=30, deadline=None)
def test_at_the_month_of_break_even_both_have_cost_the_same(traffic: Traffic, serving: Serving) -> None:
    plan = plan_of(demand_of(peak_rps=1.0), candidate(systems=1))
    cost = with_outlook(compare(traffic, serving, COURSE_PRICES), plan, COURSE_PRICES, date(2026, 11, 22))
    found = None if cost.outlook is None else cost.outlook.pays_off
    owned, rented = cost.way("on-prem"), cost.way("cloud")
    assert owned is not None
    assert rented is not None
    if found.months is None:
        assert "do not come" in pays_off_text(found)
        assert spent(owned, 10) >= spent(rented, 10) * (1 - 1e-9)
    else:
        assert spent(owned, found.months / 12) == pytest.approx(spent(rented, found.months / 12), rel=1e-6)
        assert spent(owned, found.months / 12 + 1) < spent(rented, found.months / 12 + 1)
        assert found.date >= "2026-11"


def test_a_system_that_draws_more_than_a_rack_stands_alone() -> None:
    assert footprint(3, 120_000, "it").racks == 3
    assert footprint(7, 5_600, "it").racks == 1
    assert footprint(8, 5_600, "it", rack_kw=10.0).racks == 8

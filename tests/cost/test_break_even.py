"""Break-evens cross: on either side of each, priced anew, the other way is the cheaper."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cost.cost_cases import (
    COURSE_PRICES,
    COURSE_SERVING,
    COURSE_TRAFFIC,
    price_lists,
    servings,
    traffics,
)
from tests.cost.plan_cost_cases import JOB_PRICES, ONE
from tests.plan.candidates import candidate, plan_of
from tonnage.cost.break_even import (
    Crossing,
    Curve,
    _lowest,
    break_even,
    break_evens,
    crossings,
    power_per_request,
)
from tonnage.cost.cost import api_cost
from tonnage.cost.options import cloud, on_prem
from tonnage.cost.plan_cost import compare, spent, with_outlook
from tonnage.plan.candidate import Power
from tonnage.plan.cost import BreakEven, Serving, Traffic, WayCost
from tonnage.plan.fleet import footprint
from tonnage.report.plans.cost import footprint_text, pays_off_text
from tonnage.sizing.demand import demand_of
from tonnage.spec.prices import Prices

PRICES = COURSE_PRICES
NEAR = 1e-7


def by_names(found: tuple[BreakEven, ...]) -> dict[tuple[str, str], BreakEven]:
    return {each.between: each for each in found}


def cost_at(
    way: str, volume: float, traffic: Traffic, serving: Serving, prices: Prices, *, fewest: int = 1
) -> float:
    """What a way costs a year at that volume, priced as a plan of its own."""
    there = traffic.times(volume / traffic.requests_per_year)
    cost: WayCost = {
        "on-prem": lambda: on_prem(there, serving, prices, fewest),
        "cloud": lambda: cloud(there, serving, prices, fewest),
        "api": lambda: api_cost(there, prices),
    }[way]()
    assert cost.total_usd_per_year is not None
    return cost.total_usd_per_year


def test_course_first_system_pays_from_45_8_million_requests() -> None:
    found = by_names(break_evens(COURSE_TRAFFIC, COURSE_SERVING, PRICES))["on-prem", "api"]
    assert found.first_requests_per_year is not None
    assert math.isclose(found.first_requests_per_year, 119_000 / 0.0026)
    assert found.changes == 1
    assert (found.cheaper_below, found.cheaper_above) == ("api", "on-prem")
    assert found.bought_fleet_requests_per_year is not None
    assert math.isclose(found.bought_fleet_requests_per_year, 595_000 / 0.0026)


@pytest.mark.parametrize(("times", "found"), [(9.9, True), (10.1, False)])
def test_break_evens_are_looked_for_up_to_ten_times_the_volume(times: float, found: bool) -> None:
    traffic = COURSE_TRAFFIC.times(119_000 / 0.0026 / times / COURSE_TRAFFIC.requests_per_year)
    first = by_names(break_evens(traffic, COURSE_SERVING, PRICES))[
        "on-prem", "api"
    ].first_requests_per_year
    assert (first is not None) is found


def test_power_makes_each_request_of_one_s_own_cost_something() -> None:
    prices = PRICES.with_overrides({"power_usd_per_kwh": 0.2, "pue": 1.5})
    found = by_names(break_evens(COURSE_TRAFFIC, COURSE_SERVING, prices))["on-prem", "api"]
    each = 10.2 * 1.5 * 0.2 / (8 * 5.195428 * 3_600)
    assert found.first_requests_per_year is not None
    assert math.isclose(found.first_requests_per_year, 119_000 / (0.0026 - each))


@given(traffics(longest=6), servings(), price_lists(), st.integers(0, 3))
def test_every_break_even_is_a_crossing(
    traffic: Traffic, serving: Serving, prices: Prices, fewest: int
) -> None:
    for found in break_evens(traffic, serving, prices, fewest):
        first, second = found.between
        for volume, before in (
            (found.first_requests_per_year, found.cheaper_below),
            (found.last_requests_per_year, ""),
        ):
            if volume is None:
                continue
            below, above = (
                cost_at(first, volume * (1 + side), traffic, serving, prices, fewest=fewest)
                - cost_at(second, volume * (1 + side), traffic, serving, prices, fewest=fewest)
                for side in (-NEAR, NEAR)
            )
            assert below * above <= 0
            assert (
                not before
                or (first if below < 0 else second) == before
                or math.isclose(below, 0, abs_tol=1e-3)
            )


@given(traffics(longest=4), servings(), price_lists(), st.floats(0.0001, 9.99), st.integers(0, 3))
def test_between_break_evens_nothing_changes(
    traffic: Traffic, serving: Serving, prices: Prices, share: float, fewest: int
) -> None:
    volume = traffic.requests_per_year * share
    for found in break_evens(traffic, serving, prices, fewest):
        if volume > found.searched_to_requests_per_year:
            continue
        first, second = found.between
        ours, theirs = (
            cost_at(way, volume, traffic, serving, prices, fewest=fewest) for way in (first, second)
        )
        gap = ours - theirs
        if abs(gap) < 1e-3:
            continue
        cheaper = first if gap < 0 else second
        if volume < (found.first_requests_per_year or math.inf) * (1 - NEAR):
            assert cheaper == found.cheaper_below
        if volume > (found.last_requests_per_year or 0.0) * (1 + NEAR):
            assert cheaper == found.cheaper_above


@given(traffics(longest=4), servings(), price_lists())
def test_a_bought_fleet_breaks_even_within_what_it_carries(
    traffic: Traffic, serving: Serving, prices: Prices
) -> None:
    found = by_names(break_evens(traffic, serving, prices))["on-prem", "api"]
    volume = found.bought_fleet_requests_per_year
    if volume is not None:
        fleet = on_prem(traffic, serving, prices, 1)
        fixed = sum(part.usd_per_year for part in fleet.parts if part.name != "power")
        power = sum(part.usd_per_year for part in fleet.parts if part.name == "power")
        assert math.isclose(
            fixed + power * volume / traffic.requests_per_year,
            cost_at("api", volume, traffic, serving, prices),
            rel_tol=1e-6,
        )


POINTS = st.lists(
    st.tuples(st.integers(1, 40).map(float), st.integers(1, 30).map(float)), max_size=8
).map(tuple)
CURVES = st.builds(
    Curve,
    base=st.integers(0, 60).map(float),
    slope=st.sampled_from([0.0, 0.5, 1.0, 3.0]),
    jumps=POINTS,
)


@given(CURVES, CURVES)
def test_crossings_agree_with_walking_along_both_curves(first: Curve, second: Curve) -> None:
    start, found = crossings(first, second, 50.0)
    walked: list[bool] = []
    for tick in range(1, 12_000):
        volume = tick / 240 + 1e-5
        gap = first.at(volume) - second.at(volume)
        if abs(gap) > 1e-4 and (not walked or walked[-1] != (gap < 0)):
            walked.append(gap < 0)
    expected = [] if start is None else [start, *(each.first_cheaper_above for each in found)]
    assert walked == expected
    assert list(found) == sorted(found, key=lambda each: each.volume)


def test_at_a_jump_the_dearer_cost_begins_above_it() -> None:
    curve = Curve(base=1.0, slope=0.0, jumps=((10.0, 5.0),))
    assert (curve.at(10.0), curve.at(10.0 + 1e-9)) == (1.0, 6.0)
    start, found = crossings(curve, Curve(base=3.0, slope=0.0), 100.0)
    assert start is True
    assert [(each.volume, each.first_cheaper_above) for each in found] == [(10.0, False)]


def test_jumps_apart_by_rounding_alone_are_one() -> None:
    first = Curve(base=1.0, slope=0.0, jumps=((10.0, 5.0),))
    second = Curve(base=2.0, slope=0.0, jumps=((10.0 * (1 + 1e-12), 5.0),))
    assert crossings(first, second, 100.0) == (True, ())


def test_a_fleet_that_cannot_carry_its_break_even_has_none() -> None:
    cheap = PRICES.with_overrides(
        {"api": {"usd_per_million_input_tokens": 0.01, "usd_per_million_output_tokens": 0.01}}
    )
    assert (
        by_names(break_evens(COURSE_TRAFFIC, COURSE_SERVING, cheap))[
            "on-prem", "api"
        ].bought_fleet_requests_per_year
        is None
    )


def test_a_cloud_that_may_go_to_nothing_still_needs_one_for_the_first_request() -> None:
    traffic = replace(
        COURSE_TRAFFIC,
        peak_requests_per_second=8.0,
        mean_requests_per_second=4.0,
        profile=(0.0, 8.0),
    )
    prices = PRICES.with_overrides({"cloud": {"h100": 2.0}, "licence_usd_per_gpu_hour": None})
    found = by_names(break_evens(traffic, COURSE_SERVING, prices, 0))["cloud", "api"]
    assert found.first_requests_per_year is not None
    assert math.isclose(found.first_requests_per_year, 4_380 * 2.0 / 0.0026)


def test_there_is_none_without_a_volume_and_none_with_a_way_that_has_no_price() -> None:
    assert (
        break_evens(replace(COURSE_TRAFFIC, mean_requests_per_second=None), COURSE_SERVING, PRICES)
        == ()
    )
    pairs = by_names(
        break_evens(
            COURSE_TRAFFIC, COURSE_SERVING, PRICES.with_overrides({"cloud": {"h100": None}})
        )
    )
    assert set(pairs) == {("on-prem", "api")}


# What a cost comes to: hand-computed years, the month in which owning has paid off, racks and heat.


def test_the_courses_fleet_over_three_and_five_years() -> None:
    """Five systems: 1.6 M USD on the first day, and 5 × (3,000 + 8 × 4,500) USD a year."""
    demand = demand_of(users=100_000, requests_per_user_day=10)
    plan = plan_of(demand, candidate(systems=5))
    cost = with_outlook(
        compare(COURSE_TRAFFIC, COURSE_SERVING, COURSE_PRICES, model="course"),
        plan,
        COURSE_PRICES,
        date(2026, 11, 22),
    )
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
    assert footprint_text(place).startswith(
        "5 systems take 2 racks of 42 kW (4 in each) and at most 51.0 kW"
    )


@given(traffics(), servings())
@settings(max_examples=30, deadline=None)
def test_at_the_month_of_break_even_both_have_cost_the_same(
    traffic: Traffic, serving: Serving
) -> None:
    plan = plan_of(demand_of(peak_rps=1.0), candidate(systems=1))
    cost = with_outlook(
        compare(traffic, serving, COURSE_PRICES), plan, COURSE_PRICES, date(2026, 11, 22)
    )
    found = None if cost.outlook is None else cost.outlook.pays_off
    owned, rented = cost.way("on-prem"), cost.way("cloud")
    assert owned is not None
    assert rented is not None
    if found.months is None:
        assert "do not come" in pays_off_text(found)
        assert spent(owned, 10) >= spent(rented, 10) * (1 - 1e-9)
    else:
        assert spent(owned, found.months / 12) == pytest.approx(
            spent(rented, found.months / 12), rel=1e-6
        )
        assert spent(owned, found.months / 12 + 1) < spent(rented, found.months / 12 + 1)
        assert found.date >= "2026-11"


def test_a_system_that_draws_more_than_a_rack_stands_alone() -> None:
    assert footprint(3, 120_000, "it").racks == 3
    assert footprint(7, 5_600, "it").racks == 1
    assert footprint(8, 5_600, "it", rack_kw=10.0).racks == 8


def test_electricity_of_a_request_is_that_of_its_share_of_an_instance() -> None:
    """Two GPUs of eight at 5 requests/s; at that load they draw half of their highest power."""
    prices = PRICES.with_overrides(
        {"power_usd_per_kwh": 0.2, "pue": 1.5, "power_in_hosting": False}
    )
    serving = replace(
        COURSE_SERVING, gpus_per_instance=2, requests_per_second_per_instance=5.0, power=None
    )
    kwh = 10.2 * 2 / 8 / 5 / 3_600
    assert power_per_request(serving, prices) == pytest.approx(kwh * 1.5 * 0.2)
    drawn = Power(
        watts=350,
        low=300,
        high=400,
        idle_watts=0,
        tdp_watts=700,
        joules_per_output_token=1,
        by_load=((0.0, 0.0), (5.0, 350.0), (10.0, 700.0)),
    )
    half = power_per_request(replace(serving, power=drawn), prices)
    assert half == pytest.approx(kwh * 1.5 * 0.2 / 2)
    assert power_per_request(replace(serving, system_watts=None), prices) == 0
    assert power_per_request(serving, replace(prices, power_usd_per_kwh=None)) == 0
    assert power_per_request(serving, replace(prices, power_in_hosting=True)) == 0


def test_of_a_large_fleet_fewer_break_evens_are_looked_for() -> None:
    """A hundred thousand instances would jump more than 200,000 times on the way to ten times."""
    prices = PRICES.with_overrides({"cloud": {"h100": None}})
    serving = replace(COURSE_SERVING, requests_per_second_per_instance=1.0)
    traffic = replace(COURSE_TRAFFIC, peak_requests_per_second=1e5, mean_requests_per_second=5e4)
    (found,) = break_evens(traffic, serving, prices)
    volume = 5e4 * 31_536_000
    assert found.searched_to_requests_per_year == pytest.approx(
        volume * 200_000 / 100_001, rel=1e-12
    )
    small = replace(traffic, peak_requests_per_second=100.0, mean_requests_per_second=50.0)
    (found,) = break_evens(small, serving, prices)
    assert found.searched_to_requests_per_year == pytest.approx(10 * volume / 1_000)


def test_the_break_even_of_two_curves() -> None:
    """A flat one of 10 USD that jumps by 30 at 20 requests, beside 1 USD a request: at 10 and, after
    the jump, at 40."""
    flat = Curve(base=10.0, slope=0.0, jumps=((20.0, 30.0),))
    each = Curve(base=0.0, slope=1.0)
    assert break_even(("a", "b"), (flat, each), 100.0, 7.0) == BreakEven(
        between=("a", "b"),
        cheaper_below="b",
        cheaper_above="a",
        first_requests_per_year=10.0,
        last_requests_per_year=40.0,
        changes=3,
        bought_fleet_requests_per_year=7.0,
        searched_to_requests_per_year=100.0,
    )
    assert break_even(("a", "b"), (flat, flat), 100.0) == BreakEven(
        between=("a", "b"),
        cheaper_below="",
        cheaper_above="",
        first_requests_per_year=None,
        last_requests_per_year=None,
        changes=0,
        bought_fleet_requests_per_year=None,
        searched_to_requests_per_year=100.0,
    )
    twice = break_even(("a", "b"), (flat, each), 30.0)
    assert (twice.cheaper_below, twice.cheaper_above, twice.changes) == ("b", "b", 2)
    assert (twice.first_requests_per_year, twice.last_requests_per_year) == (10.0, 20.0)
    never = break_even(("a", "b"), (flat, each), 9.0)
    assert (never.cheaper_below, never.cheaper_above, never.changes) == ("b", "b", 0)
    assert crossings(each, flat, 100.0)[1] == (
        Crossing(volume=10.0, first_cheaper_above=False),
        Crossing(volume=20.0, first_cheaper_above=True),
        Crossing(volume=40.0, first_cheaper_above=False),
    )


def test_the_lowest_of_curves_follows_whichever_is_below() -> None:
    """Steps of 4 USD every 10 requests beside steps of 6 every 20, from a base of 5."""
    small = Curve(base=4.0, slope=0.0, jumps=tuple((10.0 * n, 4.0) for n in range(1, 5)))
    large = Curve(base=5.0, slope=0.0, jumps=((20.0, 6.0), (40.0, 6.0)))
    lowest = _lowest([small, large])
    assert [lowest.at(volume) for volume in (5, 15, 25, 35, 45)] == [4.0, 5.0, 11.0, 11.0, 17.0]
    assert lowest.jumps == ((10.0, 1.0), (20.0, 6.0), (40.0, 6.0))
    assert _lowest([small]) == small


def test_every_break_even_of_a_load_by_hand_and_every_figure() -> None:
    """Four requests/s at the peak and two on the mean, on instances of one: each carries a quarter
    of the year's requests. A system of eight costs 119,000 USD, an instance by the hour 17,520 USD,
    and a request at the API 0.0026 USD."""
    traffic = replace(COURSE_TRAFFIC, peak_requests_per_second=4.0, mean_requests_per_second=2.0)
    volume = 2 * 31_536_000
    instance = volume / 4
    rented, api, of_two = break_evens(traffic, ONE, JOB_PRICES)
    # of 7, 14, 21, 28 and 34 instances renting costs more than 1 to 5 systems; the next system after
    # 8, 16, 24 and 32 of them makes it the cheaper again
    assert rented == BreakEven(
        between=("on-prem", "cloud"),
        cheaper_below="cloud",
        cheaper_above="on-prem",
        first_requests_per_year=pytest.approx(6 * instance),
        last_requests_per_year=pytest.approx(33 * instance),
        changes=9,
        bought_fleet_requests_per_year=None,
        searched_to_requests_per_year=10 * volume,
    )
    assert api == BreakEven(
        between=("on-prem", "api"),
        cheaper_below="api",
        cheaper_above="on-prem",
        first_requests_per_year=pytest.approx(119_000 / 0.0026),
        last_requests_per_year=pytest.approx(119_000 / 0.0026),
        changes=1,
        bought_fleet_requests_per_year=pytest.approx(119_000 / 0.0026),
        searched_to_requests_per_year=10 * volume,
    )
    assert of_two == BreakEven(
        between=("cloud", "api"),
        cheaper_below="api",
        cheaper_above="cloud",
        first_requests_per_year=pytest.approx(17_520 / 0.0026),
        last_requests_per_year=pytest.approx(17_520 / 0.0026),
        changes=1,
        bought_fleet_requests_per_year=None,
        searched_to_requests_per_year=10 * volume,
    )
    # half of the hours need nobody, and two instances stay on; of 12 in the others the API is dearer
    night = replace(traffic, profile=(0.0, 4.0), peak_requests_per_second=16.0)
    kept = by_names(break_evens(night, ONE, JOB_PRICES, 2))
    assert kept["cloud", "api"].first_requests_per_year == pytest.approx(
        (2 + 12) * 2 * 4_380 / 0.0026
    )
    # a system then carries 31,536,000 requests, which the API asks 81,994 USD for
    never = kept["on-prem", "api"]
    assert (never.first_requests_per_year, never.bought_fleet_requests_per_year) == (None, None)
    assert never.cheaper_below == never.cheaper_above == "api"
    spare = by_names(break_evens(traffic, replace(ONE, spare=1), JOB_PRICES))
    assert spare["on-prem", "api"].first_requests_per_year == pytest.approx(238_000 / 0.0026)


def test_two_costs_that_differ_by_rounding_alone_are_the_same() -> None:
    """Within a millionth of a millionth of the larger neither is the cheaper."""
    flat = Curve(base=1e6, slope=0.0)
    for gap, side in ((0.5e-6, None), (2e-6, True), (-0.5e-6, None), (-2e-6, False)):
        assert crossings(Curve(base=1e6 - gap, slope=0.0), flat, 10.0) == (side, ())
    rising = Curve(base=1e6, slope=1.0)
    assert crossings(rising, flat, 10.0) == (False, ())  # equal at 0, dearer at the end
    assert crossings(flat, rising, 10.0) == (True, ())
    stepped = Curve(base=1.0, slope=0.0, jumps=((10.0, 5.0), (10.0 + 1e-7, 5.0)))
    other = Curve(base=3.0, slope=0.0, jumps=((10.0, 20.0),))
    start, found = crossings(stepped, other, 100.0)
    assert (start, found) == (True, ())
    late = Curve(base=1.0, slope=0.0, jumps=((50.0, 9.0), (20.0, 1.0), (100.0, 99.0)))
    start, found = crossings(late, Curve(base=3.0, slope=0.0), 100.0)
    assert (start, found) == (True, (Crossing(volume=50.0, first_cheaper_above=False),))

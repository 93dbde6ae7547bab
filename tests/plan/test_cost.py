"""Costs of a plan: traffic of a year, and shares that add up."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.cost.cost_cases import COURSE_TRAFFIC, price_lists, traffics
from tonnage.cost.cost import spread
from tonnage.plan.cost import HOURS_PER_YEAR, Traffic, WayCost
from tonnage.spec.prices import Prices


@given(price_lists(), traffics(), st.floats(1.0, 1e9))
def test_shares_add_up_to_the_cost(prices: Prices, traffic: Traffic, usd: float) -> None:
    cost = spread(WayCost(where="on-prem", total_usd_per_year=usd), traffic, prices)
    requests = traffic.requests_per_year
    assert math.isclose(cost.usd_per_1000_requests * requests / 1_000, usd)
    tokens = (
        cost.usd_per_million_input_tokens * traffic.input_tokens
        + cost.usd_per_million_output_tokens * traffic.output_tokens
    )
    assert math.isclose(tokens * requests / 1e6, usd)
    assert math.isclose(cost.usd_per_million_output_tokens, 3 * cost.usd_per_million_input_tokens)


@given(traffics())
def test_hours_of_a_year_are_8760_and_carry_its_requests(traffic: Traffic) -> None:
    hours = traffic.hours
    assert math.isclose(sum(each.hours_per_year for each in hours), HOURS_PER_YEAR)
    requests = sum(
        each.hours_per_year * 3_600 * (each.requests_per_second or 0.0) for each in hours
    )
    assert traffic.requests_per_year is not None
    assert math.isclose(requests, traffic.requests_per_year)
    assert math.isclose(
        max(each.sized_requests_per_second for each in hours), traffic.peak_requests_per_second
    )
    assert all(
        each.sized_requests_per_second >= (each.requests_per_second or 0.0) * (1 - 1e-12)
        for each in hours
    )


def test_a_peak_below_the_busiest_hour_does_not_shrink_it() -> None:
    traffic = replace(
        COURSE_TRAFFIC,
        peak_requests_per_second=5.0,
        mean_requests_per_second=6.0,
        profile=(2.0, 10.0),
    )
    assert [each.sized_requests_per_second for each in traffic.hours] == [2.0, 10.0]


@given(traffics(), st.floats(0.1, 100.0))
def test_scaled_traffic_is_the_same_day(traffic: Traffic, factor: float) -> None:
    more = traffic.times(factor)
    assert more.requests_per_year is not None
    assert math.isclose(more.requests_per_year, traffic.requests_per_year * factor)
    assert math.isclose(
        max(each.sized_requests_per_second for each in more.hours),
        max(each.sized_requests_per_second for each in traffic.hours) * factor,
    )

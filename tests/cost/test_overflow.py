"""Owned systems with an API for the rest, against brute force over every number of systems."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given

from tests.cost.cost_cases import COURSE_PRICES, COURSE_SERVING, COURSE_TRAFFIC, price_lists, servings, traffics
from tonnage.cost.cost import api_cost, api_request, system_parts
from tonnage.cost.options import beyond, instances_on, needed, on_prem, overflow, systems_for
from tonnage.plan.cost import Serving, Traffic
from tonnage.plan.note import NoCost
from tonnage.report.plans.cost import takes
from tonnage.spec.catalog.price_list import catalog_prices
from tonnage.spec.prices import Prices

BURST = (8.0,) * 23 + (16.0,)
"""Requests/s hour by hour: a day with one hour of twice the load."""


def hour_by_hour(traffic: Traffic, serving: Serving, prices: Prices, systems: int) -> float:
    """A year with so many systems that carry load, one hour of the profile after the other, from the prices alone."""
    rates = traffic.profile or (traffic.mean_requests_per_second or 0.0,)
    room = traffic.peak_requests_per_second / max(rates)
    carried = instances_on(systems, serving) * serving.requests_per_second_per_instance
    each, power = api_request(traffic, prices)[0], prices.power_usd_per_kwh
    total = 0.0
    for rate in rates:
        kept = rate * min(1.0, carried / (rate * room)) if rate else 0.0
        total += (rate - kept) * 3_600 * each
        if serving.system_watts and power is not None and not prices.power_in_hosting:
            busy = kept / serving.requests_per_second_per_instance * serving.gpus_per_instance / serving.gpus_per_system
            total += serving.system_watts / 1_000 * busy * prices.pue.value * power.value
    parts = system_parts(serving, prices, systems + serving.spare) if systems else ()
    assert not isinstance(parts, NoCost)
    return total * 8_760 / len(rates) + sum(part.usd_per_year for part in parts)


@given(traffics(longest=8), servings(), price_lists())
def test_the_number_owned_is_the_cheapest_of_all(traffic: Traffic, serving: Serving, prices: Prices) -> None:
    cost = overflow(traffic, serving, prices)
    most = systems_for(needed(traffic.peak_requests_per_second, serving), serving)
    span = serving.fleet.systems_per_instance
    every = {count: hour_by_hour(traffic, serving, prices, count) for count in range(0, most + 3 * span, span)}
    assert cost.total_usd_per_year is not None
    assert math.isclose(cost.total_usd_per_year, min(every.values()), rel_tol=1e-8, abs_tol=1e-4)
    carrying = cost.systems - serving.spare if cost.systems else 0
    assert math.isclose(every[carrying], min(every.values()), rel_tol=1e-8, abs_tol=1e-4)


@given(traffics(), servings(), price_lists())
def test_it_is_never_dearer_than_the_api_alone_or_than_owning_all(traffic: Traffic, serving: Serving, prices: Prices) -> None:
    cost = overflow(traffic, serving, prices).total_usd_per_year
    assert cost is not None
    for way in (api_cost(traffic, prices), on_prem(traffic, serving, prices)):
        assert way.total_usd_per_year is not None
        assert cost <= way.total_usd_per_year * (1 + 1e-9)


def test_a_base_is_owned_and_the_busy_hour_goes_to_the_api() -> None:
    traffic = Traffic(
        peak_requests_per_second=16.0, mean_requests_per_second=sum(BURST) / 24, input_tokens=1_000, output_tokens=0, profile=BURST
    )
    serving = replace(COURSE_SERVING, requests_per_second_per_instance=1.0)
    cost = overflow(traffic, serving, COURSE_PRICES)
    assert cost.systems == 1
    assert cost.api_requests_per_year == pytest.approx(8.0 * 3_600 * 365)
    tokens = next(part for part in cost.parts if part.name == "tokens")
    assert tokens.usd_per_year == pytest.approx(8.0 * 3_600 * 365 * 1_000 * 1 / 1e6)
    assert takes(cost).startswith("1 system + 10")
    assert takes(cost).endswith("requests to the API")
    spared = overflow(traffic, replace(serving, spare=1), COURSE_PRICES)
    assert (spared.systems, spared.api_requests_per_year) == (2, cost.api_requests_per_year)
    assert spared.total_usd_per_year == pytest.approx((cost.total_usd_per_year or 0.0) + 119_000)


def test_no_load_between_its_mean_and_its_peak_sends_more_to_the_api() -> None:
    serving = replace(COURSE_SERVING, requests_per_second_per_instance=1.0)
    hour = replace(COURSE_TRAFFIC, peak_requests_per_second=32.0, mean_requests_per_second=8.0)
    most = beyond(hour, serving, 2)
    for loads in ((0.0, 0.0, 0.0, 32.0), (8.0,) * 4, (4.0, 4.0, 4.0, 20.0), (0.0, 4.0, 12.0, 16.0)):
        sent = sum(max(0.0, load - 16.0) for load in loads) / 4 * 3_600 * 8_760
        assert sent <= most * (1 + 1e-12)
    assert most == pytest.approx(32.0 / 4 / 2 * 3_600 * 8_760), "exact where the load is now at its peak and now nothing"


@pytest.mark.parametrize(
    ("changes", "traffic", "code"),
    [
        ({"systems": {"dgx-h100": None}}, COURSE_TRAFFIC, "system-price"),
        ({}, COURSE_TRAFFIC, "api-price"),
        ({}, replace(COURSE_TRAFFIC, mean_requests_per_second=None), "only-peak"),
    ],
)
def test_what_is_not_known_is_a_reason_in_place_of_a_cost(changes: dict[str, object], traffic: Traffic, code: str) -> None:
    model = "nobody" if code == "api-price" else "llama-3.1-8b"
    cost = overflow(traffic, COURSE_SERVING, catalog_prices().with_overrides(changes), model)
    assert cost.total_usd_per_year is None
    assert cost.reason is not None
    assert cost.reason.code == code

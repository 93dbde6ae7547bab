"""Four ways side by side: what is marked, what is said, what is passed on as JSON."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given

from tests.cost.cost_cases import COURSE_PRICES, COURSE_SERVING, COURSE_TRAFFIC, price_lists, servings, traffics
from tonnage.cost.cost import api_request, system_parts
from tonnage.cost.options import beyond, instances_on, needed, overflow, systems_for
from tonnage.cost.planned import compare
from tonnage.errors import InputError
from tonnage.plan.cost import WAYS, Serving, Traffic
from tonnage.plan.note import CourseWay, NoCost, NoProfile, NotComparable, OwnedElectricity, SameAs
from tonnage.report.plans.cost import cost_note_texts, course_way_text, takes
from tonnage.spec.catalog.price_list import catalog_prices
from tonnage.spec.prices import Prices

PRICES = COURSE_PRICES


def test_course_own_systems_win_and_its_note_says_why_it_prints_0_44() -> None:
    found = compare(COURSE_TRAFFIC, COURSE_SERVING, PRICES)
    assert found.cheapest == "on-prem"
    (note,) = (note for note in found.notes if isinstance(note, CourseWay))
    assert course_way_text(note).startswith("0.64 USD per 1,000 requests is the cost of exactly 4.806 systems over the fleet's requests.")
    assert course_way_text(note).endswith("0.44.")


@given(traffics(), servings(), price_lists())
def test_the_cheapest_is_the_cheapest(traffic: Traffic, serving: Serving, prices: Prices) -> None:
    found = compare(traffic, serving, prices)
    costs = {option.where: option.total_usd_per_year for option in found.ways}
    left_out = {note.way: note.same for note in found.notes if isinstance(note, SameAs)}
    assert list(costs) == [way for way in WAYS if way not in left_out]
    assert set(left_out.values()) <= set(costs)
    assert found.cheapest is not None
    assert costs[found.cheapest] == min(cost for cost in costs.values() if cost is not None)


def test_a_mixture_of_one_thing_is_left_out_and_the_note_says_which() -> None:
    small = replace(COURSE_TRAFFIC, peak_requests_per_second=0.1, mean_requests_per_second=0.01)
    found = compare(small, COURSE_SERVING, PRICES)
    assert [way.where for way in found.ways] == ["on-prem", "cloud", "api"]
    assert [text for note in found.notes if isinstance(note, SameAs) for text in cost_note_texts(note)] == [
        "The hybrid is left out: its cheapest split owns nothing, which is the cloud.",
        "The hybrid with an API is left out: its cheapest split owns nothing, which is the API.",
    ]
    large = compare(COURSE_TRAFFIC, COURSE_SERVING, PRICES)
    assert [note.same for note in large.notes if isinstance(note, SameAs)] == ["on-prem", "on-prem"]
    alone = compare(small, COURSE_SERVING, PRICES, where=("hybrid", "hybrid-api"))
    assert [way.where for way in alone.ways] == ["hybrid", "hybrid-api"], "nothing else is shown that says it"


def test_old_prices_are_warned_about_on_the_day_given_and_only_those_used() -> None:
    assert compare(COURSE_TRAFFIC, COURSE_SERVING, PRICES).stale_prices == ()
    paths = [figure.path for figure in compare(COURSE_TRAFFIC, COURSE_SERVING, PRICES, today=date(2026, 11, 21)).stale_prices]
    assert "systems.dgx-h100" in paths
    assert "cloud.h100-sxm-80gb.Scaleway on-demand (average of its offers)" not in paths
    assert "systems.gb200-nvl72" not in paths
    later = compare(COURSE_TRAFFIC, COURSE_SERVING, PRICES, today=date(2028, 1, 1)).stale_prices
    assert "cloud.h100-sxm-80gb.Scaleway on-demand (average of its offers)" in {figure.path for figure in later}
    mine = PRICES.with_overrides({"systems": {"dgx-h100": 300_000}})
    fresh = compare(COURSE_TRAFFIC, COURSE_SERVING, mine, today=date(2026, 11, 21)).stale_prices
    assert not any(figure.path.startswith("systems.dgx-h100") for figure in fresh)


def test_hosting_that_cannot_hold_the_electricity_is_said() -> None:
    busy = replace(COURSE_TRAFFIC, peak_requests_per_second=30.0)
    (unpaid,) = (note for note in compare(busy, COURSE_SERVING, PRICES).notes if isinstance(note, OwnedElectricity))
    assert (unpaid.added, unpaid.hosting_usd_per_year) == (False, 3_000.0)
    assert "more than the whole hosting of 3,000 USD" in cost_note_texts(unpaid)[1]
    whole = compare(busy, COURSE_SERVING, PRICES.with_overrides({"hosting_usd_per_system_year": unpaid.usd_per_year}))
    (held,) = (note for note in whole.notes if isinstance(note, OwnedElectricity))
    assert (held.usd_per_year, held.hosting_usd_per_year) == (unpaid.usd_per_year, None)
    priced = compare(busy, COURSE_SERVING, PRICES.with_overrides({"power_usd_per_kwh": 0.13}))
    (paid,) = (note for note in priced.notes if isinstance(note, OwnedElectricity))
    assert (paid.added, paid.hosting_usd_per_year) == (True, None)
    (text,) = cost_note_texts(paid)
    assert text.endswith("added as power.")


def test_only_the_ways_asked_for_are_shown_chosen_from_and_spoken_of() -> None:
    found = compare(COURSE_TRAFFIC, COURSE_SERVING, PRICES, today=date(2026, 11, 21), where=("cloud", "api"))
    assert [option.where for option in found.ways] == ["cloud", "api"]
    assert found.cheapest == "cloud"
    assert [each.between for each in found.break_evens] == [("cloud", "api")]
    assert not any(isinstance(note, CourseWay | OwnedElectricity) for note in found.notes)
    assert NoProfile() in found.notes
    assert not any(figure.path.startswith("systems") for figure in found.stale_prices)
    owned = compare(COURSE_TRAFFIC, COURSE_SERVING, PRICES, where=("on-prem",))
    assert NoProfile() not in owned.notes
    assert [way.where for way in owned.ways] == ["on-prem"]


def test_one_way_with_a_price_is_compared_with_nothing() -> None:
    alone = {"cloud": {"h100": None}, "systems": {"dgx-h100": 320_000}}
    found = compare(replace(COURSE_TRAFFIC, mean_requests_per_second=None), COURSE_SERVING, PRICES.with_overrides(alone))
    assert [way.where for way in found.ways if way.total_usd_per_year is not None] == ["on-prem"]
    assert all(way.reason is not None for way in found.ways if way.total_usd_per_year is None)
    assert found.cheapest is None
    assert cost_note_texts(found.notes[0]) == ("Not comparable: only one way has a price (on-prem).",)
    asked = compare(COURSE_TRAFFIC, COURSE_SERVING, PRICES, where=("on-prem",))
    assert asked.cheapest is None
    assert not any(isinstance(note, NotComparable) for note in asked.notes), "nothing else was asked for"


def test_a_negative_minimum_is_refused() -> None:
    with pytest.raises(InputError, match=r"^min_instances: -1"):
        compare(COURSE_TRAFFIC, COURSE_SERVING, PRICES, min_instances=-1)


# Owned systems with an API for the rest, against brute force over every number of systems.


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
    assert cost.reason.code == code

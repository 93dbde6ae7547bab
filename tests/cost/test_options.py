"""Fleets on one's own floor, in the cloud and on both, against brute force over every hour and
every split."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cost.cost_cases import (
    COURSE_PRICES,
    COURSE_SERVING,
    COURSE_TRAFFIC,
    candidate,
    price_lists,
    servings,
    traffics,
)
from tonnage.cost.cost import api_request, system_parts
from tonnage.cost.options import (
    Rent,
    _corners,
    as_planned,
    beyond,
    cloud,
    hybrid,
    instances_on,
    needed,
    on_prem,
    overflow,
    rents_of,
    systems_for,
    yearly_owned,
)
from tonnage.cost.plan_cost import compare
from tonnage.errors import InputError
from tonnage.plan.cost import WAYS, Serving, Traffic, WayCost
from tonnage.plan.fleet import fleet
from tonnage.plan.notes import CourseWay, NoCost, NoProfile, NotComparable, OwnedElectricity, SameAs
from tonnage.report.plans.cost import cost_note_texts, course_way_text, takes
from tonnage.spec.catalog.price_list import catalog_prices
from tonnage.spec.prices import CloudOffer, Figure, Prices

PRICES = COURSE_PRICES


def usd(cost: WayCost) -> float:
    assert cost.total_usd_per_year is not None
    assert math.isclose(cost.total_usd_per_year, sum(part.usd_per_year for part in cost.parts))
    assert math.isclose(cost.total_usd_per_year, cost.capex_usd_per_year + cost.opex_usd_per_year)
    return cost.total_usd_per_year


def hour_by_hour(
    traffic: Traffic, serving: Serving, prices: Prices, fewest: int, owned_systems: int
) -> float:
    """A year with so many owned systems that carry load and the spare ones beside them, hour by
    hour, on the machines that cost least."""
    sizes = {size for offer in prices.cloud for size in offer.machine_gpus}
    large = {size for size in sizes if size >= serving.gpus_per_instance} or {
        size for size in sizes if size == max(sizes)
    }
    found = []
    for size in (*large, None):
        price = next(
            (
                o.usd_per_gpu_hour.value
                for o in prices.cloud
                if (size in o.machine_gpus if size else not o.machine_gpus)
            ),
            None,
        )
        if price is not None:
            machine = size or serving.gpus_per_instance
            at_once = next(
                machine * n for n in itertools.count(1) if machine * n >= serving.gpus_per_instance
            )
            found.append(
                _by_hand(
                    traffic, serving, prices, fewest, owned_systems, price=price, at_once=at_once
                )
            )
    return min(found)


def _by_hand(
    traffic: Traffic,
    serving: Serving,
    prices: Prices,
    fewest: int,
    owned_systems: int,
    *,
    price: float,
    at_once: int,
) -> float:
    """The same where so many GPUs are rented at once."""
    licence = (
        0.0 if prices.licence_usd_per_gpu_hour is None else prices.licence_usd_per_gpu_hour.value
    )
    an_hour = (price + licence) * at_once
    rates = traffic.profile or (traffic.peak_requests_per_second,)
    room = traffic.peak_requests_per_second / max(rates)
    wide = serving.gpus_per_instance > 8
    held = (
        owned_systems // math.ceil(serving.gpus_per_instance / 8)
        if wide
        else owned_systems * (8 // serving.gpus_per_instance)
    )
    total, watt_hours = 0.0, 0.0
    for rate in rates:
        on = next(
            n
            for n in itertools.count(fewest)
            if n * serving.requests_per_second_per_instance >= rate * room * (1 - 1e-9)
        )
        total += math.ceil(max(0, on - held) / (at_once // serving.gpus_per_instance)) * an_hour
        if held and serving.system_watts:
            share = (
                min(1.0, held * serving.requests_per_second_per_instance / (rate * room))
                if rate
                else 1.0
            )
            served = (rate if traffic.profile else traffic.mean_requests_per_second or 0.0) * share
            busy = served / serving.requests_per_second_per_instance
            watt_hours += (
                serving.system_watts / serving.gpus_per_system * serving.gpus_per_instance * busy
            )
    year = 8_760 / len(rates)
    parts = system_parts(serving, prices, owned_systems + serving.spare) if owned_systems else ()
    assert not isinstance(parts, NoCost)
    power = prices.power_usd_per_kwh
    if power is not None and not prices.power_in_hosting:
        total += watt_hours / 1_000 * prices.pue.value * power.value
    return total * year + sum(part.usd_per_year for part in parts)


def test_course_fleet() -> None:
    cost = on_prem(COURSE_TRAFFIC, COURSE_SERVING, PRICES)
    assert cost.systems_exact is not None
    assert cost.usd_per_year_exact is not None
    assert cost.usd_per_1000_requests is not None
    assert cost.usd_per_1000_requests_exact is not None
    assert round(cost.systems_exact, 3) == 4.806
    assert (cost.systems, cost.instances, cost.gpus) == (5, 40, 40)
    assert round(cost.usd_per_year_exact, -3) == 572_000
    assert usd(cost) == 595_000
    assert round(cost.usd_per_1000_requests_exact, 2) == 0.64
    assert round(cost.usd_per_1000_requests, 2) == 0.66
    assert cost.capex_usd_per_year == 400_000
    assert cost.opex_usd_per_year == 195_000
    assert cost.purchase_usd == 1_600_000


def test_a_plan_that_asks_for_more_systems_is_paid_for_them_everywhere() -> None:
    planned = as_planned(replace(COURSE_SERVING, systems=6), COURSE_TRAFFIC)
    assert (
        usd(on_prem(COURSE_TRAFFIC, planned, PRICES))
        == usd(hybrid(COURSE_TRAFFIC, planned, PRICES))
        == 6 * 119_000
    )
    assert cloud(COURSE_TRAFFIC, planned, PRICES).cloud_gpus_at_peak == 48
    spare = replace(COURSE_SERVING, systems=6, spare=1)
    for as_counted in (COURSE_SERVING, replace(COURSE_SERVING, systems=5), spare):
        assert as_planned(as_counted, COURSE_TRAFFIC) == as_counted


def test_power_is_added_once_where_hosting_does_not_pay_for_it() -> None:
    paid = on_prem(
        COURSE_TRAFFIC, COURSE_SERVING, PRICES.with_overrides({"power_usd_per_kwh": 0.13})
    )
    assert math.isclose(usd(paid), 595_000 + paid.energy.usd_per_year)
    assert math.isclose(
        paid.usd_per_year_exact - 119_000 * (paid.systems_exact or 0.0), paid.energy.usd_per_year
    )


@given(traffics(), servings(), price_lists())
def test_a_fleet_is_that_of_the_plan(traffic: Traffic, serving: Serving, prices: Prices) -> None:
    cost = on_prem(traffic, serving, prices)
    layout = fleet(serving.gpus_per_instance, serving.gpus_per_system)
    peak, rate = traffic.peak_requests_per_second, serving.requests_per_second_per_instance
    plan = layout.of(layout.carrying(peak, rate).systems + serving.spare)
    assert cost.systems_exact is not None
    assert (cost.systems, cost.instances) == (plan.systems, plan.instances)
    assert math.isclose(cost.systems_exact, layout.exactly(peak, rate))


@given(st.integers(0, 50), servings())
def test_systems_hold_what_they_are_bought_for_and_one_fewer_would_not(
    instances: int, serving: Serving
) -> None:
    systems = systems_for(instances, serving)
    assert instances_on(systems, serving) >= instances
    assert systems == 0 or instances_on(systems - 1, serving) < instances


def test_a_rate_that_divides_evenly_needs_no_more() -> None:
    assert needed(0.3, replace(COURSE_SERVING, requests_per_second_per_instance=0.1)) == 3
    assert needed(0.0, COURSE_SERVING) == 0


@given(traffics(), servings(), price_lists(), st.integers(0, 5))
def test_the_cloud_is_paid_hour_by_hour(
    traffic: Traffic, serving: Serving, prices: Prices, fewest: int
) -> None:
    assert math.isclose(
        usd(cloud(traffic, serving, prices, fewest)),
        hour_by_hour(traffic, serving, prices, fewest, 0),
        abs_tol=1e-6,
    )


@given(traffics(longest=8), servings(), price_lists(), st.integers(0, 5))
def test_the_split_is_the_cheapest_of_all(
    traffic: Traffic, serving: Serving, prices: Prices, fewest: int
) -> None:
    cost = hybrid(traffic, serving, prices, fewest)
    most = systems_for(max(fewest, needed(traffic.peak_requests_per_second, serving)), serving)
    every = [hour_by_hour(traffic, serving, prices, fewest, systems) for systems in range(most + 3)]
    assert math.isclose(usd(cost), min(every), rel_tol=1e-9, abs_tol=1e-6)
    carrying = cost.systems - serving.spare if cost.systems else 0
    assert math.isclose(every[carrying], min(every), rel_tol=1e-9, abs_tol=1e-6)


def test_a_spare_system_stands_beside_the_base_that_is_owned() -> None:
    profile = (8.0,) * 23 + (16.0,)
    traffic = Traffic(
        peak_requests_per_second=16.0,
        mean_requests_per_second=sum(profile) / 24,
        input_tokens=1,
        output_tokens=1,
        profile=profile,
    )
    bare = replace(COURSE_SERVING, requests_per_second_per_instance=1.0)
    without, spared = (
        hybrid(traffic, serving, PRICES) for serving in (bare, replace(bare, spare=1))
    )
    assert (without.systems, spared.systems) == (1, 2)
    assert usd(spared) == pytest.approx(usd(without) + 119_000)
    assert spared.cloud_gpu_hours_per_year == without.cloud_gpu_hours_per_year


@given(traffics(), servings(), price_lists(), st.floats(1.0, 5.0))
def test_more_load_never_costs_less(
    traffic: Traffic, serving: Serving, prices: Prices, factor: float
) -> None:
    more = traffic.times(factor)
    for way in (on_prem, cloud, hybrid):
        assert usd(way(more, serving, prices)) >= usd(way(traffic, serving, prices)) * (1 - 1e-9)


@given(traffics(), servings(), price_lists())
def test_the_ends_of_the_cloud_price_lie_around_its_middle(
    traffic: Traffic, serving: Serving, prices: Prices
) -> None:
    cost = cloud(traffic, serving, prices)
    rents = rents_of(serving, prices)
    assert not isinstance(rents, NoCost)
    (rent,) = (rent for rent in rents if any(rent.offer in line for line in cost.how))
    if rent.low == rent.high:
        assert (cost.usd_per_year_low, cost.usd_per_year_high) == (None, None)
        return
    assert cost.usd_per_year_low <= usd(cost) <= cost.usd_per_year_high
    hours = cost.cloud_gpu_hours_per_year / rent.gpus
    assert math.isclose(
        cost.usd_per_year_high - cost.usd_per_year_low, hours * (rent.high - rent.low), abs_tol=1e-6
    )


def test_machines_are_rented_whole() -> None:
    serving = replace(COURSE_SERVING, requests_per_second_per_instance=1.0)
    small = replace(COURSE_TRAFFIC, peak_requests_per_second=3.0, mean_requests_per_second=1.0)
    prices = {
        size: PRICES.with_overrides({"cloud": {"h100": {"value": 2.0, "gpus": size}}})
        for size in (1, 2, 8)
    }
    assert {
        size: cloud(small, serving, each).cloud_gpus_at_peak for size, each in prices.items()
    } == {1: 3, 2: 4, 8: 8}
    wide = replace(serving, gpus_per_instance=16)
    assert cloud(small, wide, prices[8]).cloud_gpus_at_peak == 3 * 16
    odd = replace(serving, gpus_per_instance=3)
    assert cloud(small, odd, prices[2]).cloud_gpus_at_peak == 3 * 4, (
        "two machines of two GPUs hold one instance of three"
    )
    assert cloud(small, odd, prices[8]).cloud_gpus_at_peak == 2 * 8


def test_a_b200_is_rented_by_itself_where_the_load_takes_one() -> None:
    """672,768 USD a year were asked for eight rented B200 where one carries the load."""
    serving = replace(
        COURSE_SERVING,
        gpu="b200-sxm-180gb",
        system="1xb200-sxm-180gb",
        gpus_per_system=1,
        requests_per_second_per_instance=40.0,
    )
    cost = cloud(
        replace(COURSE_TRAFFIC, peak_requests_per_second=3.0, mean_requests_per_second=None),
        serving,
        catalog_prices(),
    )
    assert (cost.cloud_gpu_hours_per_year, cost.cloud_gpus_at_peak) == (8_760, 1)
    assert usd(cost) == pytest.approx((6.79 + 1) * 8_760)
    assert (
        "RunPod secure on-demand, 6.79 USD per GPU and hour: the only provider of machines of 1 GPU"
        in cost.how[0]
    )
    assert "6 more rent other sizes, 6 (Hyperstack) to 16.11 (GCP)" in cost.how[0]


@given(
    traffics(longest=6),
    servings(),
    st.sampled_from(["h100-sxm-80gb", "b200-sxm-180gb", "l40s", "gb200-186gb"]),
)
def test_more_gpus_of_the_catalog_never_cost_less(
    traffic: Traffic, serving: Serving, gpu: str
) -> None:
    asked = replace(serving, gpu=gpu)
    costs = [
        usd(cloud(traffic.times(factor), asked, catalog_prices()))
        for factor in (1.0, 1.3, 2.0, 8.0)
    ]
    assert costs == sorted(costs)


OWNED = NoCost(code="system-price", name="dgx-h100")
RENTED = NoCost(code="cloud-price", name="h100-sxm-80gb")


@pytest.mark.parametrize(
    ("way", "changes", "reason"),
    [
        (on_prem, {"systems": {"dgx-h100": None}}, OWNED),
        (cloud, {"cloud": {"h100": None}}, RENTED),
        (hybrid, {"cloud": {"h100": None}}, RENTED),
        (hybrid, {"systems": {"dgx-h100": None}}, OWNED),
    ],
)
def test_a_price_that_is_not_known_gives_a_reason_in_place_of_a_cost(way, changes, reason) -> None:
    cost = way(COURSE_TRAFFIC, COURSE_SERVING, PRICES.with_overrides(changes))
    assert cost.total_usd_per_year is None
    assert cost.usd_per_1000_requests is None
    assert cost.reason == reason


def test_candidates_are_priced_by_their_place_where_their_price_is_known() -> None:
    unknown = candidate(gpu="l4", system="8xl4", systems=9, rate=3.0)
    more = candidate(systems=7)
    found = yearly_owned([candidate(), unknown, more], COURSE_TRAFFIC, PRICES)
    assert found == {0: 595_000, 2: pytest.approx(7 * 119_000)}
    assert yearly_owned([candidate(systems=6)], COURSE_TRAFFIC, PRICES, spare=1) == {0: 6 * 119_000}


# Four ways side by side: what is marked, what is said, what is passed on as JSON.


def test_course_own_systems_win_and_its_note_says_why_it_prints_0_44() -> None:
    found = compare(COURSE_TRAFFIC, COURSE_SERVING, PRICES)
    assert found.cheapest == "on-prem"
    (note,) = (note for note in found.notes if isinstance(note, CourseWay))
    assert course_way_text(note).startswith(
        "0.64 USD per 1,000 requests is the cost of exactly 4.806 systems over the fleet's"
        " requests."
    )
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
    assert [
        text for note in found.notes if isinstance(note, SameAs) for text in cost_note_texts(note)
    ] == [
        "The hybrid is left out: its cheapest split owns nothing, which is the cloud.",
        "The hybrid with an API is left out: its cheapest split owns nothing, which is the API.",
    ]
    large = compare(COURSE_TRAFFIC, COURSE_SERVING, PRICES)
    assert [note.same for note in large.notes if isinstance(note, SameAs)] == ["on-prem", "on-prem"]
    alone = compare(small, COURSE_SERVING, PRICES, where=("hybrid", "hybrid-api"))
    assert [way.where for way in alone.ways] == [
        "hybrid",
        "hybrid-api",
    ], "nothing else is shown that says it"


def test_old_prices_are_warned_about_on_the_day_given_and_only_those_used() -> None:
    assert compare(COURSE_TRAFFIC, COURSE_SERVING, PRICES).stale_prices == ()
    paths = [
        figure.path
        for figure in compare(
            COURSE_TRAFFIC, COURSE_SERVING, PRICES, today=date(2026, 11, 21)
        ).stale_prices
    ]
    assert "systems.dgx-h100" in paths
    assert "cloud.h100-sxm-80gb.Scaleway on-demand (average of its offers)" not in paths
    assert "systems.gb200-nvl72" not in paths
    later = compare(COURSE_TRAFFIC, COURSE_SERVING, PRICES, today=date(2028, 1, 1)).stale_prices
    assert "cloud.h100-sxm-80gb.Scaleway on-demand (average of its offers)" in {
        figure.path for figure in later
    }
    mine = PRICES.with_overrides({"systems": {"dgx-h100": 300_000}})
    fresh = compare(COURSE_TRAFFIC, COURSE_SERVING, mine, today=date(2026, 11, 21)).stale_prices
    assert not any(figure.path.startswith("systems.dgx-h100") for figure in fresh)


def test_hosting_that_cannot_hold_the_electricity_is_said() -> None:
    busy = replace(COURSE_TRAFFIC, peak_requests_per_second=30.0)
    (unpaid,) = (
        note
        for note in compare(busy, COURSE_SERVING, PRICES).notes
        if isinstance(note, OwnedElectricity)
    )
    assert (unpaid.added, unpaid.hosting_usd_per_year) == (False, 3_000.0)
    assert "more than the whole hosting of 3,000 USD" in cost_note_texts(unpaid)[1]
    whole = compare(
        busy,
        COURSE_SERVING,
        PRICES.with_overrides({"hosting_usd_per_system_year": unpaid.usd_per_year}),
    )
    (held,) = (note for note in whole.notes if isinstance(note, OwnedElectricity))
    assert (held.usd_per_year, held.hosting_usd_per_year) == (unpaid.usd_per_year, None)
    priced = compare(busy, COURSE_SERVING, PRICES.with_overrides({"power_usd_per_kwh": 0.13}))
    (paid,) = (note for note in priced.notes if isinstance(note, OwnedElectricity))
    assert (paid.added, paid.hosting_usd_per_year) == (True, None)
    (text,) = cost_note_texts(paid)
    assert text.endswith("added as power.")


def test_only_the_ways_asked_for_are_shown_chosen_from_and_spoken_of() -> None:
    found = compare(
        COURSE_TRAFFIC, COURSE_SERVING, PRICES, today=date(2026, 11, 21), where=("cloud", "api")
    )
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
    found = compare(
        replace(COURSE_TRAFFIC, mean_requests_per_second=None),
        COURSE_SERVING,
        PRICES.with_overrides(alone),
    )
    assert [way.where for way in found.ways if way.total_usd_per_year is not None] == ["on-prem"]
    assert all(way.reason is not None for way in found.ways if way.total_usd_per_year is None)
    assert found.cheapest is None
    assert cost_note_texts(found.notes[0]) == (
        "Not comparable: only one way has a price (on-prem).",
    )
    asked = compare(COURSE_TRAFFIC, COURSE_SERVING, PRICES, where=("on-prem",))
    assert asked.cheapest is None
    assert not any(isinstance(note, NotComparable) for note in asked.notes), (
        "nothing else was asked for"
    )


def test_a_negative_minimum_is_refused() -> None:
    with pytest.raises(InputError, match=r"^min_instances: -1"):
        compare(COURSE_TRAFFIC, COURSE_SERVING, PRICES, min_instances=-1)


# Owned systems with an API for the rest, against brute force over every number of systems.


BURST = (8.0,) * 23 + (16.0,)
"""Requests/s hour by hour: a day with one hour of twice the load."""


def with_the_api(traffic: Traffic, serving: Serving, prices: Prices, systems: int) -> float:
    """A year with so many systems that carry load, one hour of the profile after the other, from
    the prices alone."""
    rates = traffic.profile or (traffic.mean_requests_per_second or 0.0,)
    room = traffic.peak_requests_per_second / max(rates)
    carried = instances_on(systems, serving) * serving.requests_per_second_per_instance
    each, power = api_request(traffic, prices)[0], prices.power_usd_per_kwh
    total = 0.0
    for rate in rates:
        kept = rate * min(1.0, carried / (rate * room)) if rate else 0.0
        total += (rate - kept) * 3_600 * each
        if serving.system_watts and power is not None and not prices.power_in_hosting:
            busy = (
                kept
                / serving.requests_per_second_per_instance
                * serving.gpus_per_instance
                / serving.gpus_per_system
            )
            total += serving.system_watts / 1_000 * busy * prices.pue.value * power.value
    parts = system_parts(serving, prices, systems + serving.spare) if systems else ()
    assert not isinstance(parts, NoCost)
    return total * 8_760 / len(rates) + sum(part.usd_per_year for part in parts)


@given(traffics(longest=8), servings(), price_lists())
def test_the_number_owned_is_the_cheapest_of_all(
    traffic: Traffic, serving: Serving, prices: Prices
) -> None:
    cost = overflow(traffic, serving, prices)
    most = systems_for(needed(traffic.peak_requests_per_second, serving), serving)
    span = serving.fleet.systems_per_instance
    every = {
        count: with_the_api(traffic, serving, prices, count)
        for count in range(0, most + 3 * span, span)
    }
    assert cost.total_usd_per_year is not None
    assert math.isclose(cost.total_usd_per_year, min(every.values()), rel_tol=1e-8, abs_tol=1e-4)
    carrying = cost.systems - serving.spare if cost.systems else 0
    assert math.isclose(every[carrying], min(every.values()), rel_tol=1e-8, abs_tol=1e-4)


def test_a_base_is_owned_and_the_busy_hour_goes_to_the_api() -> None:
    traffic = Traffic(
        peak_requests_per_second=16.0,
        mean_requests_per_second=sum(BURST) / 24,
        input_tokens=1_000,
        output_tokens=0,
        profile=BURST,
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
    assert most == pytest.approx(32.0 / 4 / 2 * 3_600 * 8_760), (
        "exact where the load is now at its peak and now nothing"
    )


@pytest.mark.parametrize(
    ("changes", "traffic", "code"),
    [
        ({"systems": {"dgx-h100": None}}, COURSE_TRAFFIC, "system-price"),
        ({}, COURSE_TRAFFIC, "api-price"),
        ({}, replace(COURSE_TRAFFIC, mean_requests_per_second=None), "only-peak"),
    ],
)
def test_what_is_not_known_is_a_reason_in_place_of_a_cost(
    changes: dict[str, object], traffic: Traffic, code: str
) -> None:
    model = "nobody" if code == "api-price" else "llama-3.1-8b"
    cost = overflow(traffic, COURSE_SERVING, catalog_prices().with_overrides(changes), model)
    assert cost.total_usd_per_year is None
    assert cost.reason.code == code


def offer(provider: str, size: int, low: float, high: float = 0.0) -> CloudOffer:
    """An offer of machines of so many GPUs, at a price or over a range of them."""
    hour = Figure(
        path=f"cloud.{provider}", low=low, high=high or low, source="a test", date="2026-11"
    )
    return CloudOffer(
        gpu="h100-sxm-80gb",
        offer=f"{provider} on-demand",
        provider=provider,
        machine_gpus=(size,) if size else (),
        usd_per_gpu_hour=hour,
        terms="on-demand",
    )


ONE_GPU, THREE = (
    offer("p", 1, 2.5, 4.0),
    [offer(name, 8, usd) for name, usd in zip("abc", (1, 2, 4), strict=True)],
)


def rented(*offers: CloudOffer, gpus: int = 1) -> list[Rent]:
    rents = rents_of(replace(COURSE_SERVING, gpus_per_instance=gpus), replace(PRICES, cloud=offers))
    assert isinstance(rents, tuple)
    return list(rents)


def test_what_is_rented_at_once_with_its_price_its_range_and_its_words() -> None:
    """A GPU at 2.5 to 4 USD of one provider, and machines of eight of three others; the licence is
    1 USD an hour."""
    licence = PRICES.licence_usd_per_gpu_hour
    single, eight = rented(*THREE, ONE_GPU)
    assert single == Rent(
        gpus=1,
        instances=1,
        hour=3.25,
        low=2.5,
        high=4.0,
        licence=1.0,
        offer="p on-demand, 2.5 to 4 USD per GPU and hour: the only provider of machines of 1 GPU;"
        " 3 more rent other sizes, 1 (a) to 4 (c)",
        figures=(ONE_GPU.usd_per_gpu_hour, licence),
    )
    assert eight == Rent(
        gpus=8,
        instances=8,
        hour=16.0,
        low=8.0,
        high=32.0,
        licence=8.0,
        offer="b on-demand, 2 USD per GPU and hour: the middle one of 3 providers of machines of 8"
        " GPUs, 1 (a) to 4 (c); 1 more rent other sizes, 3.25 (p)",
        figures=(*(THREE[place].usd_per_gpu_hour for place in (1, 0, 2)), licence),
    )
    assert (single.usd, eight.usd) == (4.25, 24.0)
    assert [eight.holding(instances) for instances in (0, 1, 8, 9, 16, 17)] == [0, 1, 1, 2, 2, 3]


@pytest.mark.parametrize(
    ("offers", "gpus", "words", "held"),
    [
        ([offer("p", 0, 2)], 3, "p on-demand, 2 USD per GPU and hour", (3, 1, 6.0)),
        ([offer("p", 8, 2)], 3, "p on-demand, 2 USD per GPU and hour", (8, 2, 16.0)),
        ([offer("p", 8, 2)], 16, "p on-demand, 2 USD per GPU and hour", (16, 1, 32.0)),
        (
            [offer("p", 8, 2), offer("q", 8, 3)],
            8,
            "p on-demand, 2 USD per GPU and hour: the middle one of 2 providers of machines of 8"
            " GPUs, 2 (p) to 3 (q)",
            (8, 1, 16.0),
        ),
    ],
)
def test_a_machine_holds_whole_instances(
    offers: list[CloudOffer], gpus: int, words: str, held: tuple[int, int, float]
) -> None:
    (rent,) = rented(*offers, gpus=gpus)
    assert (rent.offer, (rent.gpus, rent.instances, rent.hour)) == (words, held)


@pytest.mark.parametrize(
    ("sizes", "kept"),
    [
        ([(1, 2.0), (8, 2.0)], [1]),  # eight single ones cost as much as one machine
        ([(1, 2.0), (8, 1.9)], [1, 8]),
        ([(2, 1.0), (4, 1.5)], [2]),
        ([(4, 1.0), (6, 1.5)], [4, 6]),  # six GPUs are no whole number of machines of four
    ],
)
def test_machines_that_smaller_ones_outdo_are_left_out(
    sizes: list[tuple[int, float]], kept: list[int]
) -> None:
    offers = [offer(f"{size} GPUs", size, usd) for size, usd in sizes]
    assert [rent.gpus for rent in rented(*offers)] == kept


def test_the_years_bill_of_rented_machines_says_its_arithmetic() -> None:
    """Three hours of four need one instance and one needs nine, on machines of eight."""
    traffic = replace(
        COURSE_TRAFFIC,
        peak_requests_per_second=9.0,
        mean_requests_per_second=3.0,
        profile=(1.0, 1.0, 1.0, 9.0),
    )
    serving = replace(COURSE_SERVING, requests_per_second_per_instance=1.0)
    cost = cloud(traffic, serving, replace(PRICES, cloud=tuple(THREE)))
    hours = 8_760 / 4 * (3 * 1 + 2)
    assert (cost.cloud_gpu_hours_per_year, cost.cloud_gpus_at_peak) == (8 * hours, 16)
    gpus, licences = cost.parts
    assert (gpus.name, gpus.kind, gpus.usd_per_year) == ("cloud GPUs", "opex", 16 * hours)
    assert (gpus.usd_per_year_low, gpus.usd_per_year_high) == (8 * hours, 32 * hours)
    assert gpus.how.startswith("87,600 GPU-hours × b on-demand, 2 USD per GPU and hour: the middle")
    assert (licences.name, licences.kind, licences.usd_per_year) == (
        "cloud licences",
        "opex",
        8 * hours,
    )
    assert licences.how == "87,600 GPU-hours × 1 USD"
    assert (licences.usd_per_year_low, licences.usd_per_year_high) == (None, None)
    assert (cost.usd_per_year_low, cost.usd_per_year_high) == (16 * hours, 40 * hours)
    assert (cost.systems, cost.instances, cost.gpus, cost.purchase_usd, cost.energy) == (
        *(0, 0, 0),
        None,
        None,
    )
    assert cost.how == tuple(f"{part.name}: {part.how}" for part in cost.parts)
    free = cloud(traffic, serving, replace(PRICES, cloud=(ONE_GPU,), licence_usd_per_gpu_hour=None))
    assert [part.name for part in free.parts] == ["cloud GPUs"]
    assert free.cloud_gpu_hours_per_year == 8_760 / 4 * (3 + 9)


def test_a_fleet_that_is_owned_and_rented_says_both() -> None:
    """A system of eight carries three hours of four, and the fourth rents one machine."""
    traffic = replace(
        COURSE_TRAFFIC,
        peak_requests_per_second=9.0,
        mean_requests_per_second=8.25,
        profile=(8.0, 8.0, 8.0, 9.0),
    )
    serving = replace(COURSE_SERVING, requests_per_second_per_instance=1.0)
    prices = replace(PRICES, cloud=(offer("p", 8, 2.0),))
    cost = hybrid(traffic, serving, prices)
    assert (cost.systems, cost.instances, cost.gpus, cost.purchase_usd) == (1, 8, 8, 320_000)
    assert (cost.cloud_gpu_hours_per_year, cost.cloud_gpus_at_peak) == (8 * 8_760 / 4, 8)
    assert {part.name: part.usd_per_year for part in cost.parts} == {
        "systems": 80_000,
        "hosting": 3_000,
        "licences": 36_000,
        "cloud GPUs": 8 * 2 * 8_760 / 4,
        "cloud licences": 8 * 8_760 / 4,
    }
    assert {figure.path for figure in cost.figures} >= {"systems.dgx-h100", "cloud.p"}
    every = hybrid(traffic, serving, replace(prices, cloud=(offer("p", 8, 99.0),)))
    assert (every.systems, every.cloud_gpu_hours_per_year, every.cloud_gpus_at_peak) == (2, 0, 0)
    assert "cloud.p" not in {figure.path for figure in every.figures}
    assert [part.name for part in every.parts] == ["systems", "hosting", "licences"]


def test_a_staircase_is_looked_at_step_by_step_up_to_a_thousand_systems() -> None:
    """Eight instances of a system on machines of three: between the corners rent is no line."""
    serving = replace(COURSE_SERVING, requests_per_second_per_instance=1.0)

    def looked_at(peak: float, size: int, gpus: int = 1) -> list[int]:
        (rent,) = rented(offer("p", size, 2.0), gpus=gpus)
        traffic = replace(COURSE_TRAFFIC, peak_requests_per_second=peak)
        return list(_corners(traffic, replace(serving, gpus_per_instance=gpus), rent, 1))

    assert [
        looked_at(8_000, 3),
        looked_at(8_001, 3),
        looked_at(20, 3),
        looked_at(20, 4),  # five machines of four: two systems and a half
        looked_at(16, 8),
        looked_at(3, 16, 16),  # each instance takes two systems
    ] == [list(range(1_001)), [0, 1_000, 1_001], [0, 1, 2, 3], [0, 2, 3], [0, 2], [0, 6]]

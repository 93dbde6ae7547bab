"""Months of buying and renting: sums by hand, every schedule by brute force, and what comes to the
same."""

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cost.cost_cases import COURSE_PRICES, COURSE_SERVING
from tests.strategies import examples
from tonnage.cost.cost import energy_of
from tonnage.cost.horizon import (
    MOST_HOURS,
    Decay,
    Market,
    Month,
    beyond_existing,
    compared,
    fallen,
    fewer_hours,
    systems_by_division,
)
from tonnage.cost.options import cloud, on_prem
from tonnage.plan.cost import Serving, Traffic
from tonnage.plan.horizon import Horizon, HorizonMonth, HorizonWay, Purchasing
from tonnage.spec.prices import Prices

SERVING = replace(COURSE_SERVING, requests_per_second_per_instance=10.0)
"""Eight instances in a system of 320,000 USD, which carries 80 requests/s."""

UPKEEP = (3_000 + 8 * 4_500) / 12
"""USD a month for a system: hosting, which pays for the electricity, and licences."""

MACHINE = (2 + 1) * 8 * 730
"""USD a month for a machine of eight GPUs at 2 USD, with the licence of 1 USD."""

HOURLY = {"h100": {"hourly": {"value": 2, "gpus": 8}}}


def priced(**overrides: Any) -> Prices:
    return COURSE_PRICES.with_overrides({"cloud": HOURLY, **overrides})


def months(
    *peaks: float, prices: Prices | None = None, decay: Decay | None = None, spare: int = 0
) -> tuple[Month, ...]:
    """A month for each peak, on the systems that division names."""
    serving, made = replace(SERVING, spare=spare), []
    for place, peak in enumerate(peaks):
        traffic = Traffic(
            peak_requests_per_second=peak,
            mean_requests_per_second=peak / 2,
            input_tokens=1_000,
            output_tokens=100,
        )
        need = HorizonMonth(
            month=place,
            requests_per_second=peak,
            systems=systems_by_division(traffic, serving),
            simulated=True,
        )
        made.append(
            Month(
                need=need,
                traffic=traffic,
                serving=serving,
                prices=prices or priced(),
                decay=decay or Decay(),
            )
        )
    return tuple(made)


def total(horizon: Horizon, name: Purchasing) -> float:
    way = horizon.way(name)
    assert way is not None
    assert way.total_usd == pytest.approx(math.fsum(way.usd_by_month))
    assert way.total_usd == pytest.approx(way.purchase_usd + way.running_usd + way.rent_usd)
    assert way.spent_usd[-1] == pytest.approx(way.total_usd)
    return way.total_usd


def test_three_months_by_hand() -> None:
    horizon = compared(months(40, 40, 100))
    assert [need.systems for need in horizon.needs] == [1, 1, 2]
    assert total(horizon, "now") == pytest.approx(2 * 320_000 + 6 * UPKEEP)
    assert total(horizon, "steps") == pytest.approx(2 * 320_000 + 4 * UPKEEP)
    assert total(horizon, "hour") == pytest.approx(4 * MACHINE)
    now, steps, hourly = (horizon.way(name) for name in ("now", "steps", "hour"))
    assert now is not None
    assert steps is not None
    assert hourly is not None
    # at the peaks 4, 4 and 10 GPUs work, of 16 in each month, and of 8, 8 and 16
    assert now.idle == pytest.approx((48 - 18) / 48)
    assert steps.idle == pytest.approx((32 - 18) / 32)
    assert hourly.idle is None
    assert steps.purchases == ((0, 1), (2, 1))
    assert steps.usd_by_month == pytest.approx(
        [320_000 + UPKEEP, UPKEEP, 320_000 + 2 * UPKEEP], rel=1e-9
    )
    assert hourly.hourly_gpus == (8, 8, 16)
    assert horizon.cheapest == "hour"
    assert horizon.way("both") is None  # which rents everything, and so is the other


def test_the_month_in_which_owning_has_paid_off_and_what_systems_are_worth_at_the_end() -> None:
    horizon = compared(months(*[40.0] * 36, prices=priced(systems={"dgx-h100": 100_000})))
    now = horizon.way("now")
    assert now is not None
    # 100,000 + 3,250 n is no more than 17,520 n from n = 8 on, the end of month 7
    assert now.cheaper_from == math.ceil(100_000 / (MACHINE - UPKEEP)) - 1 == 7
    assert now.left_usd == pytest.approx(100_000 * 12 / 48)
    assert total(horizon, "now") == pytest.approx(100_000 + 36 * UPKEEP)
    assert horizon.cheapest == "now"
    assert horizon.way("steps") is None  # the load stays: it is the same


def test_prices_fall_by_the_year_those_of_systems_with_the_month_of_the_order() -> None:
    decay = Decay(systems=0.5, rents=0.2)
    horizon = compared(months(40, 100, prices=priced(), decay=decay))
    later = 320_000 * 0.5 ** (1 / 12)
    assert total(horizon, "steps") == pytest.approx(320_000 + later + 3 * UPKEEP)
    # the licence, 8 × 730 × 1 USD of a machine, stays
    rent = 8 * 730 * (2 + 1) + 2 * 8 * 730 * (2 * 0.8 ** (1 / 12) + 1)
    assert total(horizon, "hour") == pytest.approx(rent)
    assert fallen(0.5, 12) == 0.5
    assert fallen(None, 12) == 1


def test_a_lead_time_pays_with_the_order_and_rents_until_the_delivery() -> None:
    horizon = compared(months(40, 40, 40, 100, decay=Decay(systems=0.5)), lead_months=2)
    steps = horizon.way("steps")
    assert steps is not None
    assert steps.systems == (0, 0, 1, 2)
    second = 320_000 * 0.5 ** (1 / 12)
    assert steps.usd_by_month == pytest.approx(
        [320_000 + MACHINE, second + MACHINE, UPKEEP, 2 * UPKEEP]
    )
    now = horizon.way("now")
    assert now is not None
    assert now.usd_by_month[0] == pytest.approx(2 * 320_000 + MACHINE)
    assert total(horizon, "now") == pytest.approx(2 * 320_000 + 2 * MACHINE + 4 * UPKEEP)
    # what would be delivered after the last month is not ordered
    late = compared(months(40, 40), lead_months=2)
    assert [(way.way, way.purchases) for way in late.ways] == [("hour", ())]


def test_machines_are_reserved_where_that_costs_less_and_for_no_longer_than_the_months() -> None:
    kept = {"value": 1, "gpus": 8, "terms": "reserved 1 year"}
    prices = priced(cloud={"h100": {"hourly": {"value": 2, "gpus": 8}, "kept": kept}})
    horizon = compared(months(*[40.0] * 20, *[100.0] * 10, prices=prices))
    reserved = horizon.way("reserved")
    assert reserved is not None
    # a machine for two years, and a second for the last year: with the first it carries the load
    # of months 20 to 23, and alone that of one machine in the six months after
    assert total(horizon, "reserved") == pytest.approx(36 * 8 * 730 * (1 + 1) + 6 * MACHINE)
    assert reserved.reserved_gpus == (8,) * 18 + (16,) * 6 + (8,) * 6
    assert reserved.hourly_gpus == (0,) * 24 + (8,) * 6
    # of the reserved GPUs 4 of 8 and then 10 of 16 work
    assert reserved.idle == pytest.approx((36 * 8 - 20 * 4 - 4 * 10 - 6 * 8) / (36 * 8))
    assert total(horizon, "hour") == pytest.approx(40 * MACHINE)
    assert "kept, 1 USD per GPU and hour" in horizon.offers
    cheaper = compared(months(*[40.0] * 24, prices=prices, decay=Decay(rents=0.5)))
    assert total(cheaper, "reserved") == pytest.approx(8 * 8_760 * (1 + 1) + 8 * 8_760 * (0.5 + 1))


def test_a_year_of_a_machine_that_is_idle_at_night_is_reserved_by_its_hours() -> None:
    """Reserved machines are paid at night too: of two machines by day one is worth it, if its price
    is low enough for both day and night."""
    kept = {"value": 0.5, "gpus": 8, "terms": "committed 1 year"}
    prices = priced(cloud={"h100": {"hourly": {"value": 2, "gpus": 8}, "kept": kept}})
    day = (80.0,) * 12 + (160.0,) * 6 + (240.0,) * 6
    traffic = Traffic(
        peak_requests_per_second=240.0,
        mean_requests_per_second=sum(day) / 24,
        input_tokens=1.0,
        output_tokens=1.0,
        profile=day,
    )
    need = HorizonMonth(month=0, requests_per_second=240, systems=3, simulated=True)
    year = [
        Month(need=replace(need, month=month), traffic=traffic, serving=SERVING, prices=prices)
        for month in range(12)
    ]
    reserved = compared(year).way("reserved")
    assert reserved is not None
    # an hour costs 12 USD reserved and 24 by the hour: of the second machine, which is needed half
    # of the day, both cost the same, and the third is needed a quarter of it
    assert set(reserved.reserved_gpus) == {8}
    assert reserved.total_usd == pytest.approx(8_760 * (12 + 24 * 0.5 + 24 * 0.25))


def test_what_is_not_priced_leaves_its_ways_without_a_cost() -> None:
    no_rent = compared(months(40, 100, prices=priced(cloud={"h100": "none"})))
    assert {way.way: way.reason and way.reason.code for way in no_rent.ways} == {
        "now": None,
        "steps": None,
        "hour": "cloud-price",
    }
    assert no_rent.cheapest == "steps"
    no_system = compared(months(40, 100, prices=priced(systems={"dgx-h100": "none"})))
    assert {way.way: way.reason and way.reason.code for way in no_system.ways} == {
        "now": "system-price",
        "steps": "system-price",
        "hour": None,
    }
    late = compared(months(40, 100, prices=priced(cloud={"h100": "none"})), lead_months=1)
    assert late.cheapest is None


def test_only_the_ways_that_were_requested_are_shown() -> None:
    horizon = compared(months(40, 100), where=("cloud",))
    assert [way.way for way in horizon.ways] == ["hour"]
    assert compared(months(40, 100), where=("api",)).ways == ()


def test_nothing_is_needed_where_what_exists_is_enough() -> None:
    horizon = compared([replace(month, least=0) for month in months(0.0, 0.0)], existing=True)
    assert [way.total_usd for way in horizon.ways] == [0, 0]


@given(
    peaks=st.lists(st.sampled_from([20.0, 70.0, 100.0, 170.0, 250.0]), min_size=1, max_size=5),
    price=st.sampled_from([9_000, 30_000, 90_000]),
    decay=st.sampled_from([0.0, 0.5, 0.9]),
    lead=st.integers(0, 2),
    spare=st.integers(0, 1),
)
@examples(0.5)
def test_no_schedule_of_purchases_costs_less(
    peaks: list[float], price: float, decay: float, lead: int, spare: int
) -> None:
    prices = priced(systems={"dgx-h100": price})
    made = months(*peaks, prices=prices, decay=Decay(systems=decay, rents=decay / 2), spare=spare)
    market = Market(months=made, lead=lead)
    horizon = compared(made, lead_months=lead)
    names: tuple[Purchasing, ...] = ("now", "steps", "hour", "both")
    found = min(total(horizon, name) for name in names if horizon.way(name) is not None)
    schedules = itertools.combinations_with_replacement(range(market.highest_need + 1), len(peaks))
    delivered = (one for one in schedules if not any(one[: min(lead, len(one))]))
    costs = [cost_of(market, one) for one in delivered]
    assert found == pytest.approx(min(costs))


def cost_of(market: Market, systems: tuple[int, ...]) -> float:
    """A schedule month by month: rented machines of eight GPUs, and systems with their upkeep."""
    usd, before = 0.0, 0
    for place, (month, count) in enumerate(zip(market.months, systems, strict=True)):
        left = month.need.requests_per_second - 80.0 * max(0, count - month.serving.spare)
        lower = (1 - (month.decay.rents or 0)) ** (place / 12)
        usd += math.ceil(max(0.0, left) / 80) * 8 * 730 * (2 * lower + 1) + count * UPKEEP
        usd += (count - before) * market.order_usd(place)
        before = count
    return usd


def test_a_month_costs_a_twelfth_of_what_its_load_costs_a_year() -> None:
    prices = COURSE_PRICES.with_overrides({"power_usd_per_kwh": 0.2})
    month = months(250, prices=prices)[0]
    owned, rented = on_prem(month.traffic, SERVING, prices), cloud(month.traffic, SERVING, prices)
    assert month.running_usd(4) == pytest.approx(owned.opex_usd_per_year / 12)
    assert month.rent(0)[0] == pytest.approx((rented.total_usd_per_year or 0) / 12)
    assert month.rent(0)[1] == rented.cloud_gpus_at_peak
    assert energy_of(SERVING, month.traffic, prices, 32) is not None


def test_a_fleet_that_exists_leaves_the_same_share_of_requests_as_of_the_load() -> None:
    day = Traffic(
        peak_requests_per_second=200.0,
        mean_requests_per_second=62.5,
        input_tokens=1.0,
        output_tokens=1.0,
        profile=(25.0, 100.0),
    )
    left = beyond_existing(day, 100.0)
    # bursts are twice the hour's mean: 50 and 200 requests/s are provided for, and 100 are carried
    assert left.peak_requests_per_second == 100
    assert left.profile == (0.0, 50.0)
    assert left.mean_requests_per_second == 25.0
    assert [hours.sized_requests_per_second for hours in left.hours] == [0.0, 100.0]
    flat = beyond_existing(replace(day, profile=()), 100.0)
    assert flat.mean_requests_per_second == pytest.approx(62.5 / 2)
    assert beyond_existing(day, 300.0).peak_requests_per_second == 0


def test_a_year_of_hours_is_represented_by_a_week_of_them() -> None:
    hours = tuple(100.0 + 50 * math.sin(place) for place in range(8_760))
    year = Traffic(
        peak_requests_per_second=300.0,
        mean_requests_per_second=sum(hours) / len(hours),
        input_tokens=1_000.0,
        output_tokens=100.0,
        profile=hours,
    )
    fewer = fewer_hours(year)
    assert len(fewer.profile) == MOST_HOURS
    assert max(fewer.profile) == max(hours)
    for way in (on_prem, cloud):
        usd = way(year, SERVING, COURSE_PRICES).total_usd_per_year
        assert way(fewer, SERVING, COURSE_PRICES).total_usd_per_year == pytest.approx(usd, rel=0.01)
    assert fewer_hours(replace(year, profile=hours[:24])).profile == hours[:24]


def test_systems_by_division_count_spare_ones_where_there_is_a_load() -> None:
    (month,) = months(81)
    assert systems_by_division(month.traffic, replace(SERVING, spare=1)) == 3
    idle = replace(month.traffic, peak_requests_per_second=0.0)
    assert systems_by_division(idle, replace(SERVING, spare=1)) == 0


def test_spare_systems_carry_nothing() -> None:
    horizon = compared(months(40, 100, spare=1))
    steps: HorizonWay | None = horizon.way("steps")
    assert steps is not None
    assert steps.systems == (2, 3)
    assert steps.idle == pytest.approx((16 + 24 - 4 - 10) / 40)
    assert steps.hourly_gpus == (0, 0)


def test_two_kinds_of_servings_share_no_months() -> None:
    wide: Serving = replace(SERVING, gpus_per_instance=16, requests_per_second_per_instance=100.0)
    traffic = months(150)[0].traffic
    assert systems_by_division(traffic, wide) == 4  # two instances of two systems each


@pytest.mark.parametrize(
    ("hours", "count", "span", "need", "step"),
    [
        (1, 12, 1, 150, 1),  # all of them
        (1, 12, 1, 1_000, 5),  # two hundred at most
        (1, 12, 1, 1_001, 6),
        (168, 36, 1, 1_000, 31),  # 33 of them: 200,000 hours in all
        (168, 60, 1, 1_000, 42),  # 24 at least
        (168, 60, 2, 1_000, 42),  # of groups of two systems: 21 groups
    ],
)
def test_of_many_numbers_of_systems_some_are_compared(
    hours: int, count: int, span: int, need: int, step: int
) -> None:
    needs = [7] * (count - 1) + [need]
    made = [
        SimpleNamespace(
            need=SimpleNamespace(systems=systems),
            traffic=SimpleNamespace(hours=[None] * hours),
            serving=SimpleNamespace(fleet=SimpleNamespace(systems_per_instance=span)),
        )
        for systems in needs
    ]
    market = Market(months=tuple(made), lead=0)  # type: ignore[arg-type]
    assert market._counts() == sorted({0, 7, need, *range(0, need, step)})


@pytest.mark.parametrize(("peak", "machines"), [(640.0, 1), (650.0, 2), (1_280.0, 2), (1_290.0, 3)])
def test_machines_are_reserved_in_at_most_64_layers(peak: float, machines: int) -> None:
    """An instance of one GPU carries 10 requests/s: 64 of them one by one, 65 two by two."""
    kept = {"value": 0.5, "gpus": 1, "terms": "reserved 1 year"}
    prices = priced(cloud={"h100": {"hourly": {"value": 2, "gpus": 1}, "kept": kept}})
    market = Market(months=months(*[peak] * 12, prices=prices), lead=0)
    ((place, rent, years, count),) = market._next_reserved([0] * 12)
    assert (place, rent.gpus, years, count) == (0, 1, 1, machines)
    held = [market.months[0].needed] * 12
    assert market._next_reserved(held) == []


def test_a_month_rents_what_costs_least_for_what_is_left_over() -> None:
    """Two of ten instances are owned: eight on one machine of eight, or one by one for less."""
    prices = priced(
        cloud={"h100": {"one": {"value": 1.5, "gpus": 1}, "eight": {"value": 1.9, "gpus": 8}}}
    )
    (month,) = months(100.0, prices=prices, decay=Decay(rents=0.5))
    assert month.needed == 10
    assert month.rent(2) == (pytest.approx(8 * 730 * (1.5 + 1)), 8)
    assert month.rent(10) == month.rent(11) == (0.0, 0)
    later = replace(month, need=replace(month.need, month=12))
    assert later.rent(2) == (pytest.approx(8 * 730 * (0.75 + 1)), 8)
    assert later.reserved_usd(month.rents[0], 3) == pytest.approx(3 * 8_760 * (0.75 + 1))
    assert fallen(0.5, 6) == pytest.approx(0.5**0.5)
    nothing = months(100.0, prices=priced(cloud={"h100": "none"}))[0]
    assert nothing.rent(2) == (math.inf, 0)
    assert month.running_usd(0) == 0
    assert [month.active(count) for count in (0, 1, 2)] == [0, 8, 16]
    assert replace(month, serving=replace(SERVING, spare=1)).active(0) == 0


def test_one_answer_names_its_months_its_offers_and_what_it_rests_on() -> None:
    horizon = compared(months(40, 100, decay=Decay(systems=0.1)), growth=0.2, lead_months=0)
    assert (horizon.months, horizon.growth_per_month, horizon.lead_months) == (2, 0.2, 0)
    assert (horizon.systems_decay, horizon.rents_decay) == (0.1, None)
    assert (horizon.system, horizon.gpus_per_system, horizon.existing) == ("dgx-h100", 8, False)
    assert horizon.offers == ("hourly, 2 USD per GPU and hour",)
    paths = {figure.path for figure in horizon.figures}
    assert paths >= {"systems.dgx-h100", "depreciation_years", "hosting_usd_per_system_year"}
    assert "licence_usd_per_gpu_hour" in paths
    rented = compared(months(40, 100), where=("cloud",))
    assert "systems.dgx-h100" not in {figure.path for figure in rented.figures}


KEPT = {"value": 1, "gpus": 8, "terms": "reserved 1 year"}


def test_a_year_of_a_load_that_grows_by_every_way_and_every_figure() -> None:
    """Nine months need one system, three months two; a system costs 60,000 USD and comes a month
    after its order. Reserved for the year, a machine costs 8 · 8,760 · (1 + 1) USD, which is less
    than twelve months by the hour and more than three."""
    prices = priced(
        systems={"dgx-h100": 60_000},
        cloud={"h100": {"hourly": {"value": 2, "gpus": 8}, "kept": KEPT}},
    )
    horizon = compared(months(*[40.0] * 9, *[100.0] * 3, prices=prices), lead_months=1)
    none = (0,) * 12
    # at the peaks 4 GPUs work for nine months, and then 10
    now = HorizonWay(
        way="now",
        purchase_usd=120_000,
        running_usd=pytest.approx(22 * UPKEEP),
        rent_usd=MACHINE,
        usd_by_month=pytest.approx((120_000 + MACHINE, *(2 * UPKEEP,) * 11), rel=1e-9),
        systems=(0, *(2,) * 11),
        reserved_gpus=none,
        hourly_gpus=(8, *none[1:]),
        idle=pytest.approx((8 * 12 + 3 * 6) / (11 * 16)),
        cheaper_from=10,
        left_usd=pytest.approx(120_000 * 37 / 48),
    )
    steps = HorizonWay(
        way="steps",
        purchase_usd=120_000,
        running_usd=pytest.approx(14 * UPKEEP),
        rent_usd=MACHINE,
        usd_by_month=pytest.approx(
            (60_000 + MACHINE, *(UPKEEP,) * 7, 60_000 + UPKEEP, *(2 * UPKEEP,) * 3), rel=1e-9
        ),
        systems=(0, *(1,) * 8, *(2,) * 3),
        reserved_gpus=none,
        hourly_gpus=(8, *none[1:]),
        idle=pytest.approx((8 * 4 + 3 * 6) / (8 * 8 + 3 * 16)),
        cheaper_from=9,  # from the sixth month to the eighth too, before the second is ordered
        left_usd=pytest.approx(60_000 * (37 + 45) / 48),
    )
    hour = HorizonWay(
        way="hour",
        rent_usd=15 * MACHINE,
        usd_by_month=(*(MACHINE,) * 9, *(2 * MACHINE,) * 3),
        systems=none,
        reserved_gpus=none,
        hourly_gpus=(*(8,) * 9, *(16,) * 3),
    )
    reserved = HorizonWay(
        way="reserved",
        rent_usd=pytest.approx(140_160 + 3 * MACHINE),
        usd_by_month=pytest.approx((*(11_680,) * 9, *(11_680 + MACHINE,) * 3), rel=1e-9),
        systems=none,
        reserved_gpus=(8,) * 12,
        hourly_gpus=(*none[:9], *(8,) * 3),
        idle=pytest.approx(9 * 4 / 96),
        cheaper_from=0,
    )
    both = HorizonWay(
        way="both",
        purchase_usd=60_000,
        running_usd=pytest.approx(11 * UPKEEP),
        rent_usd=4 * MACHINE,
        usd_by_month=pytest.approx(
            (60_000 + MACHINE, *(UPKEEP,) * 8, *(UPKEEP + MACHINE,) * 3), rel=1e-9
        ),
        systems=(0, *(1,) * 11),
        reserved_gpus=none,
        hourly_gpus=(8, *none[:8], *(8,) * 3),
        idle=pytest.approx(8 * 4 / 88),
        cheaper_from=5,
        left_usd=pytest.approx(60_000 * 37 / 48),
    )
    assert horizon.ways == (now, steps, hour, reserved, both)
    assert horizon == Horizon(
        months=12,
        growth_per_month=None,
        systems_decay=None,
        rents_decay=None,
        lead_months=1,
        system="dgx-h100",
        gpus_per_system=8,
        needs=tuple(
            HorizonMonth(
                month=place,
                requests_per_second=40.0 if place < 9 else 100.0,
                systems=1 if place < 9 else 2,
                simulated=True,
            )
            for place in range(12)
        ),
        ways=horizon.ways,
        cheapest="both",
        figures=horizon.figures,
        offers=("hourly, 2 USD per GPU and hour", "kept, 1 USD per GPU and hour"),
    )
    at_once = compared(months(*[40.0] * 9, *[100.0] * 3, prices=prices))
    assert at_once.lead_months == 0
    assert [way.systems[0] for way in at_once.ways] == [2, 1, 0, 0, 1]


def test_the_prices_and_machines_of_today_hold_for_all_months() -> None:
    first, *_ = months(40.0)
    dear = priced(systems={"dgx-h100": 999_999}, depreciation_years=1)
    later = replace(
        first,
        need=replace(first.need, month=1, systems=3),
        serving=replace(SERVING, gpus_per_instance=2, gpus_per_system=4),
        prices=dear,
        decay=Decay(systems=0.9),
    )
    market = Market(months=(first, later), lead=0)
    assert market.today is first
    assert (market.highest_need, market.order_usd(0), market.order_usd(1)) == (3, 320_000, 320_000)
    assert Market(months=(later, first), lead=3).order_usd(3) == 999_999
    earlier = Market(months=(later, first), lead=3).order_usd(0)
    assert earlier == pytest.approx(999_999 * 10 ** (3 / 12))
    free = replace(first, prices=priced(systems={"dgx-h100": None}))
    assert Market(months=(free,), lead=0).order_usd(0) == 0.0


@pytest.mark.parametrize(
    ("profile", "peak", "carried", "rest"),
    [
        # twice as much is provided for as arrives: half of what is carried is of the mean
        ((10.0, 40.0), 80.0, 40.0, (0.0, 20.0)),
        ((10.0, 40.0), 40.0, 15.0, (0.0, 25.0)),
        ((10.0, 40.0), 30.0, 15.0, (0.0, 25.0)),  # a peak below the busiest hour makes no room
        ((0.0, 0.0), 8.0, 3.0, (0.0, 0.0)),
    ],
)
def test_what_is_left_of_an_hour_is_what_its_share_of_the_fleet_does_not_carry(
    profile: tuple[float, ...], peak: float, carried: float, rest: tuple[float, ...]
) -> None:
    load = Traffic(
        peak_requests_per_second=peak,
        mean_requests_per_second=7.0,
        input_tokens=3.0,
        output_tokens=4.0,
        profile=profile,
    )
    assert beyond_existing(load, carried) == replace(
        load,
        peak_requests_per_second=peak - carried,
        mean_requests_per_second=sum(rest) / len(rest),
        profile=rest,
    )
    unknown = replace(load, mean_requests_per_second=None, profile=())
    assert beyond_existing(unknown, peak + 1) == replace(unknown, peak_requests_per_second=0.0)
    flat = replace(load, profile=())
    assert beyond_existing(flat, peak / 4).mean_requests_per_second == pytest.approx(5.25)
    assert beyond_existing(flat, 2 * peak).mean_requests_per_second == 0.0


def test_a_machine_is_reserved_for_three_years_where_the_months_are_as_many() -> None:
    """At half a USD, and 1 USD of licence, for the hours of three years."""
    kept = {"value": 0.5, "gpus": 8, "terms": "reserved 3 years"}
    prices = priced(cloud={"h100": {"hourly": {"value": 2, "gpus": 8}, "kept": kept}})
    horizon = compared(months(*[40.0] * 36, prices=prices))
    assert total(horizon, "reserved") == pytest.approx(3 * 8_760 * 8 * (0.5 + 1))
    assert horizon.way("reserved").reserved_gpus == (8,) * 36  # type: ignore[union-attr]
    assert compared(months(*[40.0] * 35, prices=prices)).way("reserved") is None

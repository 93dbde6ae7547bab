"""The cost of a fleet of two kinds."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.cost.cost_cases import COURSE_PRICES, candidate
from tests.plan.candidates import plan_of
from tests.questions import SMALL, plans_with, question
from tests.sizing.fleet.two_kinds import kinds_of
from tonnage.api.sizing import answer, ask
from tonnage.cost.cost import traffic_of
from tonnage.cost.mixed import owned_usd, with_usd, year_usd
from tonnage.plan.mixed import Group, Instead, Mixed, Retirement
from tonnage.plan.plan import Plan
from tonnage.sizing.demand import demand_of
from tonnage.spec.catalog import find_system
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


H100_USD, H200_USD = 3_000 + 36_000, 400_000 / 4 + 3_000 + 36_000
"""A year of a system before electricity: upkeep alone, and with a quarter of its price."""

LIST = COURSE_PRICES.with_overrides(
    {"systems": {"dgx-h200": 400_000}, "power_usd_per_kwh": 0.2, "power_in_hosting": False}
)
KW_YEAR = 8_760 * 1.58 * 0.2
"""USD for a kW all year."""

PLAN = plan_of(demand_of(mean_rps=40.0, factor=2.5), candidate())


def group(system: str, rate: float, share: float, **counts: int) -> Group:
    gpu = {"dgx-h100": "h100-sxm-80gb", "dgx-h200": "h200-sxm-141gb"}[system]
    systems = sum(counts.values())
    of = candidate(gpu=gpu, system=system, systems=systems, rate=rate)
    return Group(
        candidate=of, system=system, share=share, weight=rate, **{"owned": 0, "added": 0, **counts}
    )


def retired(system: str, instead: str, systems: int, requests_per_second: float = 90.0) -> Any:
    return Retirement(
        system=system,
        systems=2,
        instead_system=instead,
        instead_systems=systems,
        instead_requests_per_second=requests_per_second,
    )


MIXED = Mixed(
    groups=(
        group("dgx-h100", 10.0, 0.6, owned=2),
        group("dgx-h200", 5.0, 0.4, added=3),
    ),
    instead=(
        Instead(system="dgx-h100", systems=4, gpus=32),
        Instead(system="my-box", systems=1, gpus=8),
    ),
)


def test_added_systems_and_others_in_their_place_are_owned_without_electricity() -> None:
    priced = with_usd(MIXED, PLAN, LIST)
    assert priced.usd_per_year == pytest.approx(3 * H200_USD)
    assert [one.usd_per_year for one in priced.instead] == [
        pytest.approx(4 * (80_000 + H100_USD)),
        None,
    ]
    assert replace(priced, usd_per_year=None, instead=MIXED.instead) == MIXED
    nothing = replace(MIXED, groups=MIXED.groups[:1])
    assert with_usd(nothing, PLAN, LIST).usd_per_year == 0
    unknown = LIST.with_overrides({"systems": {"dgx-h200": None}})
    assert with_usd(MIXED, PLAN, unknown).usd_per_year is None


@pytest.mark.parametrize(
    ("instead", "upkeep_usd", "instead_usd"),
    [
        # 60 requests/s at the peak, 24 on the mean: 16 instances of 10 requests/s carry them, and
        # draw 24/160 of 20.4 kW; 8 of 5 requests/s carry two thirds, and draw 16/40 of 10.2 kW
        (("dgx-h200", 1), 20.4 * 24 / 160, H200_USD + 10.2 * 16 / 40 * KW_YEAR),
        # two carry all: 24/80 of 20.4 kW
        (("dgx-h200", 2), 20.4 * 24 / 160, 2 * H200_USD + 20.4 * 24 / 80 * KW_YEAR),
        # none is added: the electricity is that of the work on one that is there
        (("dgx-h200", 0), 20.4 * 24 / 160, 10.2 * 16 / 40 * KW_YEAR),
        # a kind that runs nothing yet carries what the answer says: 24/90 of the 5.6 kW of its TDPs
        (("8xl40s", 1), 20.4 * 24 / 160, 100_000 / 4 + H100_USD + 5.04 * 24 / 90 * KW_YEAR),
    ],
)
def test_retired_systems_cost_their_upkeep_and_others_their_purchase_as_well(
    instead: tuple[str, int], upkeep_usd: float, instead_usd: float
) -> None:
    prices = LIST.with_overrides({"systems": {"8xl40s": 100_000, "dgx-h200": 400_000}})
    mixed = replace(MIXED, retirements=(retired("dgx-h100", *instead),))
    (found,) = with_usd(mixed, PLAN, prices).retirements
    assert found.upkeep_usd_per_year == pytest.approx(2 * H100_USD + upkeep_usd * KW_YEAR)
    assert found.instead_usd_per_year == pytest.approx(instead_usd)
    hosted = replace(prices, power_in_hosting=True)
    (found,) = with_usd(mixed, PLAN, hosted).retirements
    assert found.upkeep_usd_per_year == 2 * H100_USD


def test_systems_that_run_nothing_draw_nothing_and_unknown_ones_cost_nothing_known() -> None:
    idle = replace(MIXED, groups=MIXED.groups[1:])
    rows = (
        retired("dgx-h100", "dgx-h200", 1),
        retired("my-box", "dgx-h200", 1),
        retired("dgx-h100", "my-box", 1),
    )
    first, *others = with_usd(replace(idle, retirements=rows), PLAN, LIST).retirements
    assert (first.upkeep_usd_per_year, first.instead_usd_per_year) == (2 * H100_USD, H200_USD)
    assert others == list(rows[1:])
    for system in ("dgx-h100", "dgx-h200"):
        unpriced = LIST.with_overrides({"systems": {system: None}})
        assert with_usd(replace(MIXED, retirements=rows[:1]), PLAN, unpriced).retirements == (
            rows[0],
        )


def test_a_candidate_costs_what_its_systems_do_with_their_electricity() -> None:
    traffic = traffic_of(PLAN)
    old = MIXED.groups[0].candidate
    usd = 2 * (80_000 + H100_USD) + 40 / 10 * 10.2 / 8 * KW_YEAR
    assert year_usd(old, traffic, LIST) == pytest.approx(usd)
    # one of its two is spare: eight instances carry the peak of 100
    one = 2 * (80_000 + H100_USD) + 40 / 12.5 * 10.2 / 8 * KW_YEAR
    assert year_usd(old, traffic, LIST, spare=1) == pytest.approx(one)
    more = year_usd(replace(old, pools=(replace(old.pool, systems=3),)), traffic, LIST, spare=1)
    assert more == pytest.approx(usd + 80_000 + H100_USD)
    assert year_usd(old, traffic, LIST.with_overrides({"systems": {"dgx-h100": None}})) is None
    assert owned_usd(find_system("dgx-h100"), LIST) == 80_000 + H100_USD

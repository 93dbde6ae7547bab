"""What a way over the months says of itself."""

from hypothesis import given
from hypothesis import strategies as st

from tonnage.plan.document import json_of
from tonnage.plan.horizon import Horizon, HorizonWay
from tonnage.plan.notes import NoCost

WAY = HorizonWay(
    way="steps",
    purchase_usd=900.0,
    running_usd=30.0,
    rent_usd=70.0,
    usd_by_month=(370.0, 10.0, 620.0),
    systems=(0, 1, 3),
)


def test_purchases_are_the_systems_that_come_with_a_month() -> None:
    assert WAY.purchases == ((1, 1), (2, 2))
    assert HorizonWay(way="hour", systems=(0, 0)).purchases == ()


@given(st.lists(st.integers(0, 5), max_size=40))
def test_all_purchases_together_are_the_systems_at_the_end(counts: list[int]) -> None:
    systems = tuple(sum(counts[: place + 1]) for place in range(len(counts)))
    way = HorizonWay(way="steps", systems=systems)
    assert [count for _, count in way.purchases] == [count for count in counts if count]
    assert [counts[month] for month, _ in way.purchases] == [count for count in counts if count]


def test_money_adds_up_and_its_total_is_in_the_json() -> None:
    assert WAY.spent_usd == (370.0, 380.0, 1000.0)
    assert WAY.total_usd == 1000.0
    assert json_of(WAY)["total_usd"] == 1000.0


def test_a_way_without_a_price_has_no_total_and_is_not_found_by_its_name() -> None:
    unpriced = HorizonWay(way="hour", reason=NoCost(code="cloud-price", name="l40s"))
    assert unpriced.total_usd is None
    horizon = Horizon(
        months=3,
        growth_per_month=None,
        systems_decay=None,
        rents_decay=None,
        lead_months=0,
        system="dgx-h100",
        gpus_per_system=8,
        ways=(unpriced, WAY),
    )
    assert horizon.way("hour") is None
    assert horizon.way("steps") is WAY

"""Months of buying and renting, from their words to costs, each claim asked for by itself."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

import tonnage
from tests.questions import plans_with
from tonnage import api
from tonnage.api.question.horizon import Buying, buying_of, decay_of, months_of
from tonnage.cost.horizon import Decay
from tonnage.errors import InputError, InputErrors
from tonnage.plan.horizon import Horizon, HorizonWay, Purchasing
from tonnage.plan.plan import Plan
from tonnage.spec.scenario import BuyingAsked

_few_parts = plans_with()

ASKED: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "isl": 1000,
    "osl": 200,
    "gpu": "h100",
    "precision": "fp8",
    "tp": "1",
    "engine": "vllm",
    "ttft": "p95<=1s",
}
DAY = "6,5,4,3,3,5,10,20,35,45,50,50,45,48,50,48,42,35,30,26,22,18,12,8"


def months(**changed: Any) -> Horizon:
    horizon = tonnage.size(**{**ASKED, **changed}).horizon
    assert horizon is not None
    return horizon


def way(horizon: Horizon, name: Purchasing) -> HorizonWay:
    found = horizon.way(name)
    assert found is not None
    return found


@cache
def grown() -> Plan:
    return tonnage.size(
        **ASKED, peak_rps=200, growth="6%/month", horizon="24", price_decay="systems=20% rents=10%"
    )


def test_forms_of_months() -> None:
    forms = {"36": 36, "36 months": 36, "3 years": 36, "1y": 12, "12 weeks": 3, "90 days": 3}
    for text, count in forms.items():
        assert months_of(text, "lead_time") == count
    assert months_of(6, "horizon") == 6
    with pytest.raises(InputError, match="'soon' is not a time in months; write for example 6"):
        months_of("soon", "horizon")
    with pytest.raises(InputError, match="is not a number of months that are compared"):
        months_of("9" * 400 + " years", "horizon")


def test_forms_of_price_decays() -> None:
    forms: dict[str, Decay] = {
        "20%": Decay(systems=0.2, rents=0.2),
        "20%/year": Decay(systems=0.2, rents=0.2),
        "20% a year": Decay(systems=0.2, rents=0.2),
        "-5%": Decay(systems=-0.05, rents=-0.05),
        "0%": Decay(systems=0.0, rents=0.0),
        "systems=25% rents=10%": Decay(systems=0.25, rents=0.1),
        "systems=25%, rents=10%/year": Decay(systems=0.25, rents=0.1),
        "rents=10%": Decay(systems=None, rents=0.1),
        "hardware=25%": Decay(systems=0.25, rents=None),
    }
    for text, decay in forms.items():
        assert decay_of(text) == decay
    assert decay_of("1%/month").rents == pytest.approx(1 - 0.99**12)
    for text in (
        "20",
        "0.2",
        "100%",
        "fast",
        "cloud=10%",
        "rents=10% rents=20%",
        "rents=",
        "x=y=1%",
    ):
        with pytest.raises(InputError, match="write for example 20% or"):
            decay_of(text)


def test_thirty_six_months_unless_another_number_is_given() -> None:
    assert buying_of(BuyingAsked()) is None
    assert buying_of(BuyingAsked(horizon="24")) == Buying(months=24, decay=Decay())
    asked = BuyingAsked(price_decay="20%", lead_time="12 weeks")
    assert buying_of(asked) == Buying(months=36, decay=Decay(systems=0.2, rents=0.2), lead_months=3)
    for text in ("0", "121", "11 years"):
        with pytest.raises(InputError, match="write 1 to 120"):
            buying_of(BuyingAsked(horizon=text))


def test_every_fault_is_said_at_once() -> None:
    asked = BuyingAsked(horizon="soon", price_decay="20", lead_time="quick")
    with pytest.raises(InputErrors) as raised:
        buying_of(asked)
    names = ("horizon", "lead_time", "price_decay")
    assert [name in line for name, line in zip(names, raised.value.lines, strict=True)] == [
        True
    ] * 3


def test_the_systems_of_drawn_months_are_those_that_are_asked_for_by_themselves() -> None:
    horizon = grown().horizon
    assert horizon is not None
    assert [need.month for need in horizon.needs] == list(range(24))
    steps = {month for month, _ in way(horizon, "steps").purchases if month}
    drawn = random.Random(65).sample(range(24), 2)
    for month in {*drawn, min(steps), min(steps) - 1}:
        need = horizon.needs[month]
        assert need.simulated
        assert need.requests_per_second == pytest.approx(200 * 1.06**month)
        alone = tonnage.size(**ASKED, peak_rps=need.requests_per_second)
        assert alone.choice is not None
        assert alone.choice.systems == need.systems


def test_a_month_costs_a_twelfth_of_the_year_that_is_asked_for_by_itself() -> None:
    horizon = months(peak_rps=200, growth="6%/month", horizon="12", profile=DAY)
    for month in (0, 7):
        need = horizon.needs[month]
        peak = need.requests_per_second
        hours = ",".join(str(float(rate) * 1.06**month) for rate in DAY.split(","))
        alone = tonnage.size(**ASKED, peak_rps=peak, profile=hours)
        assert alone.cost is not None
        owned, rented = alone.cost.way("on-prem"), alone.cost.way("cloud")
        assert rented is not None
        assert owned is not None
        assert way(horizon, "hour").usd_by_month[month] == pytest.approx(
            (rented.total_usd_per_year or 0) / 12
        )
        assert way(horizon, "hour").hourly_gpus[month] == rented.cloud_gpus_at_peak
        bought = dict(way(horizon, "steps").purchases).get(month, 0)
        upkeep = way(horizon, "steps").usd_by_month[month] - bought * 310_000
        assert upkeep == pytest.approx(owned.opex_usd_per_year / 12, rel=1e-3)


def test_a_month_of_a_fleet_that_exists_takes_what_is_added_for_its_load() -> None:
    asked = {**ASKED, "gpu": "h200,h100", "have": "1xdgx-h100"}
    plan = tonnage.size(**asked, peak_rps=250, growth="7%/month", horizon="12")
    horizon, mixed = plan.horizon, plan.mixed
    assert horizon is not None
    assert mixed is not None
    assert horizon.existing
    assert horizon.system == mixed.buys
    bought = [need.systems for need in horizon.needs]
    assert bought == sorted(bought)
    assert bought[-1] > bought[0]
    first = next(month for month, count in enumerate(bought) if count > bought[0])
    for month in (first - 1, first):
        need = horizon.needs[month]
        alone = tonnage.size(
            **{**asked, "gpu": horizon.system.removeprefix("dgx-")},
            peak_rps=need.requests_per_second,
        )
        assert alone.mixed is not None
        assert alone.mixed.added.get(horizon.system, 0) == need.systems
    # the load that the old system carries is in no way
    assert way(horizon, "hour").hourly_gpus[0] * 30 < 250


def test_the_plan_is_read_back_and_a_question_without_months_has_none() -> None:
    plan = grown()
    document = json.loads(json.dumps(plan.to_json()))
    assert Plan.from_json(document) == plan
    assert document["horizon"]["ways"][0]["total_usd"] > 0
    plain = tonnage.size(**ASKED, peak_rps=200, growth="6%/month")
    assert plain.horizon is None
    assert "horizon" not in plain.to_json()
    assert replace(plan, horizon=None, asked=None, provenance=plain.provenance) == replace(
        plain, asked=None
    )


def test_spare_and_standby_systems_are_bought_too() -> None:
    plain = months(peak_rps=200, growth="6%/month", horizon="12")
    spare = months(peak_rps=200, growth="6%/month", horizon="12", spare=1)
    assert [need.systems for need in spare.needs] == [need.systems + 1 for need in plain.needs]
    assert way(spare, "hour").total_usd == pytest.approx(way(plain, "hour").total_usd or 0)


def test_a_load_that_falls_buys_nothing_later() -> None:
    horizon = months(peak_rps=600, growth="-5%/month", horizon="24", where="on-prem,cloud")
    needs = [need.systems for need in horizon.needs]
    assert needs == sorted(needs, reverse=True)
    assert needs[-1] < needs[0]
    assert {way.way for way in horizon.ways} == {"now", "hour"}  # buying later is buying now
    assert way(horizon, "now").purchases == ((0, needs[0]),)


def test_months_for_which_there_is_no_fleet_say_why() -> None:
    pools = months(
        peak_rps=200, have="1xdgx-h100", horizon="12", disaggregated=True, growth="5%/month"
    )
    assert pools.reason == "fleet"
    endless = months(peak_rps=200, growth="900%/month", horizon="12")
    assert endless.reason == "many"
    assert endless.ways == ()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"requests": 100_000, "within": "8h", "horizon": "36"},
            "horizon: a job is done once, and has no months to compare",
        ),
        ({"have": "1xdgx-h100", "lead_time": "3"}, "lead_time: needs today's load"),
        ({"peak_rps": 20, "horizon": "soon"}, "horizon: 'soon' is not a time in months"),
        ({"peak_rps": 20, "price_decay": "20"}, "price_decay: '20' is not a share"),
    ],
)
def test_months_of_what_has_none_are_refused(asked: dict[str, Any], message: str) -> None:
    limits = {} if "within" not in asked else {"ttft": None}
    with pytest.raises(InputErrors, match=message):
        api.ask(None, **{**ASKED, **limits, **asked})


def test_use_cases_have_no_months_together() -> None:
    cases = [{**ASKED, "peak_rps": 20, "title": name} for name in ("chat", "documents")]
    from tonnage.api.sizing import size_use_cases

    written = [
        {
            "title": case["title"],
            "model": "llama-3.1-8b",
            "lengths": {"isl": 1000, "osl": 200},
            "demand": {"peak_rps": 20},
            "buying": {"horizon": "36"},
        }
        for case in cases
    ]
    with pytest.raises(InputError, match="horizon is for one use case alone"):
        size_use_cases(written)

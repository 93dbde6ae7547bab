"""What a plan names next to a purchase of two kinds, and costs less: each asked directly."""

import json
from functools import cache
from typing import Any

import pytest

from tests.questions import plans_with
from tonnage.api.sizing import answer, ask
from tonnage.plan.plan import Plan
from tonnage.report.plans.mixed import mix_text

_few_parts = plans_with("pools_instead")

LONG_PROMPTS = {
    "model": "llama-3.1-8b",
    "gpu": "h100,h200",
    "system": "4xh100,dgx-h200",
    "precision": "fp8",
    "tp": "1",
    "engine": "vllm",
    "isl": 8000,
    "osl": 200,
    "peak_rps": 40,
    "ttft": "p95<=1s",
    "tpot": "p95<=12ms",
}
ROUND_UP = {
    **LONG_PROMPTS,
    "gpu": "h100,l40s",
    "system": None,
    "isl": 2000,
    "osl": 250,
    "peak_rps": 260,
    "tpot": "p95<=40ms",
}


@cache
def plan(**changed: Any) -> Plan:
    flags = {name: value for name, value in changed.items() if value is not None}
    return answer(ask(**flags))[0]


@pytest.mark.accuracy
def test_a_mix_is_not_praised_over_two_pools_that_cost_less() -> None:
    mixed_plan = plan(**LONG_PROMPTS, mix=True)
    assert mixed_plan.mixed is not None
    assert mixed_plan.pools_instead is not None
    compared = mixed_plan.mixed.compared
    assert compared is not None
    assert mixed_plan.mixed.groups
    assert compared.saved_usd_per_year > 0
    cheaper = compared.cheaper
    assert cheaper is not None
    assert cheaper.named == "pools_instead"
    assert cheaper.usd_per_year < compared.mix.usd_per_year
    directly = plan(**LONG_PROMPTS, disaggregated=True)
    assert directly.choice is not None
    assert cheaper.systems == {directly.choice.system: directly.choice.systems}
    assert cheaper.systems == {mixed_plan.pools_instead.system: mixed_plan.pools_instead.systems}
    way = directly.cost.way("on-prem")  # type: ignore[union-attr]
    assert way is not None
    assert cheaper.usd_per_year == pytest.approx(way.total_usd_per_year)
    assert "cheaper still" in mix_text(mixed_plan.mixed)
    assert "prefill and decode apart (Other way)" in mix_text(mixed_plan.mixed)
    assert Plan.from_json(json.loads(json.dumps(mixed_plan.to_json()))) == mixed_plan


def test_a_way_of_the_cost_that_is_below_a_mix_is_named() -> None:
    flags = {**ROUND_UP, "profile": "10,2" + 22 * ",1"}
    mixed_plan = plan(**flags, mix=True)
    assert mixed_plan.mixed is not None
    compared = mixed_plan.mixed.compared
    assert compared is not None
    assert compared.cheaper is not None
    rented = {
        way.where: way.total_usd_per_year
        for way in mixed_plan.cost.ways  # type: ignore[union-attr]
        if way.where != "on-prem" and way.total_usd_per_year is not None
    }
    least = min(rented, key=lambda where: rented[where])
    assert compared.cheaper.named == least
    assert compared.cheaper.usd_per_year == pytest.approx(rented[least])
    assert compared.cheaper.systems == {}


def test_nothing_is_named_where_a_mix_costs_least() -> None:
    flags = {**ROUND_UP, "where": "on-prem"}
    mixed = plan(**flags, mix=True).mixed
    assert mixed is not None
    assert mixed.groups
    assert mixed.compared is not None
    assert mixed.compared.cheaper is None
    assert "cheaper" not in json.dumps(plan(**flags, mix=True).to_json()["mixed"]["compared"])
    assert "cheaper still" not in mix_text(mixed)

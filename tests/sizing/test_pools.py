"""Two pools as one more deployment of the search: their split, their systems, what the plan says of
them, and both ways side by side."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from tests.sizing.pooled import contender, pooled
from tonnage.errors import InputErrors
from tonnage.plan.plan import Plan
from tonnage.simulator.first_token import PARTS
from tonnage.simulator.request import ALL_TOKENS, DECODE_SEQUENCES, PREFILL_TOKENS
from tonnage.sizing.loads.instance import QUICK
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.planner import size


@pytest.fixture(scope="module")
def plan() -> Plan:
    return size(pooled())


def test_the_plan_has_everything_that_any_other_has(plan: Plan) -> None:
    choice = plan.choice
    assert [pool.role for pool in choice.pools] == ["prefill", "decode"]
    assert (
        choice.instances == choice.fleet.instances == sum(pool.instances for pool in choice.pools)
    )
    assert {pool.systems for pool in choice.pools} == {choice.systems}
    assert choice.checked
    assert choice.confidence.meets >= 0.8
    assert choice.at_peak is not None
    assert plan.fleet_check.holds
    assert {swing.input for swing in plan.sensitivity.swings} == {"isl", "osl", "rate", "step_time"}
    assert plan.routers
    assert [point.mark for point in plan.curve if point.mark]
    assert all(
        a.requests_per_second_per_instance < b.requests_per_second_per_instance
        for a, b in pairwise(plan.curve)
    )


def test_a_plan_of_two_pools_is_read_as_it_was_written(plan: Plan) -> None:
    document = plan.to_json()
    assert Plan.from_json(document) == plan
    assert document["together_instead"]["ratio"] == ""
    assert "pools_instead" not in document
    assert document["choice"]["launch"] == document["choice"]["pools"][0]["launch"]


def test_what_is_explained_is_the_pool_that_ends_the_load(plan: Plan) -> None:
    explained = plan.explain
    assert (explained.prefill_tokens > 0) != (explained.decode_sequences > 0)
    assert sum(term.seconds for term in explained.terms) == pytest.approx(
        explained.step_seconds, rel=1e-6
    )
    limit = next(use for use in explained.limits if use.limit.name == "TTFT p95")
    assert sum(getattr(explained.ttft[1], part) for part in PARTS[:-1]) == pytest.approx(
        limit.value_ms
    )
    assert explained.ttft[1].handover_ms > 0
    one = contender(pooled(itl="p99<=9ms", ttft="p95<=10s"), Runs())
    few, many = (replace(one, split=split, whole=8) for split in ((4, 4), (7, 1)))
    computing, _, prompts = few.recorded(few.capacity(8, care=QUICK), 1_000)
    assert (computing.traffic.osl.mean, len(prompts)) == (1, 1_000)
    assert prompts[:, PREFILL_TOKENS].max() > 0
    capacity = many.capacity(8, care=QUICK)
    decoding, rate, steps = many.recorded(capacity, 1_000)
    assert rate == pytest.approx(8 * capacity.rate)
    assert decoding.traffic.osl.mean == 100
    decode = rate * capacity.summary.tpot_ms.mean / 1e3 * 99
    assert steps[0, DECODE_SEQUENCES] == pytest.approx(decode, abs=0.51)
    ranked = contender(
        pooled(model="deepseek-v3", gpu="h200", dp="8", ep="8", ttft="p95<=5s", itl="p99<=100ms"),
        Runs(),
    )
    _, _, steps = replace(ranked, split=(7, 1), whole=8).recorded(capacity, 1_000)
    assert steps[0, DECODE_SEQUENCES] == pytest.approx(decode / 8, abs=0.51), (
        "of one of eight ranks"
    )
    assert steps[0, ALL_TOKENS] == 8 * steps[0, DECODE_SEQUENCES]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"load": "closed"}, "a closed loop is not sized in two pools"),
        ({"shared_prefix": 500}, "prompts that share something are not sized in two pools"),
        ({"speculation": "eagle k=3"}, "speculative decoding is not sized in two pools"),
        ({"router": "least-kv"}, "a router of two pools counts requests"),
        (
            {"peak_rps": None, "requests": 1e6, "within": "8h", "ttft": None, "itl": None},
            "a job is not sized in two pools",
        ),
        (
            {"peak_rps": None, "profile": [1.0] * 24, "autoscale": True},
            "two pools are not scaled over hours",
        ),
        ({"spare_instances": 1}, "what stands by for failures is not sized in two pools"),
    ],
)
def test_what_is_not_sized_in_two_pools_says_what_to_change(
    changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputErrors, match=said):
        pooled(**changed)

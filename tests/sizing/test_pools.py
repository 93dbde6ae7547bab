"""Two pools as one more deployment of the search: their split, their systems, what the plan says of
them, and both ways side by side."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from tests.questions import question
from tonnage.errors import InputErrors
from tonnage.plan.plan import Plan
from tonnage.simulator.first_token import PARTS
from tonnage.simulator.request import ALL_TOKENS, DECODE_SEQUENCES, PREFILL_TOKENS
from tonnage.sizing.fleet.routers import pools_instead, together_instead
from tonnage.sizing.loads.instance import QUICK
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.loads.trial import Ready
from tonnage.sizing.planner import size
from tonnage.sizing.question import Pools, Question
from tonnage.sizing.search.deployment_capacity import Sized
from tonnage.sizing.search.disaggregated import PooledContender, contenders_of
from tonnage.sizing.search.search import Search
from tonnage.sizing.search.search_space import prepare

ASKED: dict[str, Any] = {
    "tp": "1",
    "engine": "vllm",
    "isl": 2000,
    "osl": 100,
    "peak_rps": 120,
    "router": "random",
    "ttft": "p95<=1s",
    "itl": "p99<=20ms",
}
"""Where 16 instances that do both are needed behind random choice, and eight in two pools are
enough."""


def pooled(**changed: Any) -> Question:
    return question(**{**ASKED, "disaggregated": True, **changed})


def contender(asked: Question, runs: Runs) -> PooledContender:
    (found,) = contenders_of(
        asked, [one for one in prepare(asked, runs) if isinstance(one, Ready)], runs
    )
    assert isinstance(found, PooledContender)
    return found


@pytest.mark.parametrize(
    ("split", "prefill"),
    [((1, 1), 4), ((1, 3), 2), ((3, 1), 6), ((7, 1), 7), ((1, 9), 1), ((99, 1), 7)],
)
def test_each_pool_has_an_instance_whatever_the_split(split: tuple[int, int], prefill: int) -> None:
    asked = contender(pooled(), Runs())
    divided = replace(asked, split=split)
    assert divided._prefill(8) == prefill
    assert divided._prefill(2) == 1


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


def test_no_other_split_carries_more() -> None:
    runs = Runs()
    one = contender(pooled(), runs)
    found = one.settled_on(1, one.as_asked)
    assert isinstance(found, PooledContender)
    assert sum(found.split) == 8
    carried = {
        prefill: replace(one, split=(prefill, 8 - prefill), whole=8).capacity(8, care=QUICK).rate
        for prefill in range(1, 8)
    }
    assert carried[found.split[0]] >= 0.97 * max(carried.values())


def test_a_slower_link_carries_no_more_and_comes_later() -> None:
    runs = Runs()
    fast, slow = (
        contender(replace(pooled(), pools=Pools(link_bytes_s=bytes_s)), runs)
        for bytes_s in (1e11, 4e9)
    )
    assert slow.alone().ttft_ms.mean > fast.alone().ttft_ms.mean
    assert slow.capacity(4, care=QUICK).rate <= fast.capacity(4, care=QUICK).rate * 1.01
    overlapped = contender(replace(pooled(), pools=Pools(link_bytes_s=4e9, overlap=True)), runs)
    assert overlapped.alone().ttft_ms.mean < slow.alone().ttft_ms.mean


def answered(asked: Question, runs: Runs) -> tuple[Search, Sized]:
    search = Search(question=asked, runs=runs)
    best = search.answer().best
    assert best is not None
    return search, best


def test_the_line_of_the_default_is_what_the_question_with_two_pools_is_answered_with() -> None:
    """And the other way round: one search, one memory, two questions."""
    runs = Runs()
    together, both = answered(question(**ASKED), runs)
    apart, pools = answered(pooled(), runs)
    line, back = pools_instead(together, both), together_instead(apart, pools)
    prefill, decode = (count for _, count in pools.contender.roles(pools.instances))
    assert (line.deployment, line.systems, line.gpus) == (
        pools.ready.trial.identity,
        pools.systems,
        pools.gpus,
    )
    assert (line.ratio, line.instances) == (f"{prefill}:{decode}", pools.instances)
    assert line.systems_exact == pytest.approx(pools.gpus_exact / 8)
    assert line.saved == both.gpus - pools.gpus > 0
    assert (back.deployment, back.systems, back.gpus, back.ratio) == (
        both.ready.trial.identity,
        both.systems,
        both.gpus,
        "",
    )
    assert back.saved == -line.saved


@pytest.mark.parametrize(
    "changed",
    [
        {"peak_rps": 20},  # one system, which is the least
        # nothing that pools do better
        {"itl": None, "ttft": None, "router": "least-outstanding", "peak_rps": 300},
        {"objective": "latency", "peak_rps": 60},
    ],
)
def test_the_default_is_silent_where_two_pools_save_nothing(changed: dict[str, Any]) -> None:
    search, best = answered(question(**{**ASKED, **changed}), Runs())
    found = pools_instead(search, best)
    assert found is None


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


@pytest.mark.parametrize(
    ("pools", "saves", "instances", "named"),
    [
        ((15, 0.8), True, 16, True),
        ((16, 0.8), True, 16, False),  # as many GPUs are no saving
        ((15, 0.7), True, 16, False),  # what is not as sure is no answer to the question
        ((15, 0.8), False, 16, False),
        ((15, 0.8), True, 1, False),
    ],
)
def test_two_pools_are_named_where_they_are_as_sure_and_take_fewer_gpus(
    pools: tuple[int, float],
    saves: bool,
    instances: int,
    named: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = replace(question(**ASKED), confidence=0.8)
    found = SimpleNamespace(gpus=pools[0], level=pools[1])
    best = SimpleNamespace(gpus=16, level=0.8, instances=instances)
    for name, stub in {
        "_contenders": lambda search, pools: ["contender"],
        "_saves": lambda contender, best: saves,
        "again": lambda search, pools: SimpleNamespace(best=found),
        "_told": lambda pools, best: pools,
    }.items():
        monkeypatch.setattr(f"tonnage.sizing.fleet.routers.{name}", stub)
    search = SimpleNamespace(question=asked)
    assert (pools_instead(search, best) is found) is named

"""What a router of prefixes or two pools would save."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.questions import question
from tests.sizing.pooled import ASKED, pooled
from tonnage.sizing.fleet.routers import pools_instead, together_instead
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.question import Question
from tonnage.sizing.search.deployment_capacity import Sized
from tonnage.sizing.search.search import Search


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

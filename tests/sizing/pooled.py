"""Deployments in two pools."""

from __future__ import annotations

from typing import Any

from tests.questions import question
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.loads.trial import Ready
from tonnage.sizing.question import Question
from tonnage.sizing.search.disaggregated import PooledContender, contenders_of
from tonnage.sizing.search.search_space import prepare

ASKED: dict[str, Any] = {
    "tp": "1",
    "engine": "vllm",
    "isl": 2000,
    "osl": 100,
    "peak_rps": 140,
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

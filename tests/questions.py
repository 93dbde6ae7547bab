"""Questions for the tests of the search, small enough to answer in a second."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tonnage.api.sizing import ask
from tonnage.sizing import planner
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.loads.trial import Ready
from tonnage.sizing.question import Question
from tonnage.sizing.search.deployment_capacity import Contender, Sized
from tonnage.sizing.search.search import Search
from tonnage.sizing.search.search_space import prepare

SMALL: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "gpu": "h100",
    "precision": "fp8",
    "tp": "1,2",
    "engine": "tensorrt-llm-0.15",
    "isl": 1000,
    "osl": 100,
    "peak_rps": 400,
    "ttft": "p95<=300ms",
}


def question(**changed: Any) -> Question:
    """The small question with other values; None takes one out."""
    return ask(
        **{name: value for name, value in {**SMALL, **changed}.items() if value is not None}
    ).questions[0]


def plans_with(*parts: str) -> Any:
    """A fixture for a module whose tests look at the choice of their plans and at these parts: all
    others take longer than the search."""

    @pytest.fixture(scope="module", autouse=True)
    def fixture() -> Iterator[None]:
        every = planner._parts

        def some(search: Search, best: Sized) -> planner.Parts:
            return {name: part for name, part in every(search, best).items() if name in parts}

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(planner, "_parts", some)
            yield

    return fixture


def contenders(asked: Question, runs: Runs | None = None) -> list[Contender]:
    """Every deployment of a question that fits."""
    memory = Runs(asked.slo) if runs is None else runs
    return [
        Contender(question=asked, ready=one, runs=memory)
        for one in prepare(asked, memory)
        if isinstance(one, Ready)
    ]


def contender(**changed: Any) -> Contender:
    """The first deployment of the small question with other values."""
    return contenders(question(**changed))[0]


def best(asked: Question, **how: Any) -> Sized:
    """What the search chooses, without what is said beside it."""
    found = Search(question=asked, runs=Runs(asked.slo), **{"rows": False, **how}).answer().best
    if found is None:
        raise LookupError("no deployment meets the limits")
    return found

"""What a search learned of a deployment's relatives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.questions import contenders, question
from tests.sizing.search.contenders import (
    IDENTITY,
    TPOT,
    TTFT,
    Carrying,
    asked_for,
    capacity_of,
    carrying,
    ready_of,
    sized_of,
)
from tonnage.api.question.deployment import deployment_of
from tonnage.plan.limit import SATURATION, Breach, bound_by, limit_of
from tonnage.plan.reason import Behind
from tonnage.sizing.loads.confidence import AS_PREDICTED, Slowdown
from tonnage.sizing.search.deployment_capacity import Sized
from tonnage.sizing.search.warm_start import FURTHER, _alike, expecting, most_of, shares_of


def test_relatives_of_a_deployment_share_first_the_kind_of_parallelism_then_the_engine() -> None:
    one = deployment_of(model="llama-3.1-8b", gpu="h100", precision="fp8", tp=2, engine="vllm")
    others = {
        "itself": replace(one, engine="".join(one.engine)),
        "engine": replace(one, engine="sglang"),
        "tp": replace(one, parallelism=replace(one.parallelism, tp=4)),
        "stages": replace(one, parallelism=replace(one.parallelism, tp=1, pp=2)),
        "ranks": replace(one, parallelism=replace(one.parallelism, dp=2)),
        "format": replace(one, precision=replace(one.precision, name="other")),
        "gpu": replace(one, gpu=replace(one.gpu, name="other")),
    }
    assert {name: _alike(one, other) for name, other in others.items()} == {
        "itself": (True, True, True, True, True),
        "engine": (True, False, True, True, True),
        "tp": (True, True, False, True, True),
        "stages": (False, True, False, True, True),
        "ranks": (False, True, False, True, True),
        "format": (True, True, True, False, True),
        "gpu": (True, True, True, True, False),
    }
    both, more = (
        replace(one, parallelism=replace(one.parallelism, dp=degree, pp=degree))
        for degree in (2, 3)
    )
    assert _alike(both, more)[0], "several of each"


def test_a_deployment_without_a_relative_expects_no_share() -> None:
    first = contenders(question(tp="1"))[0]
    d = first.ready.trial.deployment
    stages = replace(d, parallelism=replace(d.parallelism, pp=2))
    assert expecting(first, ((stages, 0.7),)).share == 0.0
    assert expecting(first, ((stages, 0.9), (d, 0.7))).share == 0.7


@dataclass(frozen=True, kw_only=True)
class Bounded(Carrying):
    """A deployment that closed forms allow 2 requests per second for each second of its limit."""

    def bound(self, slowdown: Any) -> float:
        return 2.0 * self.question.slo[0].seconds / slowdown.steps


def behind(metric: str, value_ms: float | None, rate: float = 3.0) -> Behind:
    limit = replace(TTFT, metric=metric)
    return Behind(
        breach=Breach(limit=limit_of(limit), value_ms=value_ms),
        requests_per_second=rate,
        per_gpu=1.0,
        other=IDENTITY,
    )


def test_the_most_that_a_deployment_carries_in_a_question_that_differs_little() -> None:
    """Its limit is 2 s, with which closed forms allow 4 requests per second."""
    contender = Bounded(question=asked_for(1.0), ready=ready_of(), runs=None)
    for binds, share in (
        (None, 0.75),
        (SATURATION, 0.75),
        (bound_by(TPOT), 0.75),
        (bound_by(replace(TPOT, metric="e2e")), 0.75),
        (bound_by(TTFT), 1.0),
    ):
        sized = Sized(
            contender=contender, level=None, systems=1, capacity=capacity_of(3.0, binds=binds)
        )
        assert most_of(contender, sized, AS_PREDICTED) == share
    assert most_of(contender, sized_of(contender, 1, 3.0), Slowdown(steps=2.0)) == 1.5
    # a limit that breaks by a half is held where limits are half as loose again: 6 by closed forms
    assert most_of(contender, behind("tpot", 3_000.0), AS_PREDICTED) == pytest.approx(0.5)
    assert most_of(contender, behind("ttft", 3_000.0), AS_PREDICTED) == pytest.approx(0.5)
    assert most_of(contender, behind("tpot", 2_400.0), AS_PREDICTED) == pytest.approx(3 / 4.8)
    assert most_of(contender, behind("e2e", 2_400.0), AS_PREDICTED) == pytest.approx(3 / 4.8)
    assert most_of(contender, behind("ttft", 2_400.0), AS_PREDICTED) == 1.0
    assert most_of(contender, behind("ttft", 2_600.0), AS_PREDICTED) == pytest.approx(3 / 5.2)
    assert most_of(contender, behind("tpot", 1_000.0), AS_PREDICTED) == pytest.approx(0.75)
    assert most_of(contender, behind("tpot", None), AS_PREDICTED) == pytest.approx(0.75)
    unknown = Breach(limit=limit_of(replace(TPOT, seconds=1e-4)), value_ms=None)
    tight = replace(behind("tpot", None), breach=unknown)
    assert most_of(contender, tight, AS_PREDICTED) == pytest.approx(0.75)
    assert FURTHER == 1.3


def test_the_share_of_a_relative_is_expected() -> None:
    contender = replace(carrying(400.0), share=0.4)
    deployment = contender.ready.trial.deployment
    deployment.engine = "engine"
    shares = shares_of([sized_of(contender, 20, 5.0)])
    assert shares == ((deployment, 0.4),)
    assert expecting(contender, shares) is contender
    assert expecting(contender, ()) is contender
    assert expecting(contender, ((deployment, 0.3), (deployment, 0.2))).share == 0.3

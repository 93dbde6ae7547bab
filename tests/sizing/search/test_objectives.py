"""What deployments compete for: the rate to beat."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.plan.candidates import candidate
from tests.questions import best, contender, question
from tests.sizing.search.contenders import (
    IDENTITY,
    Carrying,
    asked_for,
    capacity_of,
    carrying,
    early,
    ready_of,
    sized_of,
)
from tonnage.plan.limit import Breach, Limit
from tonnage.plan.plan import MOST_GPUS
from tonnage.plan.reason import Behind, NeedsMoreGpus
from tonnage.sizing.loads.confidence import AS_PREDICTED
from tonnage.sizing.loads.instance import QUICK, SURE
from tonnage.sizing.search.objectives import FewestGpus, MostLoad, ShortestAnswers
from tonnage.sizing.search.search import _used


def test_the_rate_to_beat_is_that_of_fewer_whole_systems_or_fewer_exactly() -> None:
    chosen = best(question(tp="1", peak_rps=1500))
    one, aim = contender(tp="2", peak_rps=1500), FewestGpus()
    needed = aim.rate_to_beat(one, chosen)
    fewer = aim.rate_to_save(one, chosen)
    assert fewer == pytest.approx(1500 / (4 * (chosen.systems - 1)))
    assert needed == pytest.approx(min(fewer, max(1500 / (4 * chosen.systems), 2 * chosen.rate)))
    assert aim.rate_to_save(one, replace(chosen, systems=1)) == float("inf")
    assert MostLoad(3).rate_to_beat(one, replace(chosen, systems=3)) == pytest.approx(
        24 * chosen.capacity.rate / 12
    )


def test_how_much_a_limit_breaks_counts_at_a_load_that_is_needed() -> None:
    """A deployment whose limit breaks only above what it has to carry is as near as one that meets
    it."""
    breach = Breach(limit=Limit(metric="ttft", statistic="p95", milliseconds=300.0), value_ms=600.0)
    behind = Behind(
        breach=breach, requests_per_second=10.0, per_gpu=1.0, other=candidate().identity
    )
    assert [_used(behind, needed) for needed in (5.0, 10.0, 20.0)] == [1.0, 2.0, 2.0]
    assert _used(None, 10.0) == math.inf


@pytest.mark.parametrize(
    ("gpus", "load", "bound", "key"),
    [(2, 100.0, 10.0, (24, 20.0)), (2, 80.0, 10.0, (16, 16.0)), (16, 100.0, 10.0, (160, 160.0))],
)
def test_what_a_deployment_cannot_go_below(
    gpus: int, load: float, bound: float, key: tuple[float, ...]
) -> None:
    """Whole systems of eight GPUs, and the GPUs that the load takes exactly."""
    contender = carrying(load, gpus)
    assert FewestGpus().at_best(contender, bound) == key
    instances = contender.layout.of(4).instances
    assert MostLoad(4).at_best(contender, bound) == (-bound * instances,)


def test_the_rate_that_saves_a_system_by_hand() -> None:
    """Four instances a system, or one on two systems, next to a choice on ten systems."""
    aim, chosen = FewestGpus(), sized_of(carrying(400.0), 10, 10.0)
    narrow, wide = carrying(400.0), carrying(400.0, 16)
    assert aim.rate_to_save(narrow, chosen) == pytest.approx(400 / 36)
    assert aim.rate_to_save(wide, chosen) == 100.0, "on eight systems, as nine hold no more"
    spare = carrying(400.0, question=asked_for(400.0, spare=3))
    assert aim.rate_to_save(spare, chosen) == pytest.approx(400 / 24)
    assert aim.rate_to_save(narrow, sized_of(narrow, 1, 10.0)) == math.inf
    assert aim.rate_to_save(wide, sized_of(narrow, 2, 10.0)) == math.inf
    # systems of 5 GPUs: 80 GPUs are 16, and 15 of them are fewer
    other_size = carrying(400.0, ready=ready_of(1, 5))
    assert aim.rate_to_save(other_size, chosen) == pytest.approx(400 / 75)
    odd = sized_of(carrying(400.0, ready=ready_of(1, 3)), 3, 50.0)
    assert aim.rate_to_save(narrow, odd) == 100.0
    assert aim.rate_to_beat(narrow, odd) == 100.0, "nine GPUs are no whole number of systems"


def test_the_rate_that_beats_a_choice_by_hand() -> None:
    """Fewer systems, or as many with fewer GPUs exactly: the choice takes 400 / 10.5 * 2 of its 80
    GPUs."""
    aim, chosen = FewestGpus(), sized_of(carrying(400.0), 10, 10.5)
    contender = carrying(400.0)
    assert chosen.gpus_exact == pytest.approx(400 / 10.5 * 2)
    assert aim.rate_to_beat(contender, chosen) == pytest.approx(10.5)
    assert aim.rate_to_beat(contender, sized_of(carrying(400.0), 10, 30.0)) == pytest.approx(
        400 / 36
    )
    assert aim.rate_to_beat(carrying(400.0, 4), chosen) == pytest.approx(21.0)
    spare = carrying(400.0, question=asked_for(400.0, spare=10))
    assert aim.rate_to_beat(spare, chosen) == aim.rate_to_save(spare, chosen)
    assert aim.key(chosen) == (80, chosen.gpus_exact)


def test_most_load_counts_all_instances() -> None:
    contender = carrying(400.0)
    aim = MostLoad(3)
    assert aim.key(sized_of(contender, 3, 5.0)) == (-60.0,)
    assert aim.rate_to_beat(contender, sized_of(contender, 3, 5.0)) == 5.0
    assert aim.rate_to_save(carrying(400.0, 4), sized_of(contender, 3, 5.0)) == 10.0
    assert MostLoad(1).rate_to_beat(carrying(400.0, 16), sized_of(contender, 3, 5.0)) == math.inf
    assert aim.sized(contender, AS_PREDICTED, 4.9, QUICK) == (3, capacity_of(5.0))
    assert contender.calls == [(12, QUICK)]
    assert aim.sized(contender, AS_PREDICTED, 5.0, QUICK) == early(5.0)


@dataclass(frozen=True, kw_only=True)
class Answering(Carrying):
    """A deployment whose answers take 8 s over the systems at its peak."""

    def at_peak(self, slowdown: Any = None) -> Any:
        def summary(systems: int) -> Any:
            return SimpleNamespace(
                statistic_ms=lambda *name: 8e3 / systems if name == ("e2e", "mean") else 0.0
            )

        return SimpleNamespace(seen=lambda systems: SimpleNamespace(summary=summary(systems)))


def answering(
    load: float = 400.0, gpus: int = 2, alone_s: float = 0.5, **changed: Any
) -> Answering:
    return Answering(
        question=asked_for(load, **changed), ready=ready_of(gpus, alone_e2e_s=alone_s), runs=None
    )


def test_the_shortest_answer_on_hardly_more_gpus() -> None:
    """Twenty systems are the fewest, and up to twice as many GPUs count."""
    fewest = sized_of(answering(), 20, 5.0)
    aim, most = ShortestAnswers(fewest), math.floor(MOST_GPUS * 20)
    assert aim.key(fewest) == (0.4, 160, pytest.approx(160.0))
    assert aim.at_best(answering(alone_s=0.3), 9.0) == (0.3,)
    assert aim.rate_to_beat(answering(alone_s=0.3), fewest) == 0.0
    assert aim.rate_to_beat(answering(alone_s=0.4), fewest) == math.inf
    assert aim.rate_to_beat(answering(alone_s=0.3, step_factor=1.4), fewest) == math.inf
    assert aim.rate_to_beat(answering(alone_s=0.3, step_factor=1.3), fewest) == 0.0
    assert aim.rate_to_save(answering(), fewest) == math.inf
    # with so many spare systems too few carry load, or their answers are no shorter
    for spare, rate in (
        (most - 21, 0.0),
        (most - 20, math.inf),
        (most, math.inf),
        (most + 1, math.inf),
    ):
        assert aim.rate_to_beat(answering(alone_s=0.3, spare=spare), fewest) == rate


def test_what_counts_for_the_shortest_answer() -> None:
    """What is in doubt is sized by the longest runs, and too many GPUs do not count."""
    contender = answering(70.0)
    fewest = sized_of(contender, 4, 5.0)
    aim = ShortestAnswers(fewest)
    assert aim.counted(contender, AS_PREDICTED, (4, capacity_of(4.9)), QUICK) == (
        4,
        capacity_of(4.9),
    )
    assert contender.calls == []
    doubt = (4, capacity_of(4.4))
    assert aim.counted(contender, AS_PREDICTED, doubt, SURE) == doubt
    assert aim.counted(contender, AS_PREDICTED, doubt, QUICK) == (4, capacity_of(5.0))
    assert (16, SURE) in contender.calls
    many = math.floor(MOST_GPUS * 4)
    at_most = (many, capacity_of(70 / 4 / many))
    assert aim.counted(contender, AS_PREDICTED, at_most, SURE) == at_most
    rate = 70 / 4 / (many + 1)
    reason = aim.counted(contender, AS_PREDICTED, (many + 1, capacity_of(rate)), SURE)
    assert reason == NeedsMoreGpus(
        gpus=8 * (many + 1),
        systems_exact=pytest.approx(many + 1.0),
        other=IDENTITY,
        other_gpus=32,
    )
    nothing = replace(contender, carries=lambda instances: 0.0)
    assert aim.counted(nothing, AS_PREDICTED, doubt, QUICK) == early(0.0)

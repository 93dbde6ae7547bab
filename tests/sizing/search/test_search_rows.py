"""What a search makes of its contests: the rows next to the choice, and whose fleets are simulated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sizing.search.contenders import (
    IDENTITY,
    TPOT,
    TTFT,
    asked_for,
    capacity_of,
    carrying,
    early,
    sized_of,
)
from tests.sizing.search.contests import Sure, breach, contest, sure
from tonnage.plan.reason import NeedsMoreGpus, NotSure
from tonnage.sizing.loads.instance import QUICK, SURE
from tonnage.sizing.search.deployment_capacity import Sized
from tonnage.sizing.search.objectives import FewestGpus, MostLoad, ShortestAnswers
from tonnage.sizing.search.search import (
    RECHECKED,
    Contest,
    Search,
    _not_sure,
    _outnumbered,
)
from tonnage.sizing.search.warm_start import Learned


def test_rows_that_lose_say_by_how_much() -> None:
    best = sized_of(sure(), 20, 5.0)
    more = sized_of(sure(), 25, 4.0)
    assert _outnumbered(more, best) == (
        "rejected",
        NeedsMoreGpus(gpus=200, systems_exact=pytest.approx(25.0), other=IDENTITY, other_gpus=160),
    )
    assert _not_sure(more) == (
        "rejected",
        NotSure(breach=breach(value_ms=1_500.0), step_factor=1.5),
    )


def test_whose_fleet_comes_first() -> None:
    search = contest().search
    row, rival = sized_of(sure(place=1), 20, 5.0), sized_of(sure(place=2), 21, 4.9)
    assert search._comes_first(row, [], 99)
    assert search._comes_first(row, [rival], 20)
    assert not search._comes_first(row, [rival], 22)
    assert replace(search, aim=MostLoad(3))._comes_first(row, [rival], 22)


@dataclass
class Verdicts:
    """Fleets that hold from some number of systems on, by the place of the deployment."""

    holding: dict[int, int]

    def check(self, place: int, needed: int, worth: Any) -> Any:
        least = self.holding[place]
        systems, holds = needed, needed >= least
        while not holds and systems < 4 * needed:
            systems += 1
            if not worth(systems):
                return SimpleNamespace(
                    systems=systems,
                    holds=False,
                    by_division=needed,
                    runs=[SimpleNamespace(systems=systems - 1)],
                )
            holds = systems >= least
        return SimpleNamespace(
            systems=systems,
            holds=holds,
            by_division=needed,
            runs=[SimpleNamespace(systems=systems)],
        )


@pytest.mark.parametrize(
    ("holding", "first", "systems", "failed"),
    [
        ({0: 20, 1: 22}, 0, 20, set()),
        ({0: 21, 1: 22}, 0, 21, set()),
        ({0: 30, 1: 22}, 1, 22, set()),
        ({0: 23, 1: 40}, 0, 23, set()),
        ({0: 999, 1: 999}, None, 0, {0, 1}),
        ({0: 999, 1: 22}, 1, 22, set()),
    ],
)
def test_fleets_are_simulated_until_the_first_one_holds(
    holding: dict[int, int], first: int | None, systems: int, failed: set[int]
) -> None:
    verdicts = Verdicts(holding)
    rows = [sized_of(sure(place=0), 20, 5.0), sized_of(sure(place=1), 22, 5.0)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tonnage.sizing.search.search.check", verdicts.check)
        patch.setattr("tonnage.sizing.search.search.never_holds", lambda verdict: "never")
        patch.setattr(Sure, "at_peak", lambda self, slowdown: self.ready.place)
        search = contest().search
        ranking, verdict, rejected = search._checked(rows)
        assert set(rejected) == failed
        if first is None:
            assert (ranking, verdict) == ([], None)
        else:
            assert (ranking[0].ready.place, ranking[0].systems, ranking[0].checked) == (
                first,
                systems,
                True,
            )
            assert verdict.systems == systems
        for other_search in (
            replace(search, care=QUICK),
            replace(search, aim=MostLoad(3)),
            replace(search, question=asked_for(1.0, load="closed")),
            replace(search, question=asked_for(1.0, offline=True)),
        ):
            assert other_search._checked(rows) == (rows, None, {})


def test_the_aim_is_the_fewest_gpus_unless_another_is_named() -> None:
    assert isinstance(contest().search.aim, FewestGpus)
    assert carrying(1.0).question.limits == (TTFT, TPOT)


def test_a_best_whose_fleet_took_more_gives_way_to_what_needs_fewer() -> None:
    best = sized_of(sure(place=0), 22, 5.0)
    asked = [best, sized_of(sure(place=3), 25, 4.0)]
    rows = [sized_of(sure(place=1), 21, 5.0), sized_of(sure(place=2), 22, 5.0)]
    for rivals, places in ((rows, [1, 0, 3]), (rows[1:], [])):
        with pytest.MonkeyPatch.context() as patch:

            def held(self: Contest, contenders: Any, rivals: Any = rivals) -> Any:
                assert self.outcomes == {0: best}
                assert [contender.ready.place for contender in contenders] == [1, 2]
                return rivals

            patch.setattr(Contest, "held", held)
            saving = contest().search._saving([sure(place=n) for n in range(3)], best, asked)
        assert [row.ready.place for row in saving] == places


def test_rows_of_short_runs_that_would_be_better_are_sized_in_full() -> None:
    best = sized_of(sure(place=0), 20, 5.0)
    others = [
        sized_of(sure(place=1), 19, 5.3, care=QUICK),
        sized_of(sure(place=2), 19, 5.3),
        sized_of(sure(place=3), 21, 5.0, care=QUICK),
        sized_of(sure(place=4), 18, 5.6, care=QUICK),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Contest,
            "attempt",
            lambda self, contender, best: others[0] if contender.ready.place == 1 else early(1.0),
        )
        assert contest().search._surer(others, best) == [others[0]]


def test_the_rows_next_to_the_choice_are_the_best_of_every_kind() -> None:
    """Of its own GPU type the best of every other engine and format, of others one for all."""

    def of(gpu: str, precision: str, engine: str, place: int) -> Sure:
        contender = sure(place=place)
        deployment = contender.ready.trial.deployment
        deployment.gpu, deployment.precision = (
            SimpleNamespace(name=gpu),
            SimpleNamespace(name=precision),
        )
        contender.ready.trial.identity = SimpleNamespace(engine=engine)
        return contender

    contenders = [
        of("h100", "fp8", "vllm", 0),
        of("h100", "fp8", "vllm", 1),
        of("h100", "fp16", "vllm", 2),
        of("h100", "fp8", "sglang", 3),
        of("l40s", "fp8", "vllm", 4),
        of("l40s", "fp16", "sglang", 5),
    ]
    kinds: list[list[int]] = []

    def held(self: Contest, members: Any, *, tune: bool) -> Any:
        assert (self.care, tune, self.search.rows, self.level) == (QUICK, False, False, 0.8)
        kinds.append([member.ready.place for member in members])
        self.outcomes[members[0].ready.place] = "outcome"
        return [f"best of {kinds[-1]}", "second"]

    outcomes: dict[int, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Contest, "held", held)
        rows = contest().search._best_of_others(
            contenders, sized_of(contenders[0], 20, 5.0), outcomes
        )
    assert sorted(kinds) == [[2], [3], [4, 5]]
    assert sorted(rows) == ["best of [2]", "best of [3]", "best of [4, 5]"]
    assert set(outcomes) == {2, 3, 4}


@pytest.mark.parametrize(
    ("changed", "contests"),
    [
        ({}, 1),
        ({"care": QUICK}, 0),
        ({"prune": False}, 0),
        ({"question": asked_for(1.0, drawn=False)}, 0),
    ],
)
def test_short_runs_come_first_unless_all_runs_are_as_long(
    changed: dict[str, Any], contests: int
) -> None:
    calls: list[Any] = []

    def held(self: Contest, contenders: Any, *, first: Any, tune: bool) -> Any:
        calls.append((self.care, self.level, first, tune))
        return ["row"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Contest, "held", held)
        rows = contest(**changed).search._in_short_runs([sure()], 0.5)
    assert rows == ["row"] * contests
    assert calls == [(QUICK, 0.5, None, False)] * contests


def test_short_runs_say_nothing_of_the_shortest_answers() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Contest, "held", lambda self, *_, **__: ["row"])
        aim = ShortestAnswers(sized_of(sure(), 20, 5.0))
        assert contest(aim=aim).search._in_short_runs([sure()], 0.5) == []
        assert contest(aim=MostLoad(3)).search._in_short_runs([sure()], 0.5) == ["row"]


def test_six_fleets_at_most_are_simulated_before_one_is_chosen() -> None:
    """Of eight that never hold the last two are taken as they are, unchecked."""
    verdicts = Verdicts(dict.fromkeys(range(8), 9_999))
    rows = [sized_of(sure(place=place), 2 + place, 5.0, checked=True) for place in range(8)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tonnage.sizing.search.search.check", verdicts.check)
        patch.setattr("tonnage.sizing.search.search.never_holds", lambda verdict: "never")
        patch.setattr(Sure, "at_peak", lambda self, slowdown: self.ready.place)
        ranking, verdict, failed = contest().search._checked(rows)
    assert [(row.ready.place, row.checked) for row in ranking] == [(6, False), (7, False)]
    assert (verdict, failed) == (None, dict.fromkeys(range(6), ("rejected", "never")))
    assert len(failed) == RECHECKED


def test_a_search_is_of_the_longest_runs_with_rows_and_pruned_unless_it_says_otherwise() -> None:
    search = Search(question=asked_for(1.0), runs=None)
    assert (search.workers, search.prune, search.care, search.rows) == (None, True, SURE, True)
    assert (search.seeds, search.first, search.only, search.learned) == ((), None, False, Learned())
    meeting = Contest(search=search, level=None)
    assert (meeting.care, meeting.outcomes, meeting.tuned, meeting.relief) == (SURE, {}, set(), {})
    sized = Sized(contender=sure(), level=None, systems=1, capacity=capacity_of(1.0))
    assert (sized.care, sized.checked, sure().share) == (SURE, False, 0.0)

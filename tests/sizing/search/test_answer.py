"""How a search comes from contests and checks of fleets to an answer, with both given."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sizing.search.contenders import (
    IDENTITY,
    asked_for,
    carrying,
    early,
    ready_of,
    sized_of,
)
from tonnage.plan.reason import NeedsMoreGpus, rejected
from tonnage.sizing.loads.instance import QUICK
from tonnage.sizing.loads.trial import Ready
from tonnage.sizing.search.objectives import ShortestAnswers
from tonnage.sizing.search.search import Contest, Search
from tonnage.sizing.search.warm_start import Learned


def row(place: int, systems: int = 20, **changed: Any) -> Any:
    contender = carrying(400.0, ready=ready_of(place=place))
    return sized_of(contender, systems, 5.0, **changed)


@dataclass
class Script:
    """What each part of a search answers, and how it was asked."""

    winners: dict[Any, list[Any]]
    checks: list[Any]
    saving: list[Any] = field(default_factory=list)
    others: list[Any] = field(default_factory=list)
    alone: dict[int, Any] = field(default_factory=dict)
    surer: list[Any] = field(default_factory=list)
    quick: list[Any] = field(default_factory=list)
    outcomes: dict[int, Any] = field(default_factory=dict)
    calls: list[Any] = field(default_factory=list)

    def answer(self, *, rows: bool = True, seeds: int = 0, **changed: Any) -> Any:
        """Answer a question with four deployments, and one that cannot be."""

        def held(contest: Contest, contenders: Any, *, first: Any = None, tune: bool = True) -> Any:
            places = [contender.ready.place for contender in contenders]
            self.calls.append(("contest", contest.level, places, first))
            contest.outcomes.update(self.outcomes)
            contest.relief["relief"] = 0.5
            return self.winners[contest.level]

        def checked(search: Search, ranking: list[Any]) -> Any:
            self.calls.append(("check", [sized.ready.place for sized in ranking]))
            return self.checks.pop(0)

        def saving(search: Search, remaining: Any, best: Any, asked: Any) -> Any:
            places = [contender.ready.place for contender in remaining]
            self.calls.append(("saving", places, best.ready.place, len(asked)))
            return self.saving

        def alone(search: Search, best: Any, rows_by_place: Any) -> Any:
            self.calls.append(("alone", best.ready.place, sorted(rows_by_place)))
            return self.alone

        def surer(search: Search, rows: Any, best: Any) -> Any:
            self.calls.append(("surer", sorted(sized.ready.place for sized in rows)))
            return self.surer

        ready = [
            Ready(trial=ready_of(place=place).trial, instance=None, place=place, first=None)
            for place in range(4)
        ]
        module = "tonnage.sizing.search.search"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(f"{module}.prepare", lambda question, runs: [*ready, NEVER])
            patch.setattr(f"{module}.poolable", lambda question, prepared: prepared)
            patch.setattr(
                f"{module}.contenders_of",
                lambda question, rows, runs: [
                    carrying(400.0, ready=SimpleNamespace(**vars(ready_of(place=one.place))))
                    for one in rows
                ],
            )
            patch.setattr(f"{module}._not_sure", lambda sized: ("not sure", sized.ready.place))
            patch.setattr(Contest, "held", held)
            patch.setattr(
                Contest, "most", lambda contest, remaining, quick: {"most": len(remaining)}
            )
            patch.setattr(Search, "_in_short_runs", lambda *_: self.quick)
            patch.setattr(Search, "_best_of_others", lambda *_: self.others)
            patch.setattr(Search, "_checked", checked)
            patch.setattr(Search, "_saving", saving)
            patch.setattr(Search, "_alone", alone)
            patch.setattr(Search, "_surer", surer)
            parts = {
                "question": asked_for(400.0),
                "runs": None,
                "rows": rows,
                "seeds": tuple(SimpleNamespace(place=10 + number) for number in range(seeds)),
            }
            return Search(**parts | changed)._answer()


NEVER = rejected(IDENTITY, early(9.0))
HOLDS = SimpleNamespace(systems=20, by_division=20)
MORE = SimpleNamespace(systems=22, by_division=20)


def failed(*places: int) -> dict[int, Any]:
    return {place: ("never", place) for place in places}


def test_the_first_confidence_with_a_winner_is_answered() -> None:
    best, second = row(0), row(2, 21)
    script = Script(
        winners={0.8: [], 0.5: [best, second]},
        checks=[([best, second], HOLDS, {})],
        outcomes={0: best, 1: early(1.0), 2: second, 3: row(3, 25)},
    )
    answer = script.answer(rows=False)
    assert script.calls == [
        ("contest", 0.8, [0, 1, 2, 3], None),
        ("contest", 0.5, [0, 1, 2, 3], None),
        ("check", [0, 2]),
    ]
    assert answer.found == (best, second)
    assert (answer.best, answer.check) == (best, HOLDS)
    assert answer.rejected[0] is NEVER
    assert answer.rejected[1:] == (
        ("rejected", early(1.0)),
        (
            "rejected",
            NeedsMoreGpus(
                gpus=200, systems_exact=pytest.approx(24.0), other=IDENTITY, other_gpus=160
            ),
        ),
    )
    assert len(answer.prepared) == 5
    assert answer.learned.most == {"most": 4}
    assert answer.learned.relief == {"relief": 0.5}
    assert len(answer.learned.shares) == 3


def test_without_a_winner_every_deployment_says_why() -> None:
    outcomes = {place: early(float(place)) for place in range(4)}
    script = Script(
        winners={0.8: [], 0.5: [], None: []}, checks=[([], None, {})], outcomes=outcomes
    )
    answer = script.answer()
    assert [call[1] for call in script.calls[:-1]] == [0.8, 0.5, None]
    assert (answer.found, answer.best, answer.check) == ((), None, None)
    assert answer.rejected == (NEVER, *(("rejected", outcomes[place]) for place in range(4)))
    assert answer.learned == Learned()


def test_a_deployment_whose_fleet_never_holds_is_out_and_the_others_compete_again() -> None:
    best, second = row(0), row(1, 21)
    script = Script(
        winners={0.8: [best]},
        checks=[([], None, failed(0)), ([second], HOLDS, failed(2))],
        outcomes={place: early(1.0) for place in range(4)},
    )
    answer = script.answer(rows=False, seeds=1)
    contests = [call for call in script.calls if call[0] == "contest"]
    assert contests == [
        ("contest", 0.8, [0, 1, 2, 3, 10], None),
        ("contest", 0.8, [1, 2, 3, 10], None),
    ]
    assert answer.found == (second,)
    assert answer.rejected == (NEVER, ("never", 0), ("never", 2), ("rejected", early(1.0)))


@pytest.mark.parametrize("saves", [True, False])
def test_a_winner_whose_fleet_takes_more_is_compared_again(saves: bool) -> None:
    best, rival = row(0, 22), row(1, 21)
    script = Script(
        winners={0.8: [row(0), rival]},
        checks=[([best], MORE, {}), ([rival, best], HOLDS, failed(3))],
        saving=[rival, best] if saves else [],
        outcomes={place: early(1.0) for place in range(4)},
    )
    answer = script.answer(rows=False)
    assert ("saving", [0, 1, 2, 3], 0, 2) in script.calls
    assert answer.found == ((rival, best) if saves else (best,))
    assert answer.check is (HOLDS if saves else MORE)
    assert (("never", 3) in answer.rejected) == saves
    assert (("check", [1, 0]) in script.calls) == saves


def test_rows_next_to_the_choice_are_those_of_short_runs_and_of_other_kinds() -> None:
    """A row that does not meet the limits by itself is left out; what a question for it alone
    answers replaces what short runs found."""
    best = row(0)
    script = Script(
        winners={0.8: [best]},
        checks=[([best], HOLDS, {})],
        quick=[row(1, 30), row(2, 40)],
        others=[row(3, 35), row(2, 41)],
        alone={1: row(1, 31), 2: None},
        outcomes={place: early(1.0) for place in range(4)},
    )
    answer = script.answer()
    assert script.calls[0] == ("contest", 0.8, [0, 1, 2, 3], 1), "the best of short runs first"
    assert ("alone", 0, [0, 1, 2, 3]) in script.calls
    assert ("surer", [0, 1, 2, 3]) in script.calls
    assert [(sized.ready.place, sized.systems) for sized in answer.found] == [
        (0, 20),
        (1, 31),
        (3, 35),
    ]
    assert answer.rejected == (NEVER, ("not sure", 2))
    silent = Script(
        winners={0.8: [best]},
        checks=[([best], HOLDS, {})],
        quick=[row(1, 30)],
        others=[row(3, 35)],
        outcomes={place: early(1.0) for place in range(4)},
    )
    assert silent.answer(rows=False).found == (best,)


def test_a_row_that_is_better_when_it_is_sized_in_full_is_checked_and_chosen() -> None:
    best, surer = row(0), row(1, 19)
    checked = replace(surer, checked=True)
    script = Script(
        winners={0.8: [best]},
        checks=[([best], HOLDS, {}), ([checked, best], MORE, failed(2))],
        others=[row(1, 19, care=QUICK), row(3, 35)],
        surer=[surer],
        outcomes={place: early(1.0) for place in range(4)},
    )
    answer = script.answer()
    assert script.calls[-1] == ("check", [1, 0])
    assert answer.found == (checked, best, script.others[1])
    assert answer.check is MORE
    assert answer.rejected == (NEVER, ("never", 2))


def test_the_seeds_alone_may_compete() -> None:
    best = row(10)
    script = Script(winners={0.8: [best]}, checks=[([best], None, {})])
    answer = script.answer(rows=False, seeds=2, only=True)
    assert script.calls[0] == ("contest", 0.8, [10, 11], None)
    assert (answer.found, answer.rejected, answer.prepared) == ((best,), (), ())


@pytest.mark.parametrize(("objective", "aims"), [("gpus", 1), ("latency", 2)])
def test_the_shortest_answers_are_looked_for_next_to_the_fewest_gpus(
    objective: str, aims: int
) -> None:
    searches: list[Search] = []
    best = row(0)

    def answer(search: Search) -> Any:
        searches.append(search)
        return SimpleNamespace(best=best if len(searches) == 1 else None)

    search = Search(question=asked_for(1.0, objective=objective), runs=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Search, "_answer", answer)
        search.answer()
        assert len(searches) == aims
        assert searches[0].rows == (objective == "gpus")
        if objective == "latency":
            assert searches[1].aim == ShortestAnswers(best)
            assert searches[1].rows
            search.answer()
            assert len(searches) == 4, "without a best of the fewest GPUs"
            assert not isinstance(searches[3].aim, ShortestAnswers)


@pytest.mark.parametrize(
    ("changed", "places"),
    [
        ({}, [1, 2]),
        ({"prune": False}, []),
        ({"question": asked_for(1.0, drawn=False, sharing=None)}, []),
        ({"question": asked_for(1.0, sharing=SimpleNamespace(recorded=object()))}, []),
        ({"question": asked_for(1.0, sharing=SimpleNamespace(recorded=None))}, [1, 2]),
    ],
)
def test_the_rows_of_a_first_screen_are_answered_alone(
    changed: dict[str, Any], places: list[int]
) -> None:
    """Not the choice, nor what takes four times its GPUs; what is less sure than the choice is
    none."""
    rows = {place: row(place, systems) for place, systems in ((0, 20), (1, 21), (2, 60), (3, 900))}
    calls: list[Search] = []

    def answer(search: Search) -> Any:
        calls.append(search)
        place = search.seeds[0].place
        return SimpleNamespace(best=row(place, 50, level=0.8 if place == 1 else 0.5))

    parts = {"question": asked_for(1.0, sharing=None), "runs": None, "workers": 1}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Search, "answer", answer)
        patch.setattr(
            Search,
            "_checked",
            lambda self, ranking: ([replace(ranking[0], checked=True)], None, {}),
        )
        answers = Search(**parts | changed)._alone(rows[0], rows)
    assert sorted(answers) == places
    if places:
        assert (answers[1].systems, answers[1].checked, answers[2]) == (50, False, None)
        assert {(s.rows, s.only, s.care, len(s.learned.shares)) for s in calls} == {
            (False, True, QUICK, 4)
        }

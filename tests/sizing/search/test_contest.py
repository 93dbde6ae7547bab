"""One contest of a search, by deployments whose capacities are given."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sizing.search.contenders import (
    IDENTITY,
    asked_for,
    capacity_of,
    early,
    ready_of,
    sized_of,
)
from tests.sizing.search.contests import Sure, behind, breach, contest, sure
from tonnage.plan.reason import Behind, BrokenEarly, NotSure, Outdone
from tonnage.sizing.loads.confidence import Slowdown
from tonnage.sizing.loads.instance import QUICK, SURE
from tonnage.sizing.search.objectives import MostLoad
from tonnage.sizing.search.search import (
    ALIKE,
    IN_FULL,
    LEAST,
    TUNED,
    WAVE,
    Contest,
    _used,
)
from tonnage.sizing.search.warm_start import Learned


def test_a_deployment_is_sized_or_left_out_for_a_reason() -> None:
    """Twenty systems are the best so far: another has to carry 5 to beat it, and 400 / 76 to save
    one."""
    best = sized_of(sure(), 20, 5.0, level=None)
    first = contest().attempt(sure(), None)
    assert (first.systems, first.capacity, first.level, first.care) == (
        20,
        capacity_of(5.0),
        None,
        SURE,
    )
    assert first.contender.share == 0.5
    outdone = contest().attempt(sure(most=4.9), best)
    assert outdone == Outdone(
        at_most_per_gpu=2.45, other=IDENTITY, needed_per_gpu=pytest.approx(2.5)
    )
    assert contest().attempt(sure(most=4.9), best, 2.0).systems == 20, "what is needed is given"
    hopeless = contest(aim=MostLoad(1)).attempt(sure(gpus=16), best)
    assert hopeless == Outdone(at_most_per_gpu=10 / 16, other=IDENTITY, needed_per_gpu=None)
    late = contest().attempt(sure(carries=lambda instances: 4.0), best)
    rate = late.requests_per_second
    assert rate == pytest.approx(5.0 * 0.96)
    assert late == Behind(
        breach=breach(), requests_per_second=rate, per_gpu=rate / 2, other=IDENTITY
    )
    nothing = contest().attempt(sure(carries=lambda instances: 0.0), None)
    assert nothing == early(0.0)
    assert isinstance(
        contest().attempt(sure(carries=lambda instances: 0.0), best, 0.0), BrokenEarly
    )
    on_three = contest(aim=MostLoad(3)).attempt(sure(), None)
    assert (on_three.systems, on_three.capacity) == (3, capacity_of(5.0))


def test_without_pruning_a_deployment_is_tried_at_nine_tenths_of_what_it_has_to_carry() -> None:
    best = sized_of(sure(), 20, 5.0, level=None)
    outcome = contest(prune=False).attempt(sure(carries=lambda instances: 4.6), best)
    assert outcome.systems == 22
    assert IN_FULL == 0.9
    late = contest(prune=False).attempt(sure(carries=lambda instances: 4.0, most=1.0), best)
    assert late.requests_per_second == pytest.approx(4.5 * 0.96)


def test_what_was_learned_bounds_a_deployment_with_a_margin() -> None:
    contender = sure()
    deployment = contender.ready.trial.deployment
    for most, allowed in ((0.5, 5.6), (1.0, 10.0), (0.1, 1.12)):
        learned = Learned(most={deployment: most})
        asked = contest(learned=learned)._at_most(contender, contender.as_asked)
        assert asked == pytest.approx(allowed)
    assert contest()._at_most(contender, Slowdown(steps=2.0)) == 5.0


@pytest.mark.parametrize(
    ("rate", "predicted", "reaches"),
    [(2.0, 99.0, True), (1.9, 9.0, True), (1.9, 9.6, False), (1.9, 0.0, True)],
)
def test_a_confidence_at_which_next_to_nothing_is_carried_is_not_reached(
    rate: float, predicted: float, reaches: bool
) -> None:
    """A fifth of the closed form's 10, or of what is carried as predicted."""
    assert LEAST == 0.2
    contender = sure(carries=lambda instances: predicted)
    assert contest()._reaches(contender, capacity_of(rate), 20) == reaches
    job = replace(contender, question=asked_for(400.0, offline=True))
    free = replace(contender, question=asked_for(400.0, limits=()))
    assert contest()._reaches(job, capacity_of(rate), 20)
    assert contest()._reaches(free, capacity_of(rate), 20)


def test_what_is_carried_as_predicted_is_looked_for_above_what_would_not_reach() -> None:
    """1.9 are a fifth of 9.5; of a recording more may be found than was to be exceeded, or less."""
    calls: list[Any] = []
    for found_rps, reaches in ((9.6, False), (9.4, True)):
        contender = sure()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                Sure,
                "capacity",
                lambda self, instances, rate=found_rps, **how: (
                    calls.append((instances, how)) or capacity_of(rate)
                ),
            )
            assert contest()._reaches(contender, capacity_of(1.9), 20) == reaches
    assert calls == [(80, {"above": 1.9 / LEAST, "care": QUICK})] * 2


def test_what_does_not_reach_a_confidence_says_so() -> None:
    contender = sure(carries=lambda instances: 0.4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Contest, "_reaches", lambda *_: False)
        outcome = contest(level=0.8).attempt(contender, None)
        assert outcome == NotSure(breach=breach(value_ms=1_500.0), step_factor=1.5)
        assert contest(level=None).attempt(contender, None).systems == 250
    sized = contest(level=0.8).attempt(sure(), None)
    assert (sized.level, sized.contender.share) == (0.8, pytest.approx(0.75))


def test_the_leader_and_what_is_noted_of_a_deployment() -> None:
    few, many = (sized_of(sure(place=place), systems, 5.0) for place, systems in ((1, 19), (2, 20)))
    meeting = contest(many, few)
    assert meeting._best() is few
    assert meeting._sized() == 2
    assert contest()._best() is None
    meeting._note(sure(place=2), behind())
    assert meeting.outcomes[2] is many, "what was sized is not forgotten"
    fewer = replace(many, systems=18)
    meeting._note(sure(place=2), replace(many, systems=21))
    assert meeting.outcomes[2] is many
    meeting._note(sure(place=2), fewer)
    assert meeting.outcomes[2] is fewer
    meeting._note(sure(place=3), behind())
    meeting._note(sure(place=3), early(1.0))
    assert meeting.outcomes[3] == early(1.0)


def test_a_deployment_that_reaches_its_confidence_comes_first_then_the_fewest_gpus() -> None:
    search = contest().search
    rows = {
        "unsure": sized_of(sure(place=0), 1, 5.0, level=0.5),
        "as predicted": sized_of(sure(place=1), 1, 5.0, level=None),
        "few": sized_of(sure(place=3), 20, 5.0),
        "alike": sized_of(sure(place=2), 20, 5.0),
        "surer": sized_of(sure(place=4), 19, 5.2, level=0.9),
    }
    order = sorted(rows, key=lambda name: search.key(rows[name]))
    assert order == ["surer", "alike", "few", "unsure", "as predicted"]
    assert search._levels() == [0.8, 0.5, None]
    assert replace(search, question=asked_for(1.0, confidence=0.95))._levels() == [
        0.95,
        0.8,
        0.5,
        None,
    ]
    assert search._first([sure(place=7), sure(place=8)]) is None
    assert replace(search, first=IDENTITY)._first([sure(place=7), sure(place=8)]) == 7


def test_deployments_are_tried_in_the_order_of_what_closed_forms_allow() -> None:
    weak, strong, equal = sure(place=1, most=4.0), sure(place=2, most=9.0), sure(place=3, most=9.0)
    contenders = [weak, equal, strong]
    for engine, contender in enumerate(contenders):
        contender.ready.trial.deployment.engine = engine
    order = contest()._in_order(contenders, None)
    assert [contender.ready.place for contender in order] == [2, 3, 1]
    first = contest()._in_order(contenders, 1)
    assert [contender.ready.place for contender in first] == [1, 2, 3]
    expecting = [replace(weak, share=1.0), replace(strong, share=0.3), replace(equal, share=0.5)]
    assert [contender.ready.place for contender in contest()._in_order(expecting, None)] == [
        3,
        1,
        2,
    ]


@pytest.mark.parametrize(("rows", "together"), [(True, [2, 2, 1]), (False, [1] * 5)])
def test_pairs_are_tried_side_by_side_where_rows_are_wanted(
    rows: bool, together: list[int]
) -> None:
    counts: list[int] = []
    bests: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:

        def attempt(self: Contest, contender: Any, best: Any, needed: Any = None) -> Any:
            bests.append(best)
            return behind()

        patch.setattr(Contest, "attempt", attempt)
        meeting = contest(rows=rows)
        original = Contest._sized
        patch.setattr(
            Contest, "_sized", lambda self: counts.append(len(self.outcomes)) or original(self)
        )
        contenders = [sure(place=place) for place in range(5)]
        for contender in contenders:
            contender.ready.trial.deployment.engine = contender
        assert meeting.held(contenders, tune=False) == []
    waves = [after - before for before, after in zip(counts[::2], counts[1::2], strict=True)]
    assert waves == together
    assert max(waves) == (WAVE if rows else 1)
    assert set(meeting.outcomes) == set(range(5))


@pytest.mark.parametrize("first", [None, 2])
def test_what_remains_is_put_in_order_again_where_a_deployment_was_sized(first: Any) -> None:
    """The second and the last of five are; the place that is named is tried by itself."""
    ordered: list[Any] = []
    done: list[str] = []
    with pytest.MonkeyPatch.context() as patch:

        def in_order(self: Contest, contenders: list[Any], place: Any) -> list[Any]:
            ordered.append(([contender.ready.place for contender in contenders], place))
            return sorted(contenders, key=lambda contender: contender.ready.place != place)

        def attempt(self: Contest, contender: Any, best: Any, needed: Any = None) -> Any:
            place = contender.ready.place
            return sized_of(contender, 20 + place, 5.0) if place in (1, 4) else behind()

        patch.setattr(Contest, "_in_order", in_order)
        patch.setattr(Contest, "attempt", attempt)
        tuned: list[int] = []
        patch.setattr(Contest, "tune", lambda self, contenders: tuned.append(len(contenders)))
        steps = SimpleNamespace(expect=done.append, done=done.append)
        meeting = contest(rows=first is not None, steps=steps)
        rows = meeting.held([sure(place=place) for place in range(5)], first=first)
        assert contest().held([], tune=True) == []
    assert [row.ready.place for row in rows] == [1, 4]
    assert done == [5, *["deployment"] * 5]
    assert tuned == [5]
    if first is None:
        assert ordered == [([0, 1, 2, 3, 4], None), ([2, 3, 4], None)]
    else:
        assert ordered == [([0, 1, 2, 3, 4], 2), ([3, 4], 2)]


def test_the_load_that_other_knobs_are_worth() -> None:
    best = sized_of(sure(), 20, 5.2, level=None)
    assert contest()._worth(sure()) == 0.0
    assert contest(best)._worth(sure()) == pytest.approx(400 / 76)
    assert contest(best, prune=False)._worth(sure()) == pytest.approx(5.2)


def test_what_a_deployment_cannot_exceed_with_any_knobs() -> None:
    """Hardly more than it completes when busy, measured where it was sized; by closed form else."""
    sized = sized_of(sure(busy=8.0), 20, 5.0, level=None)
    assert contest(sized)._most_rps(sized.contender) == pytest.approx(8.24)
    assert contest(sized)._most_rps(replace(sized.contender, most=8.0)) == 8.0
    left_out = contest()
    left_out.outcomes[0] = behind()
    assert left_out._most_rps(sure()) == pytest.approx(1.03 * 1.04 * 6)
    front_ends = asked_for(400.0, free_moves=("front_ends",))
    crowded = sure(question=front_ends, busy_share=0.6)
    assert left_out._most_rps(crowded) == 10.0
    assert left_out._most_rps(sure(question=front_ends, busy_share=0.5)) == pytest.approx(6.4272)
    slow = replace(left_out, level=0.8)
    assert slow._most_rps(sure()) == pytest.approx(1.03 * 1.04 * 6 / 1.5)


def test_the_deployments_whose_knobs_are_tried() -> None:
    """Six at most, that came nearest: a limit that breaks by less comes before one by more, and what
    was sized as one that is met."""
    outcomes = {
        0: sized_of(sure(place=0), 20, 5.0, level=None),
        **{place: behind(rate=1.0, value_ms=2_000.0 + 100 * (9 - place)) for place in range(1, 9)},
        9: early(1.0),
    }
    meeting = contest()
    meeting.outcomes.update(outcomes)
    contenders = [sure(place=place) for place in range(12)]
    near = [contender.ready.place for contender in meeting._near(contenders)]
    assert near == [0, 8, 7, 6, 5, 4]
    assert len(near) == TUNED
    weak = [replace(contender, most=5.0) for contender in contenders]
    assert meeting._near(weak) == [], "no knob lets them carry what would save a system"
    every = replace(meeting, search=replace(meeting.search, prune=False))
    assert [contender.ready.place for contender in every._near(weak)] == list(range(9))
    assert meeting._distance(contenders[0]) == (1.0, 0)
    assert meeting._distance(contenders[8]) == (1.05, 8)


def test_most_of_what_was_tried_is_learned_but_for_tuned_deployments() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tonnage.sizing.search.search.most_of", lambda *args: args)
        meeting = contest(sized_of(sure(place=0), 20, 5.0, level=None))
        meeting.outcomes.update({1: behind(), 2: early(1.0)})
        meeting.tuned.add(1)
        contenders = [sure(place=place) for place in range(4)]
        quick = [sized_of(sure(place=place), 21, 4.9) for place in (0, 3)]
        shares = meeting.most(contenders, quick)
        assert shares == {
            contenders[0].ready.trial.deployment: (
                contenders[0],
                meeting.outcomes[0],
                Slowdown(steps=1.0),
            ),
            contenders[3].ready.trial.deployment: (contenders[3], quick[1], Slowdown(steps=1.0)),
        }


def along(outcomes: list[Any], start: Any, **learned: Any) -> tuple[Contest, list[Any], list[int]]:
    """What is tried of three settings of a deployment, with these outcomes."""
    meeting = contest(**learned)
    calls: list[int] = []
    ways = [ready_of(place=4) for _ in outcomes]
    with pytest.MonkeyPatch.context() as patch:

        def attempt(self: Contest, contender: Any, best: Any, needed: float) -> Any:
            calls.append(next(i for i, ready in enumerate(ways) if ready is contender.ready))
            assert needed == 6.0
            return outcomes[calls[-1]]

        patch.setattr(Contest, "attempt", attempt)
        patch.setattr(Contest, "_worth", lambda self, contender: 6.0)
        meeting._along(sure(place=4), ways, start, 6.0)
    return meeting, ways, calls


def strained(times: float, metric: str = "e2e") -> Behind:
    return behind(rate=1.0, metric=metric, value_ms=2_000.0 * times)


def test_settings_further_away_are_tried_until_one_strains_the_limits_more() -> None:
    """By more than a tenth over the least that any has strained them."""
    assert ALIKE == 1.1
    assert along([strained(1.9), strained(1.6), strained(1.7)], strained(2.0))[2] == [0, 1, 2]
    assert along([strained(2.1), strained(2.19), strained(2.1)], strained(2.0))[2] == [0, 1, 2]
    assert along([strained(2.21), strained(1.0)], strained(2.0))[2] == [0]
    assert along([strained(1.5), strained(1.7), strained(1.0)], strained(2.0))[2] == [0, 1]
    sized = sized_of(sure(place=4), 20, 5.0, level=None)
    assert along([sized, strained(9.0), sized], strained(2.0))[2] == [0, 1]
    everything = along([strained(9.0), strained(9.0)], strained(2.0), prune=False)
    assert everything[2] == [0, 1]


def test_what_a_setting_does_to_an_even_limit_is_learned() -> None:
    meeting, ways, _ = along([strained(1.5), strained(1.0, "ttft")], strained(2.0))
    assert meeting.relief == {ways[0].trial.deployment: 0.75}
    assert meeting.outcomes[4] == strained(1.0, "ttft")
    assert along([strained(1.5)], strained(2.0, "ttft"))[0].relief == {}
    assert along([strained(1.0)], strained(1.0))[0].relief == {}


def test_a_setting_that_leaves_a_limit_broken_is_left_out() -> None:
    """Its relief times the strain is above the margin of 1.12."""
    ready = ready_of(place=4)
    for relief, tried in ((0.57, 0), (0.55, 1)):
        learned = Learned(relief={ready.trial.deployment: relief})
        meeting = contest(learned=learned)
        calls: list[Any] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                Contest,
                "attempt",
                lambda self, *args, calls=calls: calls.append(args) or strained(1.0),
            )
            meeting._along(sure(place=4), [ready], strained(2.0), 6.0)
        assert len(calls) == tried


@pytest.mark.parametrize(
    ("rate", "value_ms", "needed", "used"),
    [(3.0, 3_000.0, 3.0, 1.5), (3.0, 3_000.0, 2.9, 1.0), (3.0, 0.0, 3.0, math.inf)],
)
def test_how_far_a_limit_is_broken_at_a_load(
    rate: float, value_ms: float, needed: float, used: float
) -> None:
    assert _used(behind(rate, value_ms=value_ms), needed) == used
    assert _used(early(1.0), needed) == math.inf


def tuned(*, prune: bool = True, **changed: Any) -> tuple[Contest, list[Any]]:
    """The settings that are tried of two deployments next to a best one of 20 systems."""
    calls: list[Any] = []
    meeting = contest(
        sized_of(sure(place=0), 20, 5.0, level=None),
        prune=prune,
        question=asked_for(400.0, **changed),
    )
    meeting.outcomes[1] = strained(1.2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Contest, "attempt", lambda self, *args: ("start", args[0].ready.place))
        patch.setattr(
            "tonnage.sizing.search.search.variants",
            lambda contender, outcome, *, everything: [
                (contender.ready.place, outcome, everything)
            ],
        )
        patch.setattr(Contest, "_along", lambda self, *args: calls.append(args[1:]))
        meeting.tune([sure(place=place) for place in range(3)])
    return meeting, calls


def test_other_knobs_are_tried_where_these_could_save_a_system() -> None:
    meeting, calls = tuned()
    worth = pytest.approx(400 / 76)
    assert calls == [
        ((0, meeting.outcomes[0], False), ("start", 0), worth),
        ((1, meeting.outcomes[1], False), ("start", 1), worth),
    ]
    assert meeting.tuned == {0, 1}
    whole, calls = tuned(prune=False)
    assert calls == [
        ((0, whole.outcomes[0], True), None, pytest.approx(5.0)),
        ((1, whole.outcomes[1], True), None, pytest.approx(5.0)),
    ]
    for changed in ({"drawn": False}, {"tune": False}, {"free_moves": ()}):
        assert tuned(**changed)[1] == []

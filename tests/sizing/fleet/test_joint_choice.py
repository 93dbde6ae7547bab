"""A deployment for each use case: together on as few GPUs as brute force over all combinations
finds, sized one after another, and no worse for a use case more."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.plan.use_cases import UseCasePool
from tonnage.sizing.fleet.joint_choice import (
    Option,
    _Choice,
    _on_few_kinds,
    chosen_together,
    systems_by_kind,
)

GPUS = {"dgx": 8, "box": 4} | {f"kind {number}": 8 for number in range(9)}


def option(system: str, width: int, count: int, rank: int, **changed: Any) -> Option:
    pool = UseCasePool(
        gpu=system,
        precision="fp8",
        tp=width,
        engine="e",
        engine_preset="e",
        system=system,
        gpus_per_system=GPUS[system],
        knobs=None,
        instances=count,
        instances_exact=float(count),
        cases=(),
    )
    return Option(pool=pool, rank=rank, **{"sized": True} | changed)


def gpus(options: tuple[Option, ...], spare: int = 0) -> int:
    """GPUs of the whole systems."""
    kinds = systems_by_kind([option.pool for option in options])
    return sum((systems + spare) * each for _, each, systems in kinds)


def as_it_is(_: int, unsized: Option) -> Option:
    return option(
        unsized.pool.system, unsized.pool.tp, unsized.pool.instances, unsized.rank, left_out=False
    )


CASE = st.lists(
    st.tuples(st.sampled_from(["dgx", "box"]), st.sampled_from([1, 2, 4]), st.integers(1, 5)),
    min_size=1,
    max_size=4,
)


@given(st.lists(CASE, min_size=1, max_size=4), st.integers(0, 1))
@settings(max_examples=120)
def test_the_combination_is_the_best_of_all(cases: list[Any], spare: int) -> None:
    options = [[option(*one, rank) for rank, one in enumerate(case)] for case in cases]
    chosen = chosen_together(options, as_it_is, spare)
    assert len(chosen) == len(options)
    assert gpus(chosen, spare) == min(gpus(every, spare) for every in product(*options))


@given(st.lists(CASE, min_size=1, max_size=3), CASE)
@settings(max_examples=80)
def test_one_more_use_case_never_takes_fewer_gpus(cases: list[Any], more: Any) -> None:
    def fewest(drawn: list[Any]) -> int:
        options = [[option(*one, rank) for rank, one in enumerate(case)] for case in drawn]
        return gpus(chosen_together(options, as_it_is))

    assert fewest([*cases, more]) >= fewest(cases)


@given(st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=1), min_size=13, max_size=14))
@settings(max_examples=10)
def test_of_many_use_cases_the_best_that_no_single_change_improves(counts: list[Any]) -> None:
    """Two kinds for each of thirteen use cases are too many combinations to compare."""
    options = [[option("box", 4, count, 0), option("dgx", 4, count, 1)] for (count,) in counts]
    chosen = chosen_together(options, as_it_is)
    total = 4 * sum(count for (count,) in counts)
    assert total <= gpus(chosen) <= total + 7


def test_of_many_kinds_of_systems_one_that_holds_all_is_chosen() -> None:
    """Six use cases on nine kinds each, and the fifth holds all of them: 531,441 combinations."""
    options = [
        [
            option(f"kind {(place + number) % 9}", 1, 1 if (place + number) % 9 == 5 else 2, number)
            for number in range(9)
        ]
        for place in range(6)
    ]
    chosen = chosen_together(options, as_it_is)
    assert ({each.pool.system for each in chosen}, gpus(chosen)) == ({"kind 5"}, 8)


def test_what_was_not_sized_is_sized_before_it_is_chosen() -> None:
    """The division says one instance of TP 4, and a simulation two: TP 1 on four GPUs is then as
    good, and TP 2, which breaks its limit, is left out."""
    options = [
        [
            option("dgx", 4, 1, 0, sized=False),
            option("dgx", 2, 1, 1, sized=False),
            option("dgx", 1, 4, 2, sized=False),
        ],
        [option("dgx", 4, 1, 0, sized=False)],
    ]
    sized: list[tuple[int, int]] = []

    def size(place: int, unsized: Option) -> Option | None:
        width = unsized.pool.tp
        sized.append((place, width))
        if width == 2:
            return None
        return option(
            "dgx", width, 2 if (place, width) == (0, 4) else unsized.pool.instances, unsized.rank
        )

    chosen = chosen_together(options, size)
    assert [(each.pool.tp, each.pool.instances) for each in chosen] == [(1, 4), (4, 1)]
    assert sized[0] == (0, 2), "the fewest GPUs in use by what is known"


def test_what_a_plan_left_out_is_sized_only_where_it_saves_gpus() -> None:
    """One instance of eight GPUs leaves no room for the other use case; one of four, which its plan
    left out as it takes more for each request, would do."""
    wide = [option("dgx", 8, 1, 0), option("dgx", 4, 1, 1, sized=False, left_out=True)]
    sized: list[int] = []

    def size(place: int, unsized: Option) -> Option | None:
        sized.append(unsized.pool.tp)
        return as_it_is(place, unsized)

    chosen = chosen_together([wide, [option("dgx", 2, 2, 0)]], size)
    assert ([each.pool.tp for each in chosen], gpus(chosen), sized) == ([4, 2], 8, [4])
    sized.clear()
    wide[1] = option("dgx", 4, 2, 1, sized=False, left_out=True)
    chosen = chosen_together([wide, [option("dgx", 2, 2, 0)]], size)
    assert ([each.pool.tp for each in chosen], gpus(chosen), sized) == ([8, 2], 16, [])


def test_a_type_that_is_second_for_one_use_case_is_taken_where_it_fills_a_system() -> None:
    """Alone, the first is best on four GPUs of a box; next to the second it fills the eight that
    this one half leaves free."""
    first = [option("box", 4, 1, 0), option("dgx", 4, 1, 1)]
    second = [option("dgx", 4, 1, 0)]
    chosen = chosen_together([first, second], as_it_is)
    assert ([each.pool.system for each in chosen], gpus(chosen)) == (["dgx", "dgx"], 8)


@pytest.mark.parametrize(
    ("mine", "theirs", "covers"),
    [
        (("dgx", 4, 1, 1), ("dgx", 8, 1, 0), True),  # fewer GPUs
        (("dgx", 4, 2, 0), ("dgx", 8, 1, 1), True),  # as many, by what comes first
        (("dgx", 4, 2, 1), ("dgx", 8, 1, 0), False),
        (("dgx", 4, 3, 0), ("dgx", 8, 1, 1), False),
        (("dgx", 8, 1, 0), ("dgx", 4, 3, 1), False),  # a wider instance does not fit
        (("box", 4, 1, 0), ("dgx", 8, 1, 1), False),
        (("dgx", 4, 1, 0), ("dgx", 4, 1, 0), False),
        (("dgx", 3, 1, 0), ("dgx", 8, 1, 1), False),
        (("dgx", 1, 5, 0), ("dgx", 2, 3, 1), True),
    ],
)
def test_an_option_covers_another_that_it_fits_wherever(
    mine: Any, theirs: Any, covers: bool
) -> None:
    assert option(*mine).covers(option(*theirs)) == covers


def test_the_systems_of_each_kind_and_the_key_of_a_combination() -> None:
    """Two instances of four and five of one: thirteen GPUs are two of eight; three of four take
    three boxes."""
    combination = (option("dgx", 4, 2, 1), option("box", 4, 3, 0), option("dgx", 1, 5, 4))
    assert list(systems_by_kind([part.pool for part in combination])) == [
        ("dgx", 8, 2),
        ("box", 4, 3),
    ]
    choice = _Choice(options=[], size=as_it_is, spare=2)
    assert choice.key(combination) == (4 * 8 + 5 * 4, 25, 5)
    assert choice.gpus(()) == 0


def test_a_budget_ends_sizing_and_what_was_sized_is_chosen() -> None:
    """Eight deployments next to one for each use case; each of these breaks its limit by an
    instance more than is known."""
    calls: list[int] = []

    def size(place: int, unsized: Option) -> Option:
        calls.append(unsized.rank)
        return option("dgx", 1, unsized.pool.instances + 100, unsized.rank)

    options = [[option("dgx", 1, 10 + rank, rank, sized=False) for rank in range(30)]]
    (chosen,) = chosen_together(options, size)
    assert calls == list(range(9))
    assert (chosen.rank, chosen.pool.instances) == (0, 110)


def test_of_a_use_case_without_a_kind_another_kind_is_taken() -> None:
    options = [
        [option("dgx", 4, 1, 0), option("box", 2, 1, 1)],
        [option("kind 1", 1, 3, 0), option("kind 2", 1, 2, 1)],
    ]
    few = [[part.pool.system for part in combination] for combination in _on_few_kinds(options)]
    assert few[:4] == [["box", "kind 2"], ["dgx", "kind 2"], ["box", "kind 1"], ["box", "kind 2"]]
    assert len(few) == 4 + 6 + 4

"""Instances on shared systems: never more systems than brute force takes, every instance placed
once, and one more never on fewer systems."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.sizing.fleet.placement import (
    Instances,
    _as_packed,
    _by_width,
    _exact,
    _fillings,
    _first_fit,
    _lost,
    _packed,
    _remaining,
    _spread,
    _takes_room,
    fewest_systems,
    placed,
)


def of(*pools: tuple[int, int]) -> list[Instances]:
    """Pools as (count, width)."""
    return [Instances(count=count, width=width) for count, width in pools]


def by_brute_force(pools: list[Instances], gpus: int) -> int:
    """The fewest systems, by every way to put one instance after another into a system."""
    widths = sorted((pool.width for pool in pools for _ in range(pool.count)), reverse=True)
    best = len(widths)

    def put(place: int, free: tuple[int, ...]) -> None:
        nonlocal best
        if place == len(widths):
            best = min(best, len(free))
            return
        width = widths[place]
        for room in {room for room in free if room >= width}:
            at = free.index(room)
            put(place + 1, (*free[:at], room - width, *free[at + 1 :]))
        if len(free) + 1 < best:
            put(place + 1, (*free, gpus - width))

    put(0, ())
    return best


DRAWN = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 8)), min_size=1, max_size=4).filter(
    lambda pools: sum(count for count, _ in pools) <= 9
)


@given(DRAWN, st.sampled_from([8, 9, 12]))
@settings(max_examples=150)
def test_no_more_systems_than_brute_force_takes_and_no_fewer_than_the_gpus_need(
    pools: list[tuple[int, int]], gpus: int
) -> None:
    systems = fewest_systems(of(*pools), gpus)
    assert systems == by_brute_force(of(*pools), gpus)
    assert systems >= math.ceil(sum(count * width for count, width in pools) / gpus)


@given(DRAWN, st.integers(0, 2), st.sampled_from([4, 8, 9]))
@settings(max_examples=150)
def test_every_instance_is_placed_once_inside_its_system(
    pools: list[tuple[int, int]], standby: int, gpus: int
) -> None:
    """Those wider than a system take whole ones; standby systems hold nothing."""
    systems = fewest_systems(of(*pools), gpus) + standby
    parts, lost = placed(of(*pools), "s", gpus, systems)
    assert sum(part.systems for part in parts) == systems
    assert [part.first for part in parts] == [
        1 + sum(before.systems for before in parts[:place]) for place in range(len(parts))
    ]
    for place, (count, width) in enumerate(pools):
        held = [part.instances[place] * part.systems // part.spans for part in parts]
        assert sum(held) == count
        assert lost.without_gpus[place] <= lost.instances[place] <= count
        assert all(part.spans == math.ceil(width / gpus) for part in parts if part.instances[place])
    for part in parts:
        in_use = sum(here * width for here, (_, width) in zip(part.instances, pools, strict=True))
        assert in_use + part.free_gpus == gpus * part.spans
    if standby:
        assert not any(parts[-1].instances)


@given(DRAWN, st.tuples(st.integers(1, 3), st.integers(1, 8)))
@settings(max_examples=100)
def test_one_more_model_never_takes_fewer_systems_and_one_without_load_none(
    pools: list[tuple[int, int]], more: tuple[int, int]
) -> None:
    systems = fewest_systems(of(*pools), 8)
    assert fewest_systems(of(*pools, more), 8) >= systems
    assert fewest_systems(of(*pools, (0, more[1])), 8) == systems
    assert fewest_systems(of(*reversed(pools)), 8) == systems


@pytest.mark.parametrize(
    ("pools", "gpus", "systems"),
    [
        (((9, 1),), 8, 2),
        (((3, 4),), 8, 2),
        (((1, 8), (1, 2), (1, 1)), 8, 2),
        (((1, 16), (1, 1)), 8, 3),
        (((4, 2),), 8, 1),
        (((1, 4), (4, 1)), 8, 1),
        # first-fit decreasing takes three: 4 + 3, 3 + 2 + 2, 2; but 4 + 2 + 2 and 3 + 3 + 2 are two
        (((1, 4), (2, 3), (3, 2)), 8, 2),
        (((30_000, 1), (300, 4)), 8, 3_900),
    ],
)
def test_instances_are_packed_on_whole_systems(
    pools: tuple[tuple[int, int], ...], gpus: int, systems: int
) -> None:
    assert fewest_systems(of(*pools), gpus) == systems


def test_a_pool_is_spread_so_that_a_lost_system_takes_as_little_of_it_as_possible() -> None:
    parts, lost = placed(of((2, 4), (4, 1)), "s", 8, 2)
    assert [(part.systems, part.instances, part.free_gpus) for part in parts] == [(2, (1, 2), 2)]
    assert lost.instances == (1, 2)
    assert lost.without_gpus == (1, 0), "two of TP 1 find the two free GPUs, one of TP 4 none"
    _, lost = placed(of((2, 4), (4, 1)), "s", 8, 3)
    assert lost.without_gpus == (0, 0), "a system on standby takes all of them"


def test_an_instance_on_two_systems_needs_two_others_when_one_is_lost() -> None:
    parts, lost = placed(of((1, 16), (1, 1)), "s", 8, 4)
    assert [(part.systems, part.spans, part.instances) for part in parts] == [
        (1, 1, (0, 1)),
        (2, 2, (1, 0)),
        (1, 1, (0, 0)),
    ]
    assert lost.without_gpus == (0, 0), "one on standby, and the one that remains of its two"
    _, lost = placed(of((1, 16), (1, 1)), "s", 8, 3)
    assert lost.without_gpus == (1, 1), "either of the two takes all free systems"


@pytest.mark.parametrize(
    ("pools", "systems", "expected", "instances", "without"),
    [
        # one pool of four: two on each of two systems, and one on standby takes what is lost
        (((4, 4),), 3, [(1, 2, (2,), 0, 1), (3, 1, (0,), 8, 1)], (2,), (0,)),
        (((3, 4),), 2, [(1, 1, (2,), 0, 1), (2, 1, (1,), 4, 1)], (2,), (1,)),
        (
            ((1, 24), (2, 3)),
            4,
            [(1, 1, (0, 2), 2, 1), (2, 3, (1, 0), 0, 3)],
            (1, 2),
            (1, 2),
        ),
        (
            ((2, 12), (1, 8)),
            5,
            [(1, 1, (0, 1), 0, 1), (2, 4, (1, 0), 4, 2)],
            (1, 1),
            (1, 1),
        ),
        (((5, 1), (1, 8)), 2, [(1, 1, (5, 0), 3, 1), (2, 1, (0, 1), 0, 1)], (5, 1), (5, 1)),
    ],
)
def test_a_placement_by_hand(
    pools: Any, systems: int, expected: Any, instances: Any, without: Any
) -> None:
    """First system, systems, instances, free GPUs and the systems of an instance of each part."""
    parts, lost = placed(of(*pools), "s", 8, systems)
    assert [
        (part.first, part.systems, part.instances, part.free_gpus, part.spans) for part in parts
    ] == expected
    assert {part.system for part in parts} == {"s"}
    assert (lost.instances, lost.without_gpus) == (instances, without)


def test_first_fit_fills_the_first_system_with_room() -> None:
    assert _first_fit((4, 3, 1), (3, 2, 5), 8) == [(2, 0, 0), (1, 1, 1), (0, 1, 4)]
    assert _first_fit((8, 5), (1, 2), 8) == [(1, 0), (0, 1), (0, 1)]


def test_a_search_of_every_filling_takes_fewer_systems_than_first_fit() -> None:
    widths, counts = (4, 3, 2), (1, 2, 3)
    assert len(_first_fit(widths, counts, 8)) == 3
    exact = _exact(widths, counts, 8)
    assert len(exact) == 2
    assert [sum(column) for column in zip(*exact, strict=True)] == list(counts)
    assert sorted(_fillings(widths, counts, 8, 0)) == [(1, 0, 2), (1, 1, 0)]
    assert sorted(_fillings(widths, (0, 2, 3), 8, 1)) == [(0, 1, 2), (0, 2, 1)]


@pytest.mark.parametrize(
    ("free", "width", "taken", "remains"),
    [
        ([3, 8], 4, True, [3, 4]),
        ([3, 3], 4, False, [3, 3]),
        ([8, 5, 8], 16, True, [0, 5, 0]),
        ([8, 8, 8], 12, True, [0, 0, 8]),
        ([8, 7], 9, False, [8, 7]),
        ([8], 8, True, [0]),
    ],
)
def test_room_for_an_instance(free: list[int], width: int, taken: bool, remains: list[int]) -> None:
    assert _takes_room(free, width, 8) == taken
    assert free == remains


@pytest.mark.parametrize(
    ("pools", "contents"),
    [
        # by the exact search 4 + 2 + 2 and 3 + 3 + 2, of the twos one pool's and two of another's
        (((1, 4), (2, 3), (1, 2), (2, 2)), [(1, 0, 1, 1), (0, 2, 0, 1)]),
        (((2, 4), (2, 4)), [(1, 1), (1, 1)]),  # each on both
        (((1, 4), (3, 4)), [(1, 1), (0, 2)]),  # the first system is full
        (((3, 4), (1, 16)), [(2, 0), (1, 0)]),  # what is wider than a system is not among them
        (((5, 2), (0, 2)), [(4, 0), (1, 0)]),  # as packed
        ((), []),
    ],
)
def test_the_fewest_systems_share_the_instances_of_a_width(pools: Any, contents: Any) -> None:
    assert _as_packed(of(*pools), 8) == contents


@pytest.mark.parametrize(
    ("pools", "systems", "contents"),
    [
        (((2, 4), (4, 1)), 2, [(1, 2), (1, 2)]),
        # of one width the pool of fewer first; then where fewest of the pool are, and most room
        (((3, 2), (1, 2)), 2, [(1, 1), (2, 0)]),
        (((1, 2), (3, 2)), 2, [(1, 1), (0, 2)]),
        (((2, 1), (1, 4), (1, 6)), 3, [(0, 0, 1), (1, 1, 0), (1, 0, 0)]),
        (((0, 4), (1, 8)), 1, [(0, 1)]),
        (((1, 4), (2, 3), (3, 2)), 2, []),  # 4 + 3 and 3 + 2 + 2 leave no room for the last
        (((3, 4),), 1, []),
        (((1, 8),), 0, []),
    ],
)
def test_a_pool_goes_where_fewest_of_it_and_most_room_is(
    pools: Any, systems: int, contents: Any
) -> None:
    assert _spread(of(*pools), 8, systems) == contents


def test_what_no_spreading_holds_is_placed_as_it_was_packed() -> None:
    parts, lost = placed(of((1, 4), (2, 3), (3, 2)), "s", 8, 3)
    assert [(part.first, part.systems, part.instances, part.free_gpus) for part in parts] == [
        (1, 1, (1, 0, 2), 0),
        (2, 1, (0, 2, 1), 0),
        (3, 1, (0, 0, 0), 8),
    ]
    assert (lost.instances, lost.without_gpus) == ((1, 2, 2), (0, 0, 0))
    _, lost = placed(of((1, 4), (2, 3), (3, 2)), "s", 8, 2)
    assert lost.without_gpus == (1, 2, 2)


def test_widths_and_what_an_exact_search_is_worth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty-four states of one four, two threes and three twos, where first fit takes one more."""
    by_width = _by_width(of((3, 2), (1, 16), (1, 4), (2, 3), (0, 8), (2, 2)), 8)
    assert by_width == ((8, 0), (4, 1), (3, 2), (2, 5))
    odd = ((4, 1), (3, 2), (2, 3))
    for states, systems in ((24, 2), (23, 3)):
        monkeypatch.setattr("tonnage.sizing.fleet.placement.MOST_STATES", states)
        assert len(_packed(odd, 8)) == systems
    assert _packed((), 8) == []
    monkeypatch.setattr("tonnage.sizing.fleet.placement._exact", lambda *what: ["searched"])
    monkeypatch.setattr("tonnage.sizing.fleet.placement.MOST_STATES", 24)
    assert _packed(odd, 8) == ["searched"]
    assert _packed(((4, 1), (3, 1)), 8) == [(1, 1)]  # as few as the GPUs need
    assert _packed(((4, 3), (2, 1), (1, 1)), 7) == [(1, 1, 1), (1, 0, 0), (1, 0, 0)]
    assert _packed(((5, 2), (3, 1), (2, 1)), 9) == [(1, 1, 0), (1, 0, 1)]
    assert _packed(((5, 3), (2, 1)), 9) == ["searched"]


def test_what_remains_where_a_system_is_lost() -> None:
    parts, lost = placed(of((1, 24), (2, 8), (3, 4)), "s", 8, 8)
    eight, four, single, wide, standby = parts
    assert [(part.systems, part.spans) for part in parts] == [
        (2, 1),
        (1, 1),
        (1, 1),
        (3, 3),
        (1, 1),
    ]
    assert [_remaining(part, eight) for part in parts] == [1, 1, 1, 0, 1]
    assert [_remaining(part, wide) for part in parts] == [2, 1, 1, 2, 1]
    assert [_remaining(part, standby) for part in parts][-1] == 0
    assert (four.free_gpus, single.free_gpus) == (0, 4)
    assert lost == _lost(of((1, 24), (2, 8), (3, 4)), parts, 8)
    assert (lost.instances, lost.without_gpus) == ((1, 1, 2), (0, 0, 0))

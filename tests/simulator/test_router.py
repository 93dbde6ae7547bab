"""Routers: which instance gets a request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulator.fleets import requests
from tonnage.simulator.router import (
    NO_INSTANCE,
    ROUTERS,
    Memory,
    View,
    folded,
    memory_of,
    mixed,
    nth_available,
)
from tonnage.simulator.router import Request as Asked
from tonnage.simulator.router import draw as drawn

Router = Callable[[View, Asked, Memory], int]
NAMES = sorted(ROUTERS)


@st.composite
def views(draw: st.DrawFn) -> View:
    n = draw(st.integers(1, 9))

    def each(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=n, max_size=n))

    return View(
        available=each(st.integers(0, 1)),
        requests=each(st.integers(0, 200)),
        tokens=each(st.integers(0, 10**6)),
        kv_used=each(st.floats(0, 1)),
        matched=each(st.integers(0, 4000)),
        weight=each(st.sampled_from([0.5, 1.0, 2.0, 5.0])),
    )


def idle(n: int, *, weight: list[float] | None = None) -> View:
    return View([1] * n, [0] * n, [0] * n, [0.0] * n, [0] * n, weight or [1.0] * n)


@pytest.mark.parametrize("name", NAMES)
@given(view=views(), request_=requests(), seed=st.integers(0, 2**31))
def test_only_available_instances_are_chosen_and_one_always_is(
    name: str, view: View, request_: Asked, seed: int
) -> None:
    chosen = ROUTERS[name](view, request_, memory_of(len(view.available), seed))
    if any(view.available):
        assert view.available[chosen]
    else:
        assert chosen == NO_INSTANCE


def chosen(router: Router, view: View, count: int, seed: int = 0) -> Counter[int]:
    memory = memory_of(len(view.available), seed)
    return Counter(router(view, Asked(i, -1, 100), memory) for i in range(count))


@pytest.mark.parametrize(
    "name", ["round-robin", "least-outstanding", "least-tokens", "least-kv", "prefix-aware"]
)
def test_equals_take_turns(name: str) -> None:
    assert chosen(ROUTERS[name], idle(7), 700) == dict.fromkeys(range(7), 100)


def test_weights_are_kept_exactly_and_smoothly() -> None:
    view, memory = idle(3, weight=[5.0, 1.0, 1.0]), memory_of(3)
    order = [ROUTERS["weighted"](view, Asked(i, -1, 1), memory) for i in range(7)]
    assert order == [0, 0, 1, 0, 2, 0, 0]


@given(
    sessions=st.lists(st.integers(0, 10**9), min_size=1, max_size=60, unique=True),
    gone=st.integers(0, 4),
)
def test_a_session_stays_and_moves_only_when_its_instance_goes(
    sessions: list[int], gone: int
) -> None:
    view, memory = idle(5), memory_of(5)
    smaller = view._replace(available=[int(i != gone) for i in range(5)])
    for s in sessions:
        first = ROUTERS["session"](view, Asked(0, s, 1), memory)
        assert first == ROUTERS["session"](view, Asked(99, s, 1), memory)
        after = ROUTERS["session"](smaller, Asked(1, s, 1), memory)
        assert (after == first) == (first != gone)


def test_prefixes_decide_until_the_load_is_out_of_balance() -> None:
    view = idle(3)._replace(matched=[0, 900, 100])
    assert ROUTERS["prefix-aware"](view, Asked(0, -1, 1_000), memory_of(3)) == 1
    assert ROUTERS["prefix-aware"](view, Asked(0, -1, 2_000), memory_of(3)) == 0
    full = view._replace(requests=[0, 40, 1])
    assert ROUTERS["prefix-aware"](full, Asked(0, -1, 1_000), memory_of(3)) == 0
    # 40 more are out of balance beside 100, and in balance beside 401: 1.1 times as many
    for fewest, chosen in ((100, 2), (399, 2), (401, 1)):
        busy = view._replace(requests=[fewest + 1, fewest + 40, fewest])
        assert ROUTERS["prefix-aware"](busy, Asked(0, -1, 1_000), memory_of(3)) == chosen


def test_a_number_chooses_among_the_instances_that_are_there() -> None:
    view = idle(5)._replace(available=[0, 1, 0, 1, 1])
    assert [nth_available(view, number) for number in range(7)] == [1, 3, 4, 1, 3, 4, 1]
    assert nth_available(view._replace(available=[0] * 5), 3) == NO_INSTANCE


def test_where_both_draws_are_one_instance_the_second_is_the_next_that_is_there() -> None:
    view, memory = idle(5)._replace(available=[0, 1, 0, 1, 1]), memory_of(5)
    firsts = set()
    for number in range(60):
        first, second = (
            nth_available(view, drawn(memory.seed[0], number, place)) for place in (0, 1)
        )
        if first == second:
            following = {1: 3, 3: 4, 4: 1}[first]
            requests = [4 if place == following else 5 for place in range(5)]
            busy = view._replace(requests=requests)
            assert ROUTERS["power-of-two"](busy, Asked(number, -1, 1), memory) == following
            firsts.add(first)
    assert firsts == {1, 3, 4}


def test_a_faster_instance_holds_more_requests() -> None:
    view = idle(2, weight=[4.0, 1.0])._replace(requests=[3, 1])
    assert ROUTERS["least-outstanding"](view, Asked(0, -1, 1), memory_of(2)) == 0
    assert ROUTERS["power-of-two"](view, Asked(0, -1, 1), memory_of(2)) == 0


def test_a_busy_instance_counts_one_more_as_in_leastconn() -> None:
    """HAProxy's key is (requests + 1) / weight, and 0 where there are none."""
    memory = memory_of(2)
    slow = idle(2, weight=[40.0, 1.0])
    for counts, chosen in (([39, 0], 1), ([41, 1], 0), ([78, 1], 0), ([80, 1], 1)):
        view = slow._replace(requests=counts)
        assert ROUTERS["least-outstanding"](view, Asked(0, -1, 1), memory) == chosen


def test_draws_stay_what_they_are() -> None:
    """A plan that is simulated again with its seed sends each request to the same instance."""
    assert (mixed(0), mixed(1), mixed(2**32 + 1)) == (0, 548242383, 548242383)
    assert drawn(0, 0, 0) == mixed(mixed(mixed(0x9E3779B9)))
    assert drawn(3, 2**32, 5) == drawn(3, 0, 5)
    assert len({drawn(0, number, which) for number in range(50) for which in range(2)}) == 100


@given(view=views(), number=st.integers(0, 10**6), seed=st.integers(-(2**63), 2**63 - 1))
def test_what_is_drawn_is_one_of_those_that_are_there(view: View, number: int, seed: int) -> None:
    """The random router, the two choices, and sessions, over lists of the instances that are
    available."""
    there = [place for place, available in enumerate(view.available) if available]
    memory = memory_of(len(view.available), seed)
    if not there:
        return
    first, second = (there[drawn(seed, number, i) % len(there)] for i in (0, 1))
    if first == second:
        second = there[(there.index(first) + 1) % len(there)]
    assert ROUTERS["random"](view, Asked(number, -1, 1), memory) == first
    loads = [view.requests[place] / view.weight[place] for place in (first, second)]
    assert ROUTERS["power-of-two"](view, Asked(number, -1, 1), memory) == (
        second if loads[1] < loads[0] else first
    )
    assert ROUTERS["session"](view, Asked(0, number, 1), memory) == max(
        there, key=lambda place: drawn(seed, number, place)
    )


@given(view=views(), last=st.integers(0, 8))
def test_turns_and_shares_over_those_that_are_there(view: View, last: int) -> None:
    """Round robin goes to the next, the least loaded to the first of the least in that order."""
    count = len(view.available)
    order = [(last + step) % count for step in range(1, count + 1)]
    there = [place for place in order if view.available[place]]
    if not there:
        return

    def goes_to(router: str) -> tuple[int, int]:
        memory = memory_of(count)._replace(last=[last % count])
        return ROUTERS[router](view, Asked(0, -1, 1), memory), memory.last[0]

    assert goes_to("round-robin") == (there[0], there[0])
    for router, loads in (("least-outstanding", view.requests), ("least-tokens", view.tokens)):
        place = min(there, key=lambda i: (loads[i] + (loads[i] > 0)) / view.weight[i])
        assert goes_to(router) == (place, place)
    place = min(there, key=lambda i: (view.kv_used[i], view.requests[i]))
    assert goes_to("least-kv") == (place, place)


def test_half_of_a_prompt_decides_and_of_equals_who_has_fewer_requests() -> None:
    router = ROUTERS["prefix-aware"]
    for matched, place in ((500, 1), (499, 0)):
        view = idle(3)._replace(matched=[0, matched, 100])
        assert router(view, Asked(0, -1, 1_000), memory_of(3)) == place
    view = idle(3)._replace(matched=[900, 900, 900], requests=[3, 2, 2])
    assert router(view, Asked(0, -1, 1_000), memory_of(3)) == 1
    # 32 more are not too many
    for requests_, place in (([32, 0, 0], 0), ([33, 0, 0], 1), ([35, 3, 2], 1)):
        view = idle(3)._replace(matched=[900, 0, 0], requests=requests_)
        expected = place if requests_[2] != 2 else 2
        assert router(view, Asked(0, -1, 1_000), memory_of(3)) == expected


@pytest.mark.parametrize(
    ("seed", "bits"),
    [(0, 0), (7, 7), (-1, -1), (2**63 - 1, 2**63 - 1), (2**63, -(2**63)), (2**64 + 5, 5)],
)
def test_a_seed_of_any_size_has_64_bits(seed: int, bits: int) -> None:
    assert folded(seed) == bits
    assert memory_of(3, seed) == Memory(last=[2], credit=[0.0] * 3, seed=[bits])

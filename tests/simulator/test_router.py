"""Routers choose among the available, spread as their names promise, and say the same in Python and compiled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import examples
from tonnage.simulator.router import NO_INSTANCE, ROUTERS, Memory, Request, View, memory_of

Router = Callable[[View, Request, Memory], int]
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


def requests() -> st.SearchStrategy[Request]:
    return st.builds(Request, number=st.integers(0, 10**7), session=st.integers(-1, 10**6), isl=st.integers(1, 4000))


def idle(n: int, *, weight: list[float] | None = None) -> View:
    return View([1] * n, [0] * n, [0] * n, [0.0] * n, [0] * n, weight or [1.0] * n)


@pytest.mark.parametrize("name", NAMES)
@given(view=views(), request_=requests(), seed=st.integers(0, 2**31))
def test_only_available_instances_are_chosen_and_one_always_is(name: str, view: View, request_: Request, seed: int) -> None:
    chosen = ROUTERS[name](view, request_, memory_of(len(view.available), seed))
    if any(view.available):
        assert view.available[chosen]
    else:
        assert chosen == NO_INSTANCE


@given(seed=st.integers(-(2**70), 2**70) | st.sampled_from([2**63 - 1, 2**63, -(2**63) - 1]))
def test_a_seed_of_any_size_is_one_of_64_bits(seed: int) -> None:
    (found,) = memory_of(1, seed).seed
    assert -(2**63) <= found < 2**63
    assert (found - seed) % 2**64 == 0


@pytest.mark.parametrize("name", NAMES)
@examples(0.4)
@given(asked=st.lists(st.tuples(views(), requests()), min_size=1, max_size=12))
def test_lists_and_arrays_give_the_same_choices(name: str, asked: list[tuple[View, Request]]) -> None:
    size = min(len(view.available) for view, _ in asked)
    plain, other = memory_of(size, 7), memory_of(size, 7)
    arrays = Memory(np.array(other.last), np.array(other.credit), np.array(other.seed))
    for view, request in asked:
        cut = View(*(column[:size] for column in view))
        assert ROUTERS[name](cut, request, plain) == ROUTERS[name](View(*map(np.array, cut)), request, arrays)


def chosen(router: Router, view: View, count: int, seed: int = 0) -> Counter[int]:
    memory = memory_of(len(view.available), seed)
    return Counter(router(view, Request(i, -1, 100), memory) for i in range(count))


@pytest.mark.parametrize("name", ["round-robin", "least-outstanding", "least-tokens", "least-kv", "prefix-aware"])
def test_equals_take_turns(name: str) -> None:
    assert chosen(ROUTERS[name], idle(7), 700) == dict.fromkeys(range(7), 100)


def test_weights_are_kept_exactly_and_smoothly() -> None:
    view, memory = idle(3, weight=[5.0, 1.0, 1.0]), memory_of(3)
    order = [ROUTERS["weighted"](view, Request(i, -1, 1), memory) for i in range(7)]
    assert order == [0, 0, 1, 0, 2, 0, 0]


@pytest.mark.parametrize("name", ["random", "power-of-two"])
def test_random_choices_are_even(name: str) -> None:
    counts = chosen(ROUTERS[name], idle(8), 40_000, seed=3)
    assert all(abs(counts[i] - 5_000) < 5 * (40_000 * 7 / 64) ** 0.5 for i in range(8))


def test_power_of_two_never_takes_the_fullest_of_distinct_loads() -> None:
    view = idle(5)._replace(requests=[9, 1, 2, 3, 4])
    counts = chosen(ROUTERS["power-of-two"], view, 5_000)
    assert counts[0] == 0
    assert counts[1] > counts[2] > counts[3] > counts[4]


def longest_queue(name: str, balls: int = 3_000, bins: int = 100) -> int:
    """Balls into bins, none of which ever leaves."""
    held, memory = [0] * bins, memory_of(bins, 1)
    view = idle(bins)._replace(requests=held)
    for i in range(balls):
        held[ROUTERS[name](view, Request(i, -1, 1), memory)] += 1
    return max(held)


def test_two_choices_balance_far_better_than_one() -> None:
    """Mitzenmacher: the excess over the mean is ln ln n / ln 2 + O(1) with two choices, and grows with the root of the mean with one."""
    mean = 30
    assert longest_queue("least-outstanding") == mean
    assert longest_queue("power-of-two") <= mean + 4
    assert longest_queue("random") >= mean + 8


@given(sessions=st.lists(st.integers(0, 10**9), min_size=1, max_size=60, unique=True), gone=st.integers(0, 4))
def test_a_session_stays_and_moves_only_when_its_instance_goes(sessions: list[int], gone: int) -> None:
    view, memory = idle(5), memory_of(5)
    smaller = view._replace(available=[int(i != gone) for i in range(5)])
    for s in sessions:
        first = ROUTERS["session"](view, Request(0, s, 1), memory)
        assert first == ROUTERS["session"](view, Request(99, s, 1), memory)
        after = ROUTERS["session"](smaller, Request(1, s, 1), memory)
        assert (after == first) == (first != gone)


def test_prefixes_decide_until_the_load_is_out_of_balance() -> None:
    view = idle(3)._replace(matched=[0, 900, 100])
    assert ROUTERS["prefix-aware"](view, Request(0, -1, 1_000), memory_of(3)) == 1
    assert ROUTERS["prefix-aware"](view, Request(0, -1, 2_000), memory_of(3)) == 0
    full = view._replace(requests=[0, 40, 1])
    assert ROUTERS["prefix-aware"](full, Request(0, -1, 1_000), memory_of(3)) == 0


def test_a_faster_instance_holds_more_requests() -> None:
    view = idle(2, weight=[4.0, 1.0])._replace(requests=[3, 1])
    assert ROUTERS["least-outstanding"](view, Request(0, -1, 1), memory_of(2)) == 0
    assert ROUTERS["power-of-two"](view, Request(0, -1, 1), memory_of(2)) == 0


@pytest.mark.accuracy
def test_compiled_routers_choose_as_plain_ones() -> None:
    import numba

    import tonnage.simulator.router as module

    namespace = dict(vars(module))
    for name in ("mixed", "draw", "nth_available", "least", "least_outstanding"):
        namespace[name] = numba.njit(_with(namespace, vars(module)[name]))
    rng = np.random.default_rng(0)
    for name, function in ROUTERS.items():
        compiled = numba.njit(_with(namespace, function))
        plain, other = memory_of(6, 5), memory_of(6, 5)
        arrays = Memory(np.array(other.last), np.array(other.credit), np.array(other.seed))
        for i in range(40):
            view = View(
                rng.integers(0, 2, 6),
                rng.integers(0, 90, 6),
                rng.integers(0, 9000, 6),
                rng.random(6),
                rng.integers(0, 500, 6),
                rng.choice([1.0, 2.0], 6),
            )
            request = Request(i, int(rng.integers(-1, 50)), 400)
            assert compiled(view, request, arrays) == function(View(*(c.tolist() for c in view)), request, plain), name


def _with(namespace: dict[str, Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """The same source over other globals."""
    import types

    return types.FunctionType(function.__code__, namespace, function.__name__)

"""Simulated time on the wall, at any pace, and with changes of pace."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tonnage.serve.instance import WallClock

START = 1_000_000_000
CHANGES = st.lists(
    st.tuples(st.integers(0, 20), st.sampled_from([1.0, 1.15, 5.0, 0.5, math.inf])), max_size=5, unique_by=lambda change: change[0]
).map(sorted)


def changed(speed: float, changes: Sequence[tuple[float, float]]) -> WallClock:
    """A clock that is not read but asked."""
    clock = WallClock(speed, lambda: START)
    clock.change(changes)
    return clock


@given(speed=st.sampled_from([1.0, 10.0, 0.3]), changes=CHANGES, moments=st.lists(st.integers(0, 25 * 10**9), min_size=1))
def test_time_never_goes_back_and_a_moment_is_the_first_at_which_a_time_is_reached(
    speed: float, changes: list[tuple[float, float]], moments: list[int]
) -> None:
    clock = changed(speed, changes)
    times = [clock.at(START + moment) for moment in sorted(moments)]
    assert times == sorted(times)
    for at in times:
        moment = clock.moment_ns(at)
        assert clock.at(moment) >= at
        assert at == 0 or clock.at(moment - 1) < at


def test_a_slow_stretch_and_a_standstill() -> None:
    clock = changed(2.0, [(1, 4.0), (3, math.inf), (5, 1.0)])
    seconds = [clock.at(START + s * 10**9) / 1e12 for s in range(7)]
    assert seconds == [0, 2, 2.5, 3, 3, 3, 5]
    assert clock.moment_ns(int(3e12) + 1) == START + 5 * 10**9 + 1


def test_a_clock_that_stands_still_for_ever_never_arrives() -> None:
    clock = changed(1.0, [(1, math.inf)])
    assert clock.moment_ns(2 * 10**12) > START + 365 * 86_400 * 10**9

"""What an instance carries with slower steps: read from its runs, against searches of its own, and never more than with faster ones."""

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.questions import question
from tonnage.sizing.loads.bounds import Carried
from tonnage.sizing.loads.capacity import STABLE, find_capacity
from tonnage.sizing.loads.instance import Instance
from tonnage.sizing.loads.ready import Ready
from tonnage.sizing.loads.slower_steps import LEAST, Slowdown, SlowerSteps, between, rate_at, rising
from tonnage.sizing.search.search_space import prepare


def by(factor: float) -> Slowdown:
    """Steps so many times as long, and with them every latency."""
    return Slowdown(steps=factor)


def sharpen(steps: SlowerSteps, *factors: float) -> None:
    for factor in factors:
        steps.sharpen(by(factor), decisive=True)


def carried_of(**changed: object) -> Carried:
    ready = next(found for found in prepare(question(**changed)) if isinstance(found, Ready))
    return Carried(ready=ready, capacity=find_capacity(ready.instance))


@pytest.mark.parametrize("limit", ["p95<=300ms", "p95<=120ms", "mean<=60ms"])
def test_slower_steps_carry_what_a_search_of_its_own_finds(limit: str) -> None:
    """Read from the runs of one scan, against a search with every step slower."""
    carried = carried_of(ttft=limit)
    steps = SlowerSteps(question(ttft=limit), carried)
    sharpen(steps, 1.05, 1.2, 1.5)
    instance = carried.ready.instance
    for factor in (1.05, 1.2, 1.5):
        slower = find_capacity(Instance(instance.deployment, replace(instance.asked, step_factor=factor)))
        assert steps.rate(by(factor)) == pytest.approx(slower.rate, rel=0.05)
    assert steps.rate(by(1.5)) <= steps.rate(by(1.3)) <= steps.rate(by(1.2)) <= steps.rate(by(1.05))


@given(st.dictionaries(st.floats(0.5, 3.0), st.just(0.0) | st.floats(0.1, 9.0), min_size=1), st.floats(0.3, 4.0), st.floats(0.3, 4.0))
def test_between_known_factors_slower_steps_never_carry_more(known: dict[float, float], a: float, b: float) -> None:
    fast, slow = sorted((a, b))
    assert between(known, slow) <= between(known, fast) * (1 + 1e-9)


def test_without_limits_steps_twice_as_long_carry_half() -> None:
    carried = carried_of(ttft=None)
    steps = SlowerSteps(question(ttft=None), carried)
    sharpen(steps, 1.25, 2.0)
    assert [carried.capacity.rate / steps.rate(by(f)) for f in (1.0, 1.25, 2.0, 4.0)] == pytest.approx([1.0, 1.25, 2.0, 4.0])


def test_a_limit_that_one_client_exceeds_with_slower_steps_leaves_nothing() -> None:
    carried = carried_of(ttft="p95<=120ms")
    steps = SlowerSteps(question(ttft="p95<=120ms"), carried)
    too_slow = 1.01 / carried.ready.instance.trail[0.0]
    sharpen(steps, 1.1, too_slow)
    assert steps.rate(by(1.1)) > 0
    assert steps.rate(by(too_slow)) == 0.0


def blank(trail: dict[float, float], *, rate: float, saturation: float) -> SlowerSteps:
    """Of a closed loop, whose rates are read from its trail."""
    carried = carried_of()
    carried.ready.instance.trail.clear()
    carried.ready.instance.trail.update(trail)
    capacity = replace(carried.capacity, rate=rate, saturation=saturation)
    return SlowerSteps(question(load="closed"), Carried(ready=carried.ready, capacity=capacity))


def test_saturation_shrinks_with_the_steps_and_a_limit_that_one_client_exceeds_counts_as_none() -> None:
    free = blank({0.0: 0.1, 9.8: 0.3}, rate=STABLE * 10.0, saturation=10.0)
    assert [free.rate(by(f)) for f in (1.0, 2.0, 3.0)] == pytest.approx([9.8, 4.9, 9.8 / 3])
    assert blank({0.0: 0.6, 9.8: 0.9}, rate=9.8, saturation=10.0).rate(by(2.0)) == 0.0
    assert blank({}, rate=9.8, saturation=10.0).rate(by(2.0)) == pytest.approx(4.9)


def test_a_hair_above_a_single_client_counts_as_none() -> None:
    edge = blank({0.0: 0.499, 10.0: 1.0}, rate=10.0, saturation=20.0)
    assert rate_at(rising({0.0: 0.499, 10.0: 1.0}), 0.5, 20.0) < LEAST * 10.0
    assert edge.rate(by(2.0)) == 0.0


trails = st.dictionaries(st.floats(0.1, 9.0), st.floats(0.05, 4.0), min_size=1, max_size=8)


@cache
def steps_of_no_trail() -> SlowerSteps:
    """Made when it is first asked for: an import that simulates would compile the simulator while tests are collected."""
    return blank({}, rate=5.0, saturation=10.0)


@given(trails, st.floats(0.5, 3.0), st.floats(0.5, 3.0))
def test_slower_steps_never_carry_more(trail: dict[float, float], a: float, b: float) -> None:
    steps = steps_of_no_trail()
    steps.instance.trail.clear()
    steps.instance.trail.update({0.0: 0.04, **trail})
    fast, slow = sorted((a, b))
    assert steps.rate(by(slow)) <= steps.rate(by(fast)) * (1 + 1e-9)

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.questions import question
from tonnage.sizing.capacity import STABLE, Capacity, Instance, find_capacity
from tonnage.sizing.search_space import Ready, prepare
from tonnage.sizing.stretched import stretched_rates


def instance_of(**changed: object) -> Instance:
    ready = next(found for found in prepare(question(**changed)) if isinstance(found, Ready))
    return ready.instance


def capacity(rate: float, saturation: float) -> Capacity:
    blank = find_capacity(instance_of())
    return replace(blank, rate=rate, saturation=saturation)


@pytest.mark.parametrize("limit", ["p95<=300ms", "p95<=120ms", "mean<=60ms"])
def test_slower_steps_carry_what_the_instance_carries_under_tighter_limits(limit: str) -> None:
    """Read from the runs of one search, against a search of its own with every step slower."""
    instance = instance_of(ttft=limit)
    found = find_capacity(instance)
    for factor in (1.05, 1.2):
        slower = find_capacity(Instance(instance.deployment, replace(instance.asked, step_factor=factor)))
        (read,) = stretched_rates(found, instance.trail, [factor])
        assert read == pytest.approx(slower.rate, rel=0.06)


def test_saturation_shrinks_with_the_steps_and_a_limit_that_one_client_exceeds_leaves_nothing() -> None:
    free = capacity(rate=STABLE * 10.0, saturation=10.0)
    assert stretched_rates(free, {0.0: 0.1, 9.8: 0.3}, [1.0, 2.0, 3.0]) == pytest.approx([9.8, 4.9, 9.8 / 3])
    assert stretched_rates(free, {0.0: 0.6, 9.8: 0.9}, [2.0]) == [0.0]
    assert stretched_rates(free, {}, [2.0]) == pytest.approx([4.9])


trails = st.dictionaries(st.floats(0.1, 9.0), st.floats(0.05, 4.0), min_size=1, max_size=8)


@given(trails, st.floats(0.5, 3.0), st.floats(0.5, 3.0))
def test_slower_steps_never_carry_more(trail: dict[float, float], a: float, b: float) -> None:
    fast, slow = sorted((a, b))
    one, other = stretched_rates(CAPACITY, {0.0: 0.04, **trail}, [fast, slow])
    assert other <= one * (1 + 1e-9)


CAPACITY = capacity(rate=5.0, saturation=10.0)

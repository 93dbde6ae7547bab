"""The systems of a fleet: whole ones that hold the instances."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from tonnage.plan.fleet import Fleet, fleet


def carrying(load: float, rate: float, gpus: int = 1) -> Fleet:
    """The fewest systems of 8 GPUs."""
    return fleet(gpus, 8).carrying(load, rate)


def test_course_example_needs_five_systems_and_is_4_806_exactly() -> None:
    need = carrying(199.77, 5.195428)
    assert round(need.exactly(199.77, 5.195428), 3) == 4.806
    assert (need.systems, need.instances, need.gpus) == (5, 40, 40)
    assert math.isclose(need.utilisation(199.77, 5.195428), 199.77 / (5.195428 * 40))
    assert carrying(0.3 * 8, 0.1).systems == 3
    need = carrying(1.0, 0.9, 16)
    assert (need.systems, need.instances, need.systems_per_instance, need.instances_per_system) == (
        4,
        2,
        2,
        1,
    )
    assert need.of(3).instances == 1


@given(load=st.floats(1e-3, 1e6), rate=st.floats(1e-3, 1e4), tp=st.sampled_from([1, 2, 4, 8]))
def test_systems_cover_the_load_and_one_fewer_would_not(load: float, rate: float, tp: int) -> None:
    need = carrying(load, rate, tp)
    per_system = rate * 8 / tp
    assert need.systems * per_system >= load * (1 - 1e-6)
    assert need.systems == 1 or (need.systems - 1) * per_system < load
    assert need.instances == need.systems * 8 // tp


@given(instances=st.integers(1, 500), gpus=st.integers(1, 24))
def test_systems_hold_the_instances_and_one_fewer_would_not(instances: int, gpus: int) -> None:
    need = fleet(gpus, 8).holding(instances)
    assert need.instances >= instances
    assert need.of(need.systems - need.systems_per_instance).instances < instances

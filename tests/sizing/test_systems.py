"""The rule from a capacity to a number of systems."""

import math

from hypothesis import given
from hypothesis import strategies as st

from tonnage.sizing.systems import fleet


def test_course_example_needs_five_systems_and_is_4_806_exactly() -> None:
    need = fleet(199.77, 5.195428, gpus_per_instance=1, gpus_per_system=8, spare=0)
    assert round(need.systems_exact, 3) == 4.806
    assert (need.systems, need.instances) == (5, 40)
    assert math.isclose(need.utilisation, 199.77 / (5.195428 * 40))


def test_spare_system_adds_instances_and_lowers_utilisation() -> None:
    bare = fleet(10.0, 3.0, gpus_per_instance=4, gpus_per_system=8, spare=0)
    spare = fleet(10.0, 3.0, gpus_per_instance=4, gpus_per_system=8, spare=1)
    assert (bare.systems, spare.systems) == (2, 3)
    assert spare.instances == bare.instances + 2
    assert spare.utilisation < bare.utilisation
    assert spare.systems_exact == bare.systems_exact


def test_load_that_divides_evenly_is_not_rounded_up() -> None:
    assert fleet(0.3 * 8, 0.1, gpus_per_instance=1, gpus_per_system=8, spare=0).systems == 3


def test_instance_over_two_systems_takes_both() -> None:
    need = fleet(1.0, 0.9, gpus_per_instance=16, gpus_per_system=8, spare=0)
    assert need.systems == 4
    assert need.instances == 2


@given(
    peak=st.floats(1e-3, 1e6),
    rate=st.floats(1e-3, 1e4),
    tp=st.sampled_from([1, 2, 4, 8]),
    spare=st.integers(0, 3),
)
def test_systems_cover_the_peak_and_one_fewer_would_not(peak: float, rate: float, tp: int, spare: int) -> None:
    need = fleet(peak, rate, gpus_per_instance=tp, gpus_per_system=8, spare=spare)
    per_system = rate * 8 / tp
    bought = need.systems - spare
    assert bought * per_system >= peak * (1 - 1e-6)
    assert bought == 1 or (bought - 1) * per_system < peak
    assert need.instances == need.systems * 8 // tp

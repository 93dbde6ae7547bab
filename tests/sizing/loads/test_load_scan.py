"""The search of the load, on an instance whose latencies at every load are given."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.questions import contender
from tests.sizing.loads.load_scan_cases import Curve, limit, rate_of
from tonnage.sizing.loads.instance import FEWEST, QUICK, SURE, Instance
from tonnage.sizing.loads.load_scan import (
    CLEAR,
    Broken,
    Highest,
    LoadScan,
    between,
    on_lattice,
    place_of,
    worst_limit,
)
from tonnage.sizing.loads.runs import Runs

if TYPE_CHECKING:
    from collections.abc import Callable


def test_what_never_breaks_ends_at_saturation() -> None:
    found = Curve(lambda rate, length: 1.0).highest(limit(2.0))
    assert isinstance(found, Highest)
    assert found.limit is None
    assert found.rate == pytest.approx(1000.0)


@pytest.mark.parametrize("care", [QUICK, SURE])
@pytest.mark.parametrize("near", [0.0, 700.0, 1090.0])
def test_above_a_saturation_that_was_measured_no_run_is_made_and_the_answer_is_the_same(
    care: Any, near: float
) -> None:
    before, after = (Curve(lambda rate, _: rate / 1e6, measured=known) for known in (False, True))
    rates = [rate_of(scan.highest(limit(1.0), 0.0, care, near)) for scan in (before, after)]
    assert rates[0] == rates[1] == pytest.approx(1000.0)
    assert any(rate > 1000.0 for _, rate in before.runs_made)
    assert all(rate <= 1000.0 for _, rate in after.runs_made)
    assert len(after.runs_made) < len(before.runs_made)


def test_a_short_run_that_is_too_good_does_not_make_an_answer() -> None:
    """Queues that build up slowly are not seen in a short run: the load that is found holds in the
    longest."""
    found = Curve(lambda rate, length: rate if length == SURE else 0.1 * CLEAR[0][1]).highest(
        limit(300.0), care=SURE
    )
    assert rate_of(found) <= 300 * (1 + 1e-9)
    assert rate_of(found) > 300 / 1.2


def test_nothing_holds() -> None:
    found = Curve(lambda rate, length: 5.0).highest(limit(1.0))
    assert isinstance(found, Broken)
    assert found.limit.seconds == 1.0


noisy = st.tuples(st.integers(0, 10_000), st.floats(0.0, 0.3), st.floats(0.2, 3.0))


def made(shape: tuple[int, float, float]) -> Callable[[float, int], float]:
    """A latency that rises, with noise that is smaller in longer runs."""
    seed, noise, power = shape

    def value(rate: float, length: int) -> float:
        drawn = np.random.default_rng([seed, length, round(1e6 * rate)]).normal()
        return float(
            (rate / 100) ** power * np.exp(noise * drawn / (FEWEST[length] / FEWEST[0]) ** 0.5)
        )

    return value


@settings(deadline=None, max_examples=150)
@given(shape=noisy, tight=st.floats(0.05, 30.0), looser=st.floats(1.0, 2.0))
def test_a_looser_limit_never_carries_less_by_more_than_the_noise_of_two_runs(
    shape: Any, tight: float, looser: float
) -> None:
    scan, noise = Curve(made(shape)), shape[1] / shape[2]
    for care in (QUICK, SURE):
        less, more = (
            rate_of(scan.highest(limit(tight * factor), care=care)) for factor in (1.0, looser)
        )
        assert less <= more * np.exp(4 * noise + 0.05 * bool(noise))


@settings(deadline=None, max_examples=150)
@given(shape=noisy, tight=st.floats(0.05, 30.0), above=st.floats(0.5, 900.0))
def test_a_load_to_exceed_changes_no_answer_above_it(
    shape: Any, tight: float, above: float
) -> None:
    seed, _, power = shape
    scan = Curve(made((seed, 0.0, power)))
    whole, ended = (rate_of(scan.highest(limit(tight), bound, SURE)) for bound in (0.0, above))
    assert ended == pytest.approx(whole if whole > above else 0.0, rel=1e-6)


@given(
    knee=st.floats(10.0, 2_000.0),
    target=st.floats(1.05, 40.0),
    begin=st.floats(0.5, 900.0),
    care=st.sampled_from([QUICK, SURE]),
)
def test_a_load_is_read_between_the_same_two_wherever_the_search_begins(
    knee: float, target: float, begin: float, care: Any
) -> None:
    """A line through other points of a curve would read another load: a deployment that carries
    just enough would be left out."""

    def value(rate: float, length: int) -> float:
        return 1 + 1 / max(knee / rate - 1, 1e-3) + rate / knee

    found = rate_of(Curve(value).highest(limit(target), care=care))
    assert rate_of(Curve(value, begin=begin).highest(limit(target), care=care)) == found
    assert rate_of(Curve(value).highest(limit(target), care=care, near=begin)) == found
    assert rate_of(Curve(value).highest(limit(target), 0.999 * found, care)) == found
    assert rate_of(Curve(value).highest(limit(target), found, care)) == 0.0


def test_what_carries_far_less_is_left_out_by_one_short_run() -> None:
    scan = Curve(lambda rate, length: rate)
    assert isinstance(scan.highest(limit(100.0), 300.0), Broken)
    assert {length for length, _ in scan.runs_made} == {0}
    assert len({rate for _, rate in scan.runs_made}) == 1


def test_the_lattice() -> None:
    assert on_lattice(64) == 2.0
    assert all(place_of(on_lattice(place)) == place for place in range(-500, 500))


@given(st.integers(-500, 500), st.integers(2, 300))
def test_the_way_between_two_loads_is_parted_at_the_same_place_for_every_search(
    low: int, width: int
) -> None:
    high = low + width
    half = between(low, high)
    assert low < half < high
    power = half & -half if half else 1 << 20
    assert all((place & -place if place else 1 << 20) <= power for place in range(low + 1, high))


def test_the_load_that_is_found_holds_in_its_longest_run_and_in_others() -> None:
    one = contender(tp="1", isl="lognormal:1000,800", osl=100, ttft="p95<=200ms")
    slo, instance = one.question.limits, one.instance
    for instances in (1, 4):
        found = LoadScan(Runs(), instance, instances).highest(slo, care=SURE)
        assert isinstance(found, Highest)
        assert worst_limit(found.summary, slo) is None
        for seed in (5, 6):
            scan = LoadScan(
                Runs(),
                Instance(instance.deployment, replace(instance.traffic, seed=seed)),
                instances,
            )
            assert scan.holds(place_of(0.92 * found.rate), slo, SURE)
            assert not scan.holds(place_of(1.15 * found.rate), slo, SURE)

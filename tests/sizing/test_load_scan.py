"""The scan of the load, on an instance whose latencies at every load are given."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.questions import question
from tonnage.sizing.loads.instance import Instance
from tonnage.sizing.loads.limits import worst_limit
from tonnage.sizing.loads.load_scan import HOLDS, LENGTHS, QUICK, SURE, Broken, Highest, LoadScan, on_lattice, place_of
from tonnage.sizing.loads.ready import Ready
from tonnage.sizing.search.search_space import prepare
from tonnage.spec.deployment import Limit

if TYPE_CHECKING:
    from collections.abc import Callable

    from tonnage.results.metrics import Summary


@dataclass
class Curve(LoadScan):
    """A scan whose values are those of a function of the load and of the length of a run."""

    value: Callable[[float, int], float] = lambda rate, level: rate
    runs: list[tuple[int, int]] = field(default_factory=list)

    def __init__(self, value: Callable[[float, int], float], most: float = 1000.0) -> None:
        super().__init__(SimpleNamespace(count=lambda rate: 2000), lambda: most)
        self.value, self.runs = value, []

    def summary(self, place: int, level: int) -> Summary:
        self.runs.append((level, place))
        self._runs[level, place] = value = self.value(self.rate(place), level)
        found: Any = SimpleNamespace(statistic_ms=lambda metric, statistic: 1e3 * value)
        return found

    def probe(self, place: int, level: int) -> Summary:
        self.runs.append((level, place))
        value = self.value(on_lattice(place), level)
        found: Any = SimpleNamespace(statistic_ms=lambda metric, statistic: 1e3 * value)
        return found

    def _record(self, place: int, level: int) -> Any:
        return SimpleNamespace(status=np.zeros(0), due_ns=np.zeros(0))


def limit(seconds: float) -> tuple[Limit, ...]:
    return (Limit(metric="ttft", statistic="p95", seconds=seconds),)


def rate_of(found: Highest | Broken) -> float:
    return found.rate if isinstance(found, Highest) else 0.0


@pytest.mark.parametrize("target", [0.3, 2.0, 77.7, 130.0, 640.0, 999.0])
@pytest.mark.parametrize("care", [QUICK, SURE])
def test_a_rising_latency_is_met_within_a_step_of_the_lattice(target: float, care: Any) -> None:
    found = Curve(lambda rate, level: rate).highest(limit(target), care=care)
    assert target / 1.023 < rate_of(found) <= target


def test_what_never_breaks_ends_at_saturation() -> None:
    found = Curve(lambda rate, level: 1.0).highest(limit(2.0))
    assert isinstance(found, Highest)
    assert (found.rate, found.limit) == (1000.0, None)


def test_a_window_above_a_broken_load_does_not_count() -> None:
    """Between 200 and 500 the limit is broken; from 500 on it holds again."""
    found = Curve(lambda rate, level: 3.0 if 200 < rate < 500 else 0.5).highest(limit(1.0), care=SURE)
    assert 200 / 1.012 < rate_of(found) <= 200


def test_a_short_run_that_is_too_good_does_not_make_an_answer() -> None:
    """Queues that build up slowly are not seen in a short run: the load that is found holds in the longest."""
    found = Curve(lambda rate, level: rate if level == SURE else 0.1 * HOLDS[0]).highest(limit(300.0), care=SURE)
    assert 300 / 1.2 < rate_of(found) <= 300


def test_nothing_holds() -> None:
    found = Curve(lambda rate, level: 5.0).highest(limit(1.0))
    assert isinstance(found, Broken)
    assert found.limit.seconds == 1.0


noisy = st.tuples(st.integers(0, 10_000), st.floats(0.0, 0.6), st.floats(0.2, 3.0), st.booleans())


def made(shape: tuple[int, float, float, bool]) -> Callable[[float, int], float]:
    """A latency that rises, stays flat or falls in the middle, with noise that is smaller in longer runs."""
    seed, noise, power, dips = shape

    def value(rate: float, level: int) -> float:
        drawn = np.random.default_rng([seed, level, round(1e6 * rate)]).normal()
        dip = 0.2 if dips and 100 < rate < 400 else 1.0
        return float(dip * (rate / 100) ** power * np.exp(noise * drawn / LENGTHS[level] ** 0.5))

    return value


@settings(deadline=None, max_examples=150)
@given(shape=noisy, tight=st.floats(0.01, 30.0), looser=st.floats(1.0, 2.0))
def test_a_looser_limit_never_carries_less_whatever_the_noise(shape: Any, tight: float, looser: float) -> None:
    scan = Curve(made(shape))
    for care in (QUICK, SURE):
        assert rate_of(scan.highest(limit(tight), care=care)) <= rate_of(scan.highest(limit(tight * looser), care=care))


@settings(deadline=None, max_examples=150)
@given(shape=noisy, tight=st.floats(0.01, 30.0), above=st.floats(0.5, 1000.0))
def test_a_load_to_exceed_changes_no_answer_above_it(shape: Any, tight: float, above: float) -> None:
    seed, noise, power, _ = shape
    scan = Curve(made((seed, noise, power, False)))
    whole, ended = (rate_of(scan.highest(limit(tight), bound, SURE)) for bound in (0.0, above))
    assert ended in (whole, 0.0)
    if whole > above and noise < 0.05:
        assert ended == whole


def test_what_carries_far_less_is_left_out_by_one_short_run() -> None:
    scan = Curve(lambda rate, level: rate)
    assert scan.surely_no_higher(limit(100.0), 300.0)
    assert set(scan.runs) == {(0, place_of(300.0) + 1)}
    assert not scan.surely_no_higher(limit(300.0), 100.0)


@settings(deadline=None, max_examples=150)
@given(shape=noisy, tight=st.floats(0.01, 30.0), above=st.floats(0.5, 1000.0))
def test_what_is_left_out_without_knowing_saturation_carries_no_more(shape: Any, tight: float, above: float) -> None:
    seed, noise, power, _ = shape
    scan = Curve(made((seed, noise / 20, power, False)))
    if scan.surely_no_higher(limit(tight), above):
        assert rate_of(scan.highest(limit(tight), care=SURE)) <= above * 1.012


def test_the_lattice() -> None:
    assert on_lattice(64) == 2.0
    assert all(place_of(on_lattice(place)) == place for place in range(-500, 500))


def instance(**changed: object) -> Instance:
    return next(found for found in prepare(question(tp="1", **changed)) if isinstance(found, Ready)).instance


def test_the_load_that_is_found_holds_in_its_longest_run_and_in_others() -> None:
    one = instance(isl="lognormal:1000,800", osl=100, ttft="p95<=200ms")
    found = LoadScan(one, lambda: 0.98 * one.saturation_estimate()).highest(one.asked.slo, care=SURE)
    assert isinstance(found, Highest)
    assert worst_limit(found.summary, one.asked.slo) is None
    for seed in (5, 6):
        other = Instance(one.deployment, replace(one.asked, seed=seed))
        scan = LoadScan(other, lambda: 0.98 * one.saturation_estimate())
        assert scan.holds(place_of(0.92 * found.rate), one.asked.slo, SURE)
        assert not scan.holds(place_of(1.15 * found.rate), one.asked.slo, SURE)

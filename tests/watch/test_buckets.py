"""Histograms of a stretch of time, against the observations that they were made of and against Prometheus' own client."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from tonnage.watch.reading import Buckets, Page, buckets_of, together

BOUNDS = (0.1, 0.2, 0.5, 1.0)


def observed(*rounds: list[float]) -> list[Buckets]:
    """A histogram of Prometheus' client after each round, read off its page."""
    registry = CollectorRegistry()
    histogram = Histogram("x:seconds", "", ["model"], buckets=BOUNDS, registry=registry).labels('a "b" \\ c')
    found = []
    for values in rounds:
        for value in values:
            histogram.observe(value)
        found.append(buckets_of(Page(generate_latest(registry).decode()), "x:seconds"))
    return found


@settings(max_examples=30)
@given(st.lists(st.floats(0.001, 1.5), max_size=30), st.lists(st.floats(0.001, 1.5), min_size=1, max_size=30))
def test_a_stretch_holds_what_was_observed_in_it(before: list[float], after: list[float]) -> None:
    first, second = observed(before, after)
    stretch = second.since(first)
    assert stretch.count == len(after)
    assert stretch.mean == pytest.approx(sum(after) / len(after))
    for share in (0.5, 0.95):
        exact = sorted(after)[math.ceil(share * len(after) - 1e-9) - 1]
        low, high = stretch.bracket(share)
        assert low <= exact <= high
        assert low <= stretch.quantile(share) <= (high if math.isfinite(high) else low)
    assert stretch.slower(0.2) == pytest.approx(sum(value > 0.2 for value in after) / len(after))


def test_between_two_bounds_observations_lie_evenly() -> None:
    (found,) = observed([0.3] * 4)
    assert found.quantile(0.5) == pytest.approx(0.35)
    assert found.slower(0.35) == pytest.approx(0.5)
    assert found.slower(5.0) == 0.0


def test_a_restart_counts_from_its_beginning() -> None:
    (many,) = observed([0.3] * 9)
    (few,) = observed([0.15] * 2)
    assert few.since(many).count == 2
    assert few.since(Buckets()).count == 2


def test_instances_are_added_and_an_empty_stretch_has_no_numbers() -> None:
    first, second = observed([0.05], [])
    assert together([first, first, Buckets()]).count == 2
    assert math.isnan(second.since(second).mean)
    assert math.isnan(second.since(second).quantile(0.95))
    assert together([]) == Buckets()

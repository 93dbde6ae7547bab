"""Fronts: what no other candidate beats."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.plan.candidates import candidate
from tonnage.plan.candidate import Candidate
from tonnage.plan.fleet import AtPeak
from tonnage.plan.sensitivity import pareto
from tonnage.results.metrics import Latencies


def one(systems: int, late: float) -> Candidate:
    return candidate(systems=systems, e2e_ms=Latencies(mean=late))


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=8))
def test_front_is_what_no_other_beats(points: list[tuple[int, int]]) -> None:
    candidates = [one(systems, float(late)) for systems, late in points]
    found = pareto(candidates)
    front = [p for p, point in zip(points, found, strict=True) if point.front_gpus]
    assert len(set(front)) == len(front)
    for point in points:
        beaten = any(
            other[0] <= point[0] and other[1] <= point[1] and other != point for other in points
        )
        assert (point in front) != beaten
    assert [p.chosen for p in found] == [True] + [False] * (len(points) - 1)


def test_cost_has_its_own_front_where_it_is_known() -> None:
    slow, fast = (one(n, late) for n, late in ((1, 9.0), (4, 2.0)))
    found = pareto([slow, fast], {1: 5.0, 0: 10.0})
    assert [p.front_gpus for p in found] == [True, True]
    assert [p.front_cost for p in found] == [False, True]
    assert not any(p.front_cost for p in pareto([slow, fast]))
    first, second = one(1, 9.0), one(2, 2.0)
    peaks = tuple(
        replace(
            each,
            at_peak=AtPeak(
                requests_per_second_per_instance=1.0,
                ttft_ms=Latencies(),
                itl_ms=Latencies(),
                tpot_ms=Latencies(),
                e2e_ms=Latencies(mean=late),
                utilisation=0.5,
                instances=1,
            ),
        )
        for each, late in ((first, 1.0), (second, 1.5))
    )
    assert [p.front_gpus for p in pareto([first, second])] == [True, True]
    found = pareto(peaks)
    assert [p.front_gpus for p in found] == [True, False]
    assert [p.e2e_ms for p in found] == [1.0, 1.5]

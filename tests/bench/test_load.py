"""What is sent and when: gaps, bursts, traces and the end of a time."""

from __future__ import annotations

import numpy as np
import pytest

from tests.bench.live import question
from tonnage.errors import InputError
from tonnage.spec.recording import Recording
from tonnage.spec.workload import ClosedLoop, OpenLoop, TraceArrivals


@pytest.mark.parametrize(
    ("process", "cv", "expected"),
    [("poisson", 1.0, 1.0), ("constant", 1.0, 0.0), ("gamma", 3.0, 3.0)],
)
def test_a_schedule_has_the_gaps_that_were_asked_for(
    process: str, cv: float, expected: float
) -> None:
    load = question(OpenLoop(rate=100, process=process, cv=cv), requests=20_000).draw()
    assert load.due_ns is not None
    gaps = np.diff(load.due_ns)
    assert gaps.mean() == pytest.approx(1e7, rel=0.08)
    assert gaps.std() / gaps.mean() == pytest.approx(expected, rel=0.05, abs=1e-6)


def test_bursts_come_together_at_the_mean_rate() -> None:
    load = question(OpenLoop(rate=100), requests=64, burst=8).draw()
    assert load.due_ns is not None
    assert sorted(np.bincount(np.unique(load.due_ns, return_inverse=True)[1])) == [8] * 8
    assert np.diff(np.unique(load.due_ns)) == pytest.approx(80e6)
    assert load.pattern == "burst"


def test_a_trace_is_sent_as_it_came_with_its_own_lengths() -> None:
    recording = Recording(
        due_ns=(0, 5_000_000, 70_000_000), isl=(10, 20, 30), osl=(1, 2, 3), source="t.csv"
    )
    load = question(TraceArrivals(recording=recording), requests=3).draw()
    assert load.due_ns is not None
    assert (list(load.due_ns), list(load.isl), list(load.osl)) == (
        [0, 5_000_000, 70_000_000],
        [10, 20, 30],
        [1, 2, 3],
    )


def test_a_time_ends_an_open_loop() -> None:
    load = question(OpenLoop(rate=50, process="constant"), requests=None, seconds=2.0).draw()
    assert len(load) == 100
    assert load.due_ns.max() <= 2e9
    with pytest.raises(InputError, match="request_count"):
        question(ClosedLoop(concurrency=1), requests=None).draw()

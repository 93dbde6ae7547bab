from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.in_turn import in_turn
from tests.simulator.kernel.compared import (
    ENGINE,
    MODEL,
    both,
    compare,
)
from tests.strategies import MS, SCHEDULERS, coefficient_array, examples, runs
from tonnage.errors import InputError
from tonnage.perf.step import StepModel
from tonnage.results.requests import COMPLETED, UNFINISHED
from tonnage.simulator.kernel import run, run_recorded
from tonnage.spec.deployment import Windows
from tonnage.spec.workload import ClosedLoop, Lengths, OpenLoop, Trace, Workload


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@examples(0.25)
@given(data=st.data())
def test_kernel_equals_reference(scheduler, data):
    compare(data.draw(runs((scheduler,))))


@pytest.mark.accuracy
@pytest.mark.parametrize("scheduler", SCHEDULERS)
@settings(max_examples=1_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_kernel_equals_reference_on_a_thousand_runs(scheduler, data):
    compare(data.draw(runs((scheduler,))))


LOADS = [
    OpenLoop(rate=25.0),
    OpenLoop(rate=100.0, process="gamma", cv=4.0),
    ClosedLoop(concurrency=40, turnaround_s=0.0016),
    OpenLoop(rate=100.0, in_flight=12),
]


@pytest.mark.parametrize(
    ("scheduler", "chunked", "arrivals", "blocks"),
    in_turn(SCHEDULERS, [False, True], LOADS, [60, 300, 10_000], one_of=6),
)
def test_kernel_equals_reference_on_many_requests(scheduler, chunked, arrivals, blocks):
    lengths = {
        "isl": Lengths(kind="lognormal", mean=200, std=150),
        "osl": Lengths(kind="normal", mean=60, std=30),
    }
    trace = Workload(**lengths, arrivals=arrivals, requests=150).trace(5)
    engine = replace(ENGINE, scheduler=scheduler, chunked_prefill=chunked)
    both(trace, MODEL, engine, blocks)
    both(trace, MODEL, engine, blocks, window_ps=2_000 * MS)
    both(trace, MODEL, engine, blocks, windows=Windows(blocks=9, tokens=300))


def test_a_window_far_beyond_keeps_only_what_was_sent() -> None:
    count = 100_000
    due, ones = np.full(count, -1, np.int64), np.full(count, 10, np.int64)
    trace = Trace(due_ps=due, isl=ones, osl=ones, concurrency=4, turnaround_ps=0)
    requests, record = run_recorded(
        trace,
        StepModel(coefficients=coefficient_array(host_step=0.001), frontend_s=0.0),
        ENGINE,
        100,
        window_ps=1005 * MS,
        most_steps=5,
    )
    # A cohort of 4 takes 10 steps of 1 ms; at 1,005 ms the 101st is half way.
    assert len(requests) == 404
    assert (requests.status[:400] == COMPLETED).all()
    assert (requests.status[400:] == UNFINISHED).all()
    np.testing.assert_array_equal(requests.osl[400:], 5)
    np.testing.assert_array_equal(requests.last_token_ns[400:], -1)
    np.testing.assert_array_equal(requests.first_token_ns[400:], 1_001_000_000)
    assert requests.window_ns == 1_005_000_000
    assert (record.count, len(record.steps)) == (1005, 5)


def test_a_stopped_run_ends_between_two_steps() -> None:
    trace = Workload(
        isl=Lengths(mean=5), osl=Lengths(mean=5), arrivals=OpenLoop(rate=2), requests=5
    ).trace(0)
    stop = np.ones(1, np.int64)
    requests, record = run_recorded(trace, MODEL, ENGINE, 100, most_steps=9, stop=stop)
    assert record.count == 0
    assert (requests.status == UNFINISHED).all()


@pytest.mark.parametrize(
    ("due", "isl", "osl"),
    [
        ([2, 1], [1, 1], [1, 1]),
        ([-5, 1], [1, 1], [1, 1]),
        ([0, 1], [1, 0], [1, 1]),
        ([0, 1], [1, 1], [1, -3]),
    ],
)
def test_impossible_traces_are_refused(due, isl, osl):
    columns = {
        name: np.array(values, np.int64)
        for name, values in {"due_ps": due, "isl": isl, "osl": osl}.items()
    }
    with pytest.raises(InputError):
        run(Trace(**columns, concurrency=0, turnaround_ps=0), MODEL, ENGINE, 100)

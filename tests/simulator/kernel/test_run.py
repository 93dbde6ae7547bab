from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.deployments import knobs_of
from tests.in_turn import in_turn
from tests.simulator.kernel.compared import (
    ENGINE,
    MODEL,
    SHAPES,
    both,
    compare,
    instances,
    same_ranks,
)
from tests.simulator.kernel.hand_worked import trace_of
from tests.simulator.kernel.uncompiled import uncompiled
from tests.strategies import MS, ROOFLINE, SCHEDULERS, Run, coefficient_array, examples, runs
from tonnage.errors import InputError
from tonnage.perf.step import Drafting, StepModel
from tonnage.results.requests import COMPLETED, UNFINISHED
from tonnage.simulator.kernel import run, run_recorded
from tonnage.simulator.kernel.build import COARSE, EDGES
from tonnage.simulator.rules import is_for_reference
from tonnage.spec.deployment import Windows
from tonnage.spec.sessions import ENDLESS, of_rows
from tonnage.spec.workload import ClosedLoop, Lengths, OpenLoop, Trace, Workload


@pytest.fixture(scope="module")
def plain() -> Iterator[Any]:
    with uncompiled() as module:
        yield module


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("scheduler", SCHEDULERS)
@examples(0.15)
@given(data=st.data())
def test_uncompiled_kernel_equals_reference(plain, scheduler, kind, data):
    """All three loops and groups of ranks, which take half a minute each to compile."""
    run, traces, ranks = data.draw(instances(kind, scheduler))
    for leaps in (False, True):
        same_ranks(plain.run_ranks, run, traces, ranks, leaps=leaps)


TIGHT = [(0, 4, 40, 1), (1, 9, 30, 0), (2, 3, 50, 2), (3, 6, 20, 0), (30, 5, 40, 1), (31, 4, 9, 2)]
"""Due times in milliseconds, prompts, outputs and classes, for which 60 blocks of a token are few."""


BUSY = replace(
    MODEL, stream_s=0.0041, stream_step_s=0.00087654321, enter_s=0.0033, enter_token_s=1e-4
)
"""A front end that streams for longer than three quarters of most steps."""

NO_LIMITS = {"windows": Windows(blocks=0, tokens=0), "window_ps": -1, "max_context": 0}


@pytest.mark.parametrize("order", ["fcfs", "priority", "deadline"])
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_uncompiled_kernel_equals_reference_in_little_memory(plain, scheduler, order):
    """Everyone decodes for long, and those in the midst of all lose their blocks again and again."""
    trace = trace_of(*[row[:3] for row in TIGHT])
    classes = np.array([row[3] for row in TIGHT])
    trace = replace(trace, priority=classes, ttft_ps=np.where(classes == 1, -1, classes * 40 * MS))
    later = replace(trace, due_ps=trace.due_ps + 47 * MS)
    knobs = knobs_of(6, 64, block=1, scheduler=scheduler, queue_order=order, rank_wait_steps=3)
    guesses = Drafting(tokens=2, acceptance=0.6, passes=1, coefficients=ROOFLINE * 0.1)
    sheds = replace(knobs, shed=True)
    drafts = scheduler != "static" and not is_for_reference(sheds, drafted=True, shares=False)
    guessing = replace(MODEL, drafting=guesses) if drafts else MODEL
    for blocks, engine, step in ((60, knobs, MODEL), (75, knobs, BUSY), (60, sheds, guessing)):
        run = Run(trace=trace, step=step, knobs=engine, kv_blocks=blocks, **NO_LIMITS)
        for leaps in (False, True):
            same_ranks(plain.run_ranks, run, [trace], 1, leaps=leaps)
            same_ranks(plain.run_ranks, run, [trace, later, later], 3, leaps=leaps)


@pytest.mark.parametrize("block", [1, 4])
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_uncompiled_kernel_equals_reference_with_common_prompts_in_little_memory(
    plain, scheduler, block
):
    """Prompts that begin alike, in chunks, and whose blocks are wanted by those that decode."""
    rows = [
        (0, 14, 30),
        (1, 19, 25),
        (2, 13, 40),
        (3, 16, 20),
        (30, 15, 30),
        (31, 24, 9),
        (90, 14, 9),
    ]
    beginnings = [(7, 12), (7, 12), (8, 9), (7, 12), (8, 9), (7, 12), (8, 9)]
    contents = of_rows([[cut, (100 + n, ENDLESS)] for n, cut in enumerate(beginnings)])
    trace = replace(trace_of(*rows), contents=contents)
    for tokens, blocks in ((64, 76), (9, 60), (64, 200)):
        knobs = knobs_of(
            6,
            tokens,
            block=block,
            scheduler=scheduler,
            chunked_prefill=tokens < 24,
            prefix_caching=True,
        )
        run = Run(trace=trace, step=MODEL, knobs=knobs, kv_blocks=-(-blocks // block), **NO_LIMITS)
        for leaps in (False, True):
            same_ranks(plain.run_ranks, run, [trace], 1, leaps=leaps)


def test_each_gap_is_in_the_bin_that_its_edges_say(plain):
    """At every edge, and a picosecond before it, which no float of 53 bits tells apart at the end."""
    decoding = sys.modules[f"{plain.__package__}.decoding"]
    tallies = SimpleNamespace(edges=EDGES, coarse=COARSE)
    for place, edge in enumerate(EDGES[:-1].tolist()):
        assert decoding.bin_of(tallies, edge) == place
        if place:
            assert decoding.bin_of(tallies, edge - 1) == place - 1


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@examples(0.5)
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

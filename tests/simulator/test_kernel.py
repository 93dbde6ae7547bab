"""The kernel is the reference, to the last bit."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from tests.deployments import knobs_of
from tests.in_turn import in_turn
from tests.strategies import (
    MS,
    ROOFLINE,
    SCHEDULERS,
    Run,
    coefficient_array,
    examples,
    ranked_runs,
    runs,
)
from tonnage.errors import InputError
from tonnage.perf.step import Drafting, StepModel
from tonnage.results.requests import COMPLETED, REJECTED, STATUS_NAMES, UNFINISHED, Requests
from tonnage.simulator.kernel import driven, run, run_recorded
from tonnage.simulator.kernel.loop import steps_within
from tonnage.simulator.reference import run_reference
from tonnage.simulator.request import (
    DECODE_SEQUENCES,
    IN_ENGINE,
    PREFILL_SEQUENCES,
    START,
    STEP_COLUMNS,
)
from tonnage.spec.arrivals import TrafficClass, with_classes
from tonnage.spec.deployment import Windows
from tonnage.spec.workload import ClosedLoop, Lengths, OpenLoop, Trace, Workload

ENGINE = knobs_of(64, 512)
MODEL = StepModel(coefficients=ROOFLINE, frontend_s=0.002)


def assert_same(one: Requests, other: Requests) -> None:
    for field in fields(Requests):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if field.name == "window_ns" or a is None:
            assert a == b
        else:
            assert a.dtype == b.dtype, field.name
            np.testing.assert_array_equal(a, b, err_msg=field.name)


def both(trace, step, engine, blocks, **options):
    """Run kernel, step by step and with leaps, and reference, compare everything, give back what
    they agree on."""
    expected = run_reference(trace, step, engine, blocks, **options)
    for leaps in (False, True):
        requests, record = run_recorded(
            trace, step, engine, blocks, most_steps=100_000, leaps=leaps, **options
        )
        assert_same(requests, expected.requests)
        assert record.count == len(record.steps) == len(expected.steps)
        np.testing.assert_array_equal(
            record.steps, np.array(expected.steps, dtype=np.int64).reshape(-1, STEP_COLUMNS)
        )
        np.testing.assert_array_equal(record.first_step, [job.first_step for job in expected.jobs])
        np.testing.assert_array_equal(record.last_step, [job.last_step for job in expected.jobs])
    return requests, record, expected


CHANGES = [
    {},
    {"overlap_schedule": True},
    {"receive_interval": 7},
    {"overlap_schedule": True, "receive_interval": 30},
]


@pytest.mark.parametrize(
    ("scheduler", "change", "stream"), in_turn(SCHEDULERS, CHANGES, [0.0, 0.0003, 0.0041], one_of=6)
)
def test_a_leap_over_thousands_of_steps_is_every_one_of_them(scheduler, change, stream):
    """Outputs of hundreds of tokens at a few requests in flight, where nearly every step is one of
    a leap."""
    lengths = {
        "isl": Lengths(kind="lognormal", mean=200, std=150),
        "osl": Lengths(kind="lognormal", mean=400, std=500),
    }
    trace = Workload(**lengths, arrivals=OpenLoop(rate=2.0), requests=20).trace(5)
    engine, step = replace(ENGINE, scheduler=scheduler, **change), replace(MODEL, stream_s=stream)
    for blocks in (120, 10_000):
        both(trace, step, engine, blocks)
        both(trace, step, engine, blocks, window_ps=12_345 * MS)


@pytest.mark.parametrize("longer", [0, 1, 7, 10**7])
def test_how_many_steps_have_ended_by_an_instant_is_counted(longer):
    first = 10**6
    ends = np.cumsum(first + longer * np.arange(60))
    for instant in {int(at) + beside for at in ends for beside in (-1, 0, 1)} | {-5, 0, 1}:
        for most in (1, 2, 30, 60):
            assert steps_within.py_func(first, longer, instant, most) == min(
                int((ends <= instant).sum()), most
            )


def test_a_leap_that_no_whole_number_holds_is_taken_in_steps() -> None:
    step = StepModel(coefficients=coefficient_array(host_step=100_000.0), frontend_s=0.0)
    trace = Workload(
        isl=Lengths(mean=5), osl=Lengths(mean=40), arrivals=ClosedLoop(concurrency=2), requests=2
    ).trace(0)
    both(trace, step, ENGINE, 100)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@examples(1.0)
@given(data=st.data())
def test_kernel_equals_reference(scheduler, data):
    compare(data.draw(runs((scheduler,))))


@pytest.mark.accuracy
@pytest.mark.parametrize("scheduler", SCHEDULERS)
@settings(max_examples=1_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_kernel_equals_reference_on_a_thousand_runs(scheduler, data):
    compare(data.draw(runs((scheduler,))))


CLASSES_COMPILED = pytest.mark.accuracy
"""The loop of classes and deadlines is compiled for a quarter of a minute, for these tests alone;
``./check --accuracy`` has the time."""


@CLASSES_COMPILED
@pytest.mark.parametrize("scheduler", SCHEDULERS)
@settings(max_examples=1_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_kernel_equals_reference_on_a_thousand_runs_with_classes(scheduler, data):
    compare(data.draw(ranked_runs((scheduler,))))


def compare(r: Run) -> None:
    requests, _, _ = both(
        r.trace,
        r.step,
        r.knobs,
        r.kv_blocks,
        windows=r.windows,
        window_ps=r.window_ps,
        max_context=r.max_context,
    )
    for status in np.unique(requests.status):
        event(STATUS_NAMES[status])
    if requests.preemptions.any():
        event("pre-empted")
    event(f"order: {r.knobs.queue_order}, shed: {r.knobs.shed}")
    event(f"guesses: {r.step.drafting is not None}")
    event(f"windows: {r.windows.blocks > 0}")


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


@pytest.mark.parametrize("scheduler", ["tensorrt-llm", "vllm", "sglang"])
@pytest.mark.parametrize("blocks", [60, 120])
def test_kernel_equals_reference_with_windows_and_guesses_in_little_memory(scheduler, blocks):
    lengths = {
        "isl": Lengths(kind="lognormal", mean=100, std=80),
        "osl": Lengths(kind="normal", mean=120, std=60),
    }
    trace = Workload(**lengths, arrivals=ClosedLoop(concurrency=20), requests=100).trace(5)
    guessing = replace(
        MODEL, drafting=Drafting(tokens=3, acceptance=0.6, passes=1, coefficients=0.1 * ROOFLINE)
    )
    for step in (MODEL, guessing):
        both(
            trace,
            step,
            replace(ENGINE, scheduler=scheduler),
            blocks,
            windows=Windows(blocks=9, tokens=300),
        )


CLASSES = (
    TrafficClass(name="a", share=0.5, ttft_s=0.4),
    TrafficClass(name="b", share=0.3, ttft_s=4.0),
    TrafficClass(name="c", share=0.2),
)


@CLASSES_COMPILED
@pytest.mark.parametrize("shed", [False, True])
@pytest.mark.parametrize("order", ["priority", "deadline", "fcfs"])
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_kernel_equals_reference_on_hundreds_of_requests_of_three_classes(scheduler, order, shed):
    lengths = {
        "isl": Lengths(kind="lognormal", mean=200, std=150),
        "osl": Lengths(kind="normal", mean=60, std=30),
    }
    trace = with_classes(
        Workload(**lengths, arrivals=OpenLoop(rate=60.0), requests=300).trace(5), CLASSES, 1
    )
    engine = replace(ENGINE, scheduler=scheduler, queue_order=order, shed=shed or order == "fcfs")
    requests, _, _ = both(trace, MODEL, engine, 120)
    assert (requests.status == REJECTED).any() == engine.shed


@CLASSES_COMPILED
@pytest.mark.parametrize("order", ["priority", "deadline"])
def test_who_is_left_out_of_a_step_by_a_pre_emption_before_it_waits_one_more(order):
    """In little memory: some steps compute fewer sequences than run, all of them of vLLM's ranked
    queue; and the tokens come later."""
    lengths = {
        "isl": Lengths(kind="lognormal", mean=100, std=80),
        "osl": Lengths(kind="normal", mean=120, std=60),
    }
    plain = Workload(**lengths, arrivals=ClosedLoop(concurrency=20), requests=100).trace(5)
    trace = with_classes(plain, CLASSES, 1)
    left_out = {}
    for queue_order in ("fcfs", order):
        engine = replace(ENGINE, queue_order=queue_order, tokens_per_block=1)
        requests, record, _ = both(trace, MODEL, engine, 1200)
        sequences = record.steps[:, PREFILL_SEQUENCES] + record.steps[:, DECODE_SEQUENCES]
        rows = np.flatnonzero(sequences < record.steps[:, IN_ENGINE])
        left_out[queue_order] = len(rows)
        assert requests.preemptions.any()
        # they keep what they have when the window ends in such a step
        for instant in record.steps[rows[:2], START]:
            both(trace, MODEL, engine, 1200, window_ps=int(instant) + 1)
    assert left_out["fcfs"] == 0 < left_out[order]


@CLASSES_COMPILED
def test_who_lost_its_blocks_before_its_first_token_is_shed_in_time() -> None:
    """Of three in 35 tokens of memory the last, of the lowest class, has its prompt half computed
    when the first needs the blocks."""
    due, isl, osl, priority, ttft = np.array(
        [(0, 10, 13, 0, 30), (4, 13, 2, 0, 3), (5, 18, 11, 2, 3)], np.int64
    ).T
    limits = {"priority": priority, "ttft_ps": ttft * MS}
    trace = Trace(due_ps=due * MS, isl=isl, osl=osl, concurrency=0, turnaround_ps=0, **limits)
    engine = replace(
        ENGINE,
        tokens_per_block=1,
        max_batch_size=8,
        max_num_tokens=8,
        queue_order="priority",
        shed=True,
    )
    requests, _, _ = both(
        trace,
        StepModel(coefficients=coefficient_array(host_step=0.001, norm=1.0), frontend_s=0.0),
        engine,
        35,
    )
    assert requests.status.tolist() == [COMPLETED, COMPLETED, REJECTED]
    assert requests.preemptions.tolist() == [0, 0, 1]


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


def test_read_only_columns_are_taken() -> None:
    trace = Workload(
        isl=Lengths(mean=5), osl=Lengths(mean=5), arrivals=OpenLoop(rate=2), requests=5
    ).trace(0)
    for column in (trace.due_ps, trace.isl, trace.osl):
        column.setflags(write=False)
    signatures = len(driven.drive.signatures)
    assert (run(trace, MODEL, ENGINE, 100).status == COMPLETED).all()
    assert len(driven.drive.signatures) == max(signatures, 1)


def test_a_stopped_run_ends_between_two_steps() -> None:
    trace = Workload(
        isl=Lengths(mean=5), osl=Lengths(mean=5), arrivals=OpenLoop(rate=2), requests=5
    ).trace(0)
    stop = np.ones(1, np.int64)
    requests, record = run_recorded(trace, MODEL, ENGINE, 100, most_steps=9, stop=stop)
    assert record.count == 0
    assert (requests.status == UNFINISHED).all()


@pytest.mark.parametrize("knob", ["max_batch_size", "max_num_tokens", "tokens_per_block"])
def test_impossible_knobs_are_refused(knob):
    trace = Workload(
        isl=Lengths(mean=5), osl=Lengths(mean=5), arrivals=OpenLoop(rate=2), requests=5
    ).trace(0)
    with pytest.raises(InputError, match=knob):
        run(trace, MODEL, replace(ENGINE, **{knob: 0}), 100)


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

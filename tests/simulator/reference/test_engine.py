from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tests.simulator.reference.examples import (
    KNOBS,
    SGLANG,
    TICK,
    closed_trace,
    composition,
    ms,
    open_trace,
)
from tests.strategies import MS, ROOFLINE, SCHEDULERS, Run, coefficient_array, runs
from tonnage.perf.step import StepModel
from tonnage.results.requests import COMPLETED, REJECTED, UNFINISHED, gap_edges_ns
from tonnage.simulator.reference import run_reference
from tonnage.spec.deployment import EngineKnobs


def test_one_request_prefills_then_decodes_over_a_growing_context() -> None:
    result = run_reference(open_trace((2.5, 7, 3)), TICK, KNOBS, 100)
    assert composition(result) == [(7, 1, 0, 49, 0), (0, 0, 1, 0, 8), (0, 0, 1, 0, 9)]
    assert ms(result.requests.first_token_ns) == [3.5]
    assert ms(result.requests.last_token_ns) == [5.5]
    assert [row[:2] for row in result.steps] == [(int((2.5 + k) * MS), MS) for k in range(3)]


def test_an_arrival_waits_for_the_running_step_and_rides_in_the_next() -> None:
    result = run_reference(open_trace((0, 10, 4), (0.2, 20, 1), (2, 30, 1)), TICK, KNOBS, 100)
    assert composition(result) == [
        (10, 1, 0, 100, 0),
        (20, 1, 1, 400, 11),
        (30, 1, 1, 900, 12),
        (0, 0, 1, 0, 13),
    ]


def test_closed_loop_sends_one_after_another() -> None:
    requests = run_reference(closed_trace(2, 0.4, *[(5, 2)] * 5), TICK, KNOBS, 100).requests
    # Starts at 0.4 and 0.8; the first step runs 0.4–1.4 alone, both decode or prefill in the next,
    # 1.4–2.4.
    assert ms(requests.due_ns) == [0.4, 0.8, 2.8, 3.8, 5.8]
    assert ms(requests.last_token_ns) == [2.4, 3.4, 5.4, 6.4, 8.4]


def test_the_front_end_delays_what_the_engine_sees() -> None:
    step = StepModel(coefficients=TICK.coefficients, frontend_s=0.0003)
    requests = run_reference(open_trace((1, 5, 1)), step, KNOBS, 100).requests
    assert ms(requests.sent_ns) == [1.0]
    assert ms(requests.first_token_ns) == [2.3]


def test_between_two_looks_requests_wait_outside() -> None:
    # The first decodes from 1 ms on; the second comes at 1.5 and is seen after three steps of
    # decodes, at 4 ms.
    knobs = replace(SGLANG, receive_interval=3)
    requests = run_reference(open_trace((0, 5, 9), (1.5, 5, 1)), TICK, knobs, 1000).requests
    assert ms(requests.first_token_ns) == [1.0, 5.0]
    assert ms(
        run_reference(
            open_trace((0, 5, 9), (1.5, 5, 1)), TICK, SGLANG, 1000
        ).requests.first_token_ns
    ) == [1.0, 3.0]


def test_the_engine_looks_after_prompts_and_when_idle() -> None:
    knobs = replace(SGLANG, receive_interval=100)
    # The second comes during the first's prompt; the third after all have ended, the fourth while
    # nobody decodes any more.
    requests = run_reference(
        open_trace((0, 5, 3), (0.5, 5, 3), (9, 5, 3), (11.5, 5, 1)), TICK, knobs, 1000
    ).requests
    assert ms(requests.first_token_ns) == [1.0, 2.0, 10.0, 13.0]


@pytest.mark.parametrize("knobs", [KNOBS, SGLANG])
def test_a_step_that_is_put_together_ahead_holds_what_had_come_when_the_last_one_began(
    knobs: EngineKnobs,
) -> None:
    # The second comes during the first's step from 1 to 2 ms, the third at its end, the fourth to
    # an idle engine.
    trace = open_trace((0, 5, 9), (1.5, 5, 1), (2, 5, 1), (30, 5, 1))
    at_once = run_reference(trace, TICK, replace(knobs, overlap_schedule=False), 1000).requests
    ahead = run_reference(trace, TICK, replace(knobs, overlap_schedule=True), 1000).requests
    assert ms(at_once.first_token_ns) == [1.0, 3.0, 3.0, 31.0]
    assert ms(ahead.first_token_ns) == [1.0, 4.0, 4.0, 31.0]


WAITING = replace(
    KNOBS, scheduler="tensorrt-llm", batch_wait_steps=4, batch_wait_ratio=0.5, max_num_tokens=20
)


def test_prompts_beside_decodes_wait_to_be_batched() -> None:
    # The second waits four steps; the third joins it before, and together they make half of the
    # budget.
    alone = run_reference(open_trace((0, 5, 20), (0.5, 4, 2)), TICK, WAITING, 1000).requests
    assert ms(alone.first_token_ns) == [1.0, 6.0]
    two = run_reference(
        open_trace((0, 5, 20), (0.5, 4, 2), (2.5, 5, 2)), TICK, WAITING, 1000
    ).requests
    assert ms(two.first_token_ns) == [1.0, 4.0, 4.0]


def test_prompts_that_fill_the_step_or_find_no_decodes_do_not_wait() -> None:
    requests = run_reference(
        open_trace((0, 5, 20), (0.5, 9, 2), (30, 5, 2)), TICK, WAITING, 1000
    ).requests
    assert ms(requests.first_token_ns) == [1.0, 2.0, 31.0]


STREAMING = replace(TICK, stream_s=0.0004)
"""Steps of 1 ms, a front end that takes 0.4 ms a sequence: two sequences keep it busy, three are
more than it can do."""


def test_the_front_end_streams_one_sequence_after_another() -> None:
    requests = run_reference(open_trace((0, 5, 3), (0, 5, 3)), STREAMING, KNOBS, 100).requests
    assert ms(requests.first_token_ns) == [1.8, 1.8]
    assert ms(requests.last_token_ns) == [3.8, 3.8]


def test_what_the_front_end_cannot_keep_up_with_queues_there_and_the_engine_goes_on() -> None:
    result = run_reference(open_trace(*[(0, 5, 3)] * 3), STREAMING, KNOBS, 100)
    assert [row[0] for row in result.steps] == [0, MS, 2 * MS]
    assert ms(result.requests.first_token_ns) == [2.2] * 3
    assert ms(result.requests.last_token_ns) == [4.6] * 3
    edges = gap_edges_ns()
    assert (
        result.requests.gaps.sum(axis=0)[np.searchsorted(edges, 1_200_000, side="right") - 1] == 6
    )
    assert result.free_blocks == 100


def test_a_client_goes_on_when_it_has_its_last_token() -> None:
    requests = run_reference(closed_trace(3, 0.0, *[(5, 2)] * 6), STREAMING, KNOBS, 100).requests
    assert ms(requests.last_token_ns)[:3] == [3.4] * 3
    assert ms(requests.due_ns) == [0.0] * 3 + [3.4] * 3


def test_a_step_without_a_token_leaves_the_front_end_idle() -> None:
    knobs = replace(KNOBS, max_num_tokens=10, chunked_prefill=True)
    requests = run_reference(open_trace((0, 25, 2)), STREAMING, knobs, 100).requests
    assert ms(requests.first_token_ns) == [3.4]
    assert ms(requests.last_token_ns) == [4.4]


def test_requests_enter_one_after_another_however_long_they_are_under_way() -> None:
    entering = replace(TICK, enter_s=0.002)
    at_once = open_trace(*[(0, 5, 1)] * 3)
    assert ms(run_reference(at_once, entering, KNOBS, 100).requests.first_token_ns) == [
        3.0,
        5.0,
        7.0,
    ]
    assert ms(
        run_reference(
            at_once, replace(entering, frontend_s=0.01), KNOBS, 100
        ).requests.first_token_ns
    ) == [11.0, 13.0, 15.0]
    by_tokens = replace(entering, enter_s=0.001, enter_token_s=0.001)
    assert ms(
        run_reference(
            open_trace((0, 5, 1), (0, 2, 1)), by_tokens, KNOBS, 100
        ).requests.first_token_ns
    ) == [7.0, 10.0]


def test_tokens_put_off_who_enters_and_who_entered_puts_off_tokens() -> None:
    """From 3 ms on half a millisecond of each step is streamed, so that 2 ms of the second take
    until 5.5; it is heard at 6."""
    step = replace(TICK, enter_s=0.002, stream_s=0.0005)
    requests = run_reference(open_trace((0, 5, 20), (3, 5, 1)), step, KNOBS, 100).requests
    assert ms(requests.first_token_ns) == [3.5, 6.5 + 2.0 + 2 * 0.5]
    alone = run_reference(open_trace((3, 5, 1)), step, KNOBS, 100).requests
    assert ms(alone.first_token_ns) == [6.5]


def test_steps_that_wait_for_the_front_end_are_taken_up_together() -> None:
    """Of 2.5 ms to take up a step: the first ends at 1, the next two while that is done, and go
    along at 3.5."""
    requests = run_reference(
        open_trace((0, 5, 4)), replace(TICK, stream_step_s=0.0025), KNOBS, 100
    ).requests
    assert ms(requests.first_token_ns) == [3.5]
    assert ms(requests.last_token_ns) == [8.5]


def test_tokens_that_clients_would_have_after_the_window_do_not_happen() -> None:
    result = run_reference(
        open_trace(*[(0, 5, 3)] * 3), STREAMING, KNOBS, 100, window_ps=int(3.5 * MS)
    )
    assert result.requests.osl.tolist() == [2] * 3
    assert result.requests.status.tolist() == [UNFINISHED] * 3


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_the_impossible_is_rejected_on_arrival_and_blocks_nobody(scheduler) -> None:
    trace = open_trace((0, 500, 501), (0, 5, 2), (0, 400, 1))
    requests = run_reference(trace, TICK, replace(KNOBS, scheduler=scheduler), 100).requests
    too_long_a_prompt = COMPLETED if scheduler in ("static", "sglang") else REJECTED
    assert requests.status.tolist() == [REJECTED, COMPLETED, too_long_a_prompt]
    assert requests.instance.tolist()[:2] == [-1, 0]
    assert requests.osl[0] == 0
    assert requests.first_token_ns[0] == requests.last_token_ns[0] == -1
    assert ms(requests.first_token_ns)[1] == 1.0


def test_what_exceeds_the_context_is_rejected() -> None:
    requests = run_reference(
        open_trace((0, 5, 6), (0, 5, 5)), TICK, KNOBS, 100, max_context=10
    ).requests
    assert requests.status.tolist() == [REJECTED, COMPLETED]


def test_the_client_of_a_rejected_request_goes_on_at_once() -> None:
    requests = run_reference(
        closed_trace(1, 0.5, (5_000, 5), (5, 1), (5, 1)), TICK, KNOBS, 100
    ).requests
    assert ms(requests.due_ns) == [0.5, 1.0, 2.5]


def test_a_window_ends_time() -> None:
    requests = run_reference(
        open_trace((0, 5, 3), (1, 5, 3), (3, 5, 3), (3.6, 5, 3)),
        TICK,
        KNOBS,
        100,
        window_ps=int(3.5 * MS),
    ).requests
    assert len(requests) == 3
    assert requests.status.tolist() == [COMPLETED, UNFINISHED, UNFINISHED]
    assert requests.osl.tolist() == [3, 2, 0]
    assert ms(requests.first_token_ns)[1] == 2.0
    assert requests.first_token_ns[2] == -1
    assert requests.last_token_ns.tolist() == [3_000_000, -1, -1]
    assert requests.gaps.sum() == 3
    assert requests.window_ns == 3_500_000


def test_prices_are_rounded_once_and_nanoseconds_down() -> None:
    step = StepModel(
        coefficients=coefficient_array(host_step=0.001_000_000_999_6, norm=1.0), frontend_s=0.0
    )
    result = run_reference(open_trace((0, 5, 2)), step, KNOBS, 100)
    assert [row[1] for row in result.steps] == [1_000_001_000, 1_000_001_000]
    assert result.requests.last_token_ns.tolist() == [2_000_002]


# whose requests do not begin together
@pytest.mark.parametrize("scheduler", [name for name in SCHEDULERS if name != "one-prefill"])
def test_decode_steps_are_an_arithmetic_progression(scheduler) -> None:
    step = StepModel(coefficients=ROOFLINE, frontend_s=0.0)
    batch, isl, osl = 5, 20, 400
    result = run_reference(
        open_trace(*[(0.0, isl, osl)] * batch),
        step,
        replace(KNOBS, scheduler=scheduler, chunked_prefill=True),
        1000,
    )
    a, c = (int(column[batch]) for column in step.decode_line(8))
    steps = osl - 1
    closed_form = steps * (a + c * batch * isl) + c * batch * steps * (steps + 1) // 2
    assert [job.last_token - job.first_token for job in result.jobs] == [closed_form] * batch


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(r=runs())
def test_nothing_is_lost_and_nothing_counted_twice(r: Run) -> None:
    result = run_reference(
        r.trace,
        r.step,
        r.knobs,
        r.kv_blocks,
        windows=r.windows,
        window_ps=r.window_ps,
        max_context=r.max_context,
    )
    requests = result.requests
    if r.window_ps < 0:
        assert len(requests) == len(r.trace)
        assert not (requests.status == UNFINISHED).any()
        assert result.free_blocks == r.kv_blocks
    assert result.free_blocks + sum(job.blocks for job in result.jobs) == r.kv_blocks
    done = requests.status == COMPLETED
    np.testing.assert_array_equal(requests.osl[done], r.trace.osl[: len(requests)][done])
    np.testing.assert_array_equal(requests.osl[requests.status == REJECTED], 0)
    assert (requests.osl <= r.trace.osl[: len(requests)]).all()
    assert requests.gaps.sum() == np.maximum(requests.osl - 1, 0).sum()
    started = requests.first_token_ns >= 0
    np.testing.assert_array_equal(started, requests.osl > 0)
    assert (requests.first_token_ns[started] >= requests.sent_ns[started]).all()
    assert (requests.last_token_ns[done] >= requests.first_token_ns[done]).all()
    ends = [start + lasts for start, lasts, *_ in result.steps]
    assert all(start >= end for end, (start, *_) in zip(ends, result.steps[1:], strict=False))
    if r.knobs.scheduler == "tensorrt-llm" and r.window_ps < 0:
        assert sum(row[2] for row in result.steps) == requests.isl[done].sum()
    if r.knobs.scheduler == "tensorrt-llm" and r.window_ps < 0 and r.step.drafting is None:
        assert sum(row[4] for row in result.steps) == (requests.osl[done] - 1).sum()
    if r.knobs.scheduler == "sglang":
        assert all(row[2] == 0 or row[4] == 0 for row in result.steps)
        size, chunks = r.knobs.tokens_per_block, r.knobs.chunked_prefill
        assert all(
            row[2] <= max(size, r.knobs.max_num_tokens) or (row[3] == 1 and not chunks)
            for row in result.steps
        )
    elif r.knobs.scheduler != "static":
        each = 1 + (r.step.drafting.tokens if r.step.drafting else 0)
        assert all(row[2] + row[4] * each <= r.knobs.max_num_tokens for row in result.steps)
        assert all(row[2] + row[4] >= 1 for row in result.steps)
    assert all(row[7] <= r.knobs.max_batch_size for row in result.steps)

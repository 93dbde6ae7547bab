"""Classes and deadlines, compiled: the order of the queue is the reference's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.simulator.kernel.compared import CLASSES_COMPILED, ENGINE, MODEL, both, compare
from tests.strategies import MS, SCHEDULERS, coefficient_array, ranked_runs
from tonnage.perf.step import StepModel
from tonnage.results.requests import COMPLETED, REJECTED
from tonnage.simulator.request import DECODE_SEQUENCES, IN_ENGINE, PREFILL_SEQUENCES, START
from tonnage.spec.arrivals import TrafficClass, with_classes
from tonnage.spec.workload import ClosedLoop, Lengths, OpenLoop, Trace, Workload


@CLASSES_COMPILED
@pytest.mark.parametrize("scheduler", SCHEDULERS)
@settings(max_examples=1_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_kernel_equals_reference_on_a_thousand_runs_with_classes(scheduler, data):
    compare(data.draw(ranked_runs((scheduler,))))


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

"""Classes, deadlines and shedding: small cases by hand, and what must always hold; the kernel is
held against it in ``kernel/test_run.py``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import simpy
from hypothesis import HealthCheck, given, settings

from tests.simulator.reference.examples import TICK, VLLM
from tests.strategies import MS, ranked_runs
from tonnage import simulate
from tonnage.cli.main import run as command
from tonnage.errors import InputError
from tonnage.perf.step import Drafting
from tonnage.perf.step_terms import COEFFICIENTS
from tonnage.results.requests import COMPLETED, REJECTED
from tonnage.simulator import kernel
from tonnage.simulator.engine import Engine
from tonnage.simulator.reference import run_reference
from tonnage.spec.deployment import EngineKnobs
from tonnage.spec.sessions import ENDLESS, of_rows
from tonnage.spec.workload import Trace

ONE_SLOT = replace(VLLM, max_batch_size=1, max_num_tokens=100)


def trace_of(*requests: tuple[int, int, int, int, int]) -> Trace:
    """Due, ISL, OSL, class, and the limit on the first token in steps of a millisecond (-1 for
    none)."""
    due, isl, osl, priority, ttft = np.array(requests, np.int64).T
    limits = np.where(ttft < 0, -1, ttft * MS)
    return Trace(
        due_ps=due * MS,
        isl=isl,
        osl=osl,
        concurrency=0,
        turnaround_ps=0,
        priority=priority,
        ttft_ps=limits,
    )


def first_tokens(trace: Trace, knobs: EngineKnobs, blocks: int = 1000) -> list[int]:
    """The requests in the order of their first tokens."""
    return np.argsort(
        run_reference(trace, TICK, knobs, blocks).requests.first_token_ns, kind="stable"
    ).tolist()


@pytest.mark.parametrize(
    "scheduler", ["vllm", "tensorrt-llm", "sglang", "max-utilization", "one-prefill"]
)
def test_the_lowest_class_goes_first_and_within_it_the_first_to_come(scheduler):
    knobs = replace(ONE_SLOT, scheduler=scheduler, queue_order="priority")
    trace = trace_of(
        (0, 10, 20, 2, -1),
        (1, 10, 2, 2, -1),
        (2, 10, 2, 1, -1),
        (3, 10, 2, 0, -1),
        (4, 10, 2, 1, -1),
    )
    assert first_tokens(trace, knobs) == [0, 3, 2, 4, 1]
    assert first_tokens(trace, replace(knobs, queue_order="fcfs")) == [0, 1, 2, 3, 4]


def test_the_earliest_deadline_goes_first_whatever_its_class():
    trace = trace_of(
        (0, 10, 20, 0, -1),
        (1, 10, 2, 0, 90),
        (2, 10, 2, 1, 50),
        (3, 10, 2, 2, 60),
        (4, 10, 2, 0, -1),
    )
    assert first_tokens(trace, replace(ONE_SLOT, queue_order="deadline")) == [0, 2, 3, 1, 4]


def test_the_last_of_the_lowest_class_is_pre_empted_wherever_it_stands():
    """Three of 4 + 8 tokens in 16 blocks of one: by time the last to enter gives way, by class the
    one of class 1, which entered first."""
    knobs = replace(VLLM, tokens_per_block=1, max_batch_size=8, max_num_tokens=64)
    trace = trace_of((0, 4, 8, 1, -1), (1, 4, 8, 0, -1), (2, 4, 8, 0, -1))
    plain = run_reference(trace, TICK, knobs, 16).requests.preemptions
    ranked = run_reference(
        trace, TICK, replace(knobs, queue_order="priority"), 16
    ).requests.preemptions
    assert (plain[0], plain[2] > 0) == (0, True)
    assert (ranked[0] > 0, ranked[1]) == (True, 0)


def test_what_cannot_have_its_first_token_in_time_is_rejected_and_blocks_nobody():
    """The slot is taken up to 20 ms, and a step takes 1 ms: first tokens due before 21 ms are
    missed, the one due at 21 ms is not."""
    trace = trace_of(
        (0, 10, 20, 0, -1),
        (1, 10, 2, 0, 5),
        (2, 10, 2, 0, 18),
        (3, 10, 2, 0, 18),
        (4, 10, 2, 0, -1),
    )
    record = run_reference(trace, TICK, replace(ONE_SLOT, shed=True), 1000).requests
    assert record.status.tolist() == [COMPLETED, REJECTED, REJECTED, COMPLETED, COMPLETED]
    assert record.first_token_ns[3] - record.due_ns[3] == 18_000_000
    assert record.first_token_ns[4] == 23_000_000


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(run=ranked_runs())
def test_every_request_ends_and_everything_is_given_back(run):
    found = run_reference(
        run.trace,
        run.step,
        run.knobs,
        run.kv_blocks,
        windows=run.windows,
        window_ps=run.window_ps,
        max_context=run.max_context,
    )
    record = found.requests
    if run.window_ps < 0:
        assert len(record) == len(run.trace)
        assert found.free_blocks == run.kv_blocks
        assert set(record.status.tolist()) <= {COMPLETED, REJECTED}
        if run.trace.concurrency == 0:
            plain = run_reference(
                run.trace,
                run.step,
                replace(run.knobs, shed=False),
                run.kv_blocks,
                windows=run.windows,
                max_context=run.max_context,
            ).requests
            fits = plain.status == COMPLETED
            late = record.status[fits] == REJECTED
            assert run.knobs.shed or not late.any()
            assert (run.trace.ttft_ps[fits][late] >= 0).all(), "only what has a limit is shed"
    done = record.status == COMPLETED
    np.testing.assert_array_equal(record.osl[done], run.trace.osl[: len(record)][done])
    assert (record.osl[record.status == REJECTED] == 0).all(), "what has had a token is not shed"


ASKED = {
    "model": "llama-3.1-8b",
    "isl": "uniform:200-4000",
    "osl": 60,
    "request_rate": 16,
    "requests": 300,
    "engine": "vllm",
}
TWO = "chat 0.6 ttft=1s, batch 0.4 ttft=30s"


def test_latency_by_class_and_what_was_shed():
    plain, ranked, shed = (
        {one.name: one for one in simulate(**ASKED, max_batch_size=8, classes=TWO, **more).classes}
        for more in ({}, {"queue_order": "priority"}, {"queue_order": "deadline", "shed": True})
    )
    assert plain["chat"].requests + plain["batch"].requests == 300
    assert ranked["chat"].ttft_ms.p95 < 0.5 * plain["chat"].ttft_ms.p95
    assert ranked["batch"].ttft_ms.mean > plain["batch"].ttft_ms.mean
    assert shed["chat"].rejected > 0
    assert shed["chat"].completed + shed["chat"].rejected == shed["chat"].requests
    assert shed["chat"].within > ranked["chat"].within


def test_classes_are_printed_and_counted_as_rejected(capsys):
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in ASKED.items()]
    ranked = [*flags, "--max-batch-size=8", "--queue-order=deadline", "--shed"]
    assert command(["simulate", *ranked, f"--classes={TWO}"]) == 0
    assert "rejected" in capsys.readouterr().out
    found = simulate(
        **ASKED, max_batch_size=8, queue_order="deadline", shed=True, classes=TWO
    ).to_json()
    assert sum(one["rejected"] for one in found["classes"]) == found["requests"]["rejected"] > 0
    assert command(["simulate", *flags, "--shed", "--ttft=p95<=2s"]) == 0


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"classes": "a 0.5, b 0.4"}, "sum to 0.9"),
        ({"classes": "a 0.5, a 0.5"}, "twice"),
        ({"queue_order": "priority"}, "goes by class"),
        ({"shed": True}, "needs a limit on the first token"),
        ({"queue_order": "deadline", "classes": "a 1"}, "none of the classes"),
        (
            {
                "queue_order": "priority",
                "classes": "a 1",
                "requests": 1_000_000,
                "speculation": "eagle k=3 acceptance=0.7",
            },
            "readable simulator",
        ),
        ({"long_prefill_token_threshold": 100, "engine": "sglang"}, "vLLM does"),
        (
            {"long_prefill_token_threshold": 100, "speculation": "eagle k=3 acceptance=0.7"},
            "speculative decoding",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(more, said):
    with pytest.raises(InputError, match=said):
        simulate(**ASKED | more)


def test_the_kernel_refuses_what_only_the_reference_knows():
    ranked = replace(ONE_SLOT, queue_order="deadline")
    trace = trace_of((0, 4, 4, 0, 20), (0, 4, 4, 0, 10))
    guessing = replace(
        TICK,
        drafting=Drafting(tokens=2, acceptance=0.5, passes=0, coefficients=np.zeros(COEFFICIENTS)),
    )
    shared = replace(trace, contents=of_rows([[(0, ENDLESS)], [(0, ENDLESS)]]))
    for asked, step in ((trace, guessing), (shared, TICK)):
        with pytest.raises(InputError, match="readable simulator has them"):
            kernel.run(asked, step, ranked, 100)
    with pytest.raises(InputError, match="on a single instance"):
        Engine(TICK, ranked, 100)


def priority_queue(trace: Trace) -> np.ndarray:
    """When each request ends by SimPy's priority resource, in picoseconds: an output token takes a
    millisecond, and nobody who is served is put back."""
    ends = np.zeros(len(trace), np.int64)
    world = simpy.Environment()
    servers = simpy.PriorityResource(world, capacity=1)

    def request(number: int, due: int, priority: int, tokens: int) -> Iterator[simpy.Event]:
        yield world.timeout(due)
        with servers.request(priority=priority) as turn:
            yield turn
            yield world.timeout(tokens * MS)
        ends[number] = world.now

    columns = (trace.due_ps, trace.priority, trace.osl)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for number, (due, priority, tokens) in enumerate(rows):
        world.process(request(number, due, priority, tokens))
    world.run()
    return ends


@pytest.mark.parametrize("classes", [2, 3])
def test_simpy_serves_the_same_requests_by_priority_at_the_same_instants(classes):
    """One slot, steps of a millisecond whatever they hold, and prompts that fit any step."""
    rng, count, most = np.random.default_rng(classes), 600, 12
    due = np.cumsum(rng.integers(0, MS * most, count))
    trace = Trace(
        due_ps=due,
        isl=np.ones(count, np.int64),
        osl=rng.integers(1, most, count),
        concurrency=0,
        turnaround_ps=0,
        priority=rng.integers(0, classes, count),
    )
    knobs = replace(ONE_SLOT, max_num_tokens=10_000, queue_order="priority")
    record = run_reference(trace, TICK, knobs, 10_000).requests
    np.testing.assert_array_equal(record.last_token_ns, priority_queue(trace) // 1000)
    waits = record.last_token_ns - due // 1000
    of_class = [waits[trace.priority == place].mean() for place in range(classes)]
    assert of_class == sorted(of_class)
    assert of_class[0] < of_class[-1]

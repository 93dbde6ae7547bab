"""What is special to MAX_UTILIZATION, to one prompt at a time on an engine, and to queues that are
not first come, first served."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.simulator.test_reference import KNOBS, SGLANG, TICK, VLLM, composition, open_trace
from tests.strategies import MS, SCHEDULERS
from tonnage.api import simulate
from tonnage.cli.main import run as command
from tonnage.errors import InputError
from tonnage.results.requests import COMPLETED, REJECTED
from tonnage.simulator.kernel import run
from tonnage.simulator.reference import run_reference
from tonnage.spec.deployment import NO_WINDOWS, Windows
from tonnage.spec.workload import Trace

OWN = replace(
    VLLM,
    scheduler="max-utilization",
    chunked_prefill=False,
    tokens_per_block=1,
    max_batch_size=8,
    max_num_tokens=64,
)


def trace_of(*requests: tuple[int, int, int]) -> Trace:
    due, isl, osl = np.array(requests, np.int64).T
    return Trace(due_ps=due * MS, isl=isl, osl=osl, concurrency=0, turnaround_ps=0)


def test_more_enter_than_have_room_for_their_whole_output():
    """Two of 4 + 8 tokens in 16 blocks: under GUARANTEED_NO_EVICT one after the other, here
    together until blocks run out."""
    both = trace_of((0, 4, 8), (0, 4, 8))
    paused = run(both, TICK, OWN, 16)
    kept = run(both, TICK, replace(OWN, scheduler="tensorrt-llm"), 16)
    assert kept.first_token_ns.tolist() == [1_000_000, 9_000_000]
    assert paused.first_token_ns.tolist() == [1_000_000, 1_000_000]
    assert (kept.preemptions.tolist(), paused.preemptions.tolist()) == ([0, 0], [0, 1])
    assert paused.last_token_ns[0] == 8_000_000
    assert paused.last_token_ns[1] < kept.last_token_ns[1]


def test_a_request_that_could_not_be_computed_again_is_rejected():
    assert run(trace_of((0, 60, 5)), TICK, OWN, 1000).status.tolist() == [REJECTED]
    assert run(
        trace_of((0, 60, 5)), TICK, replace(OWN, chunked_prefill=True), 1000
    ).status.tolist() == [COMPLETED]
    whole_blocks = replace(OWN, chunked_prefill=True, max_num_tokens=10, tokens_per_block=16)
    asked = trace_of((0, 4, 6), (0, 4, 7), (0, 4, 6)), TICK, whole_blocks, 1000
    for record in (run(*asked), run_reference(*asked).requests):
        assert record.status.tolist() == [COMPLETED, REJECTED, COMPLETED], (
            "a chunk is a whole block, and none fits into the budget"
        )


@pytest.mark.parametrize("scheduler", ["vllm", "tensorrt-llm", "sglang", "max-utilization"])
def test_the_shortest_prompt_that_waits_goes_first(scheduler):
    """One slot: whoever comes while it is taken waits, and the shortest of them is next; of two
    that are equal the first to come."""
    knobs = replace(
        VLLM,
        scheduler=scheduler,
        max_batch_size=1,
        max_num_tokens=100,
        queue_order="shortest-first",
    )
    record = run(
        trace_of((0, 10, 20), (1, 30, 2), (2, 5, 2), (3, 5, 2), (4, 20, 2)), TICK, knobs, 1000
    )
    assert np.argsort(record.first_token_ns, kind="stable").tolist() == [0, 2, 3, 4, 1]
    plain = run(
        trace_of((0, 10, 20), (1, 30, 2), (2, 5, 2)), TICK, replace(knobs, queue_order="fcfs"), 1000
    )
    assert np.argsort(plain.first_token_ns, kind="stable").tolist() == [0, 1, 2]


def test_long_prompts_are_computed_in_chunks_beside_others():
    """Steps of 1 ms and 8 tokens: two prompts of 12 come together. Whole, one is done after two
    steps and the other after four; in chunks of 4 both after three, and in chunks of 2 a short one
    that comes later is done before them."""
    knobs = replace(VLLM, tokens_per_block=1, max_batch_size=8, max_num_tokens=8)
    trace = trace_of((0, 12, 2), (0, 12, 2), (1, 3, 2))
    whole, cut = (
        run(trace, TICK, replace(knobs, long_prefill_token_threshold=most), 1000) for most in (0, 4)
    )
    assert whole.first_token_ns.tolist() == [2_000_000, 4_000_000, 4_000_000]
    assert cut.first_token_ns.tolist() == [3_000_000, 3_000_000, 4_000_000]
    asked = trace, TICK, replace(knobs, long_prefill_token_threshold=2), 1000
    for record in (run(*asked), run_reference(*asked).requests):
        assert record.first_token_ns.tolist() == [6_000_000, 6_000_000, 3_000_000]


def test_a_lone_prompt_is_computed_whole():
    knobs = replace(VLLM, tokens_per_block=1, max_num_tokens=64, long_prefill_token_threshold=4)
    asked = trace_of((0, 40, 1)), TICK, knobs, 1000
    for record in (run(*asked), run_reference(*asked).requests):
        assert record.first_token_ns.tolist() == [1_000_000]


def test_max_utilization_is_tensorrt_llms(capsys):
    with pytest.raises(InputError, match="max-utilization"):
        simulate(
            model="llama-3.1-8b",
            isl=100,
            osl=10,
            request_rate=1,
            requests=5,
            engine="vllm",
            batcher="max-utilization",
        )
    assert command(["simulate", "--ticks", "--batcher", "max-utilization"]) == 2
    assert "batcher" in capsys.readouterr().err


# KV-cache blocks of sliding windows in the reference, on examples worked out by hand, with steps of
# 1 ms.

TWO = Windows(blocks=2, tokens=30)


@pytest.mark.parametrize(
    ("tokens", "blocks"), [(1, 1), (4, 1), (5, 2), (8, 2), (9, 3), (12, 3), (1_000_000, 3)]
)
def test_a_sequence_shorter_than_the_window_has_its_share(tokens: int, blocks: int) -> None:
    assert Windows(blocks=3, tokens=12).of(tokens) == blocks
    assert Windows(blocks=3).of(tokens) == 3
    assert NO_WINDOWS.of(tokens) == 0


@pytest.mark.parametrize(("pool", "together"), [(14, True), (13, False)])
@pytest.mark.parametrize("scheduler", ["tensorrt-llm", "static"])
def test_two_of_five_blocks_and_two_for_windows_take_fourteen(
    scheduler, pool: int, together: bool
) -> None:
    requests = open_trace((0, 41, 3), (0, 41, 3))
    result = run_reference(requests, TICK, replace(KNOBS, scheduler=scheduler), pool, windows=TWO)
    assert composition(result)[0] == (
        (82, 2, 0, 2 * 41 * 41, 0) if together else (41, 1, 0, 41 * 41, 0)
    )
    assert len(result.steps) == (3 if together else 6)
    assert result.free_blocks == pool


def test_vllm_takes_them_at_entry_and_frees_them_with_a_pre_emption() -> None:
    # As without windows in a pool of 4: two blocks of 4 and one for windows each fill 6; the second
    # request is pre-empted, leaves 3, needs 3 + 1 to enter again and has them when the first ends.
    requests, one = open_trace((0, 8, 5), (0, 8, 5), (0.1, 1, 1)), Windows(blocks=1)
    result = run_reference(requests, TICK, VLLM, 6, windows=one)
    assert composition(result) == composition(run_reference(requests, TICK, VLLM, 4))
    assert result.requests.preemptions.tolist() == [0, 1, 0]
    assert result.free_blocks == 6
    # One block less: the second does not enter beside the first, the third behind it waits too.
    alone = run_reference(requests, TICK, VLLM, 5, windows=one)
    assert composition(alone)[:2] == [(8, 1, 0, 64, 0), (0, 0, 1, 0, 9)]
    assert alone.requests.preemptions.sum() == 0


def test_sglang_reckons_with_them_in_admission() -> None:
    # First pass: 220 − (10 + 100 + 1 + 5) = 104 are left, and the second needs 20 + 100 + 1 + 5.
    # Second: 220 − 15 − 0.7 · 99 = 135.7 are left and it enters; the third finds 9.7. In 210, the
    # second pass finds 125.7, and the second request waits.
    requests, five = open_trace((0, 10, 100), (0, 20, 100), (0, 20, 100)), Windows(blocks=5)
    result = run_reference(requests, TICK, SGLANG, 220, windows=five)
    assert [row[2:5] for row in result.steps[:4]] == [(10, 1, 0), (20, 1, 0), (0, 0, 2), (0, 0, 2)]
    assert result.free_blocks == 220
    tight = run_reference(requests, TICK, SGLANG, 210, windows=five)
    assert [row[2:5] for row in tight.steps[:3]] == [(10, 1, 0), (0, 0, 1), (0, 0, 1)]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_what_its_windows_leave_no_room_for_is_rejected(scheduler) -> None:
    # 41 + 3 tokens take 5 blocks of 10, and 2; SGLang keeps one block free beside them, and tells
    # 44 tokens from 50.
    knobs = replace(KNOBS, scheduler=scheduler, chunked_prefill=True)
    least = 8 if scheduler == "sglang" else 7
    for pool, status in ((least, COMPLETED), (least - 1, REJECTED)):
        result = run_reference(open_trace((0, 41, 3)), TICK, knobs, pool, windows=TWO)
        assert result.requests.status.tolist() == [status]
        assert result.free_blocks == pool

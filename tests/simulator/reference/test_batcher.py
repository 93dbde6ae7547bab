"""Blocks of sliding windows in the reference, worked out by hand, with steps of 1 ms."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulator.reference.examples import KNOBS, SGLANG, TICK, VLLM, composition, open_trace
from tests.strategies import SCHEDULERS
from tonnage.results.requests import COMPLETED, REJECTED
from tonnage.simulator.reference import run_reference
from tonnage.spec.deployment import Windows

TWO = Windows(blocks=2, tokens=30)


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

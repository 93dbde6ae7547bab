"""vLLM's scheduler by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.simulator.reference.examples import TICK, VLLM, composition, ms, open_trace
from tonnage.results.requests import gap_edges_ns
from tonnage.simulator.reference import run_reference


def test_vllm_spends_one_budget_on_running_ones_first() -> None:
    result = run_reference(open_trace((0, 10, 9), (0.1, 250, 2), (0.1, 9, 2)), TICK, VLLM, 1000)
    assert composition(result)[:5] == [
        (10, 1, 0, 100, 0),
        (99, 1, 1, 99 * 99, 11),
        (99, 1, 1, 99 * (2 * 99 + 99), 12),
        (52 + 9, 2, 1, 52 * (2 * 198 + 52) + 81, 13),
        (0, 0, 3, 0, 14 + 251 + 10),
    ]


def test_vllm_without_chunks_waits_until_a_prompt_fits_whole() -> None:
    knobs = replace(VLLM, chunked_prefill=False)
    result = run_reference(open_trace((0, 10, 2), (0, 85, 2), (0, 10, 2)), TICK, knobs, 1000)
    assert composition(result) == [
        (95, 2, 0, 100 + 85 * 85, 0),
        (10, 1, 2, 100, 11 + 86),
        (0, 0, 1, 0, 11),
    ]


def test_vllm_admits_only_when_all_of_a_prompt_has_free_blocks() -> None:
    knobs = replace(VLLM, max_num_tokens=8)
    result = run_reference(open_trace((0, 8, 3), (0.1, 20, 1)), TICK, knobs, 6)
    # The second needs 5 blocks of 4 although its first chunk would take 2; 2 and then 3 of 6 are
    # taken.
    assert composition(result) == [
        (8, 1, 0, 64, 0),
        (0, 0, 1, 0, 9),
        (0, 0, 1, 0, 10),
        (8, 1, 0, 64, 0),
        (8, 1, 0, 8 * 24, 0),
        (4, 1, 0, 4 * 36, 0),
    ]


def test_vllm_pre_empts_the_last_admitted_and_admits_nobody_in_that_step() -> None:
    # Two of 8 tokens in 4 blocks of 4: both need a third block in the second step; the first takes
    # that of the second.
    result = run_reference(open_trace((0, 8, 5), (0, 8, 5), (0.1, 1, 1)), TICK, VLLM, 4)
    assert composition(result) == [
        (16, 2, 0, 128, 0),
        # the second is pre-empted: 1 block is free, and the third request would fit
        (0, 0, 1, 0, 9),
        (0, 0, 1, 0, 10),  # the second is first in line and needs 3 blocks for 9 tokens
        (0, 0, 1, 0, 11),
        (0, 0, 1, 0, 12),  # the first ends
        (9 + 1, 2, 0, 81 + 1, 0),  # prompt and the one token so far, computed again
        (0, 0, 1, 0, 10),
        (0, 0, 1, 0, 11),
        (0, 0, 1, 0, 12),
    ]
    requests = result.requests
    assert requests.preemptions.tolist() == [0, 1, 0]
    assert ms(requests.first_token_ns) == [1.0, 1.0, 6.0]
    assert ms(requests.last_token_ns) == [5.0, 9.0, 6.0]
    # The second's gap after its first token spans the computing again: 5 ms; all others are 1 ms.
    five, one = (
        int(np.searchsorted(gap_edges_ns(), ns, side="right")) - 1 for ns in (5_000_000, 1_000_000)
    )
    assert requests.gaps[0, five] == 1
    assert requests.gaps.sum() == 8
    assert requests.gaps[:, one].sum() == 7


def test_vllm_may_pre_empt_the_very_one_that_asks() -> None:
    result = run_reference(open_trace((0, 8, 9), (0, 7, 9)), TICK, VLLM, 5)
    assert result.requests.preemptions.tolist() == [0, 1]
    # 2 + 2 blocks; the first takes the fifth at 9 tokens, the second finds none at 9, a step later.
    assert composition(result)[1:3] == [(0, 0, 2, 0, 9 + 8), (0, 0, 1, 0, 10)]


def test_the_chunk_of_a_lower_class_gives_its_tokens_and_blocks_back_within_the_step() -> None:
    """Of 6 tokens a step a prompt has 4 while others are there. The 18 tokens of class 1 come
    first; in the fourth step theirs would fill the 22 blocks, and the decode of class 0 needs one:
    the chunk is left out again, and the other prompt of class 0 has 4 tokens and not 1."""
    knobs = replace(
        VLLM,
        tokens_per_block=1,
        max_num_tokens=6,
        long_prefill_token_threshold=4,
        queue_order="priority",
    )
    trace = replace(open_trace((0, 18, 2), (0.5, 1, 6), (0.5, 11, 1)), priority=np.array([1, 0, 0]))
    result = run_reference(trace, TICK, knobs, 22)
    assert composition(result) == [
        (6, 1, 0, 36, 0),
        (4 + 1 + 1, 3, 0, 64 + 1 + 1, 0),
        (4 + 1, 2, 1, 96 + 3, 2),
        (4, 1, 1, 32, 3),
        (4, 1, 1, 64, 4),
        (1, 1, 1, 21, 5),
        (0, 0, 1, 0, 6),
        (6, 1, 0, 36, 0),
        (6, 1, 0, 6 * (2 * 6 + 6), 0),
        (6, 1, 0, 6 * (2 * 12 + 6), 0),
        (0, 0, 1, 0, 19),
    ]
    assert result.requests.preemptions.tolist() == [1, 0, 0]
    assert ms(result.requests.last_token_ns) == [11, 7, 6]
    assert ms(result.requests.admitted_ns) == [0, 1, 1]

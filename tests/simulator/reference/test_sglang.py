"""SGLang's scheduler by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.simulator.reference.examples import SGLANG, TICK, composition, ms, open_trace
from tonnage.results.requests import gap_edges_ns
from tonnage.simulator.reference import run_reference


def test_sglang_runs_prompts_alone_before_any_decode() -> None:
    result = run_reference(
        open_trace((0, 10, 3), (0.1, 60, 2), (0.2, 30, 2), (2.5, 5, 1)), TICK, SGLANG, 1000
    )
    assert composition(result) == [
        (10, 1, 0, 100, 0),
        (90, 2, 0, 3600 + 900, 0),
        (0, 0, 3, 0, 11 + 61 + 31),
        (5, 1, 0, 25, 0),
        (0, 0, 1, 0, 12),
    ]
    # The first one's gaps are of 2 ms both: a step of prompts lies in each.
    assert ms(result.requests.last_token_ns) == [5.0, 3.0, 3.0, 4.0]
    assert ms(result.requests.first_token_ns) == [1.0, 2.0, 2.0, 4.0]
    two = int(np.searchsorted(gap_edges_ns(), 2_000_000, side="right")) - 1
    assert result.requests.gaps[:, two].sum() == 2


def test_sglang_cuts_one_prompt_to_whole_blocks_and_continues_it_first() -> None:
    knobs = replace(SGLANG, tokens_per_block=10)
    result = run_reference(
        open_trace((0, 15, 2), (0, 250, 2), (0, 9, 2), (0, 60, 2)), TICK, knobs, 1000
    )
    assert composition(result) == [
        (15 + 80, 2, 0, 225 + 6400, 0),  # 15 tokens count as 20
        (100, 1, 0, 100 * (2 * 80 + 100), 0),
        (70 + 9 + 20, 3, 0, 70 * (2 * 180 + 70) + 81 + 400, 0),
        (40, 1, 0, 40 * (2 * 20 + 40), 0),
        (0, 0, 4, 0, 16 + 251 + 10 + 61),
    ]


def test_sglang_without_chunks_takes_a_prompt_of_any_length_first() -> None:
    knobs = replace(SGLANG, chunked_prefill=False)
    result = run_reference(
        open_trace((0, 300, 1), (0, 40, 1), (0, 60, 1), (0, 5, 1)), TICK, knobs, 1000
    )
    # 60 reaches what 40 left of 100.
    assert [row[2:4] for row in result.steps] == [(300, 1), (40, 1), (65, 2)]


def test_sglang_reserves_a_share_of_the_output_of_those_that_decode() -> None:
    # In the first pass 210 − (10 + 100 + 1) = 99 tokens are left, and the second needs 20 + 100 +
    # 1. In the second 200 − 0.7 · 99 = 130.7 are left and it enters; the third needs as much of the
    # 9.7 that are left then.
    result = run_reference(open_trace((0, 10, 100), (0, 20, 100), (0, 20, 100)), TICK, SGLANG, 210)
    assert [row[2:5] for row in result.steps[:4]] == [(10, 1, 0), (20, 1, 0), (0, 0, 2), (0, 0, 2)]


@pytest.mark.parametrize(("due", "waits"), [(0.1, True), (100.1, False)])
def test_sglang_looks_at_nobody_until_someone_leaves(due: float, waits: bool) -> None:
    # The first pass that sees the second finds 1090 − 0.7 · 1000 of the 403 tokens that it needs;
    # 100 rounds later the ratio is 0.6 and there is room, but the queue is looked at only if it was
    # not before.
    result = run_reference(open_trace((0, 10, 1001), (due, 400, 2)), TICK, SGLANG, 1100)
    first, second = result.jobs
    assert (second.first_step > first.last_step) == waits
    assert waits or second.first_step == 101 + 3  # in four chunks


def test_sglang_retracts_and_queues_last() -> None:
    # 30 outputs each. The first two fill 62 tokens before they end; of equals the last one goes,
    # behind those that wait.
    four = open_trace((0, 5, 30), (0.1, 5, 30), (1.1, 9, 30), (1.2, 5, 30))
    result = run_reference(four, TICK, SGLANG, 62)
    assert result.requests.preemptions.tolist() == [0, 1, 0, 0]
    assert result.jobs[1].last_step > result.jobs[3].last_step > result.jobs[2].last_step
    # In 68 the last two decode together: the longer prompt goes.
    result = run_reference(four, TICK, SGLANG, 68)
    assert result.requests.preemptions.tolist() == [0, 0, 1, 0]
    # Fewer outputs count before a longer prompt.
    result = run_reference(open_trace((0, 9, 30), (5.1, 5, 25)), TICK, SGLANG, 64)
    assert result.requests.preemptions.tolist() == [0, 1]

"""TensorRT-LLM's scheduler by hand."""

from __future__ import annotations

from dataclasses import replace

from tests.simulator.reference.examples import KNOBS, TICK, composition, open_trace
from tonnage.simulator.reference import run_reference


def test_tensorrt_llm_packs_whole_prompts_into_what_decodes_leave() -> None:
    result = run_reference(
        open_trace((0, 10, 9), (0.1, 60, 2), (0.1, 39, 2), (0.1, 1, 2)), TICK, KNOBS, 100
    )
    # 100 − 1 decode − 60 − 39 = 0: the fourth waits although it is admitted.
    assert composition(result)[1] == (99, 2, 1, 60 * 60 + 39 * 39, 11)
    assert composition(result)[2] == (1, 1, 3, 1, 12 + 61 + 40)


def test_tensorrt_llm_keeps_the_order_of_prompts_without_chunks() -> None:
    result = run_reference(
        open_trace((0, 10, 9), (0.1, 60, 2), (0.1, 60, 2), (0.1, 5, 2)), TICK, KNOBS, 100
    )
    assert composition(result)[1] == (60, 1, 1, 3600, 11)
    assert composition(result)[2] == (65, 2, 2, 3600 + 25, 12 + 61)


def test_tensorrt_llm_cuts_prompts_to_whole_blocks_and_fills_up_with_short_ones() -> None:
    knobs = replace(KNOBS, chunked_prefill=True)
    result = run_reference(open_trace((0, 10, 9), (0.1, 250, 2), (0.1, 9, 2)), TICK, knobs, 100)
    # 99 left → 90 of the long prompt, then all of the short one
    assert composition(result)[1] == (99, 2, 1, 90 * 90 + 81, 11)
    assert composition(result)[2] == (90, 1, 2, 90 * (180 + 90), 12 + 10)
    assert composition(result)[3] == (70, 1, 1, 70 * (360 + 70), 13)


def test_tensorrt_llm_reserves_to_completion_and_the_head_of_the_line_blocks() -> None:
    result = run_reference(open_trace((0, 41, 3), (0.1, 41, 3), (0.2, 2, 1)), TICK, KNOBS, 9)
    # 5 blocks each: 4 are left, too few for the second, and the third, which needs one, stays
    # behind it.
    assert [row[7:9] for row in result.steps] == [(1, 0), (1, 2), (1, 2), (2, 0), (1, 0), (1, 0)]

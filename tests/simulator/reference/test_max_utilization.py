"""MAX_UTILIZATION by hand: more enter than have room, and the last to enter goes back."""

from __future__ import annotations

from dataclasses import replace

from tests.simulator.reference.examples import TICK, VLLM, composition, open_trace
from tonnage.simulator.reference import run_reference


def test_the_last_to_enter_is_paused_when_blocks_run_out_and_computes_all_again() -> None:
    knobs = replace(VLLM, scheduler="max-utilization", chunked_prefill=False, tokens_per_block=1)
    result = run_reference(open_trace((0, 4, 8), (0, 4, 8)), TICK, knobs, 16)
    steps = composition(result)
    # 2 × 4 tokens, and two more of 16 blocks a step: the fifth token of each has no room
    assert steps[0] == (8, 2, 0, 32, 0)
    assert steps[1:5] == [(0, 0, 2, 0, 2 * (4 + k)) for k in (1, 2, 3, 4)]
    assert result.requests.preemptions.tolist() == [0, 1]
    # the first goes on alone; then the second computes 4 + 5 tokens again
    alone = [step for step in steps[5:] if step[0] == 0 and step[2] == 1]
    assert [step[4] for step in alone[:3]] == [9, 10, 11]
    again = [step for step in steps[5:] if step[0]]
    assert again == [(9, 1, 0, 81, 0)]


def test_a_request_that_decodes_behind_a_prompt_in_chunks_pauses_itself() -> None:
    """The prompt of 32 has 8 of the 10 tokens a step, in blocks of 4, and holds 8 of 9 blocks; the
    short one behind it decodes from the second step on, needs its second block in the fourth and
    waits until the first has ended."""
    knobs = replace(
        VLLM, scheduler="max-utilization", tokens_per_block=4, max_num_tokens=10, max_batch_size=8
    )
    result = run_reference(open_trace((0, 32, 2), (0, 2, 4)), TICK, knobs, 9)
    assert composition(result) == [
        (10, 2, 0, 64 + 4, 0),
        (8, 1, 1, 8 * (2 * 8 + 8), 3),
        (8, 1, 1, 8 * (2 * 16 + 8), 4),
        (8, 1, 0, 8 * (2 * 24 + 8), 0),
        (0, 0, 1, 0, 33),
        (5, 1, 0, 25, 0),
    ]
    assert result.requests.preemptions.tolist() == [0, 1]
    assert result.free_blocks == 9

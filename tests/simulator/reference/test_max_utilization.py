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

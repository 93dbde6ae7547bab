"""In-flight batching of TensorRT-LLM, compiled: steps by hand, beside the reference."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulator.kernel.compared import both
from tests.simulator.reference.examples import KNOBS, TICK, open_trace


@pytest.mark.parametrize(
    ("chunked", "steps"),
    [
        # 30 + 80 are more than 100 tokens: the second prompt waits for the next step
        (False, [[30, 1, 0, 900, 0], [80, 1, 1, 6400, 31], [0, 0, 1, 0, 81]]),
        # 70 tokens are left for it: 7 blocks, and the last one over a context of 70
        (True, [[100, 2, 0, 900 + 4900, 0], [10, 1, 1, 10 * (140 + 10), 31], [0, 0, 1, 0, 81]]),
    ],
)
def test_prompts_fill_the_tokens_of_a_step_whole_or_in_blocks(
    chunked: bool, steps: list[list[int]]
) -> None:
    knobs = replace(KNOBS, chunked_prefill=chunked)
    _, record, _ = both(open_trace((0, 30, 2), (0, 80, 2)), TICK, knobs, 100)
    assert record.steps[:, 2:7].tolist() == steps

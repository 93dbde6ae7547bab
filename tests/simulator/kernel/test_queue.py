"""The queue, compiled: the shortest prompt that waits goes first."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.simulator.kernel.hand_worked import trace_of
from tests.simulator.reference.examples import TICK, VLLM
from tonnage.simulator.kernel import run


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

"""One prompt at a time, compiled: steps by hand, beside the reference."""

from __future__ import annotations

from dataclasses import replace

from tests.simulator.kernel.compared import both
from tests.simulator.reference.examples import KNOBS, TICK, open_trace


def test_a_step_has_one_prompt_however_many_would_fit() -> None:
    knobs = replace(KNOBS, scheduler="one-prefill")
    _, record, _ = both(open_trace((0, 10, 3), (0, 20, 1), (0, 5, 1)), TICK, knobs, 100)
    assert record.steps[:, 2:7].tolist() == [
        [10, 1, 0, 100, 0],
        [20, 1, 1, 400, 11],
        [5, 1, 1, 25, 12],
    ]

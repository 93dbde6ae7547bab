"""Static batches by hand."""

from __future__ import annotations

from dataclasses import replace

from tests.simulator.reference.examples import KNOBS, TICK, composition, ms, open_trace
from tonnage.simulator.reference import run_reference


def test_static_pads_to_the_longest_and_holds_the_slots() -> None:
    knobs = replace(KNOBS, scheduler="static", max_batch_size=2)
    result = run_reference(open_trace((0, 10, 2), (0, 30, 4), (0, 7, 1)), TICK, knobs, 1000)
    assert composition(result) == [
        (60, 2, 0, 2 * 900, 0),
        (0, 0, 2, 0, 62),
        (0, 0, 2, 0, 64),
        (0, 0, 2, 0, 66),
        (7, 1, 0, 49, 0),
    ]
    assert ms(result.requests.last_token_ns) == [2.0, 4.0, 5.0]

"""One prompt at a time, by hand."""

from __future__ import annotations

from dataclasses import replace

from tests.simulator.reference.examples import KNOBS, TICK, composition, ms, open_trace
from tonnage.simulator.reference import run_reference

ONE_PREFILL = replace(KNOBS, scheduler="one-prefill")


def test_one_prefill_takes_one_prompt_a_step_whatever_room_there_is() -> None:
    result = run_reference(open_trace((0, 10, 3), (0, 20, 2), (0, 30, 2)), TICK, ONE_PREFILL, 100)
    assert composition(result) == [
        (10, 1, 0, 100, 0),
        (20, 1, 1, 400, 11),
        (30, 1, 2, 900, 12 + 21),
        (0, 0, 1, 0, 31),
    ]
    assert ms(result.requests.first_token_ns) == [1.0, 2.0, 3.0]
    assert [row[7:9] for row in result.steps] == [(1, 2), (2, 1), (3, 0), (1, 0)]


def test_one_prefill_cuts_a_prompt_and_nobody_enters_until_it_is_done() -> None:
    knobs = replace(ONE_PREFILL, chunked_prefill=True)
    result = run_reference(open_trace((0, 10, 4), (0.1, 150, 1), (0.2, 10, 1)), TICK, knobs, 100)
    # 99 tokens are left beside the decode: 9 blocks of 10, then the rest.
    assert composition(result)[1:4] == [
        (90, 1, 1, 8100, 11),
        (60, 1, 1, 60 * (180 + 60), 12),
        (10, 1, 1, 100, 13),
    ]

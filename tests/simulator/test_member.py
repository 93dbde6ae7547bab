from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulator.driven_engines import ENGINES
from tests.simulator.reference.examples import KNOBS, TICK
from tests.strategies import MS
from tonnage.results.requests import COMPLETED, REJECTED, UNFINISHED
from tonnage.simulator import member as module
from tonnage.simulator import reference
from tonnage.simulator.engine import Engine
from tonnage.simulator.member import (
    BLOCK_TOKENS,
    Delivery,
    Member,
    PrefixIndex,
    view_of,
    view_of_groups,
)
from tonnage.simulator.request import Request
from tonnage.spec.sessions import ENDLESS, of_rows


@pytest.mark.parametrize("kind", ENGINES)
def test_an_engine_says_what_it_holds_and_when_it_goes_on(kind) -> None:
    engine = kind(TICK, KNOBS, 100)
    assert engine.next_event() is None
    engine.submit(Request(id=0, isl=41, osl=3, at=5 * MS))
    assert engine.next_event() == 5 * MS
    assert engine.kv_blocks_used == 0
    assert len(engine.advance(5 * MS)) == 0
    assert engine.next_event() == 5 * MS + 1
    assert list(engine.waiting) == [0]
    assert len(engine.advance(5 * MS + 1)) == 0
    assert engine.next_event() == 6 * MS
    assert (list(engine.running), engine.kv_blocks_used, engine.kv_blocks_free) == ([0], 5, 95)
    assert Member(engine).kv_used == 0.05
    assert engine.advance(6 * MS).tokens.tolist() == [1]
    assert engine.advance().at.tolist() == [7 * MS, 8 * MS]
    assert engine.now == 8 * MS
    assert (engine.next_event(), engine.kv_blocks_used) == (None, 0)


def test_a_router_remembers_whole_blocks_that_it_sent() -> None:
    almost = [(0, 2 * BLOCK_TOKENS - 1), (4, ENDLESS)]
    index = PrefixIndex(
        of_rows([[(0, 300), (1, ENDLESS)], [(0, 300), (2, ENDLESS)], [(3, ENDLESS)], almost]), 2
    )
    assert index.matched(0, 400) == [0, 0]
    index.sent(0, 400, 1)
    assert index.matched(1, 400) == [0, 300 // BLOCK_TOKENS * BLOCK_TOKENS]
    assert index.matched(2, 400) == [0, 0]
    assert index.matched(3, 400) == [0, BLOCK_TOKENS], (
        "its second block ends with a token of its own"
    )


def member_of(slots: int = 8, blocks: int = 20) -> Member:
    """An engine of 20 blocks of 10 tokens whose steps take a millisecond, and whose front end
    takes 2 ms for the tokens of a step."""
    step = replace(TICK, stream_step_s=0.002)
    return Member(Engine(step, replace(KNOBS, max_batch_size=slots), blocks))  # type: ignore[arg-type]


def test_what_came_back_from_an_engine_by_hand() -> None:
    """A prompt of 30 with 3 tokens, and one of 200 with 1, which could never fit."""
    member = member_of()
    assert (member.requests, member.tokens, member.kv_used, member.next_event()) == (
        0,
        0,
        0.0,
        None,
    )
    assert member.advance(1) == []
    member.submit(4, isl=30, osl=3, at=MS)
    member.submit(5, isl=200, osl=1, at=2 * MS)
    assert (member.requests, member.tokens, member.next_event()) == (2, 234, MS)
    assert member.advance(MS) == []
    assert member.advance(2 * MS - 1) == []
    assert member.kv_used == 4 / 20
    assert member.advance(2 * MS) == [Delivery(2 * MS, 5, 0, REJECTED)]
    assert (member.requests, member.tokens) == (1, 33)
    assert member.advance(4 * MS - 1) == []
    assert member.next_event() == 4 * MS
    assert member.advance(4 * MS) == [Delivery(4 * MS, 4, 1, UNFINISHED)]
    assert (member.requests, member.tokens) == (1, 2), "the prompt and a token have come back"
    assert (member.kv_used, member.next_event()) == (0.0, 6 * MS)
    assert member.advance(9 * MS) == [
        Delivery(6 * MS, 4, 1, UNFINISHED),
        Delivery(8 * MS, 4, 1, COMPLETED),
    ]
    assert (member.requests, member.tokens, member.next_event()) == (0, 0, None)


def test_a_client_that_leaves_takes_its_tokens_along() -> None:
    member = member_of()
    for number in (0, 1):
        member.submit(number, isl=30, osl=5, at=0)
    member.advance(3 * MS)
    assert member.tokens == 4 + 4
    assert member.cancel(1)
    assert (member.requests, member.tokens) == (1, 4)
    assert not member.cancel(1)
    assert not member.cancel(7)
    assert {delivery.number for delivery in member.advance(20 * MS)} == {0}
    assert (member.requests, member.tokens) == (0, 0)


def test_a_request_that_was_prefilled_elsewhere_and_its_class_reach_the_engine() -> None:
    """In one slot class 1 goes before class 3; a received prompt makes its second token at once."""
    knobs = replace(KNOBS, scheduler="vllm", chunked_prefill=True, max_batch_size=1)
    member = Member(reference.Engine(TICK, replace(knobs, queue_order="priority"), 20))  # type: ignore[arg-type]
    member.submit(0, isl=10, osl=2, at=0, received=True)
    member.submit(1, isl=10, osl=1, at=0, priority=3)
    member.submit(2, isl=10, osl=1, at=0, priority=1)
    assert [delivery[:3] for delivery in member.advance(9 * MS)] == [
        (MS, 0, 1),
        (2 * MS, 2, 1),
        (3 * MS, 1, 1),
    ]


def test_what_a_router_sees_of_instances_and_of_their_ranks() -> None:
    members = [member_of() for _ in range(4)]
    for place, (isl, osl) in enumerate(((30, 3), (60, 2), (10, 1))):
        members[place].submit(place, isl=isl, osl=osl, at=0)
    members[0].submit(9, isl=5, osl=5, at=0)
    for member in members:
        member.advance(1)
    # 30, 5, 60 and 10 tokens and those of their answers, in blocks of ten
    seen = ([2, 1, 1, 0], [43, 62, 11, 0], [5 / 20, 7 / 20, 2 / 20, 0.0], [0] * 4)
    assert view_of(members) == ([1] * 4, *seen, [1.0] * 4)
    assert view_of(members, [1.0, 2.0, 3.0, 4.0]) == ([1] * 4, *seen, [1.0, 2.0, 3.0, 4.0])
    assert view_of_groups([[member] for member in members]) == view_of(members)
    pairs = view_of_groups([members[:2], members[2:]])
    assert pairs == ([1, 1], [3, 1], [105, 11], [pytest.approx(6 / 20), 1 / 20], [0, 0], [1.0, 1.0])


def test_a_router_forgets_what_was_not_sent_for_longest(monkeypatch) -> None:
    """Three blocks are remembered: a prompt of two, one of one, and then the first block of the
    first again drive out the second one of the first."""
    monkeypatch.setattr(module, "MOST_BLOCKS", 3)
    index = PrefixIndex(of_rows([[(number, ENDLESS)] for number in range(3)]), 3)
    index.sent(0, 2 * BLOCK_TOKENS, 2)
    index.sent(1, BLOCK_TOKENS, 0)
    assert index.matched(0, 2 * BLOCK_TOKENS) == [0, 0, 128]
    assert index.matched(0, 2 * BLOCK_TOKENS - 1) == [0, 0, 64]
    index.sent(0, BLOCK_TOKENS, 1)
    assert index.matched(0, 9 * BLOCK_TOKENS) == [0, 64, 128]
    index.sent(2, BLOCK_TOKENS, 0)
    assert index.matched(0, 9 * BLOCK_TOKENS) == [0, 64, 64]
    assert index.matched(1, BLOCK_TOKENS) == [64, 0, 0]
    index.sent(2, 2 * BLOCK_TOKENS, 1)
    assert index.matched(1, BLOCK_TOKENS) == [0, 0, 0]
    assert index.matched(2, 200) == [64, 128, 0]

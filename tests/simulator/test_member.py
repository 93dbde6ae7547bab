from __future__ import annotations

import pytest

from tests.simulator.driven_engines import ENGINES
from tests.simulator.reference.examples import KNOBS, TICK
from tests.strategies import MS
from tonnage.simulator.member import BLOCK_TOKENS, Member, PrefixIndex
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

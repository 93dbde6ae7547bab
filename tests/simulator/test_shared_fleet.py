"""Fleets of engines with prefix caches: one is the engine, and sessions that stay together find more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.simulator.kernel.compared import ENGINE as OF_512_TOKENS
from tests.simulator.kernel.compared import MODEL, assert_same
from tests.simulator.reference.examples import TICK, VLLM, ms
from tests.strategies import MS
from tonnage.errors import InputError
from tonnage.simulator import shared_fleet as module
from tonnage.simulator.reference import Engine, run_reference
from tonnage.simulator.router import draw
from tonnage.simulator.shared_fleet import simulate_shared_fleet
from tonnage.spec.sessions import ENDLESS, Pause, Sessions, of_rows
from tonnage.spec.workload import Lengths, OpenLoop, Trace, Workload

CHATS = Sessions(turns=Lengths(mean=5.0), think=Pause(mean_s=2.0, exponential=True))

CHAT = Workload(
    isl=Lengths(mean=100.0),
    osl=Lengths(mean=20.0),
    arrivals=OpenLoop(rate=8.0),
    requests=250,
    sessions=CHATS,
)


def fleet(count: int, router: str, blocks: int = 400):
    trace = CHAT.trace(3)
    engines = [Engine(MODEL, OF_512_TOKENS, blocks, contents=trace.contents) for _ in range(count)]
    return trace, simulate_shared_fleet(trace, engines, router)


def test_a_fleet_of_one_is_the_engine() -> None:
    trace, (record, _) = fleet(1, "least-outstanding")
    assert_same(record, run_reference(trace, MODEL, OF_512_TOKENS, 400).requests)


def test_sessions_stay_together_and_find_more() -> None:
    rates = {}
    for router in ("round-robin", "prefix-aware", "session"):
        trace, (record, chosen) = fleet(4, router)
        assert (record.status == 0).all()
        assert sorted(record.isl.tolist()) == sorted(trace.isl.tolist())
        rates[router] = record.cached_tokens.sum() / record.isl.sum()
    number = (trace.pause_ps < 0).cumsum()
    for one in np.unique(number):
        assert len(set(chosen[number == one])) == 1
    assert rates["session"] > 1.3 * rates["round-robin"]
    assert rates["prefix-aware"] > 1.3 * rates["round-robin"]


TWO_CHATS = Trace(
    due_ps=np.array([0, -1, 5, -1]) * MS,
    isl=np.array([32, 64, 32, 48]),
    osl=np.array([2, 3, 4, 1]),
    concurrency=0,
    turnaround_ps=0,
    pause_ps=np.array([-1, 10 * MS, -1, 2 * MS]),
    contents=of_rows([[(0, ENDLESS)], [(0, ENDLESS)], [(1, ENDLESS)], [(1, ENDLESS)]]),
)
"""Two sessions of two turns: one begins at 0 and goes on 10 ms after its answer, the other at 5 ms
and 2 ms after."""

CACHING = replace(VLLM, tokens_per_block=16, prefix_caching=True)


def by_hand(trace: Trace = TWO_CHATS, count: int = 2, router: str = "round-robin", **more):
    engines = [Engine(TICK, CACHING, 100, contents=trace.contents) for _ in range(count)]
    return simulate_shared_fleet(trace, engines, router, **more)


def test_two_conversations_on_two_instances_by_hand() -> None:
    """A tick a step. Session 0: tokens at 1 and 2, the next turn at 12, tokens at 13 to 15.
    Session 1: tokens at 6 to 9, the next turn at 11. So turns are sent in the order 0, 2, 3, 1, and
    in turn they go to the instances 0, 1, 0, 1, where nobody has seen them before."""
    record, chosen = by_hand()
    assert chosen.tolist() == [0, 1, 1, 0]
    assert record.row is not None
    assert record.row.tolist() == [0, 2, 3, 1]
    assert ms(record.due_ns) == ms(record.sent_ns) == ms(record.admitted_ns) == [0, 5, 11, 12]
    assert ms(record.first_token_ns) == [1, 6, 12, 13]
    assert ms(record.last_token_ns) == [2, 9, 12, 15]
    assert (record.isl.tolist(), record.osl.tolist()) == ([32, 32, 48, 64], [2, 4, 1, 3])
    assert record.instance.tolist() == [0, 1, 0, 1]
    for name in ("status", "preemptions", "cached_tokens"):
        assert getattr(record, name).tolist() == [0] * 4, name
    assert record.gaps.sum() == 1 + 3 + 0 + 2


def test_conversations_that_stay_together_are_found_by_hand() -> None:
    """The second turn of session 0 has two blocks of 16 from before, that of session 1 as well;
    the last token of an answer is never in the cache."""
    record, chosen = by_hand(router="session")
    first, second, third, fourth = chosen.tolist()
    assert (first, third) == (second, fourth)
    assert record.cached_tokens.tolist() == [0, 0, 32, 32]


def test_seeds_and_weights_reach_the_router_of_a_shared_fleet() -> None:
    """Routers draw by the number of the request in the order of sending: 0, 2, 3, 1."""
    chosen = by_hand(count=7, router="random", seed=3)[1].tolist()
    assert [chosen[row] for row in (0, 2, 3, 1)] == [draw(3, number, 0) % 7 for number in range(4)]
    weighted = by_hand(router="weighted", weight=[1.0, 3.0])[1].tolist()
    assert sorted(weighted) == [0, 1, 1, 1]


def test_a_prefix_aware_router_of_a_shared_fleet_sees_what_it_sent() -> None:
    """Three prompts that begin with the same 128 tokens, one after another, go to one instance;
    one of another content goes elsewhere."""
    trace = Trace(
        due_ps=np.arange(4) * MS // 2,
        isl=np.array([160, 160, 160, 160]),
        osl=np.full(4, 9),
        concurrency=0,
        turnaround_ps=0,
        contents=of_rows(
            [[(0, 128), (9, ENDLESS)], [(1, ENDLESS)], [(0, 128), (8, ENDLESS)], [(1, ENDLESS)]]
        ),
    )
    first, other, again, same = by_hand(trace, router="prefix-aware")[1].tolist()
    assert (again, same) == (first, other)
    assert first != other


def test_what_a_shared_fleet_does_not_simulate_is_refused(monkeypatch) -> None:
    """Up to so many output tokens, ten here, and only requests with contents."""
    for most, fits in ((10, True), (9, False)):
        monkeypatch.setattr(module, "MOST_TOKENS", most)
        if fits:
            by_hand()
            continue
        with pytest.raises(InputError, match="simulated up to 9 output tokens"):
            by_hand()
    monkeypatch.undo()
    alone = replace(TWO_CHATS, contents=None, pause_ps=None, due_ps=np.arange(4) * MS)
    with pytest.raises(InputError, match="simulated up to 20,000,000 output tokens"):
        by_hand(alone)
    with pytest.raises(InputError, match="a fleet"):
        by_hand(count=0)
    with pytest.raises(InputError, match="a fleet"):
        by_hand(router="best")

"""Fleets of engines with prefix caches: one is the engine, and sessions that stay together find more."""

from __future__ import annotations

import numpy as np

from tests.simulator.kernel.compared import ENGINE as OF_512_TOKENS
from tests.simulator.kernel.compared import MODEL, assert_same
from tonnage.simulator.reference import Engine, run_reference
from tonnage.simulator.shared_fleet import simulate_shared_fleet
from tonnage.spec.sessions import Pause, Sessions
from tonnage.spec.workload import Lengths, OpenLoop, Workload

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
    trace, routed = fleet(1, "least-outstanding")
    assert_same(routed.requests, run_reference(trace, MODEL, OF_512_TOKENS, 400).requests)


def test_sessions_stay_together_and_find_more() -> None:
    rates = {}
    for router in ("round-robin", "prefix-aware", "session"):
        trace, routed = fleet(4, router)
        assert (routed.requests.status == 0).all()
        assert sorted(routed.requests.isl.tolist()) == sorted(trace.isl.tolist())
        rates[router] = routed.requests.cached_tokens.sum() / routed.requests.isl.sum()
    number = (trace.pause_ps < 0).cumsum()
    for one in np.unique(number):
        assert len(set(routed.chosen[number == one])) == 1
    assert rates["session"] > 1.3 * rates["round-robin"]
    assert rates["prefix-aware"] > 1.3 * rates["round-robin"]

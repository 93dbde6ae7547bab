"""The requests that an instance gets of a shared workload."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.sizing.loads.fleets import trace
from tonnage.sizing.loads.shared_load import (
    SharedLoad,
    _every,
    _in_order,
    _matched,
    _scheduled,
    after,
    balanced_trace,
    hit_rate,
    owners,
    parts_of,
    shared_out_as,
)
from tonnage.spec.lengths import Lengths, Pairs, parse_lengths
from tonnage.spec.sessions import Pause, Sessions
from tonnage.spec.workload import OpenLoop, Workload


@pytest.mark.parametrize("arrivals", [{}, {"process": "gamma", "cv": 2.0}, {"process": "constant"}])
def test_the_mean_rate_is_exact(arrivals: dict[str, Any]) -> None:
    found = trace(**arrivals)
    assert found.due_ps[-1] / 1e12 == pytest.approx(4_000 / 3.0, rel=1e-9)
    assert (np.diff(found.due_ps) >= 0).all()


@pytest.mark.parametrize(
    "isl", ["lognormal:2000,2000", "2000+-500", "uniform:100-900", "histogram:100:0.2,500:0.8"]
)
def test_lengths_keep_their_distribution_and_their_mean(isl: str) -> None:
    lengths = parse_lengths(isl, "isl")
    found = trace(isl).isl
    reference = lengths.draw(400_000, np.random.default_rng(7))
    assert found.mean() == pytest.approx(reference.mean(), rel=0.005)
    for share in (10, 50, 90, 99):
        assert np.percentile(found, share) == pytest.approx(
            np.percentile(reference, share), rel=0.03
        )


def test_gaps_keep_their_coefficient_of_variation() -> None:
    for process, cv in (("poisson", 1.0), ("gamma", 2.0), ("gamma", 0.5)):
        gaps = np.diff(trace(requests=40_000, process=process, cv=cv).due_ps)
        assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)


def test_prompts_and_outputs_are_drawn_apart_and_in_no_order() -> None:
    found = trace(requests=20_000)
    assert abs(np.corrcoef(found.isl, found.osl)[0, 1]) < 0.03
    assert abs(np.corrcoef(found.isl[1:], found.isl[:-1])[0, 1]) < 0.03


def test_another_rate_stretches_the_same_gaps() -> None:
    slow, fast = trace(rate=1.0), trace(rate=4.0)
    np.testing.assert_allclose(slow.due_ps, 4.0 * fast.due_ps, rtol=1e-9, atol=4)
    np.testing.assert_array_equal(slow.isl, fast.isl)
    assert not np.array_equal(slow.isl, trace(rate=1.0, seed=1).isl)


def test_pairs_stay_together() -> None:
    pairs = Pairs(isl=(100, 200, 3_000), osl=(1, 2, 30), source="made up")
    loop = OpenLoop(rate=1.0)
    work = Workload(
        isl=pairs.lengths()[0], osl=pairs.lengths()[1], arrivals=loop, requests=300, pairs=pairs
    )
    found = balanced_trace(work, loop, 0)
    np.testing.assert_array_equal(found.isl, 100 * found.osl)
    assert {
        int(length): int(count)
        for length, count in zip(*np.unique(found.isl, return_counts=True), strict=True)
    } == pytest.approx({100: 100, 200: 100, 3_000: 100}, abs=4)


def test_a_share_of_all_turns_is_of_every_place_in_the_conversations_that_were_asked_for() -> None:
    """Five turns of 100 new tokens and 10 of an answer: prompts of 100, 210, 320, 430 and 540
    tokens, as many of each."""
    turns, think = Lengths(mean=5.0), Pause(mean_s=20.0)
    workload = Workload(
        isl=Lengths(mean=100),
        osl=Lengths(mean=10),
        arrivals=OpenLoop(rate=2.0),
        requests=2_000,
        sessions=Sessions(turns=turns, think=think),
    )
    trace = _scheduled(workload, OpenLoop(rate=20.0), 3, 0.1, 10**12)
    prompts, counts = np.unique(trace.isl, return_counts=True)
    assert prompts.tolist() == [100, 210, 320, 430, 540]
    assert counts == pytest.approx(400, rel=0.2)
    early = trace.isl[trace.due_ps < 100 * 10**12]
    assert np.unique(early, return_counts=True)[1] == pytest.approx(40, rel=0.5), (
        "conversations began before the run"
    )
    assert len(trace) / (trace.due_ps.max() / 1e12) == pytest.approx(2.0, rel=0.1)


def shared(**changed: Any) -> SharedLoad:
    """Conversations of 4 turns, with 5 s of thought, 2 tool calls of 3 s in each, and a prefix of
    three."""
    sessions = SimpleNamespace(
        prefixes=3,
        prefix_tokens=100,
        turns=SimpleNamespace(mean=4.0),
        think=SimpleNamespace(mean_s=5.0),
        tool=SimpleNamespace(mean_s=3.0),
        tool_calls=2,
        requests=12,
        single=False,
    )
    parts: dict[str, Any] = {
        "sharing": SimpleNamespace(sessions=sessions, follows=True, new=object(), fleet_rate=10.0),
        "osl": None,
        "process": "poisson",
        "cv": 1.0,
        "router": "random",
        "answer_s": 0.5,
    }
    return SharedLoad(**parts | changed)


def test_requests_until_a_cache_is_warm_by_hand() -> None:
    """A conversation lasts 4 * (5 + 2 * 3) s and twelve answers of half a second; each prefix is
    sent three times."""
    load = shared()
    sessions = load.sharing.sessions
    assert load.warm(2.0) == 9 + 2 * 50
    assert replace(load, caches=False).warm(2.0) == 100
    sessions.prefix_tokens = 0
    assert load.warm(2.0) == 100
    sessions.turns.mean = 0.5
    assert load.warm(2.0) == 2 * 17
    sessions.turns.mean = 4.0
    assert load.warm(1_000.0) == 40_000
    sessions.single, sessions.prefix_tokens = True, 100
    assert load.warm(1_000.0) == 9
    load.sharing.sessions = None
    assert load.warm(2.0) == 0


@pytest.mark.parametrize(
    ("rate", "router", "whole", "kind"),
    [
        (9.0, "", False, ("scheduled", 0.9)),
        (0.1, "", False, ("scheduled", 1 / 64)),
        (10.0, "", False, "sessions"),
        (20.0, "", True, ("scheduled", 1.0)),
        (9.0, "session", False, "sessions"),
        (9.0, "prefix-aware", True, "sessions"),
    ],
)
def test_which_turns_come_to_an_instance(
    rate: float, router: str, whole: bool, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole conversations behind a router that keeps them together, or where an instance has all of
    the load; else a share of all turns of the fleet."""
    module = "tonnage.sizing.loads.shared_load"
    monkeypatch.setattr(f"{module}.Workload", SimpleNamespace)
    monkeypatch.setattr(f"{module}.session_trace", lambda workload, sessions, seed: "sessions")

    def scheduled(workload: Any, fleet: Any, seed: int, share: float, answer_ps: int) -> Any:
        assert fleet.rate == pytest.approx(rate / share)
        assert (seed, answer_ps, workload.requests) == (7, 5 * 10**11, 100)
        return "scheduled", pytest.approx(share)

    monkeypatch.setattr(f"{module}._scheduled", scheduled)
    assert shared().trace(rate, 100, 7, router=router, whole=whole) == kind
    monkeypatch.setattr(f"{module}._single", lambda workload, *_: workload.requests)
    load = shared()
    load.sharing.sessions.single = True
    assert load.trace(rate, 100, 7, router=router, whole=whole) == 100
    assert load.trace(1e-9, 100, 7) == 1
    monkeypatch.setattr(f"{module}.replayed", lambda sharing, *args: args)
    load.sharing.new = None
    assert load.trace(rate, 100, 7) == (rate, 7, 100)


class Record(SimpleNamespace):
    def some(self, rows: slice) -> list[int]:
        return self.due_ns.tolist()[rows]


def test_the_requests_of_a_run_that_count() -> None:
    """Those after the warm ones, and of conversations no later than new ones came."""
    record = Record(due_ns=np.arange(10) * 10**9)
    load = shared()
    assert load.counted(record, 2.0, 4, 8) == [n * 10**9 for n in (4, 5, 6)]
    load.sharing.follows = False
    assert load.counted(record, 2.0, 4, 8) == [n * 10**9 for n in (4, 5, 6, 7, 8, 9)]
    assert load.counted(record, 2.0, 0, 8) is record
    assert after(record, -1, 2) == []
    assert after(record, 1, 3) == [10**9, 2 * 10**9]
    assert hit_rate(SimpleNamespace(cached_tokens=np.array([3, 4]), isl=np.array([8, 6]))) == 0.5
    nothing = SimpleNamespace(cached_tokens=np.zeros(0), isl=np.zeros(0, np.int64))
    assert hit_rate(nothing) == 0.0


def test_of_sixteen_lengths_in_order_the_middle_one_is_used() -> None:
    assert _every(np.arange(48)).tolist() == [8, 24, 40]
    rng = np.random.default_rng(0)
    even = _in_order(parse_lengths("uniform:100-900", "isl"), 4, rng)
    assert even.tolist() == pytest.approx([200, 400, 600, 800], abs=1)
    assert _in_order(parse_lengths("uniform:1-3", "isl"), 100, rng).min() >= 1


@pytest.mark.parametrize(
    ("router", "recording", "follows", "rule"),
    [
        ("prefix-aware", None, True, "session"),
        ("prefix-aware", None, False, "random"),
        ("prefix-aware", object(), True, "prefix-aware"),
        ("round-robin", None, True, "round-robin"),
        ("session", None, False, "session"),
        ("least-outstanding", None, True, "random"),
        ("random", object(), False, "random"),
    ],
)
def test_the_router_whose_rule_stands_for_a_router(
    router: str, recording: Any, follows: bool, rule: str
) -> None:
    sharing = SimpleNamespace(recording=recording, follows=follows)
    assert shared_out_as(sharing, router) == rule


def test_the_instance_of_each_request_in_turn_or_drawn() -> None:
    class Seven(SimpleNamespace):
        def __len__(self) -> int:
            return 7

    requests = Seven(pause_ps=None, contents=None)
    assert owners(requests, 3, "round-robin", 0).tolist() == [0, 1, 2, 0, 1, 2, 0]
    drawn = owners(requests, 3, "random", 0)
    assert set(drawn.tolist()) <= {0, 1, 2}
    assert (owners(requests, 3, "prefix-aware", 0) == drawn).all(), "without contents"
    assert (owners(requests, 3, "random", 0) == drawn).all()
    assert (owners(requests, 3, "random", 1) != drawn).any()


def test_how_much_of_a_prompt_each_instance_was_sent_before() -> None:
    """As an unbroken prefix: the third piece alone helps nobody."""
    holders = {1: {0, 2}, 2: {0, 1}, 3: {0, 1, 2}}
    assert _matched([1, 2, 3], [64, 128, 192], 150, holders, 4) == [150, 0, 64, 0]
    assert _matched([9, 1], [64, 128], 150, holders, 4) == [0, 0, 0, 0]
    assert _matched([], [], 150, holders, 2) == [0, 0]


def test_parts_of_a_trace_by_its_owners() -> None:
    class Whole(SimpleNamespace):
        def part(self, rows: Any, seed: int) -> tuple[list[int], int]:
            return rows.tolist(), seed

    owner = np.array([2, 0, 2, 0])
    requests = Whole(pause_ps=None, seed=5)
    assert parts_of(requests, owner, 3) == [([1, 3], 15), ([0, 2], 17)]
    turns = Whole(
        pause_ps=np.zeros(4),
        seed=5,
        firsts=lambda: np.array([0, 1]),
        session=lambda: np.array([0, 1, 1, 0]),
    )
    assert parts_of(turns, owner, 3) == [([1, 2], 15), ([0, 3], 17)]

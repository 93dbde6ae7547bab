"""The requests that an instance gets of a shared workload."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.sizing.loads.fleets import trace
from tonnage.simulator.router import Request, View
from tonnage.sizing.loads.shared_load import (
    Answers,
    SharedLoad,
    _every,
    _in_order,
    _matched,
    _scheduled,
    _single,
    after,
    balanced_trace,
    hit_rate,
    owners,
    parts_of,
    replayed,
    shared_out_as,
    whole_trace,
)
from tonnage.spec.lengths import Lengths, Pairs, parse_lengths
from tonnage.spec.recording import Recording
from tonnage.spec.sessions import ENDLESS, Drawn, Pause, Sessions
from tonnage.spec.workload import OpenLoop, TraceArrivals, Workload
from tonnage.units import LONGEST_S


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
    assert load.trace(100 / LONGEST_S, 100, 7) == 50, "in half of the longest time"
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


MODULE = "tonnage.sizing.loads.shared_load"


def test_pairs_are_taken_in_the_order_of_their_sums() -> None:
    """Of pairs whose lengths differ by 99 each, every third is of each kind."""
    pairs = Pairs(isl=(100, 200, 300), osl=(1, 101, 201), source="made up")
    loop = OpenLoop(rate=1.0)
    work = Workload(
        isl=pairs.lengths()[0], osl=pairs.lengths()[1], arrivals=loop, requests=900, pairs=pairs
    )
    counts = np.unique(balanced_trace(work, loop, 3).isl, return_counts=True)[1]
    assert counts.tolist() == pytest.approx([300] * 3, abs=9)


def test_requests_that_come_for_too_long_are_a_stretch() -> None:
    work = Workload(
        isl=Lengths(mean=9), osl=Lengths(mean=2), arrivals=OpenLoop(rate=1.0), requests=9
    )
    longest = balanced_trace(work, OpenLoop(rate=9 / LONGEST_S), 5)
    assert longest.due_ps[-1] == pytest.approx(LONGEST_S * 10**12, rel=1e-9)
    assert (longest.concurrency, longest.turnaround_ps, longest.seed) == (0, 0, 5)
    long = SimpleNamespace(requests=9, trace=lambda seed, *, stretch: (seed, stretch))
    assert balanced_trace(long, OpenLoop(rate=8.9 / LONGEST_S), 5) == (5, True)


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The seeds of all random numbers that are drawn."""
    seeds: list[Any] = []
    original = np.random.default_rng

    def drawn(seed: Any) -> Any:
        seeds.append(seed if isinstance(seed, list) else (seed.entropy, seed.spawn_key))
        return original(seed)

    monkeypatch.setattr(np.random, "default_rng", drawn)
    return seeds


def test_what_is_drawn_of_a_seed_has_a_stream_of_its_own(streams: list[Any]) -> None:
    """So that arrivals, lengths, prefixes and instances do not go together, nor those of conversations."""
    trace("lognormal:200,300", requests=20, seed=9_001)
    assert sorted(streams) == [[9_001, stream] for stream in (0, 1, 2, 3)]
    streams.clear()
    pairs = Pairs(isl=(100, 200), osl=(1, 2), source="made up")
    isl, osl = pairs.lengths()
    loop = OpenLoop(rate=1.0)
    work = Workload(isl=isl, osl=osl, arrivals=loop, requests=20, pairs=pairs)
    balanced_trace(work, loop, 9_002)
    assert sorted(streams) == [[9_002, stream] for stream in (0, 1, 2)]
    streams.clear()
    _single(single_of(20), OpenLoop(rate=1.0), single_of(20).sessions, 9_003)
    assert sorted(streams) == [[9_003, stream] for stream in (0, 1, 2, 3, 5)]
    streams.clear()
    owners(trace(requests=9), 3, "random", 9_004)
    assert streams[-1] == [9_004, 3, 7]


def single_of(requests: int, share: float = 0.3) -> Workload:
    """Requests of 50 tokens, some of which begin with one of four prefixes of 100."""
    return Workload(
        isl=Lengths(mean=50),
        osl=Lengths(mean=10),
        arrivals=OpenLoop(rate=1.0),
        requests=requests,
        sessions=Sessions(prefixes=4, prefix_tokens=100, prefix_share=share),
    )


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_exactly_the_requested_share_begins_with_a_prefix(share: float) -> None:
    work = single_of(400, share)
    requests = _single(work, OpenLoop(rate=1.0), work.sessions, 3)
    begins = requests.isl == 150
    assert begins.sum() == 400 * share
    assert (requests.isl[~begins] == 50).all()
    assert (requests.osl == 10).all()
    assert requests.due_ps[-1] == pytest.approx(400e12)
    pieces = [requests.contents.of(row) for row in range(400)]
    assert all((len(numbers) == 2) == begins[row] for row, (numbers, _) in enumerate(pieces))
    prefixes = [numbers[0] for numbers, _ in pieces if len(numbers) == 2]
    assert set(prefixes) == {0, 1, 2, 3}
    assert all(until == [100, ENDLESS] for numbers, until in pieces if len(numbers) == 2)
    assert len({numbers[-1] for numbers, _ in pieces}) == 400, "the rest is of each alone"


RECORDED = Recording(
    due_ns=(0, 10**9, 3 * 10**9),
    isl=(128, 192, 64),
    osl=(1, 2, 3),
    blocks=((1, 2), (1, 2, 3), (4,)),
)


def test_a_recording_is_stretched_and_repeated_with_what_its_prompts_share() -> None:
    """Three requests in 4.5 s: at twice the rate a half, and four are those of two copies."""
    sharing = SimpleNamespace(recording=RECORDED)
    as_it_was = replayed(sharing, RECORDED.mean_rps, 7)
    assert as_it_was.due_ps.tolist() == [0, 10**12, 3 * 10**12]
    assert (as_it_was.isl.tolist(), as_it_was.osl.tolist()) == ([128, 192, 64], [1, 2, 3])
    contents = as_it_was.contents
    first, second, third = (contents.of(row)[0] for row in range(3))
    assert first[:2] == second[:2]
    assert not set(third) & set(second)
    twice = replayed(sharing, 2 * RECORDED.mean_rps, 7, 4)
    assert twice.due_ps.tolist() == [round(s * 1e12) for s in (0, 0.5, 1.5, 2.25, 2.75, 3.75)]
    assert (twice.isl.tolist(), twice.seed) == ([128, 192, 64] * 2, 7)
    assert len(twice.contents) == 6
    with pytest.raises(ValueError, match="no recording"):
        replayed(SimpleNamespace(recording=None), 1.0, 7)
    with pytest.raises(ValueError, match="without lengths"):
        whole_trace(TraceArrivals(recording=replace(RECORDED, isl=(), osl=())), 7)


@pytest.mark.parametrize(("share", "sessions"), [(1.0, 182), (0.5, 212)])
def test_turns_on_a_schedule_by_hand(
    share: float, sessions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A conversation of two turns, with a tool's call in each, lasts four times 16 s of pauses and
    2 s of answers at most: 66 s. So many are drawn as begin 66 s before the run, and a fifth more
    requests than were asked for, of four in each conversation and eight a second; and 20 more.
    """
    pattern = Sessions(
        turns=Lengths(mean=2),
        think=Pause(mean_s=5.0),
        tool_calls=1,
        tool=Pause(mean_s=3.0),
    )
    assert pattern.requests == 4
    workload = Workload(
        isl=Lengths(mean=50),
        osl=Lengths(mean=10),
        arrivals=OpenLoop(rate=8 * share),
        requests=100,
        sessions=pattern,
    )
    calls: list[Any] = []
    second = 10**12

    def draw(*args: Any) -> Drawn:
        calls.append(args)
        return Drawn(
            session=np.array([0, 0, 0, 1, 1, 2]),
            isl=np.arange(6) + 50,
            osl=np.arange(6) + 10,
            pause_ps=np.array([-1, 2 * second, second, -1, second, -1]),
            prefix=np.full(6, -1),
        )

    def gaps(fleet: OpenLoop, count: int, stream: Any) -> Any:
        calls.append((fleet, count, stream))
        return np.array([131.0, 1.0, 1.0])  # of half a second each: they begin at -0.5, 0 and 0.5 s

    monkeypatch.setattr(f"{MODULE}.draw", draw)
    monkeypatch.setattr(f"{MODULE}.unit_gaps", gaps)
    fleet = OpenLoop(rate=8.0)
    requests = _scheduled(workload, fleet, 7, share, second // 2)
    (drawn_of, drawn_count, isl, osl, random_streams), (gaps_of, gap_count, stream) = calls
    assert (drawn_of, isl, osl, gaps_of) == (pattern, workload.isl, workload.osl, fleet)
    assert drawn_count == gap_count == sessions
    assert stream is random_streams[6]
    assert len(random_streams) == 8
    due = np.array([-0.5, 2.0, 3.5, 0.0, 1.5, 0.5])  # with half a second for each answer
    chosen = np.random.default_rng(np.random.SeedSequence([7, 3]).spawn(8)[7]).random(6) < share
    rows = [row for row in np.argsort(due) if due[row] >= 0 and chosen[row]]
    assert (requests.due_ps / 1e12).tolist() == pytest.approx(due[rows].tolist(), abs=1e-9)
    assert requests.isl.tolist() == [50 + row for row in rows]
    assert requests.osl.tolist() == [10 + row for row in rows]
    assert (requests.concurrency, requests.turnaround_ps, requests.seed) == (0, 0, 7)
    assert len(requests.contents) == len(rows)
    few = _scheduled(replace(workload, requests=2), fleet, 7, 1.0, second // 2)
    assert few.due_ps.tolist() == [0, second // 2], "the first of those that come"


def test_instances_by_their_prefixes_and_by_when_answers_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An answer takes 10, and two of one instance end 4 apart: requests at 0, 1, 2, 10 and 15 end at
    10, 14, 12, 20 and 25 where the first two and the last are given to instance 0."""
    views: list[tuple[View, Request]] = []
    places = iter([0, 0, 1, 1, 0])

    def routed(view: View, request: Request, memory: Any) -> int:
        views.append(
            (view._replace(requests=list(view.requests), tokens=list(view.tokens)), request)
        )
        return next(places)

    monkeypatch.setattr(f"{MODULE}.prefix_aware", routed)
    pieces = [([1], [ENDLESS]), ([1, 2], [64, ENDLESS]), ([3], [ENDLESS]), ([1], [64]), ([3], [70])]

    class Trace(SimpleNamespace):
        def __len__(self) -> int:
            return 5

    requests = Trace(
        due_ps=np.array([0, 1, 2, 10, 15]),
        isl=np.full(5, 100),
        pause_ps=None,
        contents=SimpleNamespace(of=lambda row: pieces[row]),
    )
    answers = Answers(answer_ps=10, apart_ps=4)
    owner = owners(requests, 2, "prefix-aware", 0, answers)
    assert owner.tolist() == [0, 0, 1, 1, 0]
    outstanding = [[0, 0], [1, 0], [2, 0], [1, 1], [0, 1]]
    matched = [[0, 0], [64, 0], [0, 0], [64, 0], [0, 70]]
    for number, (view, request) in enumerate(views):
        assert view == View(
            available=[1, 1],
            requests=outstanding[number],
            tokens=outstanding[number],
            kv_used=[0.0, 0.0],
            matched=matched[number],
            weight=[1.0, 1.0],
        )
        assert request == Request(number=number, session=-1, isl=100)
    assert set(owners(requests, 2, "prefix-aware", 0).tolist()) <= {0, 1}, "drawn without answers"
    assert len(views) == 5

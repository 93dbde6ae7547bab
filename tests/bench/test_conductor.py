"""When requests are sent: caps, times, warm-up, and clients whose requests fail at once."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.bench.exact_runs import FAST, in_flight
from tests.bench.live import question, run
from tests.bench.recorded import ASKED, write
from tests.bench.records import MS
from tests.bench.test_conversations import parrot
from tests.bench.test_exact_server import Clock
from tonnage.api.bench import bench
from tonnage.bench.conductor import Conductor, TalkConductor
from tonnage.bench.conversations import Conversations
from tonnage.bench.endpoints import find_endpoint
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.bench.load import Load
from tonnage.bench.reply import Exchange, Reply
from tonnage.bench.selftest import server_log
from tonnage.bench.steady import find_steady
from tonnage.bench.validity import judge
from tonnage.formats.sessions import read_sessions
from tonnage.results.metrics import summarize
from tonnage.spec.sessions import Follows
from tonnage.spec.workload import ClosedLoop, OpenLoop


def test_a_rate_with_a_cap_holds_requests_at_the_client_and_counts_from_sending(
    tmp_path: Path,
) -> None:
    """As vLLM's bench and AIPerf do: 4 of 50 ms each are 80 a second, of 200 that are due."""
    with exact_server(Schedule(ttft_s=0.03, itl_s=0.005), seconds=60) as url:
        found = run(
            url,
            tmp_path / "run",
            question(OpenLoop(rate=200, process="constant", in_flight=4), requests=60),
        )
        free = run(
            url,
            tmp_path / "free",
            question(OpenLoop(rate=200, process="constant", in_flight=1_000), requests=60),
        )
    ours, scheduled = found.requests, free.requests
    assert (found.outcomes, in_flight(ours), found.observed.held) == ({"": 60}, 4, 56)
    assert found.observed.load.words == "200 requests/s, constant, at most 4 in flight"
    waited = (ours.sent_ns - ours.due_ns) / 1e6
    # the client's queue is in no latency, and would be 450 ms at the end
    assert np.percentile(waited, 90) < 20
    assert (ours.due_ns[1:] - ours.due_ns[0] >= scheduled.due_ns[1:] - scheduled.due_ns[0]).all()
    assert (np.diff(ours.due_ns) >= 0).all()  # first come, first served
    span = (ours.sent_ns.max() - ours.sent_ns.min()) / 1e9
    assert 59 / span == pytest.approx(80, rel=0.3)
    validity = judge(found.observed, ours, summarize(ours), find_steady(ours))
    # a rate that the server sets, as in a closed loop
    assert "rate_percent" not in {check.name for check in validity.checks}
    assert any(
        "56 of 60 requests waited at the client for one of 4 in flight" in note
        for note in validity.notes
    )
    assert (free.observed.held, in_flight(scheduled) > 4) == (0, True)
    assert (np.diff(scheduled.due_ns) == 5_000_000).all()


@pytest.mark.live
def test_latency_counts_from_the_scheduled_time_while_the_server_is_frozen(tmp_path: Path) -> None:
    schedule = Schedule(ttft_s=0.005, itl_s=0.001, freeze_at_s=0.3, freeze_s=0.8)
    with exact_server(schedule, seconds=60) as url:
        found = run(
            url,
            tmp_path / "run",
            question(OpenLoop(rate=100, process="constant"), osl="2", requests=160),
        )
    ttft = (found.requests.first_token_ns - found.requests.due_ns) / 1e6
    assert found.outcomes == {"": 160}
    assert 750 < ttft.max() < 1500
    # all that were due while it was frozen, not one a client
    assert np.count_nonzero(ttft > 100) >= 65
    due = np.diff(found.requests.due_ns)
    assert set(due) == {10_000_000}


def test_a_closed_loop_runs_for_a_time(fast: str, tmp_path: Path) -> None:
    began = time.monotonic()
    found = run(fast, tmp_path / "run", question(requests=None, seconds=0.5))
    assert time.monotonic() - began < 20
    assert 8 <= found.outcomes[""] < 200
    assert found.requests.due_ns.max() <= 500_000_000


@pytest.mark.live
def test_a_time_has_an_end_even_where_the_server_never_answers(tmp_path: Path) -> None:
    with exact_server(
        Schedule(ttft_s=0.01, itl_s=0.002, fault="hang", fault_every=5), seconds=60
    ) as url:
        began = time.monotonic()
        found = run(
            url, tmp_path / "run", question(requests=None, seconds=0.4, grace_s=0.3), timeout_s=50.0
        )
        assert time.monotonic() - began < 20
    assert found.outcomes["cancelled"] == 4  # one by one, all clients wait for an answer
    assert found.statuses["unfinished"] == 4
    assert found.outcomes[""] >= 4


def test_warm_up_is_not_recorded(tmp_path: Path) -> None:
    with exact_server(FAST, seconds=60) as url:
        found = run(url, tmp_path / "run", question(requests=6), warmup=8)
        assert len(server_log(url)) == 14
    assert len(found.requests) == 6


@pytest.mark.parametrize("count", [None, 24])
def test_clients_whose_requests_fail_at_once_wait_longer_each_time(
    count: int | None, tmp_path: Path
) -> None:
    """In 1.3 s a client asks after 0, 10, 30, 70, 150, 310, 630 and 1,270 ms; where a number ends
    the run, no wait is above 50 ms."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    asked = question(
        ClosedLoop(concurrency=3), requests=count, seconds=1.3 if count is None else None
    )
    began = time.monotonic()
    found = run(url, tmp_path / "run", asked)
    assert found.outcomes == {"connection refused": count or found.observed.sent}
    assert found.observed.sent == count or 18 <= found.observed.sent <= 24
    assert found.observed.waits > found.observed.sent - 6  # after each but a client's last
    assert time.monotonic() - began < (3 if count is None else 2)


def test_conversations_whose_first_turn_fails_at_once_wait_too(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    measured = bench(
        url=url,
        model="m",
        isl=10,
        osl=5,
        conversation_turns=2,
        concurrency=2,
        benchmark_duration="700ms",
        selftest=False,
        metrics_url=["none"],
    )
    assert 8 <= measured[0].observed.sent <= 14
    assert any(
        "their clients waited before the next one" in note for note in measured[0].validity.notes
    )


def test_a_client_whose_request_completes_goes_on_at_once(tmp_path: Path) -> None:
    with exact_server(
        Schedule(ttft_s=0.005, itl_s=0.001, fault="500", fault_every=3), seconds=60
    ) as url:
        found = run(url, tmp_path / "run", question(ClosedLoop(concurrency=1), requests=30))
    assert found.outcomes == {"": 20, "HTTP 500": 10}
    assert 9 <= found.observed.waits <= 10  # each 10 ms: none is in a row with another
    assert found.observed.seconds < 1.5


def test_requests_follow_the_ones_that_they_waited_for_after_their_pauses(tmp_path: Path) -> None:
    recorded = read_sessions(write(tmp_path / "s.jsonl", pause=0.03, sessions=2), "sessions")
    with parrot() as (url, bodies):
        asked = {**ASKED, "streaming": False, "endpoint_type": "chat"}
        (found,) = bench(url=url, sessions=str(tmp_path / "s.jsonl"), concurrency=1, **asked)
    log, requests = found.observed.turns, found.requests
    assert len(requests) == len(recorded.isl) == len(bodies)
    assert sorted(zip(log.conversation.tolist(), log.turn.tolist(), strict=True)) == [
        (session, turn) for session in range(2) for turn in range(7)
    ]
    row = recorded.starts[log.conversation] + log.turn
    due, end = np.zeros(len(row), np.int64), np.zeros(len(row), np.int64)
    due[row], end[row] = requests.due_ns, requests.last_token_ns
    starts, rows = recorded.follows.starts, recorded.follows.rows
    for before in range(len(row)):
        for after in rows[starts[before] : starts[before + 1]]:
            assert due[after] == end[before] + recorded.pause_ns[after]


SERVICE_NS = 40 * MS


class Stage:
    """A conductor on a clock that passes from one moment with something to do to the next; each
    request takes 40 ms, or ends at once with a failure."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, load: Load, *, fails: Any = ()) -> None:
        clock = self.clock = Clock()
        self.fails, self.begun, self.taken = fails, list[Exchange](), list[Exchange]()
        self.given_up: list[str] = []

        class Alarm:
            def __init__(self, loop: Any, ring: Callable[[], None]) -> None:
                self._ring, self._latest = ring, object()

            def set(self, moment: int) -> None:
                mine = self._latest = object()
                clock.at(moment, lambda: self._ring() if mine is self._latest else None)

            def close(self) -> None:
                self._latest = object()

        monkeypatch.setattr("tonnage.bench.conductor.Alarm", Alarm)
        timing = SimpleNamespace(monotonic_ns=lambda: clock.now)
        monkeypatch.setattr("tonnage.bench.conductor.time", timing)
        self.cancelled = 0
        talks = load.conversations is not None
        made = TalkConductor if talks else Conductor
        self.conductor: Any = made(self, load, self.make, self.taken.append)  # type: ignore[arg-type]

    def call_later(self, seconds: float, what: Callable[..., None], *words: Any) -> Any:
        state = SimpleNamespace(on=True)
        self.clock.at(
            self.clock.now + round(seconds * 1e9), lambda: what(*words) if state.on else None
        )

        def cancel() -> None:
            self.cancelled += state.on
            state.on = False

        return SimpleNamespace(cancel=cancel)

    def call_soon(self, what: Callable[..., None], *words: Any) -> None:
        what(*words)

    def make(self, number: int, isl: int, osl: int, **turn: Any) -> Exchange:
        made = Exchange(
            number=number,
            isl=isl,
            osl=osl,
            data=b"x" * isl,
            reply=Reply(find_endpoint("chat", model="m")),
        )
        made.question = turn.get("text", "")
        made.detail = repr({**turn, "history": list(turn["history"])}) if turn else ""
        return made

    def start(self, exchange: Exchange) -> None:
        exchange.begun_ns = self.clock.now
        self.begun.append(exchange)
        failed = exchange.number in self.fails

        def end() -> None:
            if exchange.outcome == "":
                exchange.outcome = "HTTP 429" if failed else ""
                exchange.reply.last_ns = -1 if failed else self.clock.now
                self.conductor.done(exchange)

        self.clock.at(self.clock.now + (0 if failed else SERVICE_NS), end)

    def give_up_all(self, outcome: str) -> None:
        over = {id(exchange) for exchange in self.taken}
        for exchange in [e for e in self.begun if id(e) not in over]:
            exchange.outcome = outcome
            self.given_up.append(outcome)
            self.conductor.done(exchange)

    def run(self) -> list[tuple[float, float]]:
        """When each request was due, and when it was begun, in milliseconds of the run."""
        start = self.conductor.planned_start(self.clock.now)

        async def play() -> None:
            running = asyncio.ensure_future(self.conductor.run(self))
            await asyncio.sleep(0)
            self.clock.run()
            await asyncio.wait_for(running, 1)

        asyncio.run(play())
        return [((e.due_ns - start) / MS, (e.begun_ns - start) / MS) for e in self.begun]


def sized(count: int, **further: Any) -> Load:
    return Load(isl=np.arange(count) + 10, osl=np.arange(count) + 1, **further)


def test_a_closed_loop_on_a_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, sized(5, concurrency=2))
    assert stage.run() == [(0, 0), (0, 0), (40, 40), (40, 40), (80, 80)]
    assert [(e.number, e.isl, e.osl) for e in stage.begun] == [(k, k + 10, k + 1) for k in range(5)]
    assert (stage.conductor.sent, stage.conductor.over, len(stage.taken)) == (5, 5, 5)
    assert (stage.conductor.held, stage.conductor.waits, stage.conductor.stopped) == (0, 0, False)


def test_more_clients_than_requests_and_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Stage(monkeypatch, sized(2, concurrency=9)).run() == [(0, 0), (0, 0)]
    assert Stage(monkeypatch, sized(0, concurrency=9)).run() == []


def test_the_clients_of_a_ramp_begin_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    due = [when for when, _ in Stage(monkeypatch, sized(6, concurrency=3, ramp_s=0.03)).run()]
    assert due == [0, 10, 20, 40, 50, 60]


@pytest.mark.parametrize(
    ("cap", "due", "held"),
    [
        (0, [0, 10, 20, 30, 100], 0),
        (2, [0, 10, 40, 50, 100], 2),
        (1, [0, 40, 80, 120, 160], 4),
        (5, [0, 10, 20, 30, 100], 0),
    ],
)
def test_an_open_loop_with_a_cap_on_a_clock(
    cap: int, due: list[float], held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = np.array([0, 10, 20, 30, 100]) * MS
    stage = Stage(monkeypatch, sized(5, due_ns=moments, rate=50, in_flight=cap))
    assert [when for when, _ in stage.run()] == due
    assert stage.conductor.held == held


@pytest.mark.parametrize(
    ("grace_s", "begun", "given_up"),
    [(float("inf"), 6, 0), (0.05, 6, 0), (0.01, 6, 2)],
)
def test_a_time_ends_a_closed_loop_after_its_grace(
    grace_s: float, begun: int, given_up: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two clients begin at 0, 40 and 80 ms; what is in flight at 100 ms would end at 120 ms."""
    stage = Stage(monkeypatch, sized(90, concurrency=2, seconds=0.1, grace_s=grace_s))
    assert len(stage.run()) == begun
    assert stage.given_up == ["cancelled"] * given_up
    assert stage.cancelled == (grace_s < 1)


def test_a_time_is_over_at_its_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    for seconds, begun in ((0.08, 2), (0.081, 3)):
        stage = Stage(monkeypatch, sized(90, concurrency=1, seconds=seconds))
        assert len(stage.run()) == begun


@pytest.mark.parametrize(
    ("seconds", "waits"),
    [
        (float("inf"), [10, 20, 40, 50, 50]),
        (9.0, [10, 20, 40, 80, 160, 320, 640, 1_000, 1_000]),
    ],
)
def test_a_client_whose_requests_fail_at_once_waits_longer_after_each(
    seconds: float, waits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    count = len(waits) + 1
    stage = Stage(monkeypatch, sized(count, concurrency=1, seconds=seconds), fails=range(count))
    due = [when for when, _ in stage.run()]
    assert np.diff(due).tolist() == waits
    # the last has no request behind it
    assert stage.conductor.waits == len(waits)
    again = Stage(monkeypatch, sized(6, concurrency=1), fails=(0, 1, 3))
    assert np.diff([when for when, _ in again.run()]).tolist() == [10, 20, 40, 10, 40]


def test_a_run_that_is_stopped_gives_up_what_is_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, sized(9, concurrency=2))
    stage.clock.at(stage.clock.now + 50 * MS, stage.conductor.stop)
    assert len(stage.run()) == 4
    assert (stage.given_up, stage.conductor.stopped) == (["cancelled"] * 2, True)
    assert (stage.conductor.sent, stage.conductor.over) == (4, 4)


def test_requests_are_made_ready_ahead_by_number_and_by_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert len(Stage(monkeypatch, sized(5_000, concurrency=1)).conductor._ready) == 64
    assert len(Stage(monkeypatch, sized(5_000, concurrency=100)).conductor._ready) == 100
    assert len(Stage(monkeypatch, sized(5_000, concurrency=4_000)).conductor._ready) == 1_024
    assert len(Stage(monkeypatch, sized(3, concurrency=4_000)).conductor._ready) == 3
    monkeypatch.setattr("tonnage.bench.conductor.AHEAD_BYTES", 25)
    stage = Stage(monkeypatch, sized(9, concurrency=1))
    assert [exchange.isl for exchange in stage.conductor._ready] == [10, 11, 12]
    assert len(stage.run()) == 9


def talks(**further: Any) -> Load:
    """Three conversations of two turns, one and two; 25 ms before each second turn."""
    made = Conversations(
        starts=np.array([0, 2, 3, 5]),
        isl=np.arange(5) + 10,
        osl=np.arange(5) + 1,
        pause_ns=np.array([0, 25, 0, 0, 25]) * MS,
        texts=("q0", "q1", "q2", "q3", "q4"),
        **further.pop("more", {}),
    )
    return Load(isl=made.isl, osl=made.osl, conversations=made, **further)


def test_clients_hold_conversations_on_a_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, talks(concurrency=2))
    assert stage.run() == [(0, 0), (0, 0), (40, 40), (65, 65), (105, 105)]
    assert [e.question for e in stage.begun] == ["q0", "q2", "q3", "q1", "q4"]
    log = stage.conductor.log
    assert (log.conversation.tolist(), log.turn.tolist()) == ([0, 1, 2, 0, 2], [0, 0, 0, 1, 1])
    assert [e.number for e in stage.begun] == [0, 1, 2, 3, 4]
    # the first turn's prompt and the answer asked for, as the server did not count
    assert stage.begun[3].detail == repr(
        {"text": "q1", "pieces": (), "before": 11, "history": [("q0", "")]}
    )
    assert stage.begun[0].detail == repr({"text": "q0", "pieces": (), "before": 0, "history": []})


def test_a_conversation_that_fails_ends_and_its_client_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage(monkeypatch, talks(concurrency=1), fails=(0, 1))
    assert stage.run() == [(0, 0), (10, 10), (30, 30), (95, 95)]
    assert [e.question for e in stage.begun] == ["q0", "q2", "q3", "q4"]
    assert stage.conductor.waits == 2


def test_conversations_that_come_on_their_own_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    due = {"due_ns": np.array([5, 10, 200]) * MS}
    stage = Stage(monkeypatch, talks(more=due, rate=2.0), fails=(1,))
    assert stage.run() == [(5, 5), (10, 10), (70, 70), (200, 200), (265, 265)]
    assert (stage.conductor.waits, stage.conductor.log.turn.tolist()) == (0, [0, 0, 1, 0, 1])


@pytest.mark.parametrize(
    ("seconds", "grace_s", "begun", "given_up"),
    [(0.05, float("inf"), 3, 0), (0.05, 0.02, 3, 1), (0.07, 0.5, 4, 0), (9.0, 0.5, 5, 0)],
)
def test_a_time_ends_conversations_on_a_clock(
    seconds: float, grace_s: float, begun: int, given_up: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(monkeypatch, talks(concurrency=2, seconds=seconds, grace_s=grace_s))
    assert len(stage.run()) == begun
    assert len(stage.given_up) == given_up


def test_the_clients_of_conversations_begin_over_a_ramp(monkeypatch: pytest.MonkeyPatch) -> None:
    due = [when for when, _ in Stage(monkeypatch, talks(concurrency=3, ramp_s=0.03)).run()]
    assert due == [0, 10, 20, 65, 85]
    assert [when for when, _ in Stage(monkeypatch, talks(concurrency=9)).run()][:3] == [0, 0, 0]


def test_a_request_that_waits_for_two_is_due_after_the_later_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Turn 1 and turn 2 follow turn 0, after 0 and 30 ms; turn 3 follows both, after 5 ms."""
    follows = Follows(
        starts=np.array([0, 2, 3, 4, 4]), rows=np.array([1, 2, 3, 3]), waits=np.array([0, 1, 1, 2])
    )
    made = Conversations(
        starts=np.array([0, 4]),
        isl=np.arange(4) + 10,
        osl=np.arange(4) + 1,
        pause_ns=np.array([0, 0, 30, 5]) * MS,
        follows=follows,
    )
    load = Load(isl=made.isl, osl=made.osl, conversations=made, concurrency=1)
    stage = Stage(monkeypatch, load)
    assert [when for when, _ in stage.run()] == [0, 40, 70, 115]
    assert stage.conductor.log.turn.tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="another conductor"):
        TalkConductor(stage, sized(2), stage.make, stage.taken.append)  # type: ignore[arg-type]

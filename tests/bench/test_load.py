"""What is sent and when: gaps, bursts, traces and the end of a time."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace

import numpy as np
import pytest

from tests.bench.live import question
from tests.bench.recorded import write
from tonnage.bench.conversations import ConversationFile, Turn
from tonnage.bench.load import Load, Question, Talk
from tonnage.errors import InputError
from tonnage.formats.sessions import read_sessions
from tonnage.spec.lengths import parse_lengths
from tonnage.spec.recording import Recording
from tonnage.spec.sessions import Pause
from tonnage.spec.workload import ClosedLoop, OpenLoop, TraceArrivals


@pytest.mark.parametrize(
    ("process", "cv", "expected"),
    [("poisson", 1.0, 1.0), ("constant", 1.0, 0.0), ("gamma", 3.0, 3.0)],
)
def test_a_schedule_has_the_gaps_that_were_asked_for(
    process: str, cv: float, expected: float
) -> None:
    load = question(OpenLoop(rate=100, process=process, cv=cv), requests=20_000).draw()
    assert load.due_ns is not None
    gaps = np.diff(load.due_ns)
    assert gaps.mean() == pytest.approx(1e7, rel=0.08)
    assert gaps.std() / gaps.mean() == pytest.approx(expected, rel=0.05, abs=1e-6)


def test_bursts_come_together_at_the_mean_rate() -> None:
    load = question(OpenLoop(rate=100), requests=64, burst=8).draw()
    assert load.due_ns is not None
    assert sorted(np.bincount(np.unique(load.due_ns, return_inverse=True)[1])) == [8] * 8
    assert np.diff(np.unique(load.due_ns)) == pytest.approx(80e6)
    assert load.pattern == "burst"


def test_a_trace_is_sent_as_it_came_with_its_own_lengths() -> None:
    recording = Recording(
        due_ns=(0, 5_000_000, 70_000_000), isl=(10, 20, 30), osl=(1, 2, 3), source="t.csv"
    )
    load = question(TraceArrivals(recording=recording), requests=3).draw()
    assert load.due_ns is not None
    assert (list(load.due_ns), list(load.isl), list(load.osl)) == (
        [0, 5_000_000, 70_000_000],
        [10, 20, 30],
        [1, 2, 3],
    )


def test_a_time_ends_an_open_loop() -> None:
    load = question(OpenLoop(rate=50, process="constant"), requests=None, seconds=2.0).draw()
    assert len(load) == 100
    assert load.due_ns.max() <= 2e9
    with pytest.raises(InputError, match="request_count"):
        question(ClosedLoop(concurrency=1), requests=None).draw()


WHOLE = Load(
    isl=np.array([10, 20, 30, 40, 50]),
    osl=np.array([1, 2, 3, 4, 5]),
    due_ns=np.array([0, 10, 20, 30, 40]),
    concurrency=3,
    rate=6.0,
    in_flight=4,
    pattern="poisson",
    seconds=9.0,
    ramp_s=2.0,
    grace_s=1.5,
)


def values(load: Load) -> dict[str, object]:
    """Every field of a load, arrays as lists."""
    fields = {field.name: getattr(load, field.name) for field in dataclasses.fields(load)}
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in fields.items()
    }


def test_a_load_by_itself_is_a_closed_loop_that_a_count_ends() -> None:
    assert values(Load(isl=np.array([7]), osl=np.array([8]))) == {
        "isl": [7],
        "osl": [8],
        "due_ns": None,
        "concurrency": 0,
        "rate": 0.0,
        "in_flight": 0,
        "pattern": "closed",
        "seconds": math.inf,
        "ramp_s": 0.0,
        "grace_s": math.inf,
        "conversations": None,
    }


@pytest.mark.parametrize(
    ("due", "requests", "expected"),
    [
        (True, 2, ([10, 20], [1, 2], [0, 10])),
        (True, 7, ([10, 20, 30, 40, 50], [1, 2, 3, 4, 5], [0, 10, 20, 30, 40])),
        (False, 7, ([10, 20, 30, 40, 50, 10, 20], [1, 2, 3, 4, 5, 1, 2], None)),
        (False, 0, ([], [], None)),
    ],
)
def test_a_warm_up_sends_the_first_requests_without_an_end_or_a_ramp(
    due: bool, requests: int, expected: tuple[object, object, object]
) -> None:
    load = WHOLE if due else replace(WHOLE, due_ns=None)
    assert values(load.warm_up(requests)) == {
        **values(load),
        **dict(zip(("isl", "osl", "due_ns"), expected, strict=True)),
        "seconds": math.inf,
        "ramp_s": 0.0,
    }
    empty = Load(isl=np.array([], dtype=int), osl=np.array([], dtype=int))
    assert len(empty.warm_up(3)) == 0


@pytest.mark.parametrize(
    ("worker", "columns", "clients"),
    [(0, ([10, 30, 50], [1, 3, 5], [0, 20, 40]), 2), (1, ([20, 40], [2, 4], [10, 30]), 1)],
)
def test_two_workers_share_requests_clients_rate_and_cap(
    worker: int, columns: tuple[list[int], ...], clients: int
) -> None:
    assert values(WHOLE.of_worker(worker, 2)) == {
        **values(WHOLE),
        **dict(zip(("isl", "osl", "due_ns"), columns, strict=True)),
        "concurrency": clients,
        "rate": 3.0,
        "in_flight": 2,
    }
    assert replace(WHOLE, due_ns=None).of_worker(worker, 2).due_ns is None


def test_the_workers_of_a_load_have_all_its_clients_and_its_whole_cap() -> None:
    parts = [replace(WHOLE, concurrency=10, in_flight=7).of_worker(k, 4) for k in range(4)]
    assert [(part.concurrency, part.in_flight) for part in parts] == [
        (3, 2),
        (3, 2),
        (2, 2),
        (2, 1),
    ]
    assert sum(part.rate for part in parts) == 6.0


@pytest.mark.parametrize(
    ("arrivals", "words"),
    [
        (ClosedLoop(concurrency=1), "1 client"),
        (ClosedLoop(concurrency=2), "2 clients"),
        (OpenLoop(rate=2.5), "2.5 requests/s, poisson"),
        (
            OpenLoop(rate=5, process="constant", in_flight=3),
            "5 requests/s, constant, at most 3 in flight",
        ),
    ],
)
def test_a_load_in_words(arrivals: ClosedLoop | OpenLoop, words: str) -> None:
    assert question(arrivals).draw().words == words


def test_conversations_in_words() -> None:
    talk = Talk(turns=parse_lengths("2", ""), pause=Pause(), count=3)
    assert question(OpenLoop(rate=2), talk=talk).draw().words == "2 conversations/s, poisson"
    assert question(ClosedLoop(concurrency=1), talk=talk).draw().words == "1 client"


def test_the_same_question_at_another_load() -> None:
    clients, rate = ClosedLoop(concurrency=4, turnaround_s=0.5), OpenLoop(rate=3, in_flight=2)
    assert question(clients).at(9.7).arrivals == replace(clients, concurrency=9)
    assert question(rate).at(7).arrivals == replace(rate, rate=7.0)
    with pytest.raises(InputError, match="recorded traffic has one rate"):
        question(TraceArrivals(recording=Recording(due_ns=(0, 1)))).at(2)


SENT_FOR = {"seconds": 2.0, "grace_s": 3.0}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (
            question(ClosedLoop(concurrency=2), requests=3, ramp_s=4.0, **SENT_FOR),
            {"concurrency": 2, "ramp_s": 4.0, **SENT_FOR},
        ),
        (question(ClosedLoop(concurrency=2), requests=3), {"concurrency": 2}),
        (
            question(
                OpenLoop(rate=2, process="constant", in_flight=5),
                requests=3,
                ramp_s=4.0,
                **SENT_FOR,
            ),
            {
                "due_ns": [500_000_000, 1_000_000_000, 1_500_000_000],
                "rate": 2,
                "in_flight": 5,
                "pattern": "constant",
                **SENT_FOR,
            },
        ),
        (
            question(OpenLoop(rate=4), requests=3, burst=2),
            {"due_ns": [0, 0, 500_000_000], "rate": 4, "pattern": "burst"},
        ),
        (
            question(
                TraceArrivals(recording=Recording(due_ns=(0, 5, 10**9)), lengths=False), requests=3
            ),
            {"due_ns": [0, 5, 10**9], "rate": 2.0, "pattern": "trace"},
        ),
    ],
)
def test_a_question_becomes_this_load(asked: Question, expected: dict[str, object]) -> None:
    usual = values(Load(isl=np.array([20] * 3), osl=np.array([5] * 3)))
    assert values(asked.draw()) == {**usual, **expected}


def test_one_request_of_a_burst_is_no_burst_and_the_last_of_a_time_is_in_it() -> None:
    single = question(OpenLoop(rate=4, process="constant"), requests=8, burst=1, seconds=1.0).draw()
    assert (single.pattern, list(single.due_ns)) == (
        "constant",
        [250_000_000, 500_000_000, 750_000_000, 1_000_000_000],
    )


def test_listed_lengths_begin_again_where_there_are_more_requests() -> None:
    load = question(requests=5, listed=((10, 20), (1, 2, 3))).draw()
    assert (load.isl.tolist(), load.osl.tolist()) == ([10, 20, 10, 20, 10], [1, 2, 3, 1, 2])


@pytest.mark.parametrize(
    ("arrivals", "seconds", "count"),
    [
        (OpenLoop(rate=100), 1.0, 100 + 8 * 10 + 64),
        (OpenLoop(rate=100, process="gamma", cv=3), 1.0, 100 + 8 * 3 * 10 + 64),
        (OpenLoop(rate=100, cv=0.5), 1.0, 100 + 8 * 10 + 64),
        (OpenLoop(rate=100), None, 64),
        (OpenLoop(rate=1e9), 1.0, 1_000_000),
        (ClosedLoop(concurrency=1), 1.0, 1_000_000),
        (
            TraceArrivals(recording=Recording(due_ns=tuple(range(0, 10**9 + 1, 10**9 // 100)))),
            1.0,
            100 + 80 + 64,
        ),
    ],
)
def test_more_requests_are_drawn_than_can_come_in_the_time(
    arrivals: ClosedLoop | OpenLoop | TraceArrivals, seconds: float | None, count: int
) -> None:
    """The mean, eight standard deviations of the count, and 64."""
    assert question(arrivals, requests=None, seconds=seconds)._enough() == count


TALK = Talk(turns=parse_lengths("2", ""), pause=Pause(mean_s=0.5), count=3)


def test_conversations_are_drawn_as_they_were_asked_for() -> None:
    closed = question(talk=TALK, seconds=2.0, grace_s=3.0, ramp_s=4.0).draw()
    talks = closed.conversations
    assert talks is not None
    assert values(replace(closed, conversations=None)) == {
        **values(Load(isl=np.array([20] * 6), osl=np.array([5] * 6))),
        "concurrency": 4,
        "seconds": 2.0,
        "grace_s": 3.0,
        "ramp_s": 4.0,
    }
    assert talks.starts.tolist() == [0, 2, 4, 6]
    assert talks.pause_ns.tolist() == [0, 500_000_000] * 3
    assert talks.due_ns is None
    opened = question(OpenLoop(rate=2, process="constant"), talk=TALK).draw()
    assert (opened.concurrency, opened.rate, opened.pattern, opened.due_ns) == (
        0,
        2,
        "constant",
        None,
    )
    assert (opened.seconds, opened.grace_s, opened.ramp_s) == (math.inf, math.inf, 0.0)
    assert opened.conversations is not None
    assert opened.conversations.due_ns.tolist() == [500_000_000, 1_000_000_000, 1_500_000_000]
    many = question(OpenLoop(rate=100), talk=replace(TALK, count=None), seconds=1.0).draw()
    assert len(many.conversations or ()) == 244
    most = question(talk=replace(TALK, count=None), seconds=1.0).draw()
    assert len(most.conversations or ()) == 20_000
    with pytest.raises(InputError, match="recorded traffic has no conversations"):
        question(TraceArrivals(recording=Recording(due_ns=(0, 1))), talk=TALK).draw()


def test_a_file_s_conversations_have_its_own_answers_unless_they_are_pinned() -> None:
    turns = (
        Turn(text="a", osl=7, pause_s=0.25),
        Turn(text="b", osl=8, pause_s=0.25),
        Turn(text="c"),
    )
    talk = replace(
        TALK,
        file=ConversationFile(conversations=(turns, turns[:1]), isl=(1, 2, 3, 4), source="f"),
        count=None,
    )
    for pinned, osl in ((True, [5, 5, 5, 5]), (False, [7, 8, 0, 7])):
        talks = question(talk=replace(talk, pinned=pinned)).draw().conversations
        assert talks is not None
        assert (talks.osl.tolist(), talks.isl.tolist()) == (osl, [1, 2, 3, 4])
        assert talks.pause_ns.tolist() == [0, 250_000_000, 500_000_000, 0]
        assert (talks.starts.tolist(), talks.texts) == ([0, 3, 4], ("a", "b", "c", "a"))


@pytest.fixture(scope="module")
def recorded_talk(tmp_path_factory: pytest.TempPathFactory) -> Talk:
    """Sessions of 7 and of 5 requests, with pauses of 15 and of 9 seconds in all."""
    folder = tmp_path_factory.mktemp("sessions")
    for name, turns in (("long", 5), ("short", 3)):
        write(folder / name, pause=3.0, sessions=1, turns=turns)
    both = folder / "both.jsonl"
    both.write_text((folder / "long").read_text() + (folder / "short").read_text())
    return replace(TALK, sessions=read_sessions(str(both), "sessions"), count=None)


@pytest.mark.parametrize(
    ("arrivals", "seconds", "count", "sessions"),
    [
        # those of the file, and for each client one that begins, and one for each 12 s of pauses
        (ClosedLoop(concurrency=2), None, None, 2 + 2 * 1),
        (ClosedLoop(concurrency=2), 24.0, None, 2 + 2 * 3),
        (ClosedLoop(concurrency=3), 24.5, None, 2 + 3 * 4),
        (ClosedLoop(concurrency=2), 24.0, 1, 1),
        (ClosedLoop(concurrency=2), None, 4, 4),
        (OpenLoop(rate=2, process="constant"), 2.0, None, 4 + 8 * 2 + 64),
        (OpenLoop(rate=2, process="constant"), None, 2, 2),
    ],
)
def test_recorded_sessions_are_sent_again_until_there_are_enough(
    arrivals: ClosedLoop | OpenLoop,
    seconds: float | None,
    count: int | None,
    sessions: int,
    recorded_talk: Talk,
) -> None:
    talk = replace(recorded_talk, count=count)
    load = question(arrivals, talk=talk, requests=None, seconds=seconds).draw()
    talks = load.conversations
    assert talks is not None
    assert len(talks) == sessions
    lengths = np.diff(talks.starts).tolist()
    assert lengths[:2] == [7, 5][:sessions]
    assert sorted(lengths) == [5] * (sessions // 2) + [7] * -(-sessions // 2)
    assert len(load) == sum(lengths) == len(talks.pause_ns)
    assert talks.pause_ns[:7].tolist() == [0, 3e9, 0, 3e9, 3e9, 3e9, 3e9]
    clients = arrivals.concurrency if isinstance(arrivals, ClosedLoop) else 0
    assert (load.concurrency, load.rate, load.pattern) == (
        (clients, 0.0, "closed") if clients else (0, 2, "constant")
    )
    due = None if talks.due_ns is None else talks.due_ns.tolist()
    assert due == (None if clients else [(k + 1) * 500_000_000 for k in range(sessions)])
    assert load.seconds == (math.inf if seconds is None else seconds)


def test_pauses_of_less_than_a_second_count_as_one(recorded_talk: Talk) -> None:
    sessions = recorded_talk.sessions
    assert sessions is not None
    quick = replace(sessions, pause_ns=np.minimum(sessions.pause_ns, 1))
    asked = question(talk=replace(recorded_talk, sessions=quick), requests=None, seconds=3.0)
    assert len(asked.draw().conversations or ()) == 2 + 4 * 4

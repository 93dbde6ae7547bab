"""When requests are sent: caps, times, warm-up, and clients whose requests fail at once."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import numpy as np
import pytest

from tests.bench.exact_runs import FAST, in_flight
from tests.bench.live import question, run
from tests.bench.recorded import ASKED, write
from tests.bench.test_conversations import parrot
from tonnage.api.bench import bench
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.bench.selftest import server_log
from tonnage.bench.steady import find_steady
from tonnage.bench.validity import judge
from tonnage.formats.sessions import read_sessions
from tonnage.results.metrics import summarize
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

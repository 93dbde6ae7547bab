"""The client against servers on this machine: every endpoint, every way to fail, and times that
cannot be."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.bench.corpus import DONE, HEAD, PLAIN, STREAM, chat, chunked, sse
from tests.bench.live import question, read_request, run, scripted
from tonnage.api.bench import bench, run_find_max
from tonnage.api.question.bench import prepare_bench
from tonnage.bench import measure
from tonnage.bench.arguments import Fault
from tonnage.bench.endpoints import find_endpoint
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.bench.http_response import BrokenReply
from tonnage.bench.receiver import HELD_UP_NS
from tonnage.bench.recorder import TokenTimes
from tonnage.bench.reply import COMPLETED, Reply
from tonnage.bench.selftest import self_test, server_log
from tonnage.bench.steady import find_steady
from tonnage.bench.validity import judge
from tonnage.errors import InputError
from tonnage.formats.invalid_runs import InvalidRuns
from tonnage.formats.measured_files import read_measured
from tonnage.results.metrics import summarize
from tonnage.results.requests import Requests
from tonnage.spec.workload import ClosedLoop, OpenLoop

FAST = Schedule(ttft_s=0.01, itl_s=0.002)
KINDS = [
    *(
        (kind, streaming)
        for kind in ("chat", "completions", "responses")
        for streaming in (True, False)
    ),
    *(("generate", True), ("embeddings", False)),
]


@pytest.fixture(scope="module")
def fast() -> Iterator[str]:
    with exact_server(FAST, seconds=200) as url:
        yield url


@pytest.mark.parametrize(("kind", "streaming"), KINDS)
def test_every_kind_of_endpoint_is_measured(
    kind: str, streaming: bool, fast: str, tmp_path: Path
) -> None:
    found = run(fast, tmp_path / "run", question(osl="15"), kind=kind, streaming=streaming)
    assert found.outcomes == {"": 12}, kind
    assert set(found.requests.osl) == {0 if kind == "embeddings" else 15}, kind
    assert found.observed.connections == 4
    first, last = found.requests.first_token_ns, found.requests.last_token_ns
    assert (first >= found.requests.sent_ns + 10_000_000).all()
    assert (last > first).any() if streaming else (last == first).all()
    assert (last >= first).all()


def test_first_tokens_are_stamped_when_the_server_wrote_them(tmp_path: Path) -> None:
    """Never before, and later by no more than the client's own loop was held up: a busy machine
    delays a run, not its stamps."""
    with exact_server(Schedule(ttft_s=0.02, itl_s=0.005), seconds=60) as url:
        found = run(
            url, tmp_path / "run", question(ClosedLoop(concurrency=16), osl="20", requests=96)
        )
        number, received, first, last, tokens = server_log(url).T
    ours, start = found.requests, found.observed.start_ns
    assert sorted(number) == list(range(96))
    assert set(tokens) == {20}
    assert (received >= ours.sent_ns[number] + start).all()
    # by which two readings of the clocks may differ
    assert (ours.first_token_ns[number] + start >= first - HELD_UP_NS).all()
    assert (ours.last_token_ns[number] + start >= last - HELD_UP_NS).all()
    assert int(ours.gaps.sum()) == 96 * 19
    assert np.median(ours.first_token_ns[number] + start - first) <= 5e6 + max(
        found.observed.lateness_ns
    )


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        *(
            ("429", "HTTP 429"),
            ("500", "HTTP 500"),
            ("cut", "cut off"),
            ("error", "error in the reply"),
        ),
        pytest.param("hang", "timed out", marks=pytest.mark.live),
    ],
)
def test_a_fault_is_counted_as_what_it_is(fault: Fault, outcome: str, tmp_path: Path) -> None:
    schedule = Schedule(ttft_s=0.01, itl_s=0.002, fault=fault, fault_every=3)
    with exact_server(schedule, seconds=60) as url:
        found = run(url, tmp_path / "run", question(), timeout_s=0.5 if fault == "hang" else 30.0)
    assert found.outcomes == {"": 8, outcome: 4}
    assert found.statuses == {"completed": 8, "failed": 4}
    assert len(found.observed.tally.examples) == 4
    assert summarize(found.requests).counted == 8


def test_a_server_that_closes_without_a_word_is_counted(tmp_path: Path) -> None:
    with exact_server(Schedule(fault="close", fault_every=1), seconds=60) as url:
        assert run(url, tmp_path / "run", question()).outcomes == {"closed without a reply": 12}


def test_a_refused_connection_is_counted(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    found = run(f"http://127.0.0.1:{port}", tmp_path / "run", question())
    assert found.outcomes == {"connection refused": 12}
    assert (found.requests.sent_ns == -1).all()


def test_a_killed_server_ends_the_run_and_what_came_before_counts(tmp_path: Path) -> None:
    with scripted(lambda peer: peer.sendall(STREAM) if read_request(peer) else None) as url:
        found = run(
            url, tmp_path / "run", question(ClosedLoop(concurrency=1), requests=3), timeout_s=5.0
        )
    assert found.outcomes[""] == 1
    assert sum(found.outcomes.values()) == 3


def test_a_redirect_is_refused(tmp_path: Path) -> None:
    def redirect(peer: socket.socket) -> None:
        read_request(peer)
        peer.sendall(
            b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/\r\nContent-Length:"
            b" 0\r\nConnection: close\r\n\r\n"
        )

    with scripted(redirect) as url:
        found = run(url, tmp_path / "run", question(ClosedLoop(concurrency=1), requests=1))
    assert found.outcomes == {"redirected": 1}
    assert "127.0.0.1:1" in found.observed.tally.examples[0]["detail"]


def test_a_kept_connection_that_the_server_closed_is_replaced(tmp_path: Path) -> None:
    def once(peer: socket.socket) -> None:
        read_request(peer)
        peer.sendall(STREAM)
        read_request(peer)

    def answer(peer: socket.socket) -> None:
        read_request(peer)
        peer.sendall(STREAM)

    with scripted(once, answer) as url:
        found = run(url, tmp_path / "run", question(ClosedLoop(concurrency=1), requests=2))
    assert found.outcomes == {"": 2}
    assert found.observed.retries == 1


def test_several_tokens_in_an_event_share_its_moment_and_its_gap_is_divided(tmp_path: Path) -> None:
    with exact_server(Schedule(ttft_s=0.01, itl_s=0.01, tokens_per_event=4), seconds=60) as url:
        found = run(url, tmp_path / "run", question(osl="18"))
    assert set(found.requests.osl) == {18}
    assert int(found.requests.gaps.sum()) == 12 * (18 - 4)
    assert 5 < summarize(found.requests).itl_ms.p50 < 15
    assert found.observed.tally.shared == 12


def in_flight(requests: Requests) -> int:
    """The most requests that were in flight at once; one that ends makes room for one that begins
    at the same moment."""
    times = np.concatenate([requests.sent_ns, requests.last_token_ns])
    steps = np.concatenate([np.ones(len(requests), dtype=np.int64), np.full(len(requests), -1)])
    return int(steps[np.lexsort((steps, times))].cumsum().max())


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


def test_a_cap_is_shared_by_client_processes_and_in_the_run_folder(tmp_path: Path) -> None:
    with exact_server(Schedule(ttft_s=0.03, itl_s=0.005), seconds=60) as url:
        load = {"request_rate": 400, "concurrency": 5, "arrival_pattern": "constant"}
        (measured,) = bench(
            url=url,
            model="m",
            isl=20,
            osl=5,
            request_count=40,
            workers=2,
            selftest=False,
            output=tmp_path / "run",
            **load,
        )
    assert in_flight(measured.requests) == 5
    assert (measured.run_json["load"]["in_flight"], measured.run_json["load"]["kind"]) == (
        5,
        "open",
    )
    assert measured.run_json["load"]["held"] == measured.observed.held == 35
    where = {
        "model": "llama-3.1-8b",
        "gpu": "h100-sxm-80gb",
        "precision": "fp8",
        "tp": 1,
        "engine": "vllm",
    }
    (row,) = read_measured(tmp_path / "run", where, InvalidRuns(include=True))
    assert (row["request_rate"], row["in_flight"], row["concurrency"]) == (400, 5, None)


@pytest.mark.parametrize(
    ("load", "words"),
    [
        ({"concurrency": "1,2"}, "it caps the requests in flight; give one number"),
        (
            {
                "concurrency": 4,
                "conversation_num": 2,
                "conversation_turns": 2,
                "request_count": None,
            },
            "it caps single requests",
        ),
        (
            {"trace": "t.csv"},
            (
                "give one of them, such as a concurrency of 16, or a rate with the most requests in"
                " flight"
            ),
        ),
        ({"concurrency": 0}, "concurrency"),
    ],
)
def test_loads_with_a_cap_that_cannot_be(load: dict[str, Any], words: str) -> None:
    question: dict[str, Any] = {
        "model": "m",
        "isl": 20,
        "osl": 5,
        "request_count": 4,
        "request_rate": 5,
        **load,
    }
    with pytest.raises(InputError, match=words):
        bench(url="http://127.0.0.1:9", selftest=False, **question)


def test_no_highest_rate_is_searched_below_a_cap() -> None:
    asked = prepare_bench(
        url="127.0.0.1:9",
        model="m",
        isl=20,
        osl=5,
        request_count=4,
        request_rate=5,
        concurrency=4,
        slo=("ttft p95<=1s",),
    )
    with pytest.raises(
        InputError,
        match="caps the requests in flight, so that a higher rate breaks no limit; leave it out",
    ):
        run_find_max(asked, output=None, selftest=False, provenance={})


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


@pytest.mark.parametrize(
    "arrivals", [ClosedLoop(concurrency=2), OpenLoop(rate=50.0)], ids=["clients", "rate"]
)
def test_ctrl_c_in_the_warm_up_ends_the_run_before_its_first_request(
    arrivals: ClosedLoop | OpenLoop, fast: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(*_: object) -> bool:
        return False

    monkeypatch.setattr(measure, "_warm_up", interrupted)
    assert len(run(fast, tmp_path / "run", question(arrivals), warmup=8).requests) == 0


def test_tokens_are_counted_from_the_text_where_the_server_does_not_say(tmp_path: Path) -> None:
    replies = HEAD + chunked(*(sse(chat(text)) for text in (" a", " b c", " d")), DONE)

    def answer(peer: socket.socket) -> None:
        read_request(peer)
        peer.sendall(replies)

    with scripted(answer) as url:
        found = run(url, tmp_path / "run", question(ClosedLoop(concurrency=1), requests=1))
    assert list(found.requests.osl) == [3]
    assert dict(found.observed.tally.sources) == {"events": 1}


PEM = Path(__file__).parent / "loopback.pem"
ONE = ClosedLoop(concurrency=1)


def encrypted(answer: Callable[[socket.socket], None]) -> Callable[[socket.socket], None]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(PEM)

    def serve(peer: socket.socket) -> None:
        try:
            with context.wrap_socket(peer, server_side=True) as wrapped:
                answer(wrapped)
        except (ssl.SSLError, OSError):
            return

    return serve


def reply(peer: socket.socket) -> None:
    for _ in range(2):
        read_request(peer)
        for piece in (HEAD, *(chunked(sse(event), last=b"") for event in PLAIN), chunked()):
            peer.sendall(piece)


def test_a_stream_over_tls_is_measured_on_one_connection(tmp_path: Path) -> None:
    with scripted(encrypted(reply)) as url:
        trusted = ssl.create_default_context(cafile=PEM)
        found = run(
            url.replace("http", "https"), tmp_path / "run", question(ONE, requests=2), tls=trusted
        )
    assert found.outcomes == {"": 2}
    assert set(found.requests.osl) == {3}
    assert found.observed.connections == 1


def test_a_certificate_that_is_not_trusted_is_counted(tmp_path: Path) -> None:
    with scripted(encrypted(reply)) as url:
        found = run(
            url.replace("http", "https"),
            tmp_path / "run",
            question(ONE, requests=1),
            tls=ssl.create_default_context(),
        )
    assert found.outcomes == {"TLS failed": 1}
    assert "certificate" in found.observed.tally.examples[0]["detail"].lower()


def test_a_server_that_does_not_speak_tls_is_counted(tmp_path: Path) -> None:
    with scripted(lambda peer: peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as url:
        found = run(
            url.replace("http", "https"),
            tmp_path / "run",
            question(ONE, requests=1),
            tls=ssl.create_default_context(),
        )
    assert list(found.outcomes) in (["TLS failed"], ["cannot connect"])


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
    assert found.observed.waits >= found.observed.sent - 6
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


@pytest.mark.live
@pytest.mark.parametrize("event", [b": ping\n\n", sse(chat("a"))])
def test_a_reply_without_end_takes_no_longer_than_the_time_limit(
    event: bytes, tmp_path: Path
) -> None:
    def flood(peer: socket.socket) -> None:
        read_request(peer)
        peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        with contextlib.suppress(OSError):
            while True:
                peer.sendall(event * 2_000)

    began = time.monotonic()
    with scripted(flood) as url:
        found = run(
            url, tmp_path / "run", question(ClosedLoop(concurrency=1), requests=1), timeout_s=1.0
        )
    assert found.outcomes == {"timed out": 1}
    assert time.monotonic() - began < 6


def test_a_stream_of_too_many_bytes_or_events_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tonnage.bench.reply.MAX_STREAM", 1_000)
    monkeypatch.setattr("tonnage.bench.reply.MAX_EVENTS", 5)
    reply = Reply(find_endpoint("chat", model="m"))
    with pytest.raises(BrokenReply, match="a stream of more than"):
        reply.read([(1, HEAD), *((2, chunked(b": ping\n\n" * 20, last=b"")) for _ in range(7))])
    reply = Reply(find_endpoint("chat", model="m"))
    with pytest.raises(BrokenReply, match="more than 5 events with output"):
        reply.read(
            [
                (1, HEAD),
                *(
                    (2, chunked(sse({"choices": [{"delta": {"content": "a"}}]}), last=b""))
                    for _ in range(7)
                ),
            ]
        )


@pytest.mark.live
def test_the_exact_server_ends_with_the_process_that_started_it() -> None:
    serving = "with exact_server(Schedule()) as url: print(url, flush=True); time.sleep(60)"
    program = f"import time; from tonnage.bench.exact_server import *\n{serving}"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    host, port = process.stdout.readline().strip().removeprefix("http://").split(":")
    socket.create_connection((host, int(port))).close()
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 10
    refused = False
    while not refused and time.monotonic() < deadline:
        with socket.socket() as attempt:
            refused = attempt.connect_ex((host, int(port))) != 0
        time.sleep(0.05)
    assert refused


def test_nothing_is_measured_after_a_self_test_that_was_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = measure.measure
    monkeypatch.setattr(
        "tonnage.bench.selftest.measure", lambda *asked: replace(whole(*asked), interrupted=True)
    )
    with pytest.raises(KeyboardInterrupt):
        self_test(streams=2, requests=2)


def test_a_reading_of_a_run_counts_what_did_not_complete() -> None:
    live = measure.Live()
    assert live.reading() is None
    load = SimpleNamespace(seconds=10.0)
    live.begin(SimpleNamespace(start_ns=time.monotonic_ns(), load=load, sent=4, over=3), None)
    tokens = TokenTimes(times_ns=(5, 9, 13), per_event=None, tokens=3, source="events")
    for outcome, times in ((COMPLETED, tokens), ("failed", tokens), (COMPLETED, None)):
        exchange = SimpleNamespace(outcome=outcome, due_ns=2)
        live.seen(exchange, times or replace(tokens, times_ns=()))
    reading = live.reading()
    assert reading is not None
    assert (reading.sent, reading.in_flight, reading.failed) == (4, 1, 1)
    assert reading.ttft_s == pytest.approx((3e-9, 3e-9))
    assert reading.tpot_s == pytest.approx((4e-9, 4e-9))
    assert reading.left_s == pytest.approx(10.0, abs=1.0)

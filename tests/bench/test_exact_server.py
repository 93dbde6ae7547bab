"""The exact server: every event leaves at its moment."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import MISSING, asdict, fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.bench.records import MS
from tonnage.bench import exact_replies
from tonnage.bench.arguments import BenchArguments, ExactArguments
from tonnage.bench.exact_replies import Request, closing, event, opening
from tonnage.bench.exact_server import ExactServer, Schedule, exact_server, serve
from tonnage.errors import TonnageError
from tonnage.units import parse_duration


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


class Clock:
    """Time that passes only from one moment with something to do to the next."""

    def __init__(self) -> None:
        self.now = 1_000 * MS
        self._plans: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def at(self, moment: int, what: Callable[[], None]) -> None:
        heapq.heappush(self._plans, (moment, next(self._order), what))

    def run(self) -> None:
        while self._plans:
            moment, _, what = heapq.heappop(self._plans)
            self.now = max(self.now, moment)
            what()


class Server:
    """The exact server on such a clock: ``sends`` holds by request the moments at which it wrote,
    after the clock's start."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, schedule: Schedule) -> None:
        clock = self.clock = Clock()
        self.start = clock.now

        class Alarm:
            def __init__(self, loop: Any, ring: Callable[[], None]) -> None:
                self._ring, self._set = ring, itertools.count()
                self._latest = -1

            def set(self, moment: int) -> None:
                mine = self._latest = next(self._set)
                clock.at(moment, lambda: self._ring() if mine == self._latest else None)

            def close(self) -> None:
                self._latest = -1

        monkeypatch.setattr("tonnage.bench.exact_server.Alarm", Alarm)
        monkeypatch.setattr(
            "tonnage.bench.exact_server.time",
            SimpleNamespace(monotonic_ns=lambda: clock.now, sleep=None),
        )
        idle = SimpleNamespace(add_reader=lambda *_: None, remove_reader=lambda *_: None)
        self.server = ExactServer(idle, schedule)  # type: ignore[arg-type]
        self.sends: dict[int, list[int]] = {}

    def request(self, number: int, tokens: int, after_ns: int) -> None:
        moments = self.sends.setdefault(number, [])
        connection = SimpleNamespace(
            open=True, send=lambda data: moments.append(self.clock.now - self.start)
        )
        asked = Request(
            kind="chat", number=number, model="m", streaming=True, tokens=tokens, prompt=1
        )
        self.clock.at(
            self.start + after_ns, lambda: self.server._take(asked, connection, self.clock.now)
        )  # type: ignore[arg-type]

    def run(self) -> None:
        self.clock.run()
        self.server.close()


@pytest.mark.parametrize("apart_ms", [0, 3, 28, 131])
def test_every_event_of_eight_streams_leaves_at_its_moment(
    apart_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(monkeypatch, Schedule(ttft_s=0.05, itl_s=0.01))
    for number in range(8):
        server.request(number, 12 - number, number * apart_ms * MS)
    server.run()
    for number, moments in server.sends.items():
        begun = number * apart_ms * MS
        assert moments == [begun + 50 * MS + k * 10 * MS for k in range(12 - number)], number
    assert {
        row[0]: (row[2] - server.start, row[3] - server.start) for row in server.server.log
    } == {number: (moments[0], moments[-1]) for number, moments in server.sends.items()}


def test_a_shorter_wait_that_begins_later_is_not_held_up_by_a_longer_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server(monkeypatch, Schedule(ttft_s=0.04, itl_s=0.1))
    server.request(0, 3, 0)  # at 40, 140 and 240 ms
    server.request(1, 2, 60 * MS)  # at 100 and 200 ms
    server.run()
    assert server.sends == {0: [40 * MS, 140 * MS, 240 * MS], 1: [100 * MS, 200 * MS]}


def test_requests_beyond_the_slots_begin_when_one_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, Schedule(ttft_s=0.05, itl_s=0.01, slots=3))
    for number in range(8):
        server.request(number, 6, number * MS)
    server.run()
    begun = [0, 1, 2, 100, 101, 102, 200, 201]  # each takes 50 + 5 × 10 ms
    assert server.sends == {
        n: [(b + 50 + 10 * k) * MS for k in range(6)] for n, b in enumerate(begun)
    }


def test_the_exact_server_s_own_arithmetic() -> None:
    schedule = Schedule(ttft_s=0.05, itl_s=0.01, tokens_per_event=4, slots=3)
    assert schedule.service_s(11) == pytest.approx(0.15)
    assert schedule.sends(10) == [
        (pytest.approx(0.08), 4),
        (pytest.approx(0.12), 4),
        (pytest.approx(0.14), 2),
    ]


class Wire:
    """A connection that keeps what was sent and whether it is open."""

    def __init__(self) -> None:
        self.open = True
        self.data: list[bytes] = []

    def send(self, data: bytes) -> None:
        self.data.append(data)

    def close(self) -> None:
        self.open = False


def take(server: Server, after_ns: int = 0, **fields: Any) -> Wire:
    """Let a request come."""
    wire = Wire()
    values = {"kind": "completions", "number": 0, "model": "m", "streaming": True, "tokens": 4}
    asked = Request(**{**values, "prompt": 1, **fields})  # type: ignore[arg-type]
    server.clock.at(
        server.start + after_ns,
        lambda: server.server._take(asked, wire, server.clock.now),  # type: ignore[arg-type]
    )
    return wire


def test_a_stream_is_its_opening_its_events_and_its_closing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server(monkeypatch, Schedule(tokens_per_event=2))
    wire, odd = take(server, tokens=6), take(server, tokens=3, number=1)
    whole = take(server, streaming=False, tokens=5, number=2)
    vector = take(server, streaming=False, kind="embeddings", number=3)
    server.run()
    asked = Request(kind="completions", number=0, model="m", streaming=True, tokens=6, prompt=1)
    usual = event(asked, 2)
    assert wire.data == [opening(asked) + usual, usual, usual + closing(asked, 6)]
    second = replace(asked, number=1, tokens=3)
    assert odd.data == [opening(second) + event(second, 2), event(second, 1) + closing(second, 3)]
    assert whole.data == [exact_replies.whole(replace(asked, number=2, streaming=False), 5)]
    assert vector.data == [exact_replies.whole(replace(asked, number=3, kind="embeddings"), 0)]
    moments = {row[0]: [(at - server.start) / MS for at in row[1:4]] for row in server.server.log}
    assert moments == {0: [0, 60, 100], 1: [0, 60, 70], 2: [0, 90, 90], 3: [0, 50, 50]}
    assert {row[0]: row[4] for row in server.server.log} == {0: 6, 1: 3, 2: 5, 3: 0}
    assert server.server._running == 0


def test_every_reply_has_the_tokens_of_the_schedule_where_it_says_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server(monkeypatch, Schedule(tokens=2))
    wire = take(server, tokens=9)
    server.run()
    assert (len(wire.data), server.server.log[0][4]) == (2, 2)


@pytest.mark.parametrize(
    ("fault", "events", "ending", "still_open"),
    [
        ("none", 4, b"0\r\n\r\n", True),
        ("cut", 2, b"\r\n", False),
        ("error", 2, b"0\r\n\r\n", True),
        ("hang", 0, b"", True),
        ("close", 0, b"", False),
        ("429", 1, b'{"error": {"message": "on purpose"}}', True),
        ("500", 1, b'{"error": {"message": "on purpose"}}', True),
    ],
)
def test_every_third_request_meets_the_fault(
    fault: Any, events: int, ending: bytes, still_open: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(monkeypatch, Schedule(fault=fault, fault_every=3))
    wires = [take(server, number=number) for number in range(7)]
    server.run()
    for number, wire in enumerate(wires):
        meets = number in (2, 5)
        assert len(wire.data) == (events if meets else 4), number
        assert wire.open == (still_open or not meets)
    data = b"".join(wires[2].data)
    assert data.endswith(ending)
    assert (b"on purpose" in data) == (fault in ("error", "429", "500"))
    statuses = {"429": b"HTTP/1.1 429 Too Many", "500": b"HTTP/1.1 500 Internal"}
    assert data.startswith(statuses.get(fault, b"HTTP/1.1 200" if events else b""))
    logged = [row[0] for row in server.server.log]
    assert (2 in logged) == (fault in ("none", "cut", "error"))
    assert server.server._running == 0


def test_a_fault_needs_a_number_of_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, Schedule(fault="close"))
    wire = take(server)
    server.run()
    assert wire.open
    assert asdict(Schedule()) == {
        "ttft_s": 0.05,
        "itl_s": 0.01,
        "tokens": 0,
        "tokens_per_event": 1,
        "slots": 0,
        "freeze_at_s": 0.0,
        "freeze_s": 0.0,
        "fault": "none",
        "fault_every": 0,
    }


def test_a_client_that_leaves_ends_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, Schedule(slots=1))
    wire, following = take(server), take(server, number=1)
    server.clock.at(server.start + 55 * MS, wire.close)
    server.run()
    assert (len(wire.data), len(following.data)) == (2, 4)
    assert [row[0] for row in server.server.log] == [0, 1]


def test_a_freeze_delays_what_is_due_and_comes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, Schedule(freeze_at_s=0.055, freeze_s=1.0))

    def sleep(seconds: float) -> None:
        server.clock.now += round(seconds * 1e9)

    monkeypatch.setattr(
        "tonnage.bench.exact_server.time",
        SimpleNamespace(monotonic_ns=lambda: server.clock.now, sleep=sleep),
    )
    server.request(0, 3, 10 * MS)  # at 60, 70 and 80 ms, frozen from 65 ms to 1,065 ms
    server.request(1, 2, 2_000 * MS)
    server.run()
    assert server.sends[0] == [60 * MS, 1_065 * MS, 1_065 * MS]
    assert server.sends[1] == [2_050 * MS, 2_060 * MS]
    late = Server(monkeypatch, Schedule(freeze_at_s=86_400.0, freeze_s=1.0))
    take(late)
    late.clock.at(0, lambda: None)
    _, _, arrives = min(late.clock._plans[1:] or late.clock._plans)
    arrives()
    assert late.server._freeze_ns == late.start + 86_400 * 10**9
    late.server.close()


def test_what_the_server_says_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, Schedule(slots=1)).server
    said: list[bytes] = []
    wire = SimpleNamespace(open=True, send=said.append)

    def asked(method: str, path: str, body: Any = None, **headers: str) -> bytes:
        server._on_request(wire, method, path, headers, body)  # type: ignore[arg-type]
        return said.pop() if said else b""

    good = {"prompt": "a", "max_tokens": 1}
    numbered: dict[str, Any] = {"x-request-id": "12"}
    assert asked("POST", "/v1/completions", good, **numbered) == b""
    asked("POST", "/v1/completions", good)
    asked("POST", "/v1/completions", good)
    assert asked("GET", "/metrics").endswith(
        b"\r\n\r\nvllm:num_requests_running 1\nvllm:num_requests_waiting 2\n"
    )
    assert server._heap[0][2].request.number == 12
    assert [waiting.request.number for waiting in server._waiting] == [-1, -1]
    server.log.append((1, 2, 3, 4, 5))
    for rows in (b'{"requests": [[1, 2, 3, 4, 5]]}', b'{"requests": []}'):
        assert asked("GET", "/log").endswith(b"\r\n\r\n" + rows)
    for method, path, body, status, words in (
        ("GET", "/x", None, b"404 Not Found", b"nothing at /x"),
        ("POST", "/x", {}, b"400 Bad Request", b"no endpoint at /x"),
        ("POST", "/v1/completions", [], b"400 Bad Request", b"the body is not a JSON object"),
    ):
        data = asked(method, path, body)
        assert data.startswith(b"HTTP/1.1 " + status + b"\r\n")
        assert data.endswith(b'\r\n\r\n{"error": {"message": "' + words + b'"}}')
    server.close()


@pytest.mark.parametrize(
    ("tokens", "seconds", "events"),
    [(0, 0.05, []), (1, 0.05, [(0.05, 1)]), (3, 0.07, [(0.06, 2), (0.07, 1)])],
)
def test_short_replies_of_a_schedule(
    tokens: int, seconds: float, events: list[tuple[float, int]]
) -> None:
    schedule = Schedule(tokens_per_event=2)
    assert schedule.service_s(tokens) == pytest.approx(seconds)
    assert schedule.sends(tokens) == [(pytest.approx(at), size) for at, size in events]


def test_a_stream_that_is_cut_before_its_first_event_has_no_stamps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server(monkeypatch, Schedule(fault="cut", fault_every=1))
    take(server, tokens=2)
    server.run()
    assert list(server.server.log) == [(0, server.start, -1, -1, 2)]


def test_the_schedule_of_the_command_is_that_of_the_server_by_default() -> None:
    usual = ExactArguments()
    numbers = ("tokens_per_event", "slots", "fault", "fault_every")
    schedule = Schedule()
    assert [getattr(usual, name) for name in numbers] == [
        getattr(schedule, name) for name in numbers
    ]
    assert [parse_duration(text, "") for text in (usual.ttft, usual.itl)] == [0.05, 0.01]
    assert [parse_duration(text, "") for text in (usual.freeze_at, usual.freeze_for)] == [0, 0]
    assert usual.port == 0


def test_a_help_text_names_the_default_that_holds() -> None:
    """Where a help text ends in "(default: 4)", the argument's default is 4."""
    compared = []
    for field in (*fields(BenchArguments), *fields(ExactArguments)):
        words = " ".join(str(part) for part in field.metadata.values())
        named = re.search(r"\(default: ([\w.]+)\)", words)
        if named and named[1] in ("on", "off"):
            compared.append((field.name, field.default, named[1] == "on"))
        elif named and field.default is not None and field.default is not MISSING:
            compared.append((field.name, str(field.default).removesuffix(".0"), named[1]))
    assert len(compared) > 12
    assert [row for row in compared if row[1] != row[2]] == []
    usual = {field.name: field.default for field in fields(BenchArguments)}
    names = ("warmup_request_count", "shared_prefix", "cv", "max_error_rate", "request_count")
    assert [usual[name] for name in names] == [0, 0, 1.0, 0.01, None]


class Peers:
    """A listening socket with so many peers, and their ends."""

    def __init__(self, count: int) -> None:
        self.pairs = [socket.socketpair() for _ in range(count)]
        self.waiting = [ours for ours, _ in self.pairs]
        self.closed = 0

    def accept(self) -> tuple[Any, None]:
        if not self.waiting:
            raise BlockingIOError
        return Peer(self.waiting.pop(0)), None

    def close(self) -> None:
        self.closed += 1


class Peer:
    """One end of a pair, whose options are noted."""

    def __init__(self, connected: socket.socket) -> None:
        self.connected, self.options = connected, list[Any]()

    def setblocking(self, blocking: bool) -> None:
        self.options.append(blocking)

    def setsockopt(self, *words: int) -> None:
        self.options.append(words)

    def close(self) -> None:
        self.connected.close()


class Readers:
    """A loop whose calls are noted."""

    def __init__(self) -> None:
        self.log: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return lambda what, *_: self.log.append((name, what))


def test_peers_are_taken_until_none_waits_and_ended_with_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, peers, closed = Readers(), Peers(3), list[str]()
    monkeypatch.setattr(
        "tonnage.bench.exact_server.Alarm",
        lambda loop, ring: SimpleNamespace(close=lambda: closed.append("alarm")),
    )
    server = ExactServer(loop, Schedule())  # type: ignore[arg-type]
    assert server.port > 0
    assert loop.log == [("add_reader", server._socket)]
    with contextlib.closing(server._socket) as listening:
        assert not listening.getblocking()
        assert listening.getsockname() == ("127.0.0.1", server.port)
    server._socket = peers  # type: ignore[assignment]
    server._accept()
    taken = [what for name, what in loop.log[1:] if name == "add_reader"]
    assert len(taken) == len(server._connections) == 3
    for peer in taken:
        assert peer.options == [False, (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
    first = next(iter(server._connections))
    first.close()
    assert len(server._connections) == 2
    server.close()
    assert (server._connections, peers.closed, closed) == (set(), 1, ["alarm"])
    assert ("remove_reader", peers) in loop.log
    assert [peer.connected.fileno() for peer in taken] == [-1] * 3
    for _, theirs in peers.pairs:
        theirs.close()


def test_no_more_than_256_peers_are_taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tonnage.bench.exact_server.Connection", lambda *_: object())
    server = object.__new__(ExactServer)
    server._loop, server._connections = None, set()  # type: ignore[assignment]
    peer = SimpleNamespace(setblocking=lambda _: None, setsockopt=lambda *_: None)
    server._socket = SimpleNamespace(accept=lambda: (peer, None))  # type: ignore[assignment]
    server._accept()
    assert len(server._connections) == 256


@pytest.mark.parametrize("ends", [None, signal.SIGTERM, signal.SIGINT])
def test_a_server_says_where_it_listens_and_ends_by_a_signal_or_its_time(
    ends: signal.Signals | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    made: list[Any] = []

    def listening(loop: Any, schedule: Schedule, *, host: str, port: int) -> Any:
        made.append((schedule, host, port))
        return SimpleNamespace(port=77, close=lambda: made.append("closed"))

    def says(words: str, *, flush: bool) -> None:
        said.append(words)
        assert flush
        if ends is not None:
            os.kill(os.getpid(), ends)

    monkeypatch.setattr("tonnage.bench.exact_server.ExactServer", listening)
    monkeypatch.setattr("builtins.print", says)
    began = time.monotonic()
    serve(Schedule(tokens=3), host="127.0.0.1", port=5, seconds=0.01 if ends is None else 20.0)
    assert time.monotonic() - began < 10
    assert made == [(Schedule(tokens=3), "127.0.0.1", 5), "closed"]
    assert said == ["listening on http://127.0.0.1:77"]


@pytest.mark.parametrize("line", ["listening on http://127.0.0.1:7\n", "Traceback\n", ""])
def test_a_server_of_its_own_process_is_ended_with_the_block(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[Any] = []
    pipe = SimpleNamespace(readline=lambda: line, close=lambda: log.append("closed"))
    process = SimpleNamespace(
        stdin=pipe,
        stdout=pipe,
        terminate=lambda: log.append("terminated"),
        wait=lambda timeout: log.append(("waited", timeout)),
    )

    def popen(command: list[str], **how: Any) -> Any:
        log.append(command)
        log.append(how)
        return process

    monkeypatch.setattr("tonnage.bench.exact_server.subprocess.Popen", popen)
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    schedule = Schedule(tokens=3, fault="cut")
    good = line.startswith("listening")
    refused = pytest.raises(TonnageError, match="did not start")
    with nullcontext() if good else refused, exact_server(schedule, seconds=5.0) as url:
        assert (url, len(log)) == ("http://127.0.0.1:7", 2)
    command, how, *rest = log
    assert command[:3] == [sys.executable, "-m", "tonnage.bench.exact_server"]
    assert (json.loads(command[3]), command[4:]) == (asdict(schedule), ["5.0"])
    assert (how["stdin"], how["stdout"], how["text"]) == (subprocess.PIPE, subprocess.PIPE, True)
    paths = how["env"]["PYTHONPATH"].split(os.pathsep)
    assert (Path(paths[0]) / "tonnage" / "bench" / "exact_server.py").is_file()
    assert paths[1:] == ["/elsewhere"]
    assert rest == ["terminated", ("waited", 30), "closed", "closed"]

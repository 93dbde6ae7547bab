"""Connections of the client: kept, refused, cut off, and over TLS."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.bench.corpus import STREAM, chat, sse
from tests.bench.exact_runs import reply
from tests.bench.live import question, read_request, run, scripted
from tonnage.bench.client import Client
from tonnage.bench.connection import Connection, Target
from tonnage.bench.reply import Exchange
from tonnage.spec.workload import ClosedLoop


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


class Kept:
    """A connection as the client keeps it."""

    def __init__(self, *, usable: bool = True, used: int = 1) -> None:
        self.usable, self.used = usable, used
        self.sent: list[Exchange] = []
        self.closed = 0

    def send(self, exchange: Exchange) -> None:
        self.sent.append(exchange)

    def close(self) -> None:
        self.closed += 1


class Loop:
    """A loop that notes what it is to do later."""

    def __init__(self) -> None:
        self.later: list[tuple[float, Any]] = []
        self.tasks: list[Any] = []
        self.cancelled = 0

    def call_later(self, seconds: float, what: Any) -> Any:
        self.later.append((seconds, what))
        return SimpleNamespace(cancel=lambda: setattr(self, "cancelled", self.cancelled + 1))

    def create_task(self, coroutine: Any) -> Any:
        coroutine.close()
        self.tasks.append(SimpleNamespace(cancel=lambda: None))
        return self.tasks[-1]


def client_of(
    monkeypatch: pytest.MonkeyPatch, **settings: Any
) -> tuple[Any, Loop, list[Exchange], list[Any]]:
    """A client without a network, with its loop, the exchanges that are over and those that its receiver learned of."""
    learned: list[Any] = []
    receiver = SimpleNamespace(learn=learned.append, close=lambda: learned.append("closed"))
    monkeypatch.setattr("tonnage.bench.client.Receiver", lambda loop: receiver)
    loop, over = Loop(), list[Exchange]()
    usual = {"done": over.append, "fresh_reply": lambda: "fresh", "timeout_s": 2.5, **settings}
    return Client(loop, Target(host="h", port=1), **usual), loop, over, learned  # type: ignore[arg-type]


def request() -> Exchange:
    return Exchange(number=0, isl=1, osl=1, data=b"", reply=None)  # type: ignore[arg-type]


def test_a_kept_connection_is_used_again_the_latest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    client, loop, over, learned = client_of(monkeypatch)
    first, second, gone = Kept(), Kept(), Kept(usable=False)
    exchanges = [request() for _ in range(4)]
    for connection, exchange in zip((first, second, gone), exchanges, strict=False):
        client._busy[exchange] = connection
        client.exchanged(connection, exchange)
    assert (over, learned, client.in_flight) == (exchanges[:3], exchanges[:3], 0)
    assert client._idle == [first, second]
    assert (first.closed, second.closed, gone.closed) == (0, 0, 0)
    second.usable = False
    client.start(exchanges[3])
    assert (first.sent, second.sent, client._idle) == ([exchanges[3]], [], [])
    assert client._busy == {exchanges[3]: first}
    assert exchanges[3].begun_ns > 0
    assert (loop.tasks, client.retries, client.connections) == ([], 0, 0)
    client.start(exchanges[0])
    assert client._busy[exchanges[0]] is loop.tasks[0]
    assert client.in_flight == 2


def test_without_reuse_a_connection_is_closed_after_its_reply(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, _, over, _ = client_of(monkeypatch, reuse=False)
    connection, exchange = Kept(), request()
    client._busy[exchange] = connection
    client.exchanged(connection, exchange)
    assert (connection.closed, client._idle, over) == (1, [], [exchange])


@pytest.mark.parametrize(
    ("used", "outcome", "retried", "again"),
    [
        (2, "closed without a reply", False, True),
        (1, "closed without a reply", False, False),
        (2, "closed without a reply", True, False),
        (2, "cut off", False, False),
        (2, "", False, False),
    ],
)
def test_a_request_is_sent_again_once_where_a_kept_connection_was_closed(
    used: int, outcome: str, retried: bool, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, loop, over, learned = client_of(monkeypatch)
    exchange = request()
    exchange.outcome, exchange.retried = outcome, retried
    client._busy[exchange] = connection = Kept(used=used, usable=False)
    client.exchanged(connection, exchange)
    assert (len(loop.tasks), client.retries, over) == (again, again, [] if again else [exchange])
    assert (exchange.retried, exchange.reply, exchange.outcome) == (
        (True, "fresh", "") if again else (retried, None, outcome)
    )
    assert learned == ([exchange] if outcome == "" else [])
    # one that was given up meanwhile is sent no more
    exchange.retried, exchange.outcome = False, "closed without a reply"
    client._busy.clear()
    client.exchanged(Kept(used=2, usable=False), exchange)
    assert client.retries == again
    assert over == ([] if again else [exchange])


def test_requests_that_took_too_long_are_given_up_wherever_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 10_000_000_000
    monkeypatch.setattr("tonnage.bench.client.time", SimpleNamespace(monotonic_ns=lambda: now))
    client, loop, over, learned = client_of(monkeypatch)
    aborted: list[tuple[int, str]] = []
    connections = [object.__new__(Connection) for _ in range(2)]
    monkeypatch.setattr(
        Connection,
        "abort",
        lambda self, outcome: aborted.append((connections.index(self), outcome)),
    )
    connecting = SimpleNamespace(cancel=lambda: aborted.append((9, "cancelled")))
    late, in_time, waiting = request(), request(), request()
    late.begun_ns = waiting.begun_ns = now - 2_500_000_001
    in_time.begun_ns = now - 2_500_000_000
    client._busy = {late: connections[0], in_time: connections[1], waiting: connecting}
    [(seconds, look)] = loop.later
    assert seconds == 0.1
    look()
    assert aborted == [(0, "timed out"), (9, "cancelled")]
    assert [(e.outcome, e.detail) for e in over] == [("timed out", "")]
    assert over == [waiting]
    assert [part[0] for part in loop.later] == [0.1, 0.1]
    client.give_up(request(), "x")  # which is over already
    client.give_up_all("cancelled")
    assert aborted[2:] == [(0, "cancelled"), (1, "cancelled")]
    client._idle = [Kept(), Kept()]
    kept = list(client._idle)
    client.close()
    client.close()
    assert ([one.closed for one in kept], client._idle, loop.cancelled) == ([1, 1], [], 1)
    assert learned == ["closed", "closed"]


class Opening(Loop):
    """A loop whose addresses and connections are scripted."""

    def __init__(self, *ends: BaseException | None) -> None:
        super().__init__()
        self.ends, self.addresses = list(ends), list[Any]()
        self.asked_for = 0

    async def getaddrinfo(self, host: str, port: int, *, type: int) -> list[Any]:
        assert (host, port, type) == ("h", 1, socket.SOCK_STREAM)
        self.asked_for += 1
        return [(socket.AF_INET, 0, 0, "", (f"a{k}", 1)) for k in range(len(self.ends))]

    async def sock_connect(self, connected: socket.socket, address: Any) -> None:
        assert not connected.getblocking()
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        self.addresses.append((address, connected))
        if (end := self.ends[len(self.addresses) - 1]) is not None:
            raise end


REASON = ssl.SSLError()
REASON.reason = "CERTIFICATE\n BAD"
NOWHERE = OSError(113, "No route  to host")


@pytest.mark.parametrize(
    ("ends", "outcome", "tried"),
    [
        ((None,), None, 1),
        ((NOWHERE, None), None, 2),
        ((ConnectionRefusedError(),), ("connection refused", ""), 1),
        ((NOWHERE, ConnectionRefusedError()), ("connection refused", ""), 2),
        ((ConnectionRefusedError(), NOWHERE), ("cannot connect", "No route to host"), 2),
        ((OSError("  odd \n" * 60),), ("cannot connect", ("odd " * 60)[:160]), 1),
        ((REASON, None), ("TLS failed", "CERTIFICATE BAD"), 1),
        ((), ("cannot connect", "h has no address"), 0),
    ],
)
def test_the_first_address_that_takes_a_connection_is_used(
    ends: tuple[Any, ...], outcome: Any, tried: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _, over, _ = client_of(monkeypatch)
    loop = client._loop = Opening(*ends)
    made: list[Any] = []

    def connection(*words: Any) -> Kept:
        made.append(words)
        return Kept()

    monkeypatch.setattr("tonnage.bench.client.Connection", connection)
    exchange = request()
    client._busy[exchange] = "connecting"
    asyncio.run(client._send_on_new(exchange))
    assert [address for address, _ in loop.addresses] == [(f"a{k}", 1) for k in range(tried)]
    opened = [connected.fileno() >= 0 for _, connected in loop.addresses]
    assert opened == [False] * (tried - 1) + [outcome is None] * bool(tried)
    if outcome is None:
        assert over == []
        assert client.connections == 1
        assert client._busy[exchange].sent == [exchange]
        [words] = made
        assert words == (loop, client.exchanged, client._receiver, loop.addresses[-1][1], None)
        # given up while it was made: closed at once, and counted; the address is known by now
        loop.addresses[-1][1].close()
        loop.addresses, loop.ends = [], [None]
        client._busy.clear()
        unused = Kept()
        monkeypatch.setattr("tonnage.bench.client.Connection", lambda *_: unused)
        asyncio.run(client._send_on_new(exchange))
        assert (unused.closed, unused.sent, client.connections) == (1, [], 2)
        assert loop.asked_for == 1
        loop.addresses[-1][1].close()
    else:
        assert [(e.outcome, e.detail) for e in over] == [outcome]
        assert (client.connections, client.in_flight) == (0, 0)

"""Connections of the client: kept, refused, cut off, and over TLS."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bench.corpus import STREAM, chat, sse
from tests.bench.exact_runs import reply
from tests.bench.live import question, read_request, run, scripted
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

"""An encrypted connection: certificates are checked, and what cannot be trusted is counted as such.

``loopback.pem`` is a key and certificate for 127.0.0.1, made for this test alone: ``openssl req -x509 -newkey ec -pkeyopt
ec_paramgen_curve:prime256v1 -days 36500 -nodes -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1``.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from pathlib import Path

from tests.bench.corpus import HEAD, PLAIN, chunked, sse
from tests.bench.live import question, read_request, run, scripted
from tonnage.spec.workload import ClosedLoop

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
        found = run(url.replace("http", "https"), tmp_path / "run", question(ONE, requests=2), tls=trusted)
    assert found.outcomes == {"": 2}
    assert set(found.requests.osl) == {3}
    assert found.observed.connections == 1


def test_a_certificate_that_is_not_trusted_is_counted(tmp_path: Path) -> None:
    with scripted(encrypted(reply)) as url:
        found = run(url.replace("http", "https"), tmp_path / "run", question(ONE, requests=1), tls=ssl.create_default_context())
    assert found.outcomes == {"TLS failed": 1}
    assert "certificate" in found.observed.tally.examples[0]["detail"].lower()


def test_a_server_that_does_not_speak_tls_is_counted(tmp_path: Path) -> None:
    with scripted(lambda peer: peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as url:
        found = run(url.replace("http", "https"), tmp_path / "run", question(ONE, requests=1), tls=ssl.create_default_context())
    assert list(found.outcomes) in (["TLS failed"], ["cannot connect"])

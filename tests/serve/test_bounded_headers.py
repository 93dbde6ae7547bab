"""Headers that drip or never end."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.serve.asked_servers import served
from tonnage.serve.bounded_headers import silence_ended_requests
from tonnage.serve.server import in_thread

if TYPE_CHECKING:
    import pytest


def test_a_header_that_drips_or_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tonnage.serve.bounded_headers.HEADER_S", 0.6)
    monkeypatch.setattr("tonnage.serve.bounded_headers.MOST_BYTES", 10_000)
    whole = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
    with in_thread(served()) as running:
        for begun in (b"", whole):
            with socket.create_connection(("127.0.0.1", running.port), timeout=10) as slow:
                if begun:
                    slow.sendall(begun)
                    assert slow.recv(1_000).startswith(b"HTTP/1.1 200")
                began = time.monotonic()
                with suppress(ConnectionError):
                    for sign in itertools.cycle(b"GET / HTTP/1.1\r\nX: " + b"x" * 10_000):
                        slow.sendall(bytes([sign]))
                        slow.settimeout(0.05)
                        with suppress(TimeoutError):
                            if not slow.recv(1_000):
                                break
                assert 0.4 < time.monotonic() - began < 5
        with (
            socket.create_connection(("127.0.0.1", running.port), timeout=10) as endless,
            suppress(ConnectionError),
        ):
            for _ in range(1_000):
                endless.sendall(b"X" * 1_000)
            while endless.recv(65_536):  # its timeout says that the connection was not closed
                pass
        with socket.create_connection(("127.0.0.1", running.port), timeout=10) as kept:
            # no header is awaited while an answer is made, and a prompt client has all the time
            # between
            for _ in range(3):
                kept.sendall(whole)
                assert kept.recv(1_000).startswith(b"HTTP/1.1 200")
                time.sleep(0.4)


def test_a_request_that_is_ended_on_purpose_leaves_no_traceback(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logging.getLogger("uvicorn.error")
    monkeypatch.setattr(log, "filters", [])
    silence_ended_requests(ConnectionError)
    for cause in (asyncio.CancelledError(), ConnectionResetError(), ValueError("a fault")):
        log.error("Exception in ASGI application", exc_info=cause)
    log.error("no exception")
    assert [record.exc_info and type(record.exc_info[1]) for record in caplog.records] == [
        ValueError,
        None,
    ]

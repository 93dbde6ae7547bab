"""One connection: what is sent on it, and the stamps of what comes."""

from __future__ import annotations

import asyncio
import resource
import socket
import time
from types import SimpleNamespace
from typing import Any

import pytest

from tests.bench.pairs import in_loop
from tonnage.bench.connection import (
    Connection,
    more_descriptors,
    parse_url,
    request_bytes,
    request_head,
)
from tonnage.bench.endpoints import find_endpoint
from tonnage.bench.receiver import Receiver
from tonnage.bench.reply import Reply
from tonnage.errors import InputError


def test_a_request_has_its_key_and_its_length() -> None:
    head = request_head(parse_url("http://h:1/p"), "/v1/x", key="k", headers=(("X-A", "b"),))
    raw = request_bytes(head, 7, b"{}")
    assert raw.startswith(b"POST /p/v1/x HTTP/1.1\r\nHost: h:1\r\n")
    assert b"\r\nAuthorization: Bearer k\r\n" in raw
    assert raw.endswith(b"X-Request-Id: 7\r\nContent-Length: 2\r\n\r\n{}")
    with pytest.raises(InputError, match="printable"):
        request_head(parse_url("http://h"), "/x", key="a\r\nX-Evil: 1")


def test_no_piece_is_earlier_than_the_one_before_it(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    async def play(made: Receiver) -> None:
        # nobody hears of it
        connection = Connection(asyncio.get_running_loop(), None, made, pair[0])
        for ns in (5, 3, 9):
            connection.received(ns, b"x")
        assert [ns for ns, _ in connection._pieces] == [5, 5, 9]
        connection.close()

    in_loop(play)


def test_the_limit_of_open_files_is_raised_as_far_as_it_may_be() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, soft), hard))
    try:
        assert more_descriptors() == hard
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_connection_with_a_broken_reply_carries_no_other(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    failures: list[tuple[str, ...]] = []
    exchange: Any = SimpleNamespace(
        data=b"GET / HTTP/1.1\r\n\r\n",
        reply=Reply(find_endpoint("chat", model="m")),
        fail=lambda *words: failures.append(words),
    )
    usable: list[bool] = []

    async def play(made: Receiver) -> None:
        connection = Connection(
            asyncio.get_running_loop(), lambda done, _: usable.append(done.usable), made, pair[0]
        )
        connection.send(exchange)
        connection.received(time.monotonic_ns(), b"no reply of HTTP\r\n\r\n")
        connection.look()

    in_loop(play)
    assert [words[0] for words in failures] == ["broken reply"]
    assert usable == [False]
    assert pair[0].fileno() == -1  # closed

"""Bytes of the exact server's replies."""

from __future__ import annotations

import asyncio
import socket

import pytest
import uvloop

from tonnage.bench.exact_replies import Connection, closing, parse_request


def test_the_exact_server_sends_usage_where_it_is_asked_for() -> None:
    """As OpenAI's servers do: a stream without ``stream_options`` ends without it."""
    plain = {"model": "m", "max_tokens": 3, "stream": True, "messages": [{"content": "a b"}]}
    asked = {**plain, "stream_options": {"include_usage": True}}
    without, with_it = (
        closing(parse_request("/v1/chat/completions", 0, body), 3) for body in (plain, asked)
    )
    assert b"usage" not in without
    assert b'"completion_tokens": 3' in with_it
    assert without.endswith(b"0\r\n\r\n")
    assert b"[DONE]" in without
    assert [
        with_it.count(word) for word in (b'"finish_reason": "length"', b'"usage"', b"[DONE]")
    ] == [1, 1, 1]
    assert with_it.index(b"finish_reason") < with_it.index(b'"usage"') < with_it.index(b"[DONE]")


@pytest.mark.parametrize("options", [{}, {"stream_options": {"include_usage": True}}])
def test_a_stream_of_words_ends_with_its_usage_where_that_is_requested(
    options: dict[str, object],
) -> None:
    ending = closing(
        parse_request(
            "/v1/completions",
            0,
            {"model": "m", "max_tokens": 3, "stream": True, "prompt": "a b", **options},
        ),
        3,
    )
    assert ending.count(b'"completion_tokens": 3') == len(options)
    assert ending.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


def test_an_exact_server_sends_in_order_what_its_client_takes_late(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    client, server = pair
    pieces = [bytes([65 + place]) * size for place, size in enumerate((9_000_000, 3, 70_000, 1))]
    received = bytearray()

    async def play() -> None:
        loop = asyncio.get_running_loop()
        server.setblocking(False)
        ended: list[object] = []
        connection = Connection(loop, server, lambda *_: None, ended.append)
        for piece in pieces:
            connection.send(piece)
        while len(received) < sum(map(len, pieces)):
            received.extend(await loop.sock_recv(client, 2**20))
        connection.close()
        assert ended == [connection]

    uvloop.run(asyncio.wait_for(play(), 20))
    assert received == b"".join(pieces)

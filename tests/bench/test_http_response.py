"""One response in pieces: what has no end is refused."""

from __future__ import annotations

import pytest

from tests.bench.corpus import HEAD
from tonnage.bench.http_response import MAX_EVENT, MAX_HEAD, BrokenReply, EventStream, HttpResponse


@pytest.mark.parametrize("beyond", ["HTTP/1.1", "\x01", "garbage\r\n\r\n"])
@pytest.mark.parametrize("pieces", [1, 2])
def test_a_connection_on_which_more_than_the_response_comes_is_not_used_again(
    beyond: str, pieces: int
) -> None:
    response, whole = HttpResponse(), b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    assert response.feed(whole + (beyond.encode() if pieces == 1 else b"")) == [b"ok"]
    assert response.keep_alive == (pieces == 2)
    assert pieces == 1 or not response.feed(beyond.encode())
    assert response.complete
    assert not response.keep_alive


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * MAX_HEAD,
        HEAD + b"1;" + b"x" * 2000,
        HEAD + b"0\r\n" + b"t" * (MAX_HEAD + 1),
        HEAD + b"1\r\nx\r\n1;" + b"x" * 2000,
        HEAD + b"0\r\n" + b"t: u\r\n" * (MAX_HEAD // 4),
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * MAX_HEAD + b"\r\n\r\n",
    ],
    ids=["head", "chunk size", "trailer", "second chunk size", "second trailer", "whole head"],
)
def test_what_has_no_end_is_refused_before_it_fills_memory(raw: bytes) -> None:
    response = HttpResponse()
    with pytest.raises(BrokenReply, match="too long"):
        response.feed(raw)


def test_a_header_that_comes_in_small_pieces_is_refused_as_soon_as_it_is_too_long() -> None:
    response = HttpResponse()
    taken = 0
    while taken < 10 * MAX_HEAD:
        try:
            response.feed(b"HTTP/1.1 200 OK\r\nX: " if not taken else b"y" * 1000)
        except BrokenReply:
            break
        taken += 1000
    assert MAX_HEAD - 2000 < taken < MAX_HEAD + 2000


def test_an_event_without_an_end_is_refused() -> None:
    stream = EventStream()
    stream.feed(b"x" * (MAX_EVENT - 1))
    with pytest.raises(BrokenReply, match="too long"):
        stream.feed(b"xx")

"""One response in pieces: what has no end is refused."""

from __future__ import annotations

import pytest

from tests.bench.corpus import HEAD
from tonnage.bench.http_response import (
    MAX_EVENT,
    MAX_HEAD,
    BrokenReply,
    ErrorEvent,
    EventStream,
    HttpResponse,
)


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


@pytest.mark.parametrize(
    ("pieces", "events"),
    [
        ([b"data: a\n\n"], [b"a"]),
        ([b"data: a\n", b"\n"], [b"a"]),
        ([b"data:a\n\ndata:  b\n\n"], [b"a", b" b"]),
        ([b"data: a\r\n\r\n", b"data: b\r", b"\r"], [b"a", b"b"]),
        ([b"data: a\r", b"\n\r", b"\ndata: b\n\n"], [b"a", b"b"]),
        ([b"data: a\ndata: b\n\n"], [b"a\nb"]),
        ([b"data: \n\n", b"data\n\n", b"\n\n"], []),
        ([b"data\ndata\n\n"], [b"\n"]),
        ([b": note\n\n", b"id: 1\nretry: 5\ndata: a\n\n"], [b"a"]),
        ([b"\xef\xbb\xbfdata: a\n\n"], [b"a"]),
        ([b"data: a\n\n", b"\xef\xbb\xbfdata: b\n\n"], [b"a"]),
        ([b"\xef\xbb", b"\xbfdata: a\n\n"], [b"a"]),
        ([b"event: ping\ndata: a\n\n"], [b"a"]),
        ([b"da", b"ta: a\n\n"], [b"a"]),
        ([b"data: a"], [b"a"]),
        ([b"data: a\ndata: b"], [b"a\nb"]),
        ([b""], []),
    ],
)
def test_events_of_a_stream(pieces: list[bytes], events: list[bytes]) -> None:
    stream = EventStream()
    made = [event for piece in pieces for event in stream.feed(piece)]
    assert [*made, *stream.end()] == events
    assert not any(isinstance(event, ErrorEvent) for event in made)


def test_an_event_named_error_needs_no_data_and_names_no_other() -> None:
    stream = EventStream()
    made = stream.feed(b"event: error\n\nevent:error\ndata: a\n\ndata: b\n\n")
    assert made == [b"", b"a", b"b"]
    assert [isinstance(event, ErrorEvent) for event in made] == [True, True, False]
    assert stream.feed(b"event: error\nevent: x\ndata: c\n\n") == [b"c"]
    assert stream.clean


@pytest.mark.parametrize(
    ("piece", "clean"),
    [
        (b"data: a\n\n", True),
        (b"data: a\n", False),
        (b"dat", False),
        (b"event: error\n", False),
        (b": note\n", True),
        (b"data: a\r\n\r\n", True),
        (b"data: a\r\r", False),
    ],
)
def test_a_stream_is_clean_where_the_next_byte_begins_an_event(piece: bytes, clean: bool) -> None:
    stream = EventStream()
    assert stream.clean
    stream.feed(piece)
    assert stream.clean == clean


def test_an_event_may_be_as_long_as_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line of data counts with its end."""
    monkeypatch.setattr("tonnage.bench.http_response.MAX_EVENT", 10)
    stream = EventStream()
    assert stream.feed(b"data: 1234\ndata: 5678\n\n") == [b"1234\n5678"]
    stream.feed(b"0123456789")
    assert list(stream.feed(b"\n")) == []
    stream.feed(b"data: 1234\n")
    stream.feed(b"56789")
    with pytest.raises(BrokenReply, match="too long"):
        stream.feed(b"0")


@pytest.mark.parametrize(
    ("lines", "body", "state"),
    [
        # what follows the head; then status, whether complete, and whether it is kept alive
        ("HTTP/1.1 200 OK|Content-Length: 2", b"ok", (200, True, True)),
        ("HTTP/1.1 200 OK|Content-Length: 2", b"o", (200, False, True)),
        ("HTTP/1.1 200 OK|Content-Length: 2|Connection: Close", b"ok", (200, True, False)),
        ("HTTP/1.1 200 OK|Content-Length: 2|Connection: x, close", b"ok", (200, True, False)),
        ("HTTP/1.0 200 OK|Content-Length: 2", b"ok", (200, True, False)),
        ("HTTP/1.0 200 OK|Content-Length: 2|Connection: keep-alive", b"ok", (200, True, True)),
        ("HTTP/1.1 200 OK", b"ok", (200, False, False)),
        ("HTTP/1.1 204 No Content", b"", (204, True, True)),
        ("HTTP/1.1 304 Not Modified", b"", (304, True, True)),
        ("HTTP/1.1 200 OK|Transfer-Encoding: chunked", b"2\r\nok\r\n0\r\n\r\n", (200, True, True)),
        ("HTTP/1.1 200 OK|Transfer-Encoding: chunked", b"2\r\nok\r\n", (200, False, True)),
        ("HTTP/1.1 100 Continue||HTTP/1.1 200 OK|Content-Length: 2", b"ok", (200, True, True)),
        ("HTTP/1.1 200 OK|Content-Length: 2|Content-Encoding: identity", b"ok", (200, True, True)),
    ],
)
def test_the_state_of_a_response(lines: str, body: bytes, state: tuple[int, bool, bool]) -> None:
    raw = lines.replace("|", "\r\n").encode() + b"\r\n\r\n" + body
    response = HttpResponse()
    fed = b"".join(response.feed(raw))
    assert fed == (b"ok" if b"ok" in body else body)
    assert (response.status, response.complete, response.keep_alive) == state
    singly = HttpResponse()
    assert b"".join(part for byte in raw for part in singly.feed(bytes([byte]))) == fed
    assert (singly.status, singly.complete, singly.keep_alive) == state
    if state[1]:
        singly.end()
        assert not singly.keep_alive
    elif "Content-Length" in lines or "chunked" in lines:
        with pytest.raises(BrokenReply, match="cut off"):
            singly.end()
    else:
        singly.end()  # its end is that of the connection
        assert singly.complete


def test_headers_by_name_with_those_that_are_repeated() -> None:
    response = HttpResponse()
    response.feed(
        b"HTTP/1.1 100 Continue\r\nX: early\r\n\r\nHTTP/1.1 200 OK\r\nX: a\r\nx:  b \r\nContent-"
        b"Length: 2\r\n\r\nok"
    )
    assert response.headers == {"x": "a, b", "content-length": "2"}
    response = HttpResponse()
    response.feed(HEAD + b"2\r\nok\r\n0\r\nTrailer: t\r\n\r\n")
    assert "trailer" not in response.headers
    assert response.complete
    with pytest.raises(BrokenReply, match="closed without a reply"):
        HttpResponse().end()


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", "a compressed body"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "a compressed body"),
        (b"SSH-2.0-OpenSSH\r\n", "not an HTTP/1.1 response"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "a body that is not"),
        (b"HTTP/1.1 101 Go\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "switched protocols"),
    ],
)
def test_what_is_not_the_protocol_is_refused_in_its_words(raw: bytes, words: str) -> None:
    with pytest.raises(BrokenReply, match=words):
        HttpResponse().feed(raw)


@pytest.mark.parametrize(("extra", "refused"), [(0, False), (1, True)])
def test_a_head_and_trailers_may_be_as_long_as_their_limit(extra: int, refused: bool) -> None:
    """A header is its name, its value and four bytes more."""
    first, second = b"X: " + b"a" * 1_000 + b"\r\n", b"Y: "
    size = MAX_HEAD - (1 + 1_000 + 4) - (1 + 4) + extra
    heads = b"HTTP/1.1 200 OK\r\n" + first + second + b"b" * size
    response = HttpResponse()
    if refused:
        with pytest.raises(BrokenReply, match="headers too long"):
            response.feed(heads + b"\r\n\r\n")
    else:
        response.feed(heads + b"\r\n\r\n")
        assert response.status == 200


def test_a_chunk_begins_where_the_last_one_is_over() -> None:
    response = HttpResponse()
    seen = []
    for piece in (HEAD, b"2\r\nok\r\n", b"3\r\nabc", b"\r\n", b"2", b"\r\nde\r\n1\r\nf\r\n"):
        response.feed(piece)
        seen.append(response.between_chunks)
    assert seen == [True, True, False, True, False, True]

"""Bytes of the exact server's replies."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Callable
from dataclasses import replace

import pytest
import uvloop

from tonnage.bench.exact_replies import (
    MAX_REQUEST,
    Connection,
    Request,
    closing,
    event,
    failure,
    opening,
    parse_request,
    text,
    whole,
)
from tonnage.errors import InputError


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


ASKED = Request(kind="", number=26, model="m", streaming=True, tokens=4, prompt=3)


def parts(data: bytes) -> list[bytes]:
    """The chunks of a body, without their sizes."""
    chunks = []
    while data:
        size, _, rest = data.partition(b"\r\n")
        chunks.append(rest[: int(size, 16)])
        assert rest[int(size, 16) : int(size, 16) + 2] == b"\r\n"
        data = rest[int(size, 16) + 2 :]
    return chunks


def documents(data: bytes) -> list[object]:
    """What the events of a part of a stream say; a name of an event comes before its data."""
    lines = [line for part in parts(data) for line in part.decode().split("\n") if line]
    return [
        json.loads(line[6:]) if line.startswith("data: {") else line.removeprefix("data: ")
        for line in lines
    ]


def chat(delta: dict[str, str], finish: str | None = None) -> dict[str, object]:
    return {
        "id": "chatcmpl-0000000000000000000000000000001a",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
    }


COMPLETION = {
    "id": "cmpl-0000000000000000000000000000001a",
    "object": "text_completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "text": " tok tok", "logprobs": None, "finish_reason": None}],
}
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
SHORT = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}


@pytest.mark.parametrize(
    ("kind", "begins", "says", "ends"),
    [
        (
            "chat",
            [chat({"role": "assistant", "content": ""})],
            [chat({"content": " tok tok"})],
            [
                chat({"content": ""}, "length"),
                {**chat({}), "choices": [], "usage": USAGE},
                "[DONE]",
            ],
        ),
        (
            "completions",
            [],
            [COMPLETION],
            [{**COMPLETION, "choices": [], "usage": USAGE}, "[DONE]"],
        ),
        (
            "responses",
            [
                "event: response.created",
                {"type": "response.created", "response": {"id": "r-26"}},
            ],
            [
                "event: response.output_text.delta",
                {"type": "response.output_text.delta", "output_index": 0, "delta": " tok tok"},
            ],
            [
                "event: response.completed",
                {"type": "response.completed", "response": {"usage": SHORT, "error": None}},
            ],
        ),
        ("generate", [], [{"model_name": "m", "text_output": " tok tok"}], []),
    ],
)
def test_a_stream_of_each_kind(
    kind: str, begins: list[object], says: list[object], ends: list[object]
) -> None:
    asked = replace(ASKED, kind=kind)
    assert opening(asked).startswith(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    assert documents(opening(asked).partition(b"\r\n\r\n")[2]) == begins
    assert documents(event(asked, 2)) == says
    closed = closing(asked, 4)
    assert closed.endswith(b"0\r\n\r\n")
    assert documents(closed.removesuffix(b"0\r\n\r\n")) == ends
    quiet = documents(closing(replace(asked, usage=False), 4).removesuffix(b"0\r\n\r\n"))
    dropped = kind in ("chat", "completions")
    assert quiet == [end for end in ends if not (dropped and "usage" in end)]


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("chat", [{"error": {"message": "on purpose", "code": 500}}]),
        ("generate", [{"error": "on purpose"}]),
        ("responses", ["event: error", {"type": "error", "message": "on purpose"}]),
    ],
)
def test_a_failure_in_the_middle_of_a_stream(kind: str, says: list[object]) -> None:
    data = failure(replace(ASKED, kind=kind))
    assert data.endswith(b"0\r\n\r\n")
    assert documents(data.removesuffix(b"0\r\n\r\n")) == says


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (
            "chat",
            {
                "choices": [
                    {
                        "message": {"role": "assistant", "content": " tok tok"},
                        "finish_reason": "length",
                    }
                ],
                "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
            },
        ),
        (
            "completions",
            {
                "choices": [{"text": " tok tok", "finish_reason": "length"}],
                "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
            },
        ),
        (
            "responses",
            {
                "output": [{"content": [{"type": "output_text", "text": " tok tok"}]}],
                "usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
            },
        ),
        ("embeddings", {"data": [{"embedding": [0.0] * 8}], "usage": {"prompt_tokens": 3}}),
        ("generate", {"model_name": "m", "text_output": " tok tok"}),
    ],
)
def test_a_whole_reply_of_each_kind(kind: str, says: object) -> None:
    head, _, body = whole(replace(ASKED, kind=kind), 2).partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"HTTP/1.1 200 OK",
        b"Content-Type: application/json",
        b"Content-Length: %d" % len(body),
    ]
    assert json.loads(body) == says


def test_a_plain_response() -> None:
    assert text("200 OK", "aé") == (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\na\xc3\xa9"
    )


STREAM = {"stream": True, "stream_options": {"include_usage": True}}


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        (
            "/v1/chat/completions",
            {"messages": [{"content": "a b"}, {"content": "c"}, {}], "max_tokens": 5, **STREAM},
            ("chat", True, 5, 3, True),
        ),
        ("/v1/chat/completions", {}, ("chat", False, 16, 0, False)),
        (
            "/v1/chat/completions",
            {"max_completion_tokens": 7, "stream": 1},
            ("chat", False, 7, 0, False),
        ),
        (
            "/v1/completions",
            {"prompt": "a b c d", "input": "x", "max_tokens": 1, "max_completion_tokens": 9},
            ("completions", False, 1, 4, False),
        ),
        (
            "/v1/responses",
            {"input": "a b", "max_output_tokens": 8, "stream": True, "stream_options": {}},
            ("responses", True, 8, 2, False),
        ),
        ("/v1/embeddings", {"input": "a", **STREAM}, ("embeddings", False, 16, 1, True)),
        (
            "/v2/models/m/generate_stream",
            {"text_input": "a b", "stream": True, "stream_options": {"include_usage": "yes"}},
            ("generate", True, 16, 2, False),
        ),
        ("/v2/models/m/generate", {"text_input": "a"}, ("generate", False, 16, 1, False)),
    ],
)
def test_a_request_by_its_path_and_body(
    path: str, body: dict[str, object], expected: tuple[object, ...]
) -> None:
    made = parse_request(path, 5, {**body, "model": "x"})
    assert (made.number, made.model) == (5, "x")
    assert (made.kind, made.streaming, made.tokens, made.prompt, made.usage) == expected
    assert parse_request(path, 5, body).model == "m"


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/v1/other", {}, "no endpoint at /v1/other"),
        ("/generate", {}, "no endpoint at /generate"),
        ("/v1/completions", {"max_tokens": 0}, "max_tokens: 0 is not a number of tokens"),
        ("/v1/completions", {"max_tokens": "5"}, "max_tokens: '5' is not a number of tokens"),
    ],
)
def test_a_request_that_no_endpoint_takes(path: str, body: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)):
        parse_request(path, 0, body)


class Peer:
    """A socket that has these pieces to read; one that refuses is read as closed."""

    def __init__(self, *pieces: bytes | OSError) -> None:
        self.pieces = list(pieces)
        self.sent: list[bytes] = []
        self.closed = 0

    def recv(self, size: int) -> bytes:
        piece = self.pieces.pop(0)
        if isinstance(piece, OSError):
            raise piece
        return piece

    def send(self, data: bytes) -> int:
        if self.pieces and isinstance(self.pieces[0], OSError):
            raise self.pieces.pop(0)
        taken = bytes(data[:4])
        self.sent.append(taken)
        return len(taken)

    def close(self) -> None:
        self.closed += 1


class Loop:
    """Notes who waits to read and to write."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: self.calls.append(name)


def opened(peer: Peer) -> tuple[Connection, Loop, list[tuple[object, ...]], list[Connection]]:
    loop, requests, ended = Loop(), list[tuple[object, ...]](), list[Connection]()
    made = Connection(loop, peer, lambda _, *rest: requests.append(rest), ended.append)  # type: ignore[arg-type]
    return made, loop, requests, ended


def test_requests_are_handed_on_as_soon_as_they_are_whole() -> None:
    first = b"POST /a HTTP/1.1\r\nX-Request-ID: 7\r\nContent-Length: 8\r\n\r\n" + b'{"a": 1}'
    second = b"GET /log HTTP/1.1\r\n\r\n"
    third = b"POST /b HTTP/1.1\r\ncontent-length:3\r\n\r\n{a}"
    both = first + second + third
    peer = Peer(both[:20], both[20:60], BlockingIOError(), both[60:], b"")
    made, _, requests, ended = opened(peer)
    for _ in range(3):
        made._readable()
    assert requests == []
    made._readable()
    assert requests == [
        ("POST", "/a", {"x-request-id": "7", "content-length": "8"}, {"a": 1}),
        ("GET", "/log", {}, {}),
        ("POST", "/b", {"content-length": "3"}, None),
    ]
    assert made.open
    made._readable()
    assert (made.open, ended, peer.closed) == (False, [made], 1)
    made.close()
    assert (ended, peer.closed) == ([made], 1)


@pytest.mark.parametrize(
    "piece",
    [
        b"POST /a\r\n\r\n",
        b"POST /a HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        ConnectionResetError(),
        b"x" * (MAX_REQUEST + 1),
    ],
    ids=["line", "length", "reset", "long"],
)
def test_what_is_no_request_ends_its_connection(piece: bytes | OSError) -> None:
    made, loop, requests, ended = opened(Peer(piece))
    made._readable()
    assert (made.open, requests, ended) == (False, [], [made])
    assert loop.calls == ["add_reader", "remove_reader", "remove_writer"]


def test_what_the_kernel_does_not_take_waits_in_order() -> None:
    peer = Peer()
    made, loop, _, ended = opened(peer)
    made.send(b"abc")
    assert loop.calls == ["add_reader"]
    made.send(b"defghi")  # four at once
    made.send(b"jk")
    assert (peer.sent, loop.calls) == ([b"abc", b"defg"], ["add_reader", "add_writer"])
    made._writable()
    assert (peer.sent, loop.calls[2:]) == ([b"abc", b"defg", b"hijk"], ["remove_writer"])
    peer.pieces = [BlockingIOError()]
    made.send(b"lm")
    peer.pieces = [BlockingIOError()]
    made._writable()
    assert (peer.sent[3:], loop.calls[3:]) == ([], ["add_writer"])
    made._writable()
    assert (peer.sent[3:], loop.calls[3:]) == ([b"lm"], ["add_writer", "remove_writer"])
    peer.pieces = [BrokenPipeError()]
    made.send(b"n")
    assert (made.open, ended) == (False, [made])
    made.send(b"o")
    assert peer.sent[4:] == []


def test_a_peer_that_is_gone_ends_what_waits() -> None:
    peer = Peer()
    made, _, _, ended = opened(peer)
    made.send(b"abcdef")
    peer.pieces = [ConnectionResetError()]
    made._writable()
    assert (made.open, ended) == (False, [made])

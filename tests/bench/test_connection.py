"""One connection: what is sent on it, and the stamps of what comes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import socket
import ssl
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.bench.pairs import in_loop
from tonnage.bench.connection import (
    Connection,
    Secured,
    Setup,
    Target,
    more_descriptors,
    parse_url,
    request_bytes,
    request_head,
)
from tonnage.bench.endpoints import find_endpoint
from tonnage.bench.prompts import prompts
from tonnage.bench.receiver import Receiver
from tonnage.bench.reply import Exchange, Reply
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


@pytest.mark.parametrize(
    ("data", "pieces", "eager", "looks"),
    [
        (b"x" * 8, 0, False, False),
        (b"x" * 7, 0, False, True),
        (b"x" * 16_383, 0, False, False),
        (b"x" * 16_384, 0, False, True),
        (b"x" * 8, 127, False, False),
        (b"x" * 8, 128, False, True),
        (b"x" * 8, 0, True, True),
        (b"x" * 8 + b"\r\n\r\n", 0, False, True),
        (b"x" * 8 + b"\r\n", 0, False, False),
    ],
)
def test_a_piece_is_kept_unread_unless_the_reply_may_be_complete(
    data: bytes, pieces: int, eager: bool, looks: bool, pair: tuple[socket.socket, socket.socket]
) -> None:
    async def play(made: Receiver) -> None:
        connection = Connection(asyncio.get_running_loop(), None, made, pair[0])  # type: ignore[arg-type]
        connection._pieces, connection._eager = [(1, b"y")] * pieces, eager
        assert connection.received(5, data) == looks
        assert connection._pieces[-1] == (5, data)
        assert connection.received(6, b"zz") == (not looks)  # it is looked at once
        connection.close()

    in_loop(play)


@pytest.mark.parametrize(
    ("url", "expected", "authority"),
    [
        ("127.0.0.1:8000", Target(host="127.0.0.1", port=8000), "127.0.0.1:8000"),
        ("http://h", Target(host="h", port=80), "h"),
        ("https://h/a/b/", Target(host="h", port=443, tls=True, path="/a/b"), "h"),
        ("https://h:80", Target(host="h", port=80, tls=True), "h:80"),
        ("http://h:443/", Target(host="h", port=443), "h:443"),
        ("http://[::1]:9", Target(host="::1", port=9), "[::1]:9"),
        ("grpc://h", Target(host="h", port=8001, grpc=True), "h:8001"),
    ],
)
def test_a_server_by_its_url(url: str, expected: Target, authority: str) -> None:
    assert parse_url(url, "grpc") == expected
    assert expected.authority == authority


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://h:x", "is not a URL"),
        ("ftp://h", "has the scheme 'ftp'"),
        ("grpc://h", "has the scheme 'grpc'"),
        ("http://u:p@h", "holds a user name or password"),
        ("http://", "names no host"),
        ("http://h/a b", "names no host"),
        ("http://h?q=1", "has a query or fragment"),
        ("http://h#f", "has a query or fragment"),
    ],
)
def test_a_url_that_is_no_server_is_refused(url: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_url(url)


def test_the_head_of_a_request_line_by_line() -> None:
    head = request_head(parse_url("http://h/p"), "/v1/x")
    assert head.split(b"\r\n") == [
        b"POST /p/v1/x HTTP/1.1",
        b"Host: h",
        b"Content-Type: application/json",
        b"Accept: text/event-stream, application/json",
        b"Accept-Encoding: identity",
        b"User-Agent: tonnage-bench",
        b"",
    ]
    with pytest.raises(InputError, match="printable ASCII"):
        request_head(parse_url("http://h"), "/x", headers=(("X", "\u00e4"),))
    assert request_bytes(b"H\r\n", 3, b"ab", b"F: 1\r\n") == (
        b"H\r\nF: 1\r\nX-Request-Id: 3\r\nContent-Length: 2\r\n\r\nab"
    )


def test_requests_of_a_worker_have_their_number_among_all() -> None:
    """Worker 1 of 3 sends numbers 1, 4, 7 … and -4, -7 … of the warm-up."""
    setup = Setup(
        target=parse_url("http://h"),
        endpoint=find_endpoint("completions", model="m"),
        prompts=prompts(seed=0, tokenizer=None),
        head=b"",
        first=1,
        step=3,
    )
    defaults = (setup.timeout_s, setup.reuse, setup.warmup, setup.workers, setup.talks)
    assert defaults == (600.0, True, 0, 1, False)
    alone = Setup(
        target=setup.target, endpoint=setup.endpoint, prompts=setup.prompts, head=b"", talks=True
    )
    for number, among_all in ((0, 1), (2, 7), (-1, -4), (-2, -7)):
        made = setup.exchange(number, 30, 4)
        assert (made.number, made.isl, made.osl) == (number, 30, 4)
        assert made.data.startswith(b"X-Request-Id: %d\r\n" % among_all)
        assert json.loads(made.data.partition(b"\r\n\r\n")[2]) == setup.endpoint.body(
            setup.prompts.text(among_all, 30), 4
        )
        assert not made.reply._keep
    made = alone.turn(5, 9, 4, text="now", pieces=(), before=11, history=[("q", "a")])
    assert (made.number, made.isl, made.osl, made.question, made.reply._keep) == (
        *(-1, 20, 4, "now", True),
    )
    assert json.loads(made.data.partition(b"\r\n\r\n")[2])["prompt"] == "q\na\nnow"
    drawn = alone.turn(5, 9, 4, text="", pieces=(), before=0, history=[])
    assert drawn.question == alone.prompts.text(5, 9)
    whole = alone.turn(5, 9, 4, text="", pieces=[(3, 9)], before=0, history=[])
    assert whole.question == alone.prompts.of_pieces([(3, 9)], 9)  # type: ignore[union-attr]


BODY = b'{"data": [1]}'
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n" + BODY


@pytest.mark.parametrize(
    ("pieces", "usable", "outcome"),
    [
        ([WHOLE], True, ("", "")),
        ([WHOLE.replace(b"OK", b"OK\r\nConnection: close")], False, ("", "")),
        ([WHOLE, b""], False, ("", "")),
        ([b"HTTP/1.1 200 OK\r\n\r\n" + BODY, b""], False, ("", "")),
        ([WHOLE.replace(b"200", b"429")], True, ("HTTP 429", '{"data": [1]}')),
        ([WHOLE[:-1], b""], False, ("cut off", "")),
        ([b""], False, ("closed without a reply", "")),
        ([WHOLE.replace(b"{", b"[")], False, ("broken reply", "an answer that is not JSON of")),
    ],
)
def test_a_connection_is_used_again_after_a_whole_reply_that_keeps_it(
    pieces: list[bytes],
    usable: bool,
    outcome: tuple[str, str],
    pair: tuple[socket.socket, socket.socket],
) -> None:
    endpoint = find_endpoint("embeddings", model="m", streaming=False)
    exchange = Exchange(number=0, isl=1, osl=1, data=b"GET", reply=Reply(endpoint))
    ended: list[bool] = []

    async def play(made: Receiver) -> None:
        connection = Connection(
            asyncio.get_running_loop(), lambda done, _: ended.append(done.usable), made, pair[0]
        )
        connection.send(exchange)
        for piece in pieces:
            connection.received(time.monotonic_ns(), piece)
        connection.look()
        assert (connection.exchange, connection.used) == (None, 1)
        connection.close()

    in_loop(play)
    assert ended == [usable]
    assert exchange.outcome == outcome[0]
    assert exchange.detail.startswith(outcome[1])


def test_bytes_that_nothing_has_asked_for_end_a_connection_and_one_that_is_given_up_ends(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    endpoint = find_endpoint("embeddings", model="m", streaming=False)
    exchange = Exchange(number=0, isl=1, osl=1, data=b"GET", reply=Reply(endpoint))
    ended: list[tuple[str, bool]] = []

    async def play(made: Receiver) -> None:
        connection = Connection(
            asyncio.get_running_loop(),
            lambda done, over: ended.append((over.outcome, done.usable)),
            made,
            pair[0],
        )
        connection.look()
        assert connection.usable
        connection._eager = False
        connection.send(exchange)
        assert connection.received(5, WHOLE[:9])  # the first piece of a reply is looked at
        connection.abort("timed out")
        assert (connection.exchange, connection.usable, pair[0].fileno()) == (None, False, -1)
        connection.abort("again")

    in_loop(play)
    assert ended == [("timed out", False)]
    assert exchange.reply.last_ns > 5  # no piece is before the sending

    async def unasked(made: Receiver) -> None:
        connection = Connection(asyncio.get_running_loop(), None, made, pair[1])  # type: ignore[arg-type]
        connection.received(5, b"more")
        connection.look()
        assert (connection.usable, pair[1].fileno()) == (False, -1)

    in_loop(unasked)


@pytest.mark.parametrize(
    ("decrypted", "kept", "ended", "answers"),
    [
        ((b"plain", False), [b"plain"], False, b"more"),
        ((b"", False), [], False, b""),
        ((b"last", True), [b"last"], True, b"unsent"),
        (ssl.SSLError(), [], True, b"unsent"),
    ],
)
def test_what_an_encrypted_peer_says_is_kept_and_answered_until_it_ends(
    decrypted: Any,
    kept: list[bytes],
    ended: bool,
    answers: bytes,
    pair: tuple[socket.socket, socket.socket],
) -> None:
    def decrypt(data: bytes) -> tuple[bytes, bool]:
        assert data == b"cipher"
        if isinstance(decrypted, ssl.SSLError):
            raise decrypted
        return decrypted  # type: ignore[no-any-return]

    secured: Any = SimpleNamespace(
        decrypted=decrypt, answers=lambda: answers, encrypted=lambda data: b"<" + data + b">"
    )

    async def play(made: Receiver) -> None:
        connection = Connection(asyncio.get_running_loop(), None, made, pair[0], secured)  # type: ignore[arg-type]
        connection.exchange = SimpleNamespace()  # type: ignore[assignment]
        connection._eager = False
        assert connection.received(5, b"cipher") == (ended or not kept or len(kept[0]) < 8)
        assert [data for _, data in connection._pieces] == kept
        assert (pair[0].fileno() == -1) == ended
        connection.close()

    in_loop(play)
    pair[1].setblocking(False)
    try:
        sent = pair[1].recv(99)
    except BlockingIOError:
        sent = b""
    assert sent == (b"" if ended else answers)


PEM = Path(__file__).parent / "loopback.pem"


class Peer:
    """The other end of an encrypted connection, in memory; ``lost``: it goes away while hands are shaken."""

    def __init__(self, *, lost: bool = False) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(PEM)
        self.to, self.back = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.to, self.back, server_side=True)
        self.lost = lost

    async def sock_sendall(self, connected: object, data: bytes) -> None:
        assert connected == "socket"
        self.to.write(data)

    async def sock_recv(self, connected: object, size: int) -> bytes:
        assert (connected, size) == ("socket", 65_536)
        if self.lost:
            return b""
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self.back.read()


def secured(peer: Peer) -> Secured:
    made = Secured(ssl.create_default_context(cafile=PEM), "127.0.0.1")
    asyncio.run(made.shake_hands(peer, "socket"))  # type: ignore[arg-type]
    return made


def test_what_is_sent_over_tls_is_read_and_its_end_is_seen() -> None:
    peer = Peer()
    made = secured(peer)
    peer.tls.do_handshake()
    peer.to.write(made.encrypted(b"question"))
    assert peer.tls.read(99) == b"question"
    long = bytes(range(256)) * 400
    peer.tls.write(b"answer")
    assert made.decrypted(peer.back.read()) == (b"answer", False)
    peer.tls.write(long)
    data = peer.back.read()
    first, ended = made.decrypted(data[:50_000])
    assert (0 < len(first) < 50_000, ended) == (True, False)
    rest, ended = made.decrypted(data[50_000:])
    assert (first + rest, ended) == (long, False)
    assert made.decrypted(b"") == (b"", False)
    assert made.answers() == b""
    peer.tls.write(b"last")
    with contextlib.suppress(ssl.SSLWantReadError):
        peer.tls.unwrap()
    assert made.decrypted(peer.back.read()) == (b"last", True)
    with pytest.raises(ssl.SSLError):
        secured(Peer()).decrypted(b"no TLS at all")


def test_hands_that_are_not_shaken_to_the_end_are_an_error() -> None:
    with pytest.raises(ssl.SSLError):
        secured(Peer(lost=True))
    made = Secured(ssl.create_default_context(cafile=PEM), "another.example")
    with pytest.raises(ssl.SSLCertVerificationError):
        asyncio.run(made.shake_hands(Peer(), "socket"))  # type: ignore[arg-type]


class Narrow:
    """A socket that takes so many bytes at a time, or fails."""

    def __init__(self, *takes: int | OSError) -> None:
        self.takes, self.sent, self.closed = list(takes), b"", 0
        self.recvmsg = None

    def send(self, data: bytes) -> int:
        takes = self.takes.pop(0) if self.takes else len(data)
        if isinstance(takes, OSError):
            raise takes
        self.sent += data[:takes]
        return takes

    def close(self) -> None:
        self.closed += 1


class Noted:
    """A loop and a receiver whose calls are noted."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self.log.append(name)


REFUSED = ConnectionResetError()


@pytest.mark.parametrize(
    ("takes", "writes", "sent", "log"),
    [
        ((), 0, b"abcdef", ["remove_writer"]),
        ((4, 2), 1, b"abcdef", ["add_writer", "remove_writer"]),
        ((BlockingIOError(), 6), 1, b"abcdef", ["add_writer", "remove_writer"]),
        ((InterruptedError(), 1, 5), 2, b"abcdef", ["add_writer", "add_writer", "remove_writer"]),
        ((2, REFUSED), 1, b"ab", ["add_writer", "remove_writer"]),
    ],
)
def test_what_the_kernel_does_not_take_follows_when_it_takes_more(
    takes: tuple[Any, ...], writes: int, sent: bytes, log: list[str]
) -> None:
    loop, receiver, wire = Noted(), Noted(), Narrow(*takes)
    over: list[Any] = []
    made = Connection(loop, lambda *words: over.append(words), receiver, wire)  # type: ignore[arg-type]
    exchange = Exchange(number=0, isl=1, osl=1, data=b"abcdef", reply=None)  # type: ignore[arg-type]
    assert (made.used, made.usable, made.exchange) == (0, True, None)
    made.send(exchange)
    for _ in range(writes):
        made._write()
    assert (wire.sent, loop.log, receiver.log) == (sent, log, ["add"])
    assert (made.used, made.exchange, exchange.sent_ns) == (1, exchange, made._latest_ns)
    assert (made._unsent == b"") == (sent == b"abcdef")
    made.close()
    made.close()
    assert (wire.closed, receiver.log) == (1, ["add", "remove"])
    assert loop.log == [*log, *["remove_writer"] * (sent != b"abcdef")]
    assert not over


def test_a_request_on_a_connection_that_has_ended_is_looked_at_once() -> None:
    """Its end is found by the look, which comes after what is being done now."""
    loop, receiver, wire = Noted(), Noted(), Narrow()
    over: list[tuple[bool, str]] = []
    made = Connection(
        loop,  # type: ignore[arg-type]
        lambda connection, exchange: over.append((connection.usable, exchange.outcome)),
        receiver,  # type: ignore[arg-type]
        wire,  # type: ignore[arg-type]
    )
    made.close()
    endpoint = find_endpoint("chat", model="m")
    exchange = Exchange(number=0, isl=1, osl=1, data=b"ab", reply=Reply(endpoint))
    made.send(exchange)
    made.send(exchange)
    assert (wire.sent, loop.log) == (b"", ["call_soon"])
    made.look()
    assert over == [(False, "closed without a reply")]
    assert (made.exchange, made._looking, made._eager) == (None, False, True)


def test_of_a_body_without_chunks_every_piece_is_looked_at() -> None:
    for head, eager in (
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\n\r\n", True),
    ):
        made = Connection(Noted(), None, Noted(), Narrow())  # type: ignore[arg-type]
        reply = Reply(find_endpoint("chat", model="m"))
        made.send(Exchange(number=0, isl=1, osl=1, data=b"ab", reply=reply))
        assert made.received(10**18, head)
        made.look()
        assert (made._eager, made.usable, made.exchange is None) == (eager, True, False)
        assert made.received(10**18, b"x" * 20) == eager

"""A call of gRPC over HTTP/2, with a library that notes what it is told: the package itself is in a tier of its own."""

from __future__ import annotations

import asyncio
import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tonnage.bench.infer import Http2, enveloped, outputs_of, tagged


class Event:
    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


class ResponseReceived(Event):
    pass


class TrailersReceived(Event):
    pass


class DataReceived(Event):
    pass


class StreamEnded(Event):
    pass


class StreamReset(Event):
    pass


class ConnectionTerminated(Event):
    pass


class H2Error(Exception):
    pass


class H2Connection:
    """Notes calls, writes them as words, and receives the events that it is given."""

    max_outbound_frame_size = 4

    def __init__(self, config: Any) -> None:
        self.config, self.log, self.words = config, list[Any](), b""
        self.events: Any = []
        self.window, self.stream = 100, -1

    def initiate_connection(self) -> None:
        self.words += b"<hello>"

    def get_next_available_stream_id(self) -> int:
        self.stream += 2
        return self.stream

    def send_headers(self, stream: int, headers: list[tuple[str, str]]) -> None:
        self.log.append((stream, headers))
        self.words += b"<head>"

    def local_flow_control_window(self, stream: int) -> int:
        assert stream == self.stream
        return self.window

    def send_data(self, stream: int, data: bytes, *, end_stream: bool) -> None:
        assert stream == self.stream
        self.window -= len(data)
        self.words += data + (b"." if end_stream else b"|")

    def data_to_send(self) -> bytes:
        words, self.words = self.words, b""
        return words

    def receive_data(self, data: bytes) -> Any:
        if self.events is None:
            raise H2Error
        return self.events

    def acknowledge_received_data(self, size: int, stream: int) -> None:
        self.log.append(("taken", size, stream))


@pytest.fixture
def http(monkeypatch: pytest.MonkeyPatch) -> Http2:
    parts = {
        "h2": {},
        "h2.config": {"H2Configuration": lambda **settings: settings},
        "h2.connection": {"H2Connection": H2Connection},
        "h2.exceptions": {"H2Error": H2Error},
        "h2.events": {
            kind.__name__: kind
            for kind in (
                *(ResponseReceived, TrailersReceived, DataReceived),
                *(StreamEnded, StreamReset, ConnectionTerminated),
            )
        },
    }
    for name, values in parts.items():
        module = ModuleType(name)
        for key, value in values.items():
            setattr(module, key, value)
        monkeypatch.setitem(sys.modules, name, module)
    sys.modules["h2"].events = sys.modules["h2.events"]  # type: ignore[attr-defined]
    return Http2("h:1")


REQUEST = b"""POST /v2/x HTTP/1.1\r
Host: h\r
Content-Type: application/json\r
X-Team:  a b \r
Accept: x\r
Authorization: Bearer k\r
Content-Length: 9\r
\r
abcdefghi"""


def test_a_request_becomes_a_call_of_its_path_with_its_own_headers(http: Http2) -> None:
    h2: Any = http._h2
    assert h2.config == {"client_side": True, "header_encoding": "utf-8"}
    assert http.encrypted(REQUEST) == b"<hello><head>abcd|efgh|i."
    assert h2.log == [
        (
            1,
            [
                (":method", "POST"),
                (":scheme", "http"),
                (":path", "/v2/x"),
                (":authority", "h:1"),
                ("te", "trailers"),
                ("content-type", "application/grpc"),
                ("user-agent", "tonnage-bench"),
                ("x-team", "a b"),
                ("authorization", "Bearer k"),
            ],
        )
    ]
    assert http.answers() == b""
    h2.window = 6
    assert http.encrypted(b"POST /y HTTP/1.1\r\n\r\n0123456789") == b"<head>0123|45|"
    assert [stream for stream, _ in h2.log] == [1, 3]
    assert http.answers() == b""
    h2.window = 9
    assert http.answers() == b"6789."


def test_hands_are_shaken_by_the_library_s_greeting(http: Http2) -> None:
    sent: list[tuple[object, bytes]] = []

    async def sendall(connected: object, data: bytes) -> None:
        sent.append((connected, data))

    asyncio.run(http.shake_hands(SimpleNamespace(sock_sendall=sendall), "socket"))  # type: ignore[arg-type]
    assert sent == [("socket", b"<hello>")]


def whole(reply: bytes) -> tuple[int, Any]:
    head, _, body = reply.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


MESSAGE = enveloped(tagged(5, tagged(1, "y")))


def test_a_reply_is_there_once_its_stream_has_ended(http: Http2) -> None:
    h2: Any = http._h2
    assert http._read is outputs_of
    http.encrypted(REQUEST)
    h2.events = [
        ResponseReceived(headers=[(":status", "200")]),
        DataReceived(data=MESSAGE[:3], flow_controlled_length=5, stream_id=1),
    ]
    assert http.decrypted(b"") == (b"", False)
    h2.events = [
        DataReceived(data=MESSAGE[3:], flow_controlled_length=0, stream_id=1),
        DataReceived(data=None, flow_controlled_length=None, stream_id=1),
        TrailersReceived(headers=[("grpc-status", "0")]),
        StreamEnded(),
    ]
    reply, ended = http.decrypted(b"")
    assert (whole(reply), ended) == ((200, {"outputs": [{"name": "y"}]}), False)
    assert h2.log[1:] == [("taken", 5, 1), ("taken", 0, 1), ("taken", 0, 1)]
    # a further call keeps nothing of it
    http.encrypted(REQUEST)
    assert (http._headers, http._body, http._stream) == ({}, b"", 3)


def test_a_stream_that_is_reset_and_a_connection_that_ends(http: Http2) -> None:
    h2: Any = http._h2
    h2.window = 4
    http.encrypted(REQUEST)
    assert http._rest == b"efghi"
    h2.events = [
        TrailersReceived(headers=[("grpc-status", "0")]),
        StreamReset(),
        ConnectionTerminated(),
        TrailersReceived(headers=None),
    ]
    reply, ended = http.decrypted(b"")
    assert (whole(reply), ended) == ((500, {"error": "gRPC status 0"}), True)
    assert http._rest == b""  # nothing of the request follows
    h2.events = []
    assert http.decrypted(b"") == (b"", False)
    h2.events = None
    assert http.decrypted(b"") == (b"", True)

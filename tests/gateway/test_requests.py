"""How the gateway passes a request on, and how it ends; without a network."""

from __future__ import annotations

import asyncio
from typing import Any

import httpcore2
import pytest

from tests.gateway.alone import Client, Pool, made, part, scope
from tonnage.gateway.balancer import Asked, Backend, Balancer
from tonnage.gateway.server import Cut, Gateway, _client_leaves, _end_to_end


async def test_a_body_is_read_to_its_end_and_its_limit() -> None:
    gateway = made(body=5)
    for messages, body in (
        ([part(b"ab", more=True), part(b"cde")], b"abcde"),
        ([part(b"abc"), part(b"never")], b"abc"),
        ([{"type": "http.request"}], b""),
        ([part(b"abc", more=True), part(b"def", more=True)], None),
        ([part(b"abcdef")], None),
    ):
        assert await gateway._body(Client(*messages).receive) == body
    with pytest.raises(ConnectionError):
        await gateway._body(Client(part(b"a", more=True), stays=False).receive)
    gateway = made(idle_s=0.01)
    with pytest.raises(TimeoutError):
        await gateway._body(Client(part(b"a", more=True)).receive)


async def test_what_is_not_passed_on_is_refused_with_the_reason() -> None:
    gateway = made(in_flight=2, body=3)
    client = Client(part(b"{}"))
    await gateway._passed({"type": "lifespan"}, client.receive, client.send)
    assert client.sent == []
    await gateway._passed(scope("/admin"), client.receive, client.send)
    assert client.answer == (
        404,
        "the gateway passes on requests for answers, and nothing is at this path",
    )
    long, many = Client(part(b"abcd")), Client(part(b"{}"))
    await gateway._passed(scope(), long.receive, long.send)
    assert long.answer == (413, "the body is longer than 3 bytes")
    assert gateway.in_flight == 0
    gateway.in_flight = 2
    await gateway._passed(scope(), many.receive, many.send)
    assert many.answer == (429, "2 requests are under way, the most at once")
    assert gateway.in_flight == 2
    gateway.in_flight = 1
    gone = Client(stays=False)
    await gateway._passed(scope(), gone.receive, gone.send)
    assert (gone.sent, gateway.in_flight) == ([], 1)


async def test_a_request_under_way_is_counted_and_ends_with_its_client() -> None:
    gateway = made()
    counts: list[int] = []

    async def answered(*_: Any) -> None:
        counts.append(gateway.in_flight)
        if len(counts) == 2:
            raise Cut
        if len(counts) == 3:
            try:
                await asyncio.sleep(60)
            finally:
                counts.append(-1)

    gateway._answered = answered  # type: ignore[method-assign]
    client = Client(part(b"{}"))
    await gateway._passed(scope(), client.receive, client.send)
    with pytest.raises(Cut):
        await gateway._passed(scope(), Client(part(b"{}")).receive, client.send)
    await gateway._passed(scope(), Client(part(b"{}"), stays=False).receive, client.send)
    assert (counts, gateway.in_flight) == ([1, 1, 1, -1], 0)


def ended(gateway: Gateway) -> dict[tuple[str, str], float]:
    """Requests by backend and how they ended."""
    return {
        (sample.labels["backend"], sample.labels["outcome"]): sample.value
        for family in gateway.counts.registry.collect()
        for sample in family.samples
        if sample.name == "tonnage_gateway_requests_total" and sample.value
    }


def total(gateway: Gateway, name: str) -> float:
    return gateway.counts.registry.get_sample_value(f"tonnage_gateway_{name}_total") or 0.0


def relayed_by(gateway: Gateway, *outcomes: Any) -> list[tuple[str, int, int]]:
    """Let requests end so, one after another; the backend of each, its requests and tokens then."""
    left, backends = list(outcomes), list[tuple[str, int, int]]()

    async def relayed(backend: Backend, *_: Any) -> str:
        backends.append((backend.name, backend.requests, backend.tokens))
        outcome = left.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return str(outcome)

    gateway._relayed = relayed  # type: ignore[method-assign]
    return backends


BODY = b'{"max_tokens": 20, "model": "m"}'
UNREACHED = httpcore2.ConnectError("refused")


@pytest.mark.parametrize(
    ("outcomes", "ends", "answer", "retries"),
    [
        (["ok"], ["ok"], None, 0),
        (["error"], ["error"], None, 0),
        ([UNREACHED, "ok"], ["retried", "ok"], None, 1),
        ([httpcore2.ConnectTimeout(), "error"], ["retried", "error"], None, 1),
        (
            [UNREACHED, UNREACHED],
            ["retried", "failed"],
            (503, "no backend takes requests at the moment"),
            1,
        ),
        (
            [httpcore2.ReadError()],
            ["failed"],
            (502, "h:8001 ended the connection without an answer"),
            0,
        ),
        (
            [httpcore2.RemoteProtocolError()],
            ["failed"],
            (502, "h:8001 ended the connection without an answer"),
            0,
        ),
        ([TimeoutError()], ["failed"], (504, "h:8001 did not answer in time"), 0),
    ],
)
async def test_how_a_request_ends(
    outcomes: list[Any], ends: list[str], answer: tuple[int, str] | None, retries: int
) -> None:
    gateway, client = made(3), Client()
    backends = relayed_by(gateway, *outcomes)
    await gateway._answered(scope(), BODY, client.receive, client.send)
    tokens = len(BODY) // 4 + 20
    assert backends == [(f"h:{8001 + place}", 1, tokens) for place in range(len(outcomes))]
    assert ended(gateway) == {(f"h:{8001 + place}", end): 1 for place, end in enumerate(ends)}
    assert (client.answer if client.sent else None) == answer
    assert (total(gateway, "retries"), total(gateway, "cut_streams")) == (retries, 0)
    assert [(backend.requests, backend.tokens) for backend in gateway.backends] == [(0, 0)] * 3
    unreached = sum(end in ("retried",) for end in ends) + (ends == ["retried", "failed"])
    assert [backend.up for backend in gateway.backends] == [False] * unreached + [True] * (
        3 - unreached
    )


async def test_a_stream_that_was_cut_and_a_client_that_left_are_counted_as_such() -> None:
    gateway, client = made(1), Client()
    relayed_by(gateway, Cut(), asyncio.CancelledError())
    with pytest.raises(Cut):
        await gateway._answered(scope(), BODY, client.receive, client.send)
    with pytest.raises(asyncio.CancelledError):
        await gateway._answered(scope(), BODY, client.receive, client.send)
    assert ended(gateway) == {("h:8001", "cut"): 1, ("h:8001", "cancelled"): 1}
    assert (total(gateway, "cut_streams"), client.sent) == (1, [])
    assert gateway.backends[0].requests == gateway.backends[0].tokens == 0


async def test_a_model_that_nobody_serves_does_not_exist() -> None:
    gateway = made(2)
    backends = relayed_by(gateway, "ok", "ok")
    for backend in gateway.backends:
        backend.models = {"a": {}}
    client = Client()
    await gateway._answered(scope(), BODY, client.receive, client.send)
    assert client.answer == (404, "The model `m` does not exist.")
    reading = Client()  # a GET names no model
    await gateway._answered(scope(method="GET"), BODY, reading.receive, reading.send)
    assert ([name for name, *_ in backends], reading.sent) == (["h:8001"], [])
    gateway.backends[1].models = {"m": {}}
    gateway.backends[1].up = False
    client = Client()
    await gateway._answered(scope(), BODY, client.receive, client.send)
    assert client.answer == (503, "no backend takes requests at the moment")


async def test_a_session_is_that_of_its_header() -> None:
    gateway, client = made(5, policy="session"), Client()
    backends = relayed_by(gateway, *["ok"] * 8)
    for name in (b"a", b"b", b"c", b"d") * 2:
        headers = [(b"x", b"y"), (b"x-session-id", name)]
        await gateway._answered(scope(headers=headers), BODY, client.receive, client.send)
    names = [name for name, *_ in backends]
    assert names[:4] == names[4:]
    balancer_ = Balancer(gateway.backends, "session")
    expected = [balancer_.choose(Asked(body=b"{}", session_id=name)) for name in (b"a", b"b")]
    assert [backend.name for backend in expected if backend] == names[:2]


@pytest.mark.parametrize(
    ("status", "headers", "passed", "outcome"),
    [
        (200, [(b"Content-Length", b"4"), (b"A", b"b")], [(b"Content-Length", b"4"), (b"A", b"b")], "ok"),
        (204, [(b"Content-Length", b"4"), (b"A", b"b")], [(b"A", b"b")], "ok"),
        (304, [(b"content-length", b"4")], [], "ok"),
        (499, [], [], "ok"),
        (500, [], [], "error"),
        (200, [(b"Transfer-Encoding", b"chunked"), (b"Content-Length", b"4")], [], "ok"),
        (200, [(b"Connection", b"X-Hop, close"), (b"x-hop", b"1"), (b"B", b"c")], [(b"B", b"c")], "ok"),
    ],
)  # fmt: skip
async def test_a_response_is_passed_on_as_it_comes(
    status: int, headers: Any, passed: Any, outcome: str
) -> None:
    gateway, client = made(1), Client()
    pool = Pool(status, headers, [b"ab", b"cd"])
    gateway._pool = pool  # type: ignore[assignment]
    request = scope(
        query_string=b"x=1",
        headers=[(b"host", b"me"), (b"expect", b"100-continue"), (b"te", b"x"), (b"a", b"b")],
    )
    assert await gateway._relayed(gateway.backends[0], request, b"{}", client.send) == outcome
    assert client.sent == [
        {"type": "http.response.start", "status": status, "headers": passed},
        {"type": "http.response.body", "body": b"ab", "more_body": True},
        {"type": "http.response.body", "body": b"cd", "more_body": True},
        {"type": "http.response.body", "body": b"", "more_body": False},
    ]
    [sent] = pool.requests
    url = sent.url
    assert (sent.method, url.scheme, url.host, url.port) == (b"POST", b"http", b"h", 8001)
    assert url.target == b"/v1/completions?x=1"
    assert sent.headers == [(b"host", b"h:8001"), (b"a", b"b"), (b"content-length", b"2")]
    assert sent.extensions == {"timeout": {"connect": 2.0}}
    assert pool.closed == 1
    waits = "tonnage_gateway_first_byte_seconds_count"
    assert gateway.counts.registry.get_sample_value(waits, {"backend": "h:8001"}) == 1


@pytest.mark.parametrize(
    ("method", "body", "length"),
    [
        ("GET", b"", None),
        ("GET", b"ab", b"2"),
        ("POST", b"", b"0"),
        ("PUT", b"", b"0"),
        ("PATCH", b"", b"0"),
        ("HEAD", b"", None),
    ],
)
async def test_a_request_says_the_length_of_its_body(
    method: str, body: bytes, length: bytes | None
) -> None:
    gateway, client = made(1), Client()
    pool = Pool(200, [], [])
    gateway._pool = pool  # type: ignore[assignment]
    await gateway._relayed(gateway.backends[0], scope(method=method), body, client.send)
    assert dict(pool.requests[0].headers).get(b"content-length") == length
    assert pool.requests[0].url.target == b"/v1/completions"


async def test_a_response_that_breaks_off_or_stalls_is_cut() -> None:
    for piece, limits in ((httpcore2.ReadError(), {}), (60.0, {"idle_s": 0.02})):
        gateway, client = made(1, **limits), Client()
        pool = Pool(200, [], [b"ab", piece])
        gateway._pool = pool  # type: ignore[assignment]
        with pytest.raises(Cut):
            await gateway._relayed(gateway.backends[0], scope(), b"", client.send)
        assert ([message.get("body") for message in client.sent], pool.closed) == ([None, b"ab"], 1)
    gateway = made(1)
    gateway._pool = Pool(200, [], [b"ab", 60.0])  # type: ignore[assignment]
    relaying = asyncio.ensure_future(
        gateway._relayed(gateway.backends[0], scope(), b"", client.send)
    )
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    relaying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await relaying


async def test_a_client_has_left_when_it_says_so() -> None:
    await _client_leaves(Client(part(b"a"), part(b"b"), stays=False).receive)


def test_headers_of_one_connection_are_left_out() -> None:
    headers = [
        *((b"A", b"1"), (b"Connection", b"x-a , X-B"), (b"X-A", b"2"), (b"x-b", b"3")),
        *((b"TE", b"t"), (b"Trailer", b"t"), (b"Upgrade", b"u"), (b"Keep-Alive", b"5")),
        *((b"Proxy-Authorization", b"p"), (b"Transfer-Encoding", b"chunked"), (b"a", b"4")),
        *((b"Content-Length", b"9"),),
    ]
    assert _end_to_end(headers) == [(b"A", b"1"), (b"a", b"4"), (b"Content-Length", b"9")]
    assert _end_to_end(headers, (b"content-length",)) == [(b"A", b"1"), (b"a", b"4")]

"""The gateway by itself, without a network: its own pages whole, what it passes on, and how a request ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import httpcore2
import pytest

from tests.defaults import SHAPE, of_class, records, shape
from tonnage.bench.connection import Target
from tonnage.errors import InputError
from tonnage.gateway import balancer, haproxy, server, settings
from tonnage.gateway.balancer import Asked, Backend, Balancer
from tonnage.gateway.haproxy import configuration, whole_weights
from tonnage.gateway.server import Cut, Gateway, _client_leaves, _end_to_end, _listening
from tonnage.gateway.settings import Limits, Settings


def made(count: int = 2, policy: str = "round-robin", **limits: Any) -> Gateway:
    """A gateway before so many backends that are up, on ports 8001, 8002 …"""
    targets = tuple((Target(host="h", port=8001 + place), 1.0) for place in range(count))
    gateway = Gateway(Settings(backends=targets, policy=policy, limits=Limits(**limits)))
    for backend in gateway.backends:
        backend.up = True
    return gateway


def page(response: Any) -> tuple[int, Any]:
    return response.status_code, json.loads(response.body)


def test_records_of_a_gateway_do_not_change_and_are_written_by_name() -> None:
    kinds = {kind.__name__: shape(kind) for kind in records(balancer, haproxy, server, settings)}
    mutable = {"Backend": {"slots", "kw_only"}}
    assert kinds == {name: mutable.get(name, SHAPE) for name in kinds}
    assert set(kinds) >= {"Asked", "Backend", "Long", "Running", "Limits", "Settings"}
    assert of_class(Asked) == {"session_id": b""}
    assert of_class(Backend) == {
        "up": False,
        "fault": "",
        "failures": 0,
        "requests": 0,
        "tokens": 0,
        "kv_used": 0.0,
        "models": None,
    }
    assert of_class(Settings) == {
        "policy": "least-outstanding",
        "seed": 0,
        "host": "127.0.0.1",
        "port": 8080,
        "limits": Limits(),
    }


def test_the_bounds_of_a_gateway() -> None:
    names = ("BYTES_PER_TOKEN", "DEFAULT_OUTPUT", "MOST_OUTPUT", "BLOCK", "MOST_BLOCKS")
    assert [getattr(balancer, name) for name in names] == [4, 256, 10**6, 256, 200_000]
    assert (balancer.MOST_PER_REQUEST, haproxy.IDLE, haproxy.HEAVIEST) == (1_024, 1_000, 256)
    assert (server.BACKLOG, server.FAILURES, server.LIST_EVERY) == (4_096, 2, 10)
    assert server.MOST == 4 * 2**20
    assert server.TYPES == {404: "not_found_error", 429: "rate_limit_error"}


async def test_the_gateway_s_own_pages() -> None:
    gateway = made()
    ready = {"object": "health.response", "message": "ready"}
    assert page(await gateway._ready(None)) == (200, ready)  # type: ignore[arg-type]
    gateway.backends[0].up = False
    assert page(await gateway._ready(None)) == (200, ready)  # type: ignore[arg-type]
    gateway.backends[1].up = False
    assert page(await gateway._ready(None)) == (  # type: ignore[arg-type]
        503,
        {"object": "health.response", "message": "no backend takes requests"},
    )
    live = {"object": "health.response", "message": "live"}
    assert page(await gateway._live(None)) == (200, live)  # type: ignore[arg-type]
    metrics = await gateway._metrics(None)  # type: ignore[arg-type]
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = metrics.body.decode().splitlines()
    for line in (
        'tonnage_gateway_up{backend="h:8001"} 0.0',
        'tonnage_gateway_outstanding_requests{backend="h:8002"} 0.0',
        'tonnage_gateway_outstanding_tokens{backend="h:8002"} 0.0',
        'tonnage_gateway_requests_total{backend="h:8001",outcome="retried"} 0.0',
        "tonnage_gateway_in_flight 0.0",
        "tonnage_gateway_retries_total 0.0",
        "tonnage_gateway_cut_streams_total 0.0",
        'tonnage_gateway_policy{policy="round-robin"} 1.0',
    ):
        assert line in lines
    gateway.backends[0].requests, gateway.backends[0].tokens, gateway.in_flight = 3, 70, 5
    lines = (await gateway._metrics(None)).body.decode().splitlines()  # type: ignore[arg-type]
    assert 'tonnage_gateway_outstanding_requests{backend="h:8001"} 3.0' in lines
    assert 'tonnage_gateway_outstanding_tokens{backend="h:8001"} 70.0' in lines
    assert "tonnage_gateway_in_flight 5.0" in lines


async def test_metadata_name_the_models_of_those_that_take_requests() -> None:
    gateway = made(3)
    first, second, third = gateway.backends
    first.models, second.models = {"b": {}, "a": {}}, {"c": {}}
    second.up = False
    for path, names in (("/v1/metadata", ["a", "b"]), ("/v1/version", None)):
        request: Any = SimpleNamespace(url=SimpleNamespace(path=path))
        status, document = page(await gateway._about(request))
        version = server.VERSION
        models = [{"shortName": name, "modelUrl": ""} for name in names or ()]
        assert (status, document) == (
            200,
            {"release": version, "api": version}
            if names is None
            else {"version": version, "assetInfo": [], "modelInfo": models},
        )
    assert third.models is None


async def test_models_are_listed_or_asked_of_the_first_that_takes_requests() -> None:
    gateway = made(3)
    pages: list[tuple[Backend, str, list[tuple[bytes, bytes]]]] = []

    async def read(backend: Backend, path: str, headers: Any = ()) -> tuple[int, bytes]:
        pages.append((backend, path, list(headers)))
        return 401, b'{"no": 1}'

    gateway._page = read  # type: ignore[method-assign]
    key = (b"authorization", b"Bearer k")
    request: Any = SimpleNamespace(headers=SimpleNamespace(raw=[(b"x", b"y"), key]))
    gateway.backends[0].up = False
    response = await gateway._models(request)
    assert (response.status_code, response.body) == (401, b'{"no": 1}')
    assert response.headers["content-type"] == "application/json"
    assert pages == [(gateway.backends[1], "/v1/models", [key])]

    async def lost(backend: Backend, path: str, headers: Any = ()) -> tuple[int, bytes]:
        raise OSError

    gateway._page = lost  # type: ignore[method-assign]
    status, document = page(await gateway._models(request))
    assert (status, document["error"]["message"]) == (502, "the backend did not list its models")
    gateway.backends[1].models = {"a": {"id": "a"}, "b": {"id": "b", "of": 1}}
    gateway.backends[2].models = {"b": {"id": "b", "of": 2}, "c": {"id": "c"}}
    assert page(await gateway._models(request)) == (
        200,
        {"object": "list", "data": [{"id": "a"}, {"id": "b", "of": 2}, {"id": "c"}]},
    )
    for backend in gateway.backends:
        backend.up = False
    response = await gateway._models(request)
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert json.loads(response.body)["error"]["message"] == (
        "no backend lists its models at the moment"
    )


@pytest.mark.parametrize(
    ("status", "kind", "again"),
    [
        (400, "invalid_request_error", False),
        (404, "not_found_error", False),
        (413, "invalid_request_error", False),
        (429, "rate_limit_error", True),
        (499, "invalid_request_error", False),
        (500, "server_error", False),
        (502, "server_error", False),
        (503, "server_error", True),
        (504, "server_error", False),
    ],
)
def test_a_refusal_is_an_error_of_the_openai_api(status: int, kind: str, again: bool) -> None:
    gateway = made()
    response = gateway._refusal(status, "why")
    assert page(response) == (
        status,
        {"error": {"message": "why", "type": kind, "param": None, "code": status}},
    )
    assert response.headers.get("retry-after") == ("1" if again else None)
    [count] = [
        sample.value
        for family in gateway.counts.registry.collect()
        for sample in family.samples
        if sample.name == "tonnage_gateway_refused_total"
    ]
    assert count == 1


class Client:
    """What a client sends, message by message; then it stays, or leaves."""

    def __init__(self, *messages: dict[str, Any], stays: bool = True) -> None:
        self.messages, self.stays = list(messages), stays
        self.sent: list[dict[str, Any]] = []

    async def receive(self) -> dict[str, Any]:
        if self.messages:
            return self.messages.pop(0)
        if self.stays:
            await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(dict(message))

    @property
    def answer(self) -> tuple[int, str]:
        """The status and the words of a refusal."""
        document = json.loads(b"".join(part.get("body", b"") for part in self.sent))
        return self.sent[0]["status"], document["error"]["message"]


def scope(path: str = "/v1/completions", **changed: Any) -> dict[str, Any]:
    usual = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode()}
    return {**usual, "query_string": b"", "headers": [], **changed}


def part(body: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


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


class Pool:
    """A pool of connections that answers so."""

    def __init__(self, status: int, headers: list[tuple[bytes, bytes]], pieces: list[Any]) -> None:
        self.status, self.headers, self.pieces = status, headers, pieces
        self.requests: list[Any] = []
        self.closed = 0

    async def handle_async_request(self, request: Any) -> Any:
        self.requests.append(request)
        return self

    async def aiter_stream(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            if isinstance(piece, BaseException):
                raise piece
            if isinstance(piece, float):
                await asyncio.sleep(piece)
            else:
                yield piece

    async def aclose(self) -> None:
        self.closed += 1


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


def pages(gateway: Gateway, *answers: Any) -> list[str]:
    """Let pages be read so, one after another; their paths."""
    left, paths = list(answers), list[str]()

    async def read(backend: Backend, path: str, headers: Any = ()) -> tuple[int, bytes]:
        paths.append(path)
        answer = left.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer  # type: ignore[no-any-return]

    gateway._page = read  # type: ignore[method-assign]
    return paths


async def test_checks_take_a_backend_out_and_back() -> None:
    """A refused connection or a status of 500 is enough; an answer that does not come counts twice."""
    gateway = made(1)
    backend = gateway.backends[0]
    pages(
        gateway,
        *((200, b""), (499, b""), (500, b""), (404, b"")),
        *(OSError(), OSError(), OSError(), (200, b"")),
        *(ConnectionRefusedError(), (200, b""), OSError(), (200, b""), OSError()),
    )
    states = []
    for _ in range(13):
        await gateway._check(backend)
        states.append((backend.up, backend.fault, backend.failures))
    lost = "no connection"
    assert states == [
        *((True, "", 0), (True, "", 0), (False, "status 500", 1), (True, "", 0)),
        *((True, lost, 1), (False, lost, 2), (False, lost, 3), (True, "", 0)),
        *((False, lost, 1), (True, "", 0), (True, lost, 1), (True, "", 0), (True, lost, 1)),
    ]


async def test_models_of_a_backend_are_those_of_its_last_list() -> None:
    gateway = made(1)
    backend = gateway.backends[0]
    good = (200, b'{"data": [{"id": "a", "x": 1}, {"id": 7}]}')
    bad = [(404, b""), (200, b"{"), (200, b"{}"), (200, b'{"data": 3}'), (200, b'{"data": [{}]}')]
    paths = pages(gateway, *bad, good, *bad, OSError(), (200, b'{"data": []}'))
    seen = []
    for _ in range(len(bad) * 2 + 3):
        await gateway._list(backend)
        seen.append(backend.models)
    models = {"a": {"id": "a", "x": 1}, "7": {"id": 7}}
    assert seen == [*[None] * 5, *[models] * 7, {}]
    assert set(paths) == {"/v1/models"}


async def test_the_fullest_cache_counts() -> None:
    gateway = made(1)
    text = b'vllm:kv_cache_usage_perc{engine="%d"} %s\n'
    paths = pages(
        gateway,
        (200, text % (0, b"0.25") + text % (1, b"0.5") + b"vllm:other 9\n"),
        (200, b"vllm:gpu_cache_usage_perc 0.75\n"),
        (200, b"other 1\n"),
        (200, b"\xff"),
        OSError(),
    )
    used = [await gateway._kv_used(gateway.backends[0]) for _ in range(5)]
    assert used == [0.5, 0.75, 0.0, 0.0, 0.0]
    assert set(paths) == {"/metrics"}


@pytest.mark.parametrize(
    ("policy", "ups", "calls"),
    [
        ("round-robin", [True] * 11, ["check"] * 10 + ["list", "check"]),
        ("round-robin", [False, True, True], ["check", "check", "list", "check"]),
        ("least-kv", [True, False, True], ["check", "kv", "check", "check", "kv", "list"]),
    ],
)
async def test_a_backend_is_watched(
    policy: str, ups: list[bool], calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models are read every ten checks, and as soon as a backend is back; its cache at each."""
    gateway = made(1, policy=policy, health_s=0.5)
    backend = gateway.backends[0]
    backend.up = ups[0]
    left, log, slept = list(ups), list[str](), list[float]()

    def noted(word: str, value: Any = None) -> Callable[..., Any]:
        async def call(_: Backend) -> Any:
            log.append(word)
            return value

        return call

    async def check(_: Backend) -> None:
        log.append("check")
        backend.up = left.pop(0)

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if not left:
            raise asyncio.CancelledError

    monkeypatch.setattr("tonnage.gateway.server.asyncio.sleep", sleep)
    gateway._check, gateway._list, gateway._kv_used = check, noted("list"), noted("kv", 0.5)  # type: ignore[method-assign]
    with pytest.raises(asyncio.CancelledError):
        await gateway._watch(backend)
    assert log == calls
    assert slept == [0.5] * (len(ups) + 1)
    assert backend.kv_used == (0.5 if policy == "least-kv" else 0.0)


async def test_a_page_of_a_backend_and_why_there_is_none() -> None:
    gateway = made(1)
    backend = gateway.backends[0]
    gateway._pool = pool = Pool(207, [], [b"ab", b"c"])  # type: ignore[assignment]
    assert await gateway._page(backend, "/p", [(b"a", b"b")]) == (207, b"abc")
    [sent] = pool.requests
    assert (sent.method, sent.url.target) == (b"GET", b"/p")
    assert sent.headers == [(b"host", b"h:8001"), (b"a", b"b")]
    assert (sent.extensions, pool.closed) == ({"timeout": {"connect": 2.0}}, 1)
    gateway._pool = Pool(200, [], [bytes(2**21), bytes(2**21)])  # type: ignore[assignment]
    assert len((await gateway._page(backend, "/p"))[1]) == 2**22
    gateway._pool = Pool(200, [], [bytes(2**22), b"x"])  # type: ignore[assignment]
    with pytest.raises(OSError, match="/p of h:8001 is longer than 4,194,304 bytes"):
        await gateway._page(backend, "/p")
    gateway._pool = Pool(200, [], [httpcore2.ReadError("x")])  # type: ignore[assignment]
    with pytest.raises(OSError, match=r"no answer from h:8001 \(x\)"):
        await gateway._page(backend, "/p")
    gateway._pool = Pool(200, [], [httpcore2.ConnectError("x")])  # type: ignore[assignment]
    with pytest.raises(ConnectionRefusedError):
        await gateway._page(backend, "/p")
    gateway = made(1, health_s=0.01)
    gateway._pool = Pool(200, [], [60.0])  # type: ignore[assignment]
    with pytest.raises(OSError, match="no answer from"):
        await gateway._page(gateway.backends[0], "/p")


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


def test_a_port_that_is_taken_is_named() -> None:
    with _listening("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(InputError, match=rf"port: cannot listen on 127.0.0.1:{port} \("):
            _listening("127.0.0.1", port)


def test_sessions_do_without_a_number_under_other_policies() -> None:
    """The request of a session policy has the header's number; of others -1, and the prompt's length."""
    seen: list[Any] = []
    for policy in ("session", "round-robin"):
        backends = [Backend(target=Target(host="h", port=1), weight=1.0, up=True)]
        chooser = Balancer(backends, policy, seed=3)
        chooser._route = lambda view, request, memory: seen.append((view, request)) or 0
        assert chooser.choose(Asked(body=bytes(80), session_id=b"a")) is backends[0]
        assert chooser.choose(Asked(body=bytes(4))) is backends[0]
        chooser._route = lambda *_: -1
        assert chooser.choose(Asked(body=b"")) is None
    requests = [(request.number, request.session, request.isl) for _, request in seen]
    number = Asked(body=b"", session_id=b"a").session
    assert requests == [(0, number, 20), (1, -1, 1), (0, -1, 20), (1, -1, 1)]
    assert number >= 0


def test_a_configuration_of_three_kinds_line_by_line() -> None:
    assert whole_weights([1.0, 1.0]) == [256, 256]
    assert whole_weights([0.5, 0.25, 0.125]) == [256, 128, 64]
    text = configuration(
        (("a:1", 1.0, 1), ("$B:1", 1.0, 1), ("$C:1", 0.5, 2)),
        "power-of-two",
        host="h",
        port=1,
        in_flight=9,
        body=8,
        first_byte_s=7.0,
        idle_s=6.0,
    )
    assert text.endswith(
        "\n    default-server check inter 1s fall 2 rise 1 resolvers names init-addr libc,none\n"
        "    server a:1 a:1 weight 256\n    server kind-2 $B:1 weight 256\n"
        "    server-template kind-3- 2 $C:1 weight 128\n"
    )
    assert "    balance random(2)\n" in text

"""The gateway's own pages, whole, and what it learns of its backends; all without a network."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import httpcore2
import pytest

from tests.defaults import of_class
from tests.gateway.alone import Pool, made, page
from tonnage.bench.connection import Target
from tonnage.errors import InputError
from tonnage.gateway import balancer, haproxy, server
from tonnage.gateway.balancer import Asked, Backend, Balancer
from tonnage.gateway.haproxy import configuration, whole_weights
from tonnage.gateway.server import Cut, Gateway, _listening
from tonnage.gateway.settings import Limits, Settings


def test_what_a_gateway_takes_where_nothing_is_said() -> None:
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


async def test_backends_are_checked_before_the_gateway_serves_and_while_it_does() -> None:
    gateway = made(3)
    log: list[Any] = []
    first, second, third = gateway.backends

    async def check(backend: Backend) -> None:
        log.append(("check", backend.name))
        backend.up = backend is not second

    async def listed(backend: Backend) -> None:
        log.append(("list", backend.name))

    async def watch(backend: Backend) -> None:
        log.append(("watch", backend.name))
        try:
            await asyncio.sleep(60)
        finally:
            log.append(("left", backend.name))

    async def closed() -> None:
        log.append("closed")

    gateway._check, gateway._list, gateway._watch = check, listed, watch  # type: ignore[method-assign]
    gateway._pool = SimpleNamespace(aclose=closed)  # type: ignore[assignment]
    names = [backend.name for backend in (first, second, third)]
    async with gateway.watching():
        await asyncio.sleep(0)
        assert log == [
            *(("check", name) for name in names),
            *(("list", name) for name in (names[0], names[2])),
            *(("watch", name) for name in names),
        ]
        log.clear()
    assert log == [*(("left", name) for name in names), "closed"]


async def test_a_gateway_is_served_with_its_limits_until_the_block_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    servers: list[Any] = []
    silenced: list[Any] = []

    class Server:
        def __init__(self, config: Any) -> None:
            self.config, self.should_exit, self.force_exit = config, False, False
            servers.append(self)

        async def serve(self, *, sockets: list[Any]) -> None:
            self.sockets = sockets
            while not self.should_exit:
                await asyncio.sleep(0.001)

    monkeypatch.setattr("tonnage.gateway.server.uvicorn.Config", lambda app, **how: (app, how))
    monkeypatch.setattr("tonnage.gateway.server.uvicorn.Server", Server)
    monkeypatch.setattr("tonnage.gateway.server.silence_ended_requests", silenced.append)
    limits = Limits(keep_alive_s=7, drain_s=3)
    asked = Settings(backends=(), port=0, limits=limits)
    async with server.gateway(asked) as running:
        await asyncio.sleep(0.002)
        [serving] = servers
        app, how = serving.config
        assert app is running.gateway.app
        assert how == {
            "http": server.BoundedStrictHeaders,
            "ws": "none",
            "log_level": "error",
            "access_log": False,
            "lifespan": "off",
            "backlog": 4_096,
            "server_header": False,
            "date_header": False,
            "timeout_keep_alive": 7,
            "timeout_graceful_shutdown": 3,
        }
        [listening] = serving.sockets
        assert listening.getsockname() == ("127.0.0.1", running.port)
        assert (silenced, running.serving.done()) == ([Cut], False)
    assert (serving.should_exit, serving.force_exit, running.serving.done()) == (True, True, True)
    assert listening.fileno() == -1


def test_a_gateway_says_when_it_is_ready_and_leaves_signals_to_its_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: list[Any] = []

    @asynccontextmanager
    async def running(asked: Settings) -> AsyncIterator[Any]:
        log.append(asked)
        gateway = made(2)
        gateway.backends[1].fault = "no connection"
        serving = asyncio.get_running_loop().create_future()
        serving.set_result(None)
        yield server.Running(gateway=gateway, serving=serving, port=9)  # type: ignore[arg-type]

    def ready(port: int, faults: Any) -> None:
        ignored = [signal.getsignal(n) == signal.SIG_IGN for n in (signal.SIGINT, signal.SIGTERM)]
        log.append((port, faults, ignored))

    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    monkeypatch.setattr("tonnage.gateway.server.gateway", running)
    monkeypatch.setattr(
        "tonnage.bench.connection.more_descriptors", lambda: log.append("descriptors")
    )
    try:
        server.serve(Settings(backends=()), ready)
    finally:
        for number, handler in before:
            signal.signal(number, handler)
    faults = {"h:8001": "", "h:8002": "no connection"}
    assert log == ["descriptors", Settings(backends=()), (9, faults, [True, True])]

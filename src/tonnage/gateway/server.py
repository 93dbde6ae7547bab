"""The embedded gateway, for a laptop, the demo and rehearsals: the simulator's routers behind
uvicorn, and a kept HTTP client.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import httpcore2
import uvicorn
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from tonnage.errors import InputError, option
from tonnage.formats.prometheus import Page
from tonnage.gateway.balancer import Asked, Backend, Balancer
from tonnage.gateway.haproxy import PASSED
from tonnage.gateway.settings import Settings
from tonnage.serve.bounded_headers import BoundedStrictHeaders, silence_ended_requests
from tonnage.version import VERSION

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

BACKLOG = 4_096

HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-connection proxy-authenticate proxy-authorization te trailer"
    b" transfer-encoding upgrade".split()
)
"""Headers that say something of one connection alone (RFC 9110, 7.6.1)."""

FIRST_BYTE = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    120.0,
    300.0,
)
"""Upper bounds of the buckets of the time to a response's first byte, in seconds."""

OUTCOMES = ("ok", "error", "cut", "failed", "retried", "cancelled")
"""How a request to a backend ends.

    ok          the response came whole
    error       it came whole and its status was 500 or more
    cut         it broke off after its first byte had been passed on
    failed      there was no response, and the client got an error
    retried     no connection could be made, and the request went to another backend
    cancelled   the client left first
"""

FAILURES = 2
"""Checks without an answer in a row after which a backend is down; a refused connection or a status
of 500 or more is enough alone."""

LIST_EVERY = 10  # Checks between two readings of the models; adapters may come and go
MOST = 4_194_304  # Bytes of a backend's own page that are read
KV_USED = ("vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc")
TYPES = {404: "not_found_error", 429: "rate_limit_error"}

UNREACHED = (httpcore2.ConnectError, httpcore2.ConnectTimeout)
"""Nothing of the request was sent."""

BROKEN = (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException, TimeoutError)


class Cut(Exception):
    """A stream broke off at the backend: towards the client it ends without its end."""


class Counts:
    """What Prometheus reads."""

    def __init__(self, gateway: Gateway) -> None:
        registry, name = CollectorRegistry(), "tonnage_gateway"
        self.registry = registry
        self.requests = Counter(
            f"{name}_requests",
            "Requests to backends, by how they ended.",
            ["backend", "outcome"],
            registry=registry,
        )
        self.refused = Counter(
            f"{name}_refused",
            "Requests that the gateway answered with an error.",
            ["status"],
            registry=registry,
        )
        self.retries = Counter(
            f"{name}_retries", "Requests sent to a second backend.", registry=registry
        )
        self.cut = Counter(
            f"{name}_cut_streams",
            "Responses that broke off after their first byte.",
            registry=registry,
        )
        about = "From a complete request to the first byte of its response."
        self.waits = Histogram(
            f"{name}_first_byte_seconds", about, ["backend"], buckets=FIRST_BYTE, registry=registry
        )
        up = Gauge(
            f"{name}_up", "1 where a backend takes requests.", ["backend"], registry=registry
        )
        outstanding = Gauge(
            f"{name}_outstanding_requests",
            "Requests at a backend now.",
            ["backend"],
            registry=registry,
        )
        tokens = Gauge(
            f"{name}_outstanding_tokens",
            "Their tokens still to come, estimated.",
            ["backend"],
            registry=registry,
        )
        for backend in gateway.backends:
            for gauge, read in ((up, "up"), (outstanding, "requests"), (tokens, "tokens")):
                gauge.labels(backend.name).set_function(partial(getattr, backend, read))
            for outcome in OUTCOMES:
                self.requests.labels(backend.name, outcome)
        Gauge(
            f"{name}_in_flight", "Requests that are being served.", registry=registry
        ).set_function(lambda: gateway.in_flight)
        Gauge(f"{name}_policy", "1 for the policy in use.", ["policy"], registry=registry).labels(
            gateway.balancer.policy
        ).set(1)


class Gateway:
    """Backends, the policy between them, and the requests that are under way."""

    def __init__(self, settings: Settings) -> None:
        self.limits = settings.limits
        self.backends = [
            Backend(target=target, weight=weight) for target, weight in settings.backends
        ]
        self.balancer = Balancer(self.backends, settings.policy, settings.seed)
        self.in_flight = 0
        self.counts = Counts(self)
        self._pool = httpcore2.AsyncConnectionPool(
            max_connections=None, keepalive_expiry=self.limits.pooled_s
        )
        pages = {
            ("/health", "/v1/health/ready"): self._ready,
            ("/v1/health/live",): self._live,
            ("/metrics", "/v1/metrics"): self._metrics,
            ("/v1/version", "/v1/metadata"): self._about,
            ("/v1/models",): self._models,
        }
        routes = [Route(path, answer) for paths, answer in pages.items() for path in paths]
        self.app = Starlette(routes=[*routes, Mount("/", self._passed)])

    # What the gateway answers itself

    async def _ready(self, request: Request) -> Response:
        ready = any(backend.up for backend in self.backends)
        return JSONResponse(
            {
                "object": "health.response",
                "message": "ready" if ready else "no backend takes requests",
            },
            200 if ready else 503,
        )

    async def _live(self, request: Request) -> Response:
        return JSONResponse({"object": "health.response", "message": "live"})

    async def _metrics(self, request: Request) -> Response:
        return Response(
            generate_latest(self.counts.registry), media_type="text/plain; version=0.0.4"
        )

    async def _about(self, request: Request) -> Response:
        """As NIM has them (docs.nvidia.com/nim, read 2026-11-22), with those of their fields that a
        gateway can fill.
        """
        if request.url.path.endswith("version"):
            return JSONResponse({"release": VERSION, "api": VERSION})
        names = sorted(
            {name for backend in self.backends if backend.up for name in backend.models or ()}
        )
        return JSONResponse(
            {
                "version": VERSION,
                "assetInfo": [],
                "modelInfo": [{"shortName": name, "modelUrl": ""} for name in names],
            }
        )

    async def _models(self, request: Request) -> Response:
        """The models of all backends that take requests, each name once; asked with a client's key
        where the backends want one.
        """
        taking = [backend for backend in self.backends if backend.up]
        lists = [backend.models for backend in taking if backend.models is not None]
        if not lists and taking:
            key = [header for header in request.headers.raw if header[0] == b"authorization"]
            try:
                status, body = await self._page(taking[0], "/v1/models", key)
            except OSError:
                return self._refusal(502, "the backend did not list its models")
            return Response(body, status, media_type="application/json")
        if not lists:
            return self._refusal(503, "no backend lists its models at the moment")
        models = {name: model for models in lists for name, model in models.items()}
        return JSONResponse({"object": "list", "data": list(models.values())})

    def _refusal(self, status: int, message: str) -> Response:
        """An error in the form of the OpenAI API; 429 and 503 say when to come again."""
        self.counts.refused.labels(str(status)).inc()
        kind = TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
        error = {"message": message, "type": kind, "param": None, "code": status}
        return JSONResponse(
            {"error": error}, status, headers={"Retry-After": "1"} if status in (429, 503) else {}
        )

    # What it passes on

    async def _passed(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it; a client that leaves ends it at the backend too."""
        if scope["type"] != "http":
            return
        if not re.fullmatch(PASSED, scope["path"]):
            await self._refusal(
                404, "the gateway passes on requests for answers, and nothing is at this path"
            )(scope, receive, send)
            return
        if self.in_flight >= self.limits.in_flight:
            await self._refusal(
                429, f"{self.in_flight:,} requests are under way, the most at once"
            )(scope, receive, send)
            return
        self.in_flight += 1
        try:
            body = await self._body(receive)
            if body is None:
                await self._refusal(413, f"the body is longer than {self.limits.body:,} bytes")(
                    scope, receive, send
                )
                return
            work, leaving = (
                asyncio.ensure_future(self._answered(scope, body, receive, send)),
                asyncio.ensure_future(_client_leaves(receive)),
            )
            await asyncio.wait((work, leaving), return_when=asyncio.FIRST_COMPLETED)
            leaving.cancel()
            if not work.done():
                work.cancel()
                await asyncio.wait((work,))
            elif work.exception() is not None:
                await work
        except (TimeoutError, ConnectionError):
            return  # the client sent no more of its request, or has left
        finally:
            self.in_flight -= 1

    async def _body(self, receive: Receive) -> bytes | None:
        """The body of a request; None where it is too long. Raises TimeoutError: it does not come;
        ConnectionError: the client left.
        """
        parts, length, more = [], 0, True
        async with asyncio.timeout(self.limits.idle_s):
            while more and length <= self.limits.body:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ConnectionError
                parts.append(message.get("body", b""))
                length += len(parts[-1])
                more = message.get("more_body", False)
        return b"".join(parts) if length <= self.limits.body else None

    async def _answered(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Send a request to a backend, and to another one where no connection can be made; nothing
        that was sent is sent again.
        """
        headers = scope["headers"]
        request = Asked(
            body=body,
            session_id=next((value for name, value in headers if name == b"x-session-id"), b""),
        )
        model = request.model if scope["method"] == "POST" else ""
        tokens, tried = request.prompt_tokens + request.output_tokens, list[Backend]()
        backend = self.balancer.choose(request, tried, model)
        while backend is not None:
            tried.append(backend)
            backend.requests += 1
            backend.tokens += tokens
            another, outcome = None, "cancelled"
            try:
                outcome = await self._relayed(backend, scope, body, send)
                return
            except UNREACHED:
                backend.up = False
                another = self.balancer.choose(request, tried, model) if len(tried) == 1 else None
                outcome = "failed" if another is None else "retried"
            except Cut:
                outcome = "cut"
                self.counts.cut.inc()
                raise
            except BROKEN as error:
                outcome = "failed"
                late = isinstance(error, TimeoutError)
                words = (
                    f"{backend.name} did not answer in time"
                    if late
                    else f"{backend.name} ended the connection without an answer"
                )
                await self._refusal(504 if late else 502, words)(scope, receive, send)
                return
            finally:
                backend.requests -= 1
                backend.tokens -= tokens
                self.counts.requests.labels(backend.name, outcome).inc()
            self.counts.retries.inc(another is not None)
            backend = another
        unknown = bool(model) and not any(backend.serves(model) for backend in self.backends)
        words = (
            f"The model `{model:.80}` does not exist."
            if unknown
            else "no backend takes requests at the moment"
        )
        await self._refusal(404 if unknown else 503, words)(scope, receive, send)

    async def _relayed(self, backend: Backend, scope: Scope, body: bytes, send: Send) -> str:
        """One request at one backend, its response piece by piece as it comes; how it ended. Raises
        Cut, UNREACHED, BROKEN.
        """
        limits, begun, loop = self.limits, time.perf_counter(), asyncio.get_running_loop()
        target = scope["raw_path"] + (
            b"?" + scope["query_string"] if scope["query_string"] else b""
        )
        headers = [
            (b"host", backend.name.encode()),
            *_end_to_end(scope["headers"], (b"host", b"content-length", b"expect")),
        ]
        if body or scope["method"] in ("POST", "PUT", "PATCH"):
            headers.append((b"content-length", b"%d" % len(body)))
        async with asyncio.timeout(limits.first_byte_s) as limit:
            asking = httpcore2.Request(
                scope["method"],
                _url(backend, target),
                headers=headers,
                content=body,
                extensions=self._timeout,
            )
            response = await self._pool.handle_async_request(asking)
            self.counts.waits.labels(backend.name).observe(time.perf_counter() - begun)
            limit.reschedule(loop.time() + limits.idle_s)
            try:
                framed = response.status in (204, 304) or any(
                    name.lower() == b"transfer-encoding" for name, _ in response.headers
                )
                response_headers = _end_to_end(
                    response.headers, (b"content-length",) if framed else ()
                )
                await send(
                    {
                        "type": "http.response.start",
                        "status": response.status,
                        "headers": response_headers,
                    }
                )
                async for piece in response.aiter_stream():
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                    limit.reschedule(loop.time() + limits.idle_s)
            except BROKEN as error:
                raise Cut from error
            except asyncio.CancelledError:
                if limit.expired():
                    raise Cut from None
                raise
            finally:
                await response.aclose()
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return "error" if response.status >= 500 else "ok"

    @property
    def _timeout(self) -> dict[str, Any]:
        return {"timeout": {"connect": self.limits.connect_s}}

    # What it knows of its backends

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Check the backends once, and then every second while the block lasts."""
        await asyncio.gather(*(self._check(backend) for backend in self.backends))
        await asyncio.gather(*(self._list(backend) for backend in self.backends if backend.up))
        checks = [asyncio.ensure_future(self._watch(backend)) for backend in self.backends]
        try:
            yield
        finally:
            for check in checks:
                check.cancel()
            await asyncio.gather(*checks, return_exceptions=True)
            await self._pool.aclose()

    async def _watch(self, backend: Backend) -> None:
        for number in itertools.count(1):
            was_up = backend.up
            await asyncio.sleep(self.limits.health_s)
            await self._check(backend)
            if backend.up and self.balancer.policy == "least-kv":
                backend.kv_used = await self._kv_used(backend)
            if backend.up and (not was_up or number % LIST_EVERY == 0):
                await self._list(backend)

    async def _check(self, backend: Backend) -> None:
        """One check; a status under 500 will do, since not every server has the path."""
        try:
            status, _ = await self._page(backend, "/health")
            backend.fault, allowed = "" if status < 500 else f"status {status}", 1
        except OSError as error:
            backend.fault, allowed = (
                "no connection",
                1 if isinstance(error, ConnectionRefusedError) else FAILURES,
            )
        backend.failures = backend.failures + 1 if backend.fault else 0
        if not backend.fault or backend.failures >= allowed:
            backend.up = not backend.fault

    async def _list(self, backend: Backend) -> None:
        """Read the models of a backend that lists them; one that does not may serve any."""
        try:
            status, body = await self._page(backend, "/v1/models")
            if status == 200:
                backend.models = {str(model["id"]): model for model in json.loads(body)["data"]}
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return

    async def _kv_used(self, backend: Backend) -> float:
        """The largest share of a KV cache in use that the backend's metrics name; 0 where they name
        none.
        """
        try:
            _, body = await self._page(backend, "/metrics")
            page = Page(body.decode())
            return max((used for name in KV_USED for used in page.values(name)), default=0.0)
        except (OSError, ValueError):
            return 0.0

    async def _page(
        self, backend: Backend, path: str, headers: Iterable[tuple[bytes, bytes]] = ()
    ) -> tuple[int, bytes]:
        """The status and body of a GET. Raises OSError: no connection, no answer in time, or none
        that is HTTP.
        """
        asking = httpcore2.Request(
            "GET",
            _url(backend, path.encode()),
            headers=[(b"host", backend.name.encode()), *headers],
            extensions=self._timeout,
        )
        try:
            async with asyncio.timeout(self.limits.health_s):
                response = await self._pool.handle_async_request(asking)
                try:
                    body = b""
                    async for piece in response.aiter_stream():
                        body += piece
                        if len(body) > MOST:
                            raise OSError(f"{path} of {backend.name} is longer than {MOST:,} bytes")
                finally:
                    await response.aclose()
                return response.status, body
        except httpcore2.ConnectError as error:
            raise ConnectionRefusedError(str(error)) from None
        except BROKEN as error:
            raise OSError(f"no answer from {backend.name} ({error})") from None


def _url(backend: Backend, target: bytes) -> httpcore2.URL:
    return httpcore2.URL(
        scheme=b"http", host=backend.target.host.encode(), port=backend.target.port, target=target
    )


def _end_to_end(
    headers: Iterable[tuple[bytes, bytes]], dropped: Iterable[bytes] = ()
) -> list[tuple[bytes, bytes]]:
    """The headers without those of one connection, in their order."""
    headers = list(headers)
    named = {
        word.strip().lower()
        for name, value in headers
        if name.lower() == b"connection"
        for word in value.split(b",")
    }
    gone = HOP_BY_HOP | named | set(dropped)
    return [(name, value) for name, value in headers if name.lower() not in gone]


async def _client_leaves(receive: Receive) -> None:
    """Wait until the client leaves."""
    while (await receive())["type"] != "http.disconnect":
        pass


Ready = Callable[[int, Mapping[str, str]], None]
"""Takes the port once connections are taken there, and of each backend by its name what is wrong
with it ("" for nothing)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A gateway that takes connections."""

    gateway: Gateway
    serving: asyncio.Task[None]  # which ends with a signal
    port: int  # where it listens


@asynccontextmanager
async def gateway(settings: Settings) -> AsyncIterator[Running]:
    """A gateway on the running loop while the block lasts; its backends were checked once. Raises
    InputError: the port is taken.
    """
    gateway = Gateway(settings)
    limits = settings.limits
    config = uvicorn.Config(
        gateway.app,
        http=BoundedStrictHeaders,
        ws="none",
        log_level="error",
        access_log=False,
        lifespan="off",
        backlog=BACKLOG,
        server_header=False,
        date_header=False,
        timeout_keep_alive=limits.keep_alive_s,
        timeout_graceful_shutdown=limits.drain_s,
    )
    silence_ended_requests(Cut)
    with _listening(settings.host, settings.port) as listening:
        server = uvicorn.Server(config)
        async with gateway.watching():
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            try:
                yield Running(gateway=gateway, serving=serving, port=listening.getsockname()[1])
            finally:
                server.should_exit = server.force_exit = True
                await asyncio.wait((serving,))


def serve(settings: Settings, ready: Ready) -> None:
    """Serve until SIGINT or SIGTERM; running requests may go on for ``limits.drain_s``. Raises
    InputError: the port is taken.
    """
    import uvloop

    from tonnage.bench.connection import more_descriptors

    more_descriptors()

    async def run() -> None:
        async with gateway(settings) as running:
            for number in (signal.SIGINT, signal.SIGTERM):
                # uvicorn, which begins after this, raises the signal again when it has ended
                signal.signal(number, signal.SIG_IGN)
            ready(
                running.port, {backend.name: backend.fault for backend in running.gateway.backends}
            )
            await running.serving

    uvloop.run(run())


def _listening(host: str, port: int) -> socket.socket:
    """A socket that takes connections. Raises InputError: the port is taken, or the address is none
    of this machine.
    """
    try:
        return socket.create_server((host, port), backlog=BACKLOG)
    except OSError as error:
        raise InputError(
            f"{option('port')}: cannot listen on {host}:{port} ({error.strerror}); choose another"
        ) from None

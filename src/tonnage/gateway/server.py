"""A gateway that runs until it gets a signal: its own paths, its metrics, and the sockets that it listens on."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from tonnage.bench.connection import more_descriptors
from tonnage.errors import InputError, option
from tonnage.gateway.backend import FIRST_BYTE
from tonnage.gateway.client import Client
from tonnage.gateway.core import Core, Health
from tonnage.gateway.http import Request, document, refusal, response
from tonnage.gateway.settings import Settings
from tonnage.version import VERSION

if TYPE_CHECKING:
    from prometheus_client import Metric


PASSED = (b"/v1/", b"/v2/", b"/v2")  # What the paths of OpenAI and of KServe begin with

READY = (b"/health", b"/v1/health/ready")
LIVE = b"/v1/health/live"
METRICS = (b"/metrics", b"/v1/metrics")
MODELS = b"/v1/models"
VERSIONS, METADATA = b"/v1/version", b"/v1/metadata"
"""As NIM has them (docs.nvidia.com/nim, read 2026-11-22), with those of their fields that a gateway can fill."""

_UPWARDS = re.compile(rb"(?:/|%2f|\\|%5c)(?:\.|%2e){1,2}(?:/|%2f|\\|%5c|$)", re.IGNORECASE)

Reply = Callable[[bytes], None]


class OwnPaths:
    """Answers requests for a gateway's own paths."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def answer(self, request: Request, reply: Reply) -> bool:
        """Answer now or later; False where the request is one for a backend."""
        path, reads = request.path, request.method in (b"GET", b"HEAD")
        close, head = not request.keep, request.method == b"HEAD"
        if reads and path in (*READY, LIVE, *METRICS):
            reply(self._known(path, close, head))
        elif reads and path in (VERSIONS, METADATA):
            reply(document(200, self._about(path), close=close, head=head))
        elif reads and path == MODELS and not self._asks_for_a_key():
            reply(self._models(close, head))
        elif _UPWARDS.search(path):
            self._core.refused[400] += 1
            reply(refusal(400, "the path leads upwards", close=close, head=head))
        elif not (path.startswith(PASSED[:2]) or path == PASSED[2]):
            self._core.refused[404] += 1
            reply(refusal(404, "there is nothing at this path; the gateway passes on /v1/ and /v2/", close=close, head=head))
        else:
            return False
        return True

    def _known(self, path: bytes, close: bool, head: bool) -> bytes:
        if path in METRICS:
            return response(200, text(self._core), kind=TEXT, close=close, head=head)
        if path == LIVE:
            return document(200, {"object": "health.response", "message": "live"}, close=close, head=head)
        ready = self._core.ready
        message = "ready" if ready else "no backend takes requests" if not self._core.draining else "about to end"
        return document(200 if ready else 503, {"object": "health.response", "message": message}, close=close, head=head)

    def _about(self, path: bytes) -> dict[str, Any]:
        """The gateway's release; or that and the models that its backends have listed."""
        if path == VERSIONS:
            return {"release": VERSION, "api": VERSION}
        core, now = self._core, self._core.loop.time()
        known = {name for backend in core.backends if backend.takes(now) for name in backend.models or ()}
        return {"version": VERSION, "assetInfo": [], "modelInfo": [{"shortName": name, "modelUrl": ""} for name in sorted(known)]}

    def _asks_for_a_key(self) -> bool:
        """Whether backends take requests but list no models to the health checks, which have no key: a client's key then reaches one."""
        core, now = self._core, self._core.loop.time()
        taking = [backend for backend in core.backends if backend.takes(now)]
        return bool(taking) and all(backend.models is None for backend in taking)

    def _models(self, close: bool, head: bool) -> bytes:
        """The models of all backends that take requests, each name once, as the health checks last read them."""
        core, now = self._core, self._core.loop.time()
        lists = [backend.models for backend in core.backends if backend.takes(now) and backend.models is not None]
        if not lists:
            core.refused[503] += 1
            return refusal(503, "no backend lists its models at the moment", close=close, head=head)
        found = {name: one for models in lists for name, one in models.items()}
        return document(200, {"object": "list", "data": list(found.values())}, close=close, head=head)


TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Counts(Collector):
    """The counts of a gateway as metric families."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def collect(self) -> Iterator[Metric]:
        """Everything, at this moment."""
        core, now, cut = self._core, self._core.loop.time(), 0
        requests = CounterMetricFamily(
            "tonnage_gateway_requests", "Requests to backends, by how they ended.", labels=["backend", "outcome"]
        )
        connects = CounterMetricFamily("tonnage_gateway_connects", "Connections opened to a backend.", labels=["backend"])
        up = GaugeMetricFamily("tonnage_gateway_up", "1 where a backend takes requests.", labels=["backend"])
        outstanding = GaugeMetricFamily("tonnage_gateway_outstanding_requests", "Requests at a backend now.", labels=["backend"])
        tokens = GaugeMetricFamily("tonnage_gateway_outstanding_tokens", "Their tokens still to come, estimated.", labels=["backend"])
        waits = HistogramMetricFamily(
            "tonnage_gateway_first_byte_seconds", "From a complete request to the first byte of its response.", labels=["backend"]
        )
        for backend in core.backends:
            cut += backend.outcomes["cut"]
            for outcome, count in backend.outcomes.items():
                requests.add_metric([backend.name, outcome], count)
            connects.add_metric([backend.name], backend.connects)
            up.add_metric([backend.name], float(backend.takes(now)))
            outstanding.add_metric([backend.name], backend.requests)
            tokens.add_metric([backend.name], backend.tokens)
            bounds = [*(str(bound) for bound in FIRST_BYTE), "+Inf"]
            waits.add_metric([backend.name], *(list(zip(bounds, map(float, accumulate(backend.waits)), strict=True)), backend.waited))
        refused = CounterMetricFamily("tonnage_gateway_refused", "Requests that the gateway answered with an error.", labels=["status"])
        for status, count in sorted(core.refused.items()):
            refused.add_metric([str(status)], count)
        policy = GaugeMetricFamily("tonnage_gateway_policy", "1 for the policy in use.", labels=["policy"])
        policy.add_metric([core.balancer.policy], 1)
        yield from (requests, connects, up, outstanding, tokens, refused, policy)
        yield CounterMetricFamily("tonnage_gateway_retries", "Requests sent to a second backend.", value=core.retries)
        yield CounterMetricFamily("tonnage_gateway_cut_streams", "Responses that broke off after their first byte.", value=cut)
        yield GaugeMetricFamily("tonnage_gateway_in_flight", "Requests that are being served.", value=core.in_flight)
        yield GaugeMetricFamily("tonnage_gateway_clients", "Connections of clients.", value=len(core.clients))
        yield waits


def text(core: Core) -> bytes:
    """All of it in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(Counts(core))
    return generate_latest(registry)


SWEEP_S = 0.25
BACKLOG = 4_096

OWN = 64  # Descriptors for what is neither a client nor a backend: health checks, logs, what Python itself holds

Ready = Callable[[int, Mapping[str, str]], None]
"""Takes the port once connections are taken there, and of each backend by its name what is wrong with it ("" for nothing)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A gateway that takes connections."""

    core: Core  # what its connections share
    port: int  # where it listens


def serve(settings: Settings, ready: Ready) -> None:
    """Serve until SIGINT or SIGTERM; running requests may go on for ``limits.drain_s``. Raises InputError: the port is taken."""
    import uvloop

    descriptors = more_descriptors()

    async def run() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        async with gateway(fitting(settings, descriptors)) as running:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stop.set)
            ready(running.port, {backend.name: backend.fault for backend in running.core.backends})
            await stop.wait()
            await drain(running.core)

    uvloop.run(run())


@asynccontextmanager
async def gateway(settings: Settings) -> AsyncIterator[Running]:
    """A gateway on the running loop while the block lasts; its backends were checked once. Raises InputError: the port is taken."""
    loop = asyncio.get_running_loop()
    with listening(settings.host, settings.port) as own:
        core = Core(settings, loop)
        paths, health = OwnPaths(core), Health(core)
        await health.begin()
        sweeping = loop.create_task(_sweep(core))
        server = await loop.create_server(lambda: Client(core, paths.answer), sock=own, backlog=BACKLOG)
        try:
            yield Running(core=core, port=own.getsockname()[1])
        finally:
            server.close()
            sweeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sweeping
            await health.end()
            core.close()
            await asyncio.sleep(0)


async def _sweep(core: Core) -> None:
    """End what has taken too long, a few times a second."""
    while True:
        await asyncio.sleep(SWEEP_S)
        core.sweep()


def listening(host: str, port: int) -> socket.socket:
    """A socket that takes connections. Raises InputError: the port is taken, or the address is none of this machine."""
    try:
        return socket.create_server((host, port), backlog=BACKLOG)
    except OSError as error:
        raise InputError(f"{option('port')}: cannot listen on {host}:{port} ({error.strerror}); choose another") from None


async def drain(core: Core) -> None:
    """Wait until no request runs, at most ``limits.drain_s`` seconds; readiness says meanwhile that the gateway is about to end."""
    core.draining = True
    until = core.loop.time() + core.limits.drain_s
    while core.in_flight and core.loop.time() < until:
        await asyncio.sleep(0.02)


def fitting(settings: Settings, descriptors: int) -> Settings:
    """The same with no more clients than leave a descriptor for every request's backend, of which those get a third at most."""
    limits = settings.limits
    backends = min(limits.in_flight, descriptors // 3)
    return replace(settings, limits=replace(limits, connections=min(limits.connections, max(descriptors - backends - OWN, 1))))

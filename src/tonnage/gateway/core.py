"""What the connections of one gateway share: its backends, its policy, its bounds, its counts."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from typing import TYPE_CHECKING, Protocol

from tonnage.gateway.access_log import AccessLog
from tonnage.gateway.backend import Backend
from tonnage.gateway.balancer import Balancer
from tonnage.gateway.fetch import fetch
from tonnage.gateway.keys import Keys
from tonnage.gateway.settings import Settings

if TYPE_CHECKING:
    from prometheus_client import Histogram

FIRST_BYTE = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of the buckets of the time to a response's first byte, in seconds."""


class Swept(Protocol):
    """A client's connection, as the sweep sees it."""

    deadline: float

    def expire(self) -> None:
        """Its deadline has passed."""

    def close(self) -> None:
        """End it at once."""

    def leave_if_idle(self) -> None:
        """End it if no request is under way."""


class Core:
    """Shared by all connections; every method runs on the loop's thread.

    Attributes:
        in_flight: requests that are being served.
        retries: second attempts on another backend.
        refused: requests that the gateway answered itself with an error, by status.
        clients: connections that are open.
        draining: whether the gateway is about to end.
        keys: who may ask.
        log: of requests that are over.
    """

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        """Nothing counted yet, no backend known to be up."""
        from prometheus_client import Histogram

        self.settings = settings
        self.limits = settings.limits
        self.loop = loop
        self.backends = [Backend(target, weight) for target, weight in settings.backends]
        self.balancer = Balancer(self.backends, settings.policy, settings.seed)
        encrypted = any(backend.target.tls for backend in self.backends)
        self._tls = settings.tls.backend_context() if encrypted else None
        self.in_flight = self.retries = 0
        self.refused: Counter[int] = Counter()
        self.keys = Keys(settings.keys, loop.time())
        self.log = AccessLog(settings.access_log)
        self.clients: set[Swept] = set()
        self.draining = False
        self.first_byte: Histogram = Histogram(
            "tonnage_gateway_first_byte_seconds",
            "From a complete request to the first byte of its response.",
            ["backend"],
            buckets=FIRST_BYTE,
            registry=None,
        )
        self.waits = [self.first_byte.labels(backend.name) for backend in self.backends]

    @property
    def ready(self) -> bool:
        """Whether some backend takes requests, and the gateway is not about to end."""
        now = self.loop.time()
        return not self.draining and any(backend.takes(now) for backend in self.backends)

    def tls_to(self, backend: Backend) -> ssl.SSLContext | None:
        """How a connection to a backend is encrypted; None where it is not."""
        return self._tls if backend.target.tls else None

    async def ask(self, backend: Backend, path: str) -> tuple[int, bytes]:
        """The status and body of a GET of the gateway's own, within the time of a health check.

        Raises:
            OSError: no connection, no answer in time, or none that is HTTP.
        """
        return await fetch(backend.target, path, self.limits.health_timeout_s, self.tls_to(backend))

    def sweep(self) -> None:
        """End what has taken too long; called a few times a second."""
        now, limits = self.loop.time(), self.limits
        self.log.flush()
        for client in [client for client in self.clients if client.deadline <= now]:
            client.expire()
        for backend in self.backends:
            backend.close_idle(now - limits.pooled_s)
            for upstream in list(backend.busy):
                if upstream.fresh or upstream.paused:
                    upstream.fresh = False
                    upstream.deadline = now + limits.idle_s
                elif upstream.deadline <= now:
                    upstream.fail("it took too long", again=False)

    def leave_idle(self) -> None:
        """End the connections of clients on which no request is under way."""
        for client in list(self.clients):
            client.leave_if_idle()

    def close(self) -> None:
        """End every connection at once."""
        for client in list(self.clients):
            client.close()
        for backend in self.backends:
            for upstream in [*backend.idle, *backend.busy]:
                upstream.close()
            backend.idle.clear()
        self.log.close()

"""What the connections of one gateway share: its backends, its policy, its bounds, its counts."""

from __future__ import annotations

import asyncio
import ssl
from typing import Protocol

from tonnage.gateway.access_log import AccessLog
from tonnage.gateway.backend import Backend
from tonnage.gateway.balancer import Balancer
from tonnage.gateway.counts import STATUSES, Counts, Place
from tonnage.gateway.fetch import fetch
from tonnage.gateway.keys import Keys
from tonnage.gateway.settings import Settings

HEDGED = 0.1
"""Share of the requests that may be hedged (Dean and Barroso, "The tail at scale", 2013, speak of a few per cent)."""


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
        counts: what is counted, and known, together with the other workers.
        clients: connections that are open.
        draining: whether the gateway is about to end.
        held: bytes of bodies that are held, those that still arrive among them.
        keys: who may ask.
        log: of requests that are over.
    """

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop, place: Place | None = None) -> None:
        """Begin with what the other workers have counted, if there are any; else nothing is counted and no backend known to be up."""
        self.settings = settings
        self.limits = settings.limits
        self.loop = loop
        self.counts = counts = Counts(len(settings.backends), len(settings.keys), place or Place())
        self.backends = [Backend(target, weight, counts, i) for i, (target, weight) in enumerate(settings.backends)]
        self.balancer = Balancer(self.backends, counts, settings.policy, settings.seed)
        encrypted = any(backend.target.tls for backend in self.backends)
        self._tls = settings.tls.backend_context() if encrypted else None
        self.keys = Keys(settings.keys, counts)
        self.log = AccessLog(settings.access_log)
        self.clients: set[Swept] = set()
        self.draining = False
        self.held = 0

    @property
    def in_flight(self) -> int:
        """Requests that this worker is serving."""
        return int(self.counts.in_flight.own(0))

    @property
    def full(self) -> bool:
        """Whether all workers together serve as many requests as they may."""
        return self.counts.in_flight.total(0) >= self.limits.in_flight

    @property
    def retries(self) -> int:
        """Second attempts of all workers on another backend, after the first had failed."""
        return int(self.counts.retries.total(0))

    @property
    def refused(self) -> dict[int, int]:
        """Requests that the workers answered themselves with an error, by status."""
        found = zip(STATUSES, self.counts.refused.totals(), strict=True)
        return {status: int(count) for status, count in found if count}

    @property
    def may_hedge(self) -> bool:
        """Whether few enough requests of this worker have been sent twice before they failed: an overload must not double itself."""
        return self.counts.hedges.own(0) < max(1.0, HEDGED * self.counts.started.own(0))

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

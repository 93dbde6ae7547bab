"""What the connections of one gateway share: its backends, its policy, its bounds, its counts."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Protocol

from tonnage.gateway.backend import Backend
from tonnage.gateway.balancer import Balancer
from tonnage.gateway.settings import Settings


class Swept(Protocol):
    """A client's connection, as the sweep sees it."""

    deadline: float

    def expire(self) -> None:
        """Its deadline has passed."""

    def close(self) -> None:
        """End it at once."""


class Core:
    """Shared by all connections; every method runs on the loop's thread.

    Attributes:
        clients: connections that are open.
        draining: whether the gateway is about to end.
        held: bytes of bodies that are held, including those that still arrive.
        in_flight: requests that are being served.
        retries: requests that went to a second backend.
        refused: requests that the gateway answered itself with an error, by status.
    """

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        """No backend is known to be up."""
        self.limits = settings.limits
        self.loop = loop
        self.backends = [Backend(target, weight) for target, weight in settings.backends]
        self.balancer = Balancer(self.backends, settings.policy, settings.seed)
        self.clients: set[Swept] = set()
        self.draining = False
        self.held = self.in_flight = self.retries = 0
        self.refused: Counter[int] = Counter()

    @property
    def ready(self) -> bool:
        """Whether some backend takes requests, and the gateway is not about to end."""
        now = self.loop.time()
        return not self.draining and any(backend.takes(now) for backend in self.backends)

    def sweep(self) -> None:
        """End what has taken too long; called a few times a second."""
        now, limits = self.loop.time(), self.limits
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

    def close(self) -> None:
        """End every connection at once."""
        for client in list(self.clients):
            client.close()
        for backend in self.backends:
            for upstream in [*backend.idle, *backend.busy]:
                upstream.close()
            backend.idle.clear()

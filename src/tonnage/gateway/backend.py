"""A backend: where it is, whether it takes requests, what it serves, the connections to it, and what became of its requests."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from tonnage.bench.connection import Target

if TYPE_CHECKING:
    from tonnage.gateway.upstream import Upstream

OUTCOMES = ("ok", "error", "cut", "failed", "retried", "cancelled")
"""How a request to a backend ends.

    ok          the response came whole
    error       it came whole and its status was 500 or more
    cut         it broke off after its first byte had been passed on
    failed      there was no response, and the client got an error
    retried     there was no response, and the request went to another backend
    cancelled   the client left first
"""

FIRST_BYTE = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of the buckets of the time to a response's first byte, in seconds; one more bucket has no bound."""


class Backend:
    """One backend; every method runs on the loop's thread.

    Attributes:
        name: host and port.
        weight: relative capacity.
        up: whether the last health checks passed.
        fault: what was wrong at the last check that failed; "" where it passed.
        kv_used: the share of its KV cache in use, as last scraped.
        requests, tokens: its requests that have not ended, and an estimate of their tokens still to come.
        connects: connections opened to it.
        outcomes: its requests by how they ended.
        waits, waited: responses that began within each bucket of ``FIRST_BYTE``, and the sum of their waits in seconds.
        busy: connections that carry a request now.
        idle: connections that can carry another one, the most recently used last.
        models: its list of models by name, each as the backend gives it; None until it has given one: it may serve any.
    """

    def __init__(self, target: Target, weight: float) -> None:
        """Not known to be up."""
        self.target = target
        self.name = target.authority
        self.authority = target.authority.encode()
        self.weight = weight
        self.up = False
        self.fault = ""
        self.kv_used = self.waited = 0.0
        self.requests = self.tokens = self.connects = 0
        self.outcomes = dict.fromkeys(OUTCOMES, 0)
        self.waits = [0] * (len(FIRST_BYTE) + 1)
        self.models: dict[str, object] | None = None
        self.busy: set[Upstream] = set()
        self.idle: list[Upstream] = []
        self._failures = 0
        self._avoided_until = 0.0

    def passed(self) -> None:
        """A health check has passed."""
        self.up, self._failures, self.fault = True, 0, ""

    def failed(self, fault: str, *, allowed: int) -> None:
        """A health check has failed; ``allowed`` of them in a row take the backend out, and its requests go elsewhere where they can."""
        self.fault = fault
        self._failures += 1
        if self._failures >= allowed and self.up:
            self.up = False
            for upstream in list(self.busy):
                upstream.withdraw()

    def avoid_until(self, moment: float) -> None:
        """Send it nothing before that moment of the loop's time: a connection has failed."""
        self._avoided_until = moment

    def takes(self, now: float) -> bool:
        """Whether it may be sent a request."""
        return self.up and now >= self._avoided_until

    def serves(self, model: str) -> bool:
        """Whether it serves a model by that name; "" is any."""
        return not model or self.models is None or model in self.models

    def answered(self, seconds: float) -> None:
        """A response has begun, so long after its request was complete."""
        self.waits[bisect_left(FIRST_BYTE, seconds)] += 1
        self.waited += seconds

    def pooled(self) -> Upstream | None:
        """An idle connection that is still open; None where there is none."""
        while self.idle:
            found = self.idle.pop()
            if found.usable:
                return found
        return None

    def close_idle(self, before: float) -> None:
        """Close the idle connections that have not been used since a moment."""
        stale = [upstream for upstream in self.idle if upstream.since < before]
        if stale:
            self.idle = [upstream for upstream in self.idle if upstream.since >= before]
            for upstream in stale:
                upstream.close()

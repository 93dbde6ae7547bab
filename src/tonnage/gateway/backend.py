"""A backend: where it is, whether it takes requests, what it has been sent, and the idle connections to it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tonnage.bench.wire.request import Target

if TYPE_CHECKING:
    from tonnage.gateway.upstream import Upstream

OUTCOMES = ("ok", "error", "cut", "failed", "retried", "cancelled")
"""How a request to a backend ends.

    ok          the response came whole
    error       it came whole and its status was 500 or more
    cut         it broke off after its first byte had been passed on
    failed      there was no response, and the client was told so
    retried     there was no response, and another attempt followed
    cancelled   the client left first
"""


class Backend:
    """One backend; every method runs on the loop's thread.

    Attributes:
        name: host and port.
        weight: relative capacity.
        up: whether the last health checks passed.
        open_until: the loop's time before which it gets no request, because a connection failed.
        fault: what was wrong when it was last asked and did not pass; "" where it passed.
        busy: connections that carry a request now.
        idle: connections that can carry another one, the one used last at the end.
        outcomes: requests by how they ended.
        models: the names that it lists; None as long as it has listed none, so that it may serve any.
    """

    def __init__(self, target: Target, weight: float) -> None:
        """Not known to be up."""
        self.target = target
        self.name = target.authority
        self.authority = target.authority.encode()
        self.weight = weight
        self.up = False
        self.open_until = 0.0
        self.failures = 0
        self.fault = ""
        self.connects = 0
        self.models: frozenset[str] | None = None
        self.busy: set[Upstream] = set()
        self.idle: list[Upstream] = []
        self.outcomes: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))

    def takes(self, now: float) -> bool:
        """Whether it may be sent a request."""
        return self.up and now >= self.open_until

    def serves(self, model: str) -> bool:
        """Whether it serves a model by that name; "" is any."""
        return not model or self.models is None or model in self.models

    def pooled(self) -> Upstream | None:
        """An idle connection that still stands; None where there is none."""
        while self.idle:
            found = self.idle.pop()
            if found.usable:
                return found
        return None

    def keep(self, upstream: Upstream) -> None:
        """Take a connection back for the next request."""
        self.idle.append(upstream)

    def close_idle(self, before: float) -> None:
        """Close the idle connections that have not been used since a moment."""
        stale = [upstream for upstream in self.idle if upstream.since < before]
        if stale:
            self.idle = [upstream for upstream in self.idle if upstream.since >= before]
            for upstream in stale:
                upstream.close()

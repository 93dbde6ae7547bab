"""A backend: where it is, whether it takes requests, what it serves, and the connections to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.bench.wire.request import Target
from tonnage.gateway.counts import Counts

if TYPE_CHECKING:
    from tonnage.gateway.upstream import Upstream


class Backend:
    """One backend; every method runs on the loop's thread.

    Attributes:
        name: host and port.
        weight: relative capacity.
        was_up: whether this worker has seen it up the last time it looked.
        fault: what was wrong when it was last asked and did not pass; "" where it passed.
        busy: connections that carry a request now.
        idle: connections that can carry another one, the one used last at the end.
        models: the names that it lists; None as long as it has listed none, so that it may serve any.
    """

    def __init__(self, target: Target, weight: float, counts: Counts, number: int) -> None:
        """Not known to be up, unless another worker knows it."""
        self.target = target
        self.name = target.authority
        self.authority = target.authority.encode()
        self.weight = weight
        self.was_up = False
        self.fault = ""
        self.models: frozenset[str] | None = None
        self.busy: set[Upstream] = set()
        self.idle: list[Upstream] = []
        self._counts, self._number = counts, number

    @property
    def up(self) -> bool:
        """Whether the last health checks passed."""
        return self._counts.up[self._number] > 0

    def passed(self) -> None:
        """A health check has passed."""
        self._counts.up[self._number], self._counts.failures[self._number], self.fault = 1.0, 0.0, ""

    def failed(self, fault: str, *, allowed: int) -> None:
        """A health check has not; so many in a row take the backend out."""
        self.fault = fault
        self._counts.failures[self._number] += 1
        if self._counts.failures[self._number] >= allowed:
            self._counts.up[self._number] = 0.0

    def avoid_until(self, moment: float) -> None:
        """Send it nothing before that moment of the loop's time: a connection has failed."""
        self._counts.open_until[self._number] = moment

    def takes(self, now: float) -> bool:
        """Whether it may be sent a request."""
        return self._counts.up[self._number] > 0 and now >= self._counts.open_until[self._number]

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

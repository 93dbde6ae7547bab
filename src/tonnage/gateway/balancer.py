"""Which backend gets a request: one of the simulator's routers, over what the gateway knows."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tonnage.gateway.backend import Backend
from tonnage.gateway.counts import Counts
from tonnage.gateway.prefixes import Prefixes
from tonnage.gateway.request import Request
from tonnage.simulator.router import ROUTERS, View, memory_of
from tonnage.simulator.router import Request as Seen


class Balancer:
    """A policy, and the lists that it reads.

    What is outstanding at each backend, and how full its KV cache is, is known for all workers together. What the policy itself keeps
    (whose turn it is, and which prefixes were sent where) is this worker's own.
    """

    def __init__(self, backends: Sequence[Backend], counts: Counts, policy: str, seed: int = 0) -> None:
        """Begin where the counts are."""
        count = len(backends)
        self._backends, self._counts = backends, counts
        self._route = ROUTERS[policy]
        self._memory = memory_of(count, seed)
        self._memory.last[0] = (count - 1 + counts.place.worker) % count
        self._prefixes = Prefixes() if policy == "prefix-aware" else None
        self._by_session = policy == "session"
        self._number = counts.place.worker
        self._available = [0] * count
        self._matched = [0] * count
        self._requests, self._tokens = [0.0] * count, [0.0] * count
        weights = [one.weight for one in backends]
        self.policy = policy
        self._view = View(self._available, self._requests, self._tokens, counts.kv_used, self._matched, weights)  # type: ignore[arg-type] # whole numbers, as floats

    @property
    def requests(self) -> list[float]:
        """Of each backend, requests that were sent there and have not ended."""
        return self._counts.requests.totals()

    @property
    def tokens(self) -> list[float]:
        """Of each backend, an estimate of their tokens that are still to come."""
        return self._counts.tokens.totals()

    @property
    def kv_used(self) -> list[float]:
        """Of each backend, the share of its KV cache in use as last scraped."""
        return list(self._counts.kv_used)

    def choose(self, request: Request, now: float, tried: Collection[int] = (), model: str = "") -> int:
        """The number of the backend that gets a request; -1 where none takes any.

        Args:
            request: it.
            now: the loop's time.
            tried: backends that have failed it.
            model: that it must serve; "" for any.
        """
        self._requests[:], self._tokens[:] = self._counts.requests.totals(), self._counts.tokens.totals()
        for i, backend in enumerate(self._backends):
            self._available[i] = backend.takes(now) and i not in tried and backend.serves(model)
        blocks = self._prefixes.blocks(request.body) if self._prefixes else []
        if self._prefixes:
            self._prefixes.match(blocks, self._matched)
        seen = Seen(self._number, request.session if self._by_session else -1, request.prompt_tokens)
        chosen = self._route(self._view, seen, self._memory)
        self._number += self._counts.place.workers
        if self._prefixes and chosen >= 0:
            self._prefixes.sent(blocks, chosen)
        return chosen

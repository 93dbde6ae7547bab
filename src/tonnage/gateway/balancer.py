"""Which backend gets a request: one of the simulator's routers, over what the gateway knows."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tonnage.gateway.backend import Backend
from tonnage.gateway.prefixes import Prefixes
from tonnage.gateway.request import Request
from tonnage.simulator.router import ROUTERS, View, memory_of
from tonnage.simulator.router import Request as Seen


class Balancer:
    """A policy, and the lists that it reads; the gateway keeps them up to date in place.

    Attributes:
        requests: of each backend, requests that were sent there and have not ended.
        tokens: of each backend, an estimate of their tokens that are still to come.
        kv_used: of each backend, the share of its KV cache in use as last scraped.
    """

    def __init__(self, backends: Sequence[Backend], policy: str, seed: int = 0) -> None:
        """Begin with idle backends."""
        count = len(backends)
        self._backends = backends
        self._route = ROUTERS[policy]
        self._memory = memory_of(count, seed)
        self._prefixes = Prefixes() if policy == "prefix-aware" else None
        self._by_session = policy == "session"
        self._number = 0
        self._available = [0] * count
        self._matched = [0] * count
        self.policy = policy
        self.requests = [0] * count
        self.tokens = [0] * count
        self.kv_used = [0.0] * count
        self._view = View(self._available, self.requests, self.tokens, self.kv_used, self._matched, [one.weight for one in backends])

    def choose(self, request: Request, now: float, tried: Collection[int] = (), model: str = "") -> int:
        """The number of the backend that gets a request; -1 where none takes any.

        Args:
            request: it.
            now: the loop's time.
            tried: backends that have failed it.
            model: that it must serve; "" for any.
        """
        for i, backend in enumerate(self._backends):
            self._available[i] = backend.takes(now) and i not in tried and backend.serves(model)
        blocks = self._prefixes.blocks(request.body) if self._prefixes else []
        if self._prefixes:
            self._prefixes.match(blocks, self._matched)
        seen = Seen(self._number, request.session if self._by_session else -1, request.prompt_tokens)
        chosen = self._route(self._view, seen, self._memory)
        self._number += 1
        if self._prefixes and chosen >= 0:
            self._prefixes.sent(blocks, chosen)
        return chosen

"""What the exact server does with a request, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Fault = Literal["none", "429", "500", "cut", "error", "hang", "close"]
FAULTS: tuple[Fault, ...] = ("none", "429", "500", "cut", "error", "hang", "close")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The schedule of every reply.

    Attributes:
        ttft_s: from the start of service to the first token.
        itl_s: between two tokens.
        tokens: output tokens of every reply; 0 for as many as the request asks for.
        tokens_per_event: how many of them one event carries; it is sent when the last of them is due.
        slots: requests in service at once, the others wait in order; 0 for no limit.
        freeze_at_s, freeze_s: after so long from the first request the server does nothing at all for so long.
        fault: what happens to every ``fault_every``-th request: a 429 or 500, a stream cut off in the middle, an error
            event in the middle, no answer ever, or a connection closed without one.
        fault_every: 0 for never.
    """

    ttft_s: float = 0.05
    itl_s: float = 0.01
    tokens: int = 0
    tokens_per_event: int = 1
    slots: int = 0
    freeze_at_s: float = 0.0
    freeze_s: float = 0.0
    fault: Fault = "none"
    fault_every: int = 0

    def service_s(self, tokens: int) -> float:
        """Seconds of service of a reply of ``tokens`` tokens."""
        return self.ttft_s + max(tokens - 1, 0) * self.itl_s

    def capacity_rps(self, tokens: int) -> float:
        """Requests per second that it can serve for ever; infinite without ``slots``."""
        return self.slots / self.service_s(tokens) if self.slots else float("inf")

    def sends(self, tokens: int) -> list[tuple[float, int]]:
        """When each event leaves, in seconds from the start of service, and how many tokens it carries."""
        sizes = [min(self.tokens_per_event, tokens - start) for start in range(0, tokens, self.tokens_per_event)]
        found, sent = [], 0
        for size in sizes:
            sent += size
            found.append((self.service_s(sent), size))
        return found

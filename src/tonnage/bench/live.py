"""A run as it goes: rate, requests in flight and percentiles over the latest requests, for a terminal or a page."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tonnage.bench.reply import COMPLETED

if TYPE_CHECKING:
    from tonnage.bench.client import Client
    from tonnage.bench.conductor import Conductor, TalkConductor
    from tonnage.bench.recorder import TokenTimes
    from tonnage.bench.reply import Exchange

KEPT = 1_000
"""Requests that the percentiles are over: the latest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A run at one moment; None where nothing is known yet."""

    sent: int  # and in_flight, failed: requests
    in_flight: int
    failed: int
    requests_per_second: float | None  # completed
    ttft_s: tuple[float, float] | None  # and tpot_s: p50 and p95 over the latest requests
    tpot_s: tuple[float, float] | None
    left_s: float | None  # seconds until the end, by the clock or by the share that is done
    elapsed_s: float  # seconds since the beginning


class Live:
    """Looks on at a run; the run's loop only adds numbers to it."""

    def __init__(self) -> None:
        self._ttft: deque[int] = deque(maxlen=KEPT)
        self._tpot: deque[float] = deque(maxlen=KEPT)
        self._ends: deque[int] = deque(maxlen=KEPT)
        self._failed = 0
        self._conductor: Conductor | TalkConductor | None = None

    def begin(self, conductor: Conductor | TalkConductor, client: Client) -> None:
        """Begin to look on."""
        self._conductor = conductor

    def seen(self, exchange: Exchange, times: TokenTimes) -> None:
        """Add one request."""
        if exchange.outcome != COMPLETED or not times.times_ns:
            self._failed += exchange.outcome != COMPLETED
            return
        first, last = times.times_ns[0], times.times_ns[-1]
        self._ttft.append(first - exchange.due_ns)
        if times.tokens > 1:
            self._tpot.append((last - first) / (times.tokens - 1))
        self._ends.append(last)

    def end(self) -> None:
        """The run is over."""

    def reading(self) -> Reading | None:
        """The run as it is now; None before it begins."""
        conductor = self._conductor
        if conductor is None:
            return None
        ends = list(self._ends)
        span = (ends[-1] - ends[0]) / 1e9 if len(ends) > 1 else 0.0
        gone = (time.monotonic_ns() - conductor.start_ns) / 1e9
        load = conductor.load
        left = max(load.seconds - gone, 0.0) if load.seconds != float("inf") else None
        if left is None and conductor.over:
            left = gone / conductor.over * (len(load) - conductor.over)
        return Reading(
            sent=conductor.sent,
            in_flight=conductor.sent - conductor.over,
            failed=self._failed,
            requests_per_second=(len(ends) - 1) / span if span > 0 else None,
            ttft_s=_percentiles(self._ttft),
            tpot_s=_percentiles(self._tpot),
            left_s=left,
            elapsed_s=gone,
        )


def _percentiles(values: deque[int] | deque[float]) -> tuple[float, float] | None:
    found = sorted(values)
    if not found:
        return None
    low, high = (found[int(share * (len(found) - 1))] / 1e9 for share in (0.5, 0.95))
    return low, high

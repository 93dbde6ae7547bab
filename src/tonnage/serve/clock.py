"""The time of a simulation on the clock on the wall."""

from __future__ import annotations

import time
from collections.abc import Callable

PS_PER_NS = 1_000


class WallClock:
    """Simulated picoseconds since the start of a server; ``speed`` of them pass in one picosecond on the wall.

    Attributes:
        speed: how many times as fast as the wall's the simulated time runs.
    """

    def __init__(self, speed: float = 1.0, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        """Start at simulated time 0.

        Args:
            speed: above 0.
            now_ns: nanoseconds of a monotonic clock.
        """
        self.speed = speed
        self._now_ns = now_ns
        self._start_ns = now_ns()

    def now(self) -> int:
        """Simulated picoseconds."""
        return self.at(self._now_ns())

    def at(self, moment_ns: int) -> int:
        """The simulated picoseconds of a moment of the monotonic clock."""
        return int((moment_ns - self._start_ns) * PS_PER_NS * self.speed)

    def moment_ns(self, at: int) -> int:
        """The first nanosecond of the monotonic clock at which simulated time has reached ``at``."""
        moment = self._start_ns + int(at / (PS_PER_NS * self.speed))
        while self.at(moment) < at:
            moment += 1
        return moment

    def late_s(self, at: int) -> float:
        """Seconds on the wall since simulated time was ``at``."""
        return (self.now() - at) / 1e12 / self.speed

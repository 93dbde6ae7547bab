"""The time of a simulation on the clock on the wall."""

from __future__ import annotations

import bisect
import math
import time
from collections.abc import Callable, Sequence

PS_PER_NS = 1_000
NS_PER_S = 1_000_000_000


class WallClock:
    """Simulated picoseconds since the start of a server; ``speed`` of them pass in one picosecond on the wall.

    Attributes:
        speed: how many times as fast as the wall's the simulated time runs, where no change slows it.
    """

    def __init__(self, speed: float = 1.0, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        """Start at simulated time 0, by nanoseconds of a monotonic clock."""
        self.speed = speed
        self._now_ns = now_ns
        self._from_ns, self._from_ps, self._pace = [now_ns()], [0], [PS_PER_NS * speed]

    def change(self, changes: Sequence[tuple[float, float]]) -> None:
        """Change the pace from now on, in place of changes to come: (seconds from now, factor by which time is slower), in order."""
        start = self._now_ns()
        part = bisect.bisect_right(self._from_ns, start)
        del self._from_ns[part:], self._from_ps[part:], self._pace[part:]
        for seconds, factor in changes:
            moment = start + round(seconds * NS_PER_S)
            self._from_ps.append(self.at(moment))
            self._from_ns.append(moment)
            self._pace.append(0.0 if math.isinf(factor) else PS_PER_NS * self.speed / factor)

    def now(self) -> int:
        """Simulated picoseconds."""
        return self.at(self._now_ns())

    def at(self, moment_ns: int) -> int:
        """The simulated picoseconds of a moment of the monotonic clock."""
        part = max(bisect.bisect_right(self._from_ns, moment_ns) - 1, 0)
        return self._from_ps[part] + int((moment_ns - self._from_ns[part]) * self._pace[part])

    def moment_ns(self, at: int) -> int:
        """The first nanosecond of the monotonic clock at which simulated time has reached ``at``.

        A time that is never reached, because the clock stands still for ever, is a year away.
        """
        part = max(bisect.bisect_left(self._from_ps, at) - 1, 0)
        if not self._pace[part]:
            return self._from_ns[part] + 366 * 86_400 * NS_PER_S
        moment = self._from_ns[part] + int((at - self._from_ps[part]) / self._pace[part])
        while self.at(moment) < at:
            moment += 1
        return moment

    def late_s(self, at: int) -> float:
        """Seconds on the wall since simulated time was ``at``."""
        return (self._now_ns() - self.moment_ns(at)) / NS_PER_S

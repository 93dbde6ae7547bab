"""Whether the client keeps up: how late its loop turns, and how much of a core it takes, all through a run."""

from __future__ import annotations

import asyncio
import time
from array import array

from tonnage.bench.alarm import Alarm

BEAT_NS = 10_000_000
SLICE_NS = 1_000_000_000


class Heartbeat:
    """Wakes every 10 ms on a fixed schedule and notes how late it was woken.

    A piece of a reply that comes while the loop is busy waits just as long to be read. Its stamp is the kernel's, unless the next
    piece of its stream comes meanwhile, whose stamp it then shares; where there are no such stamps, this lateness is a sample of the
    error of every stamp.

    Attributes:
        lateness_ns: one value each beat.
        cpu: share of a core that this process took, second by second.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.lateness_ns = array("q")
        self.cpu = array("d")
        self._alarm = Alarm(loop, self._beat)
        self._next = time.monotonic_ns() + BEAT_NS
        self._began = self._slice = time.monotonic_ns()
        self._cpu = self._cpu_began = time.process_time_ns()
        self._alarm.set(self._next)

    def _beat(self) -> None:
        now = time.monotonic_ns()
        late = now - self._next
        self.lateness_ns.append(late)
        self._next += BEAT_NS
        while self._next <= now:
            # A beat that was slept through was late too, by so much less.
            self.lateness_ns.append(now - self._next)
            self._next += BEAT_NS
        if now - self._slice >= SLICE_NS:
            used = time.process_time_ns()
            self.cpu.append((used - self._cpu) / (now - self._slice))
            self._slice, self._cpu = now, used
        self._alarm.set(self._next)

    def stop(self) -> float:
        """Beat no more; the share of a core over the whole time."""
        self._alarm.close()
        seconds = time.monotonic_ns() - self._began
        return (time.process_time_ns() - self._cpu_began) / max(seconds, 1)

"""A wake-up call at a moment of the monotonic clock, to some tens of microseconds.

Event loops wait in whole milliseconds (libuv's timers), which would move every request of an open
loop and make pairs of them coincide. Linux has timers that are file descriptors, with nanoseconds;
elsewhere the loop's own timer is in.

The heartbeat shows by it whether the client keeps up: how late its loop turns, and how much of a
core it takes, all through a run.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import time
from array import array
from collections.abc import Callable

_CLOCK_MONOTONIC = 1
_NONBLOCK_CLOEXEC = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)
_ABSOLUTE = 1


class _Spec(ctypes.Structure):
    """``struct itimerspec``: no interval, and the moment."""

    _fields_ = (
        ("every_s", ctypes.c_long),
        ("every_ns", ctypes.c_long),
        ("s", ctypes.c_long),
        ("ns", ctypes.c_long),
    )


class Alarm:
    """Calls ``ring`` once for each ``set``, not before its moment; a later ``set`` replaces an
    earlier one.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None
        self._descriptor = -1
        self._spec = _Spec(0, 0, 0, 0)
        if sys.platform == "linux":
            self._c = ctypes.CDLL(None, use_errno=True)
            self._descriptor = self._c.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC)
        if self._descriptor >= 0:
            loop.add_reader(self._descriptor, self._rung)

    def set(self, moment_ns: int) -> None:
        """Ring at a moment of ``time.monotonic_ns``; at once, but not from inside this call, where
        it has passed.
        """
        if self._descriptor >= 0:
            self._spec.s, self._spec.ns = divmod(max(moment_ns, 1), 1_000_000_000)
            self._c.timerfd_settime(self._descriptor, _ABSOLUTE, ctypes.byref(self._spec), None)
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._loop.call_later(
            max(0, moment_ns - time.monotonic_ns()) / 1e9, self._ring
        )

    def close(self) -> None:
        """Never ring again."""
        if self._handle is not None:
            self._handle.cancel()
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _rung(self) -> None:
        try:
            os.read(self._descriptor, 8)
        except BlockingIOError:
            return
        self._ring()


BEAT_NS = 10_000_000
SLICE_NS = 1_000_000_000


class Heartbeat:
    """Wakes every 10 ms on a fixed schedule and notes how late it was woken.

    A piece of a reply that comes while the loop is busy waits just as long to be read. Its stamp is
    the kernel's, unless the next piece of its stream comes meanwhile, whose stamp it then shares;
    where there are no such stamps, this lateness is a sample of the error of every stamp.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.lateness_ns = array("q")  # one value each beat
        self.cpu = array("d")  # share of a core that this process took, second by second
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
        """Stop, and return the share of a core that the process used while it ran."""
        self._alarm.close()
        seconds = time.monotonic_ns() - self._began
        return (time.process_time_ns() - self._cpu_began) / max(seconds, 1)

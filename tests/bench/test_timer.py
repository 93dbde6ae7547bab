"""Alarms ring in time, and never before."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from tests.bench.records import MS
from tonnage.bench.timer import Alarm, Heartbeat

if TYPE_CHECKING:
    import pytest


def test_an_alarm_rings_in_time_and_never_before() -> None:
    """Three rounds at most: a machine that does other things delays a round, and an alarm that is
    late itself is late in all of them."""
    assert any(median_delay_ns() < 3e6 for _ in range(3))


def median_delay_ns() -> float:
    """How long after its moment an alarm rings, which is never before."""
    late: list[int] = []

    async def ring() -> None:
        loop = asyncio.get_running_loop()
        rung = asyncio.Event()
        alarm = Alarm(loop, rung.set)
        for _ in range(40):
            moment = time.monotonic_ns() + 1_300_000
            alarm.set(moment)
            await rung.wait()
            rung.clear()
            late.append(time.monotonic_ns() - moment)
        alarm.close()

    asyncio.run(ring())
    assert min(late) >= 0
    return float(np.median(late))


class Loop:
    """A loop whose timers and readers are noted."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def add_reader(self, descriptor: int, ring: Callable[[], None]) -> None:
        self.calls.append(("reads", descriptor))

    def remove_reader(self, descriptor: int) -> None:
        self.calls.append(("reads no more", descriptor))

    def call_later(self, seconds: float, ring: Callable[[], None]) -> SimpleNamespace:
        self.calls.append(("later", seconds))
        return SimpleNamespace(cancel=lambda: self.calls.append(("cancelled", seconds)))


def test_an_alarm_that_is_read_before_its_moment_does_not_ring_and_is_closed_once() -> None:
    loop, rung = Loop(), list[int]()
    alarm = Alarm(loop, lambda: rung.append(1))  # type: ignore[arg-type]
    alarm.set(time.monotonic_ns() + 10**12)
    alarm._rung()
    assert not rung
    alarm.set(0)  # has passed, and is no order to stop
    deadline = time.monotonic() + 5
    while not rung and time.monotonic() < deadline:
        alarm._rung()
    assert rung == [1]
    alarm.close()
    alarm.close()
    [(reads, descriptor), *rest] = loop.calls
    assert (reads, rest) == ("reads", [("reads no more", descriptor)])


def test_without_such_descriptors_the_loop_s_own_timer_rings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 5_000_000_000
    monkeypatch.setattr("tonnage.bench.timer.time", SimpleNamespace(monotonic_ns=lambda: now))
    monkeypatch.setattr("tonnage.bench.timer.sys", SimpleNamespace(platform="darwin"))
    loop = Loop()
    alarm = Alarm(loop, lambda: None)  # type: ignore[arg-type]
    alarm.close()  # before it was set
    for moment in (now + 250_000_000, now - 1, now + 2_000_000_000):
        alarm.set(moment)
    alarm.close()
    assert loop.calls == [
        ("later", 0.25),
        ("cancelled", 0.25),
        ("later", 0.0),
        ("cancelled", 0.0),
        ("later", 2.0),
        ("cancelled", 2.0),
    ]


def test_a_heartbeat_notes_each_beat_that_was_late_or_slept_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beats are due every 10 ms from 10 ms on; a second of wall time is a value of CPU."""
    clock, sets = SimpleNamespace(now=0, cpu=0, closed=0), list[int]()
    alarm = SimpleNamespace(set=sets.append, close=lambda: setattr(clock, "closed", 1))
    monkeypatch.setattr("tonnage.bench.timer.Alarm", lambda loop, ring: alarm)
    monkeypatch.setattr(
        "tonnage.bench.timer.time",
        SimpleNamespace(monotonic_ns=lambda: clock.now, process_time_ns=lambda: clock.cpu),
    )
    heart = Heartbeat(None)  # type: ignore[arg-type]
    for now_ms, cpu_ms in ((10, 1), (21, 2), (45, 5), (60, 6), (999, 400), (1_001, 500)):
        clock.now, clock.cpu = now_ms * MS, cpu_ms * MS
        heart._beat()
    late = [value / MS for value in heart.lateness_ns]
    # 21 is 1 late; 45 is 15 late and 5 after the beat of 40; 60 is 10 late and on time for its own
    assert late[:6] == [0, 1, 15, 5, 10, 0]
    assert late[6:-1] == [999 - due for due in range(70, 1_000, 10)]
    assert late[-1] == 1
    assert [moment / MS for moment in sets] == [10, 20, 30, 50, 70, 1_000, 1_010]
    assert list(heart.cpu) == [500 / 1_001]
    clock.now, clock.cpu = 2_001 * MS, 900 * MS
    heart._beat()
    assert list(heart.cpu) == [500 / 1_001, 400 / 1_000]
    assert (heart.stop(), clock.closed) == (900 / 2_001, 1)
    clock.now = clock.cpu = 0
    assert Heartbeat(None).stop() == 0  # type: ignore[arg-type]

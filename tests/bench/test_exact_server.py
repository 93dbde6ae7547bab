"""The exact server: every event leaves at its moment."""

from __future__ import annotations

import heapq
import itertools
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.bench.records import MS
from tonnage.bench.exact_replies import Request
from tonnage.bench.exact_server import ExactServer, Schedule


@pytest.mark.live
def test_the_exact_server_ends_with_the_process_that_started_it() -> None:
    serving = "with exact_server(Schedule()) as url: print(url, flush=True); time.sleep(60)"
    program = f"import time; from tonnage.bench.exact_server import *\n{serving}"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    host, port = process.stdout.readline().strip().removeprefix("http://").split(":")
    socket.create_connection((host, int(port))).close()
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 10
    refused = False
    while not refused and time.monotonic() < deadline:
        with socket.socket() as attempt:
            refused = attempt.connect_ex((host, int(port))) != 0
        time.sleep(0.05)
    assert refused


class Clock:
    """Time that passes only from one moment with something to do to the next."""

    def __init__(self) -> None:
        self.now = 1_000 * MS
        self._plans: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def at(self, moment: int, what: Callable[[], None]) -> None:
        heapq.heappush(self._plans, (moment, next(self._order), what))

    def run(self) -> None:
        while self._plans:
            moment, _, what = heapq.heappop(self._plans)
            self.now = max(self.now, moment)
            what()


class Server:
    """The exact server on such a clock: ``sends`` holds by request the moments at which it wrote,
    after the clock's start."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, schedule: Schedule) -> None:
        clock = self.clock = Clock()
        self.start = clock.now

        class Alarm:
            def __init__(self, loop: Any, ring: Callable[[], None]) -> None:
                self._ring, self._set = ring, itertools.count()
                self._latest = -1

            def set(self, moment: int) -> None:
                mine = self._latest = next(self._set)
                clock.at(moment, lambda: self._ring() if mine == self._latest else None)

            def close(self) -> None:
                self._latest = -1

        monkeypatch.setattr("tonnage.bench.exact_server.Alarm", Alarm)
        monkeypatch.setattr(
            "tonnage.bench.exact_server.time",
            SimpleNamespace(monotonic_ns=lambda: clock.now, sleep=None),
        )
        idle = SimpleNamespace(add_reader=lambda *_: None, remove_reader=lambda *_: None)
        self.server = ExactServer(idle, schedule)  # type: ignore[arg-type]
        self.sends: dict[int, list[int]] = {}

    def request(self, number: int, tokens: int, after_ns: int) -> None:
        moments = self.sends.setdefault(number, [])
        connection = SimpleNamespace(
            open=True, send=lambda data: moments.append(self.clock.now - self.start)
        )
        asked = Request(
            kind="chat", number=number, model="m", streaming=True, tokens=tokens, prompt=1
        )
        self.clock.at(
            self.start + after_ns, lambda: self.server._take(asked, connection, self.clock.now)
        )  # type: ignore[arg-type]

    def run(self) -> None:
        self.clock.run()
        self.server.close()


@pytest.mark.parametrize("apart_ms", [0, 3, 28, 131])
def test_every_event_of_eight_streams_leaves_at_its_moment(
    apart_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(monkeypatch, Schedule(ttft_s=0.05, itl_s=0.01))
    for number in range(8):
        server.request(number, 12 - number, number * apart_ms * MS)
    server.run()
    for number, moments in server.sends.items():
        begun = number * apart_ms * MS
        assert moments == [begun + 50 * MS + k * 10 * MS for k in range(12 - number)], number
    assert {
        row[0]: (row[2] - server.start, row[3] - server.start) for row in server.server.log
    } == {number: (moments[0], moments[-1]) for number, moments in server.sends.items()}


def test_a_shorter_wait_that_begins_later_is_not_held_up_by_a_longer_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server(monkeypatch, Schedule(ttft_s=0.04, itl_s=0.1))
    server.request(0, 3, 0)  # at 40, 140 and 240 ms
    server.request(1, 2, 60 * MS)  # at 100 and 200 ms
    server.run()
    assert server.sends == {0: [40 * MS, 140 * MS, 240 * MS], 1: [100 * MS, 200 * MS]}


def test_requests_beyond_the_slots_begin_when_one_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, Schedule(ttft_s=0.05, itl_s=0.01, slots=3))
    for number in range(8):
        server.request(number, 6, number * MS)
    server.run()
    begun = [0, 1, 2, 100, 101, 102, 200, 201]  # each takes 50 + 5 × 10 ms
    assert server.sends == {
        n: [(b + 50 + 10 * k) * MS for k in range(6)] for n, b in enumerate(begun)
    }


def test_the_exact_server_s_own_arithmetic() -> None:
    schedule = Schedule(ttft_s=0.05, itl_s=0.01, tokens_per_event=4, slots=3)
    assert schedule.service_s(11) == pytest.approx(0.15)
    assert schedule.sends(10) == [
        (pytest.approx(0.08), 4),
        (pytest.approx(0.12), 4),
        (pytest.approx(0.14), 2),
    ]

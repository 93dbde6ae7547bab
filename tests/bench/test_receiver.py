"""The receiver: stamps are the kernel's, however late it reads, and it reads in rounds without
losing the order of pieces."""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct
import time
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.bench.live import question, run
from tests.bench.pairs import in_loop
from tonnage.bench import receiver as module
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.bench.receiver import LEAST_PAUSE_NS, MOST_PAUSE_NS, Receiver
from tonnage.spec.workload import ClosedLoop


class Kept:
    """A connection that keeps what it is given, and never asks to be looked at."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket, self.receive = connected, connected.recvmsg
        self.pieces: list[tuple[int, bytes]] = []

    def received(self, ns: int, data: bytes) -> bool:
        self.pieces.append((ns, data))
        return False


def late_stamps(pair: tuple[socket.socket, socket.socket]) -> tuple[list[int], list[int]]:
    """When three pieces were sent while the loop was busy, and their stamps; each is sent once the
    one before it was read."""
    client, server = pair
    kept, sent = Kept(client), []

    async def play(made: Receiver) -> None:
        made.add(kept)  # all that a receiver needs of a connection
        for _ in range(4):
            await asyncio.sleep(0.02)  # the kernel begins to stamp a moment after it was asked to
            sent.append(time.monotonic_ns())
            server.send(b"x")
            time.sleep(0.06)
        await asyncio.sleep(0.02)

    in_loop(play)
    return sent[1:], [ns for ns, _ in kept.pieces][1:]


def test_a_piece_that_is_read_late_has_the_time_at_which_it_came(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    sent, stamps = late_stamps(pair)
    lags = [(stamp - moment) / 1e6 for moment, stamp in zip(sent, stamps, strict=True)]
    assert all(-1 < lag < 50 for lag in lags)
    assert min(lags) < 5


def test_a_wall_clock_that_was_set_moves_no_stamp_out_of_its_round(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, jumps = time.time_ns, itertools.cycle([3_600_000_000_000, -3_600_000_000_000])
    monkeypatch.setattr(module.time, "time_ns", lambda: real() + next(jumps))
    sent, stamps = late_stamps(pair)
    assert all(
        moment <= stamp <= moment + 2_000_000_000
        for moment, stamp in zip(sent, stamps, strict=True)
    )
    assert sorted(stamps) == stamps


def test_a_peer_that_has_gone_is_an_empty_piece(pair: tuple[socket.socket, socket.socket]) -> None:
    client, server = pair
    kept = Kept(client)

    async def play(made: Receiver) -> None:
        made.add(kept)  # as above
        server.send(b"last")
        server.close()
        await asyncio.sleep(0.02)
        made.remove(kept)  # as above

    in_loop(play)
    assert [data for _, data in kept.pieces][:2] == [b"last", b""]


@pytest.mark.parametrize(
    ("took_ms", "events", "pause"),
    [(5.0, 64, 0), (100.0, 1, 1_000_000), (700.0, 64, MOST_PAUSE_NS), (60_000.0, 100_000, 120_000)],
)
def test_the_pause_is_short_beside_requests_and_their_pieces(
    took_ms: float, events: int, pause: int
) -> None:
    exchange: Any = SimpleNamespace(
        sent_ns=0, reply=SimpleNamespace(last_ns=round(took_ms * 1e6), times=range(events))
    )

    async def play(made: Receiver) -> None:
        made._stamped = True
        for _ in range(200):
            made.learn(exchange)
        assert made._pause_ns == pytest.approx(pause, abs=LEAST_PAUSE_NS / 5)

    in_loop(play)


def test_prompts_larger_than_a_socket_takes_at_once_arrive(tmp_path: Path) -> None:
    with exact_server(Schedule(ttft_s=0.01, itl_s=0.002), seconds=60) as url:
        found = run(
            url,
            tmp_path / "run",
            question(ClosedLoop(concurrency=2), isl="800000", osl="3", requests=3),
        )
    assert found.outcomes == {"": 3}
    assert (np.diff(found.requests.first_token_ns) != 0).all()


def test_the_pause_follows_by_an_eighth_and_only_where_pieces_are_stamped() -> None:
    """A request of 40 ms after 100 ms: a hundredth of it is 400 µs, the fifth of a piece's part of
    64 is 125 µs."""

    def over(sent_ms: float, ended_ms: float, events: int) -> Any:
        reply = SimpleNamespace(last_ns=round(ended_ms * 1e6), times=range(events))
        return SimpleNamespace(sent_ns=round(sent_ms * 1e6), reply=reply)

    async def play(made: Receiver) -> None:
        made.learn(over(100, 140, 1))
        assert made._pause_ns == 0
        made._stamped = True
        made.learn(over(100, 140, 0))
        assert made._pause_ns == 400_000 // 8
        made.learn(over(100, 140, 64))
        assert made._pause_ns == 50_000 + (125_000 - 50_000) // 8
        before = made._pause_ns
        made.learn(over(100, 100, 1))
        made.learn(over(100, 90, 1))
        assert made._pause_ns == before

    in_loop(play)


@pytest.mark.parametrize(
    ("pause_ns", "since_ns", "paused"),
    [
        (0, 0, False),
        (99_999, 50_000, False),
        (100_000, 50_000, True),
        (200_000, 199_999, True),
        (200_000, 200_000, False),
    ],
)
def test_pieces_that_follow_one_another_quickly_are_read_after_a_pause(
    pause_ns: int, since_ns: int, paused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rings: list[int] = []

    async def play(made: Receiver) -> None:
        made._alarm.close()
        made._alarm = SimpleNamespace(set=rings.append, close=lambda: None)  # type: ignore[assignment]
        monkeypatch.setattr("tonnage.bench.receiver._clock", lambda: 10**9)
        made._pause_ns, made._last_ns, made._empty = pause_ns, 10**9 - since_ns, 7
        made._round()
        assert made._waiting == (not paused)
        assert rings == [10**9 + pause_ns] * paused
        assert made._empty == (0 if paused else 7)
        # after a pause: another one, up to two rounds without a piece, and then the next is waited for
        for empty, again in ((0, True), (1, True), (2, False)):
            rings.clear()
            made._waiting, made._empty = False, empty
            if not again or not paused:
                made._loop.remove_reader(made._epoll.fileno())  # type: ignore[union-attr]
            made._tick()
            assert (rings == [10**9 + pause_ns]) == (again and pause_ns >= LEAST_PAUSE_NS)
            assert made._waiting == (not again or pause_ns < LEAST_PAUSE_NS)
            assert made._empty == empty + 1

    in_loop(play)


class Wire:
    """A connection whose pieces are scripted: bytes with the stamp of the wall clock, or none, or an error."""

    def __init__(self, *pieces: Any, looks: bool = False) -> None:
        self.pieces, self.looks = list(pieces), looks
        self.kept: list[tuple[int, bytes]] = []
        self.looked = 0
        self.socket: Any = None

    def receive(self, size: int, extra: int) -> Any:
        assert (size, extra) == (16_384, 64)
        if not self.pieces:
            raise BlockingIOError
        piece = self.pieces.pop(0)
        if isinstance(piece, BaseException):
            raise piece
        data, wall_ns = piece
        stamp = [(1, 35, struct.pack("qq", *divmod(wall_ns, 10**9)))] if wall_ns is not None else []
        return data, stamp, 0, None

    def received(self, ns: int, data: bytes) -> bool:
        self.kept.append((ns, data))
        return self.looks

    def look(self) -> None:
        self.looked += 1


def read(monkeypatch: pytest.MonkeyPatch, wire: Wire, **state: Any) -> Any:
    """Read a connection in a round that began at 5,000,000,000 ns, on a wall clock that is 10 s ahead; a moment later it is 20 ns on."""
    moments = iter(range(5_000_000_000, 6_000_000_000, 20))
    monkeypatch.setattr("tonnage.bench.receiver._clock", lambda: next(moments))
    monkeypatch.setattr(
        "tonnage.bench.receiver.time", SimpleNamespace(time_ns=lambda: 15_000_000_000)
    )
    made = object.__new__(Receiver)
    made._connections = {3: wire}
    made._earliest_ns, made._stamped, made._looks = 4_998_000_000, False, deque()
    for name, value in state.items():
        setattr(made, name, value)
    made._read([(9, 1), (3, 1)], 4_999_999_000)
    return made


@pytest.mark.parametrize(
    ("wall_ns", "stamp"),
    [
        (14_999_999_500, 4_999_999_500),
        (14_998_000_000, 4_998_000_000),  # as early as the round before, less a millisecond
        (14_997_999_999, 5_000_000_040),  # earlier: the clock was set
        (15_000_000_020, 5_000_000_020),  # now
        (15_000_000_030, 5_000_000_030),  # after the reading of the clocks
        (15_000_000_900, 5_000_000_040),  # later than that: the clock was set
        (None, 5_000_000_020),
    ],
)
def test_the_stamp_of_a_piece_is_the_kernel_s_within_its_round(
    wall_ns: int | None, stamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = Wire((b"ab", wall_ns))
    made = read(monkeypatch, wire)
    assert wire.kept == [(stamp, b"ab")]
    assert made._stamped == (wall_ns is not None)
    assert made._earliest_ns == 4_999_999_000 - 1_000_000
    assert list(made._looks) == []


def test_a_socket_is_read_until_it_has_no_more_and_not_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    full = bytes(16_384)
    wire = Wire((full, None), (full, None), (b"x", None), (b"later", None), looks=True)
    made = read(monkeypatch, wire)
    assert [len(data) for _, data in wire.kept] == [16_384, 16_384, 1]
    assert list(made._looks) == [wire] * 3
    wire = Wire(*[(full, None)] * 99)
    read(monkeypatch, wire)
    assert len(wire.kept) == 64
    for end in (BlockingIOError(), InterruptedError()):
        wire = Wire((full, None), end)
        read(monkeypatch, wire)
        assert len(wire.kept) == 1
    wire = Wire((full, None), ConnectionResetError())
    read(monkeypatch, wire)
    assert [len(data) for _, data in wire.kept] == [16_384, 0]


def test_clocks_are_read_again_where_the_process_was_held_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moments = iter([0, 20_000, 100_000, 119_999])
    monkeypatch.setattr("tonnage.bench.receiver._clock", lambda: next(moments))
    monkeypatch.setattr("tonnage.bench.receiver.time", SimpleNamespace(time_ns=lambda: 700_000))
    assert module._now_and_offset() == (119_999, 100_000 - 700_000)


class Later:
    """A loop whose calls are noted."""

    def __init__(self) -> None:
        self.log: list[Any] = []

    def add_reader(self, descriptor: int, ring: Any, *words: Any) -> None:
        self.log.append(("reads", descriptor, *words))

    def remove_reader(self, descriptor: int) -> None:
        self.log.append(("reads no more", descriptor))

    def call_soon(self, what: Any) -> None:
        self.log.append(what)


def test_replies_are_parsed_for_a_millisecond_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes 400 µs: three, then the sockets, then the rest; meanwhile no other round parses."""
    clock = SimpleNamespace(now=0)
    monkeypatch.setattr("tonnage.bench.receiver._clock", lambda: clock.now)
    made: Any = object.__new__(Receiver)
    polls: list[int] = []
    loop = made._loop = Later()
    made._later, made._epoll, made._connections, made._looks = False, None, {}, deque()
    wires = [Wire() for _ in range(5)]
    for wire in wires:
        wire.look = lambda wire=wire: (  # type: ignore[method-assign]
            setattr(wire, "looked", 1),
            setattr(clock, "now", clock.now + 400_000),
        )
    made._looks.extend(wires)
    assert made._poll() is False
    assert [wire.looked for wire in wires] == [1, 1, 1, 0, 0]
    assert (loop.log, made._later) == ([made._go_on], True)
    made._poll()
    assert [wire.looked for wire in wires] == [1, 1, 1, 0, 0]
    made._go_on()
    assert [wire.looked for wire in wires] == [1] * 5
    assert (made._later, len(loop.log), polls) == (False, 1, [])
    # none is left at the end of the time: nothing follows
    clock.now = 0
    wires[0].look = lambda: setattr(clock, "now", 10**9)  # type: ignore[method-assign]
    made._looks.append(wires[0])
    made._poll()
    assert (made._later, len(loop.log)) == (False, 1)


def test_a_round_reads_what_has_come_and_notes_when(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tonnage.bench.receiver._clock", lambda: 77)
    made: Any = object.__new__(Receiver)
    polled: list[Any] = []
    made._connections, made._looks, made._later, made._last_ns = {1: 0, 2: 0}, deque(), False, 5
    made._epoll = SimpleNamespace(poll=lambda *words: polled.append(words) or ready)
    made._read = lambda *words: polled.append(words)
    ready: list[Any] = []
    assert (made._poll(), made._last_ns) == (False, 5)
    ready = [(1, 1)]
    assert (made._poll(), made._last_ns) == (True, 77)
    assert polled == [(0, 3), (0, 3), ([(1, 1)], 77)]


@pytest.mark.parametrize("linux", [True, False])
def test_connections_are_read_from_their_adding_to_their_removal(
    linux: bool, pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not linux:
        monkeypatch.setattr("tonnage.bench.receiver.sys", SimpleNamespace(platform="darwin"))
    rung: list[str] = []
    alarm = SimpleNamespace(close=lambda: rung.append("closed"))
    monkeypatch.setattr("tonnage.bench.receiver.Alarm", lambda loop, ring: alarm)
    loop = Later()
    made = Receiver(loop)  # type: ignore[arg-type]
    assert made._waiting == linux
    wires = [Wire(), Wire()]
    for wire, connected in zip(wires, pair, strict=True):
        wire.socket = connected
        made.add(wire)
    numbers = [connected.fileno() for connected in pair]
    assert list(made._connections) == numbers
    if linux:
        assert made._epoll is not None
        mine = made._epoll.fileno()
        assert loop.log == [("reads", mine)]
        assert pair[0].getsockopt(socket.SOL_SOCKET, 35) == 1
        pair[1].send(b"x")
        made._epoll.poll(1)
        wires[0].pieces = [(b"x", None)]
        made._round()
        assert [data for _, data in wires[0].kept] == [b"x"]
    else:
        assert loop.log == [("reads", number, number) for number in numbers]
        wires[0].pieces = [(b"x", None)]
        wires[0].looks = True
        made._read_one(numbers[0])
        assert ([data for _, data in wires[0].kept], wires[0].looked) == ([b"x"], 1)
    made.remove(wires[0])
    made.remove(wires[0])
    assert list(made._connections) == numbers[1:]
    made._looks.append(wires[1])
    made.close()
    assert (made._connections, len(made._looks), rung, made._epoll) == ({}, 0, ["closed"], None)
    gone = [("reads no more", mine)] if linux else [("reads no more", n) for n in numbers]
    assert loop.log[-len(gone) :] == gone
    assert len(loop.log) == (2 if linux else 4)

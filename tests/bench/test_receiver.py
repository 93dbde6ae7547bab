"""The receiver: stamps are the kernel's, however late it reads, and it reads in rounds without
losing the order of pieces."""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
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

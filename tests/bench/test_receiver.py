"""The receiver: stamps are the kernel's, however late it reads, and it reads in rounds without
losing the order of pieces."""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import uvloop

from tests.bench.live import question, run
from tonnage.api.bench import prepare_bench, run_bench
from tonnage.bench import exact_replies
from tonnage.bench import receiver as module
from tonnage.bench.connection import Connection
from tonnage.bench.endpoints import find_endpoint
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.bench.receiver import LEAST_PAUSE_NS, MOST_PAUSE_NS, Receiver
from tonnage.bench.reply import Reply
from tonnage.bench.selftest import server_log
from tonnage.errors import InputError
from tonnage.results.store import read_run, read_tokens
from tonnage.spec.workload import ClosedLoop, OpenLoop


class Kept:
    """A connection that keeps what it is given, and never asks to be looked at."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket, self.receive = connected, connected.recvmsg
        self.pieces: list[tuple[int, bytes]] = []

    def received(self, ns: int, data: bytes) -> bool:
        self.pieces.append((ns, data))
        return False


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as client,
    ):
        server, _ = listening.accept()
        with server:
            client.setblocking(False)
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield client, server


def in_loop(play: Callable[[Receiver], Awaitable[None]]) -> None:
    async def main() -> None:
        made = Receiver(asyncio.get_running_loop())
        await play(made)
        made.close()

    uvloop.run(main())


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


def test_no_piece_is_earlier_than_the_one_before_it(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    async def play(made: Receiver) -> None:
        # nobody hears of it
        connection = Connection(asyncio.get_running_loop(), None, made, pair[0])
        for ns in (5, 3, 9):
            connection.received(ns, b"x")
        assert [ns for ns, _ in connection._pieces] == [5, 5, 9]
        connection.close()

    in_loop(play)


def test_a_connection_with_a_broken_reply_carries_no_other(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    failures: list[tuple[str, ...]] = []
    exchange: Any = SimpleNamespace(
        data=b"GET / HTTP/1.1\r\n\r\n",
        reply=Reply(find_endpoint("chat", model="m")),
        fail=lambda *words: failures.append(words),
    )
    usable: list[bool] = []

    async def play(made: Receiver) -> None:
        connection = Connection(
            asyncio.get_running_loop(), lambda done, _: usable.append(done.usable), made, pair[0]
        )
        connection.send(exchange)
        connection.received(time.monotonic_ns(), b"no reply of HTTP\r\n\r\n")
        connection.look()

    in_loop(play)
    assert [words[0] for words in failures] == ["broken reply"]
    assert usable == [False]
    assert pair[0].fileno() == -1  # closed


def test_an_exact_server_sends_in_order_what_its_client_takes_late(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    client, server = pair
    pieces = [bytes([65 + place]) * size for place, size in enumerate((9_000_000, 3, 70_000, 1))]
    received = bytearray()

    async def play() -> None:
        loop = asyncio.get_running_loop()
        server.setblocking(False)
        ended: list[object] = []
        connection = exact_replies.Connection(loop, server, lambda *_: None, ended.append)
        for piece in pieces:
            connection.send(piece)
        while len(received) < sum(map(len, pieces)):
            received.extend(await loop.sock_recv(client, 2**20))
        connection.close()
        assert ended == [connection]

    uvloop.run(asyncio.wait_for(play(), 20))
    assert received == b"".join(pieces)


def test_prompts_larger_than_a_socket_takes_at_once_arrive(tmp_path: Path) -> None:
    with exact_server(Schedule(ttft_s=0.01, itl_s=0.002), seconds=60) as url:
        found = run(
            url,
            tmp_path / "run",
            question(ClosedLoop(concurrency=2), isl="800000", osl="3", requests=3),
        )
    assert found.outcomes == {"": 3}
    assert (np.diff(found.requests.first_token_ns) != 0).all()


# Several client processes: one clock, one start, one record, and every request once.


def test_a_load_is_shared_out_without_loss() -> None:
    closed = question(ClosedLoop(concurrency=7), requests=20).draw()
    shares = [closed.of_worker(place, 3) for place in range(3)]
    assert [share.concurrency for share in shares] == [3, 2, 2]
    assert sum(map(len, shares)) == 20
    opened = question(OpenLoop(rate=90), requests=20).draw()
    shares = [opened.of_worker(place, 3) for place in range(3)]
    assert opened.due_ns is not None
    assert sorted(
        np.concatenate([share.due_ns for share in shares if share.due_ns is not None])
    ) == list(opened.due_ns)
    assert {share.rate for share in shares} == {30.0}


@pytest.mark.parametrize(
    "load",
    [
        pytest.param({"concurrency": 6}, id="closed"),
        pytest.param({"request_rate": 60}, id="open", marks=pytest.mark.live),
    ],
)
def test_two_processes_send_every_request_once_into_one_record(
    load: dict[str, int], tmp_path: Path
) -> None:
    with exact_server(
        Schedule(ttft_s=0.02, itl_s=0.004, fault="500", fault_every=10), seconds=60
    ) as url:
        asked = prepare_bench(
            url=url,
            model="m",
            isl=20,
            osl=6,
            request_count=60,
            workers=2,
            warmup_request_count=0,
            **load,
        )
        run = run_bench(asked, output=tmp_path / "run", selftest=False, provenance={})[0]
        numbers = server_log(url)[:, 0]
    found = read_run(tmp_path / "run").requests
    assert len(found) == 60
    assert sorted(numbers) == sorted(set(numbers))
    assert run.summary_json["errors"] == 6
    assert len(numbers) == 54
    assert (np.diff(found.due_ns) >= 0).all()
    assert int(found.gaps.sum()) == 54 * 5
    offsets, lengths = read_tokens(tmp_path / "run")
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    good = np.flatnonzero(found.status == 0)
    assert (offsets[starts[good]] == found.first_token_ns[good] - found.sent_ns[good]).all()
    assert run.run_json["client"]["workers"] == 2
    assert run.run_json["server_metrics"]


FULL_DISK = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (512, resource.RLIM_INFINITY))
"""


def test_figures_are_kept_where_the_disk_of_the_processes_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(FULL_DISK)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    with exact_server(Schedule(ttft_s=0.02, itl_s=0.004), seconds=60) as url:
        asked = prepare_bench(
            url=url, model="m", isl=20, osl=6, request_count=60, workers=2, concurrency=6
        )
        run = run_bench(asked, output=tmp_path / "run", selftest=False, provenance={})[0]
    assert (len(run.requests), run.summary.counted, int(run.requests.gaps.sum())) == (60, 60, 300)
    assert (np.diff(run.requests.due_ns) >= 0).all()
    assert "File too large); its figures are those above" in run.unwritten
    assert [path.name for path in tmp_path.iterdir()] == ["sitecustomize.py"]


def test_there_are_not_more_processes_than_clients() -> None:
    asked = prepare_bench(
        url="127.0.0.1:9", model="m", isl=1, osl=1, concurrency="2,8", request_count=9, workers=4
    )
    assert asked.setup.workers == 2
    with pytest.raises(InputError, match="workers"):
        prepare_bench(
            url="127.0.0.1:9", model="m", isl=1, osl=1, concurrency=2, request_count=9, workers=0
        )

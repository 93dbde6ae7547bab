"""Several workers: what they count and know together, and the processes that they are."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tests.gateway.fakes import Answer, Fake, asked, bounded, fine, get, post, silent, talk, until
from tests.gateway.test_admission import A, key
from tonnage import api
from tonnage.bench.exact.schedule import Schedule
from tonnage.bench.exact.serve import exact_server
from tonnage.cli.main import run
from tonnage.gateway.board import Board
from tonnage.gateway.counts import Place
from tonnage.gateway.keys import Allowance
from tonnage.gateway.server import Running, gateway
from tonnage.gateway.settings import Limits, Settings


@given(changes=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(-9, 9)), max_size=60))
def test_workers_add_up_and_only_their_own_present_ends_with_them(
    changes: list[tuple[int, int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("board") / "board"
    boards = [Board(8, path=path, worker=i, workers=3) for i in range(3)]
    seen, present = [board.tally(4) for board in boards], [board.tally(4, now=True) for board in boards]
    for worker, place, amount in changes:
        seen[worker].add(place, amount)
        present[worker].add(place, amount)
    sums = [sum(amount for _, at, amount in changes if at == place) for place in range(4)]
    for tally in (*seen, *present):
        assert tally.totals() == [tally.total(place) for place in range(4)] == sums
    again = Board(8, path=path, worker=1, workers=3)  # as a worker that was started again
    assert again.tally(4).totals() == sums
    left = [sum(amount for worker, at, amount in changes if at == place and worker != 1) for place in range(4)]
    assert again.tally(4, now=True).totals() == present[0].totals() == left


def test_a_board_gives_no_more_than_it_has(tmp_path: Path) -> None:
    board = Board(3, path=tmp_path / "board")
    board.tally(2)
    with pytest.raises(ValueError, match="3 numbers"):
        board.tally(2)
    board.shared(3)
    with pytest.raises(ValueError, match="shared"):
        board.shared(1)


@given(workers=st.integers(1, 4), asks=st.lists(st.tuples(st.floats(0, 20), st.integers(1, 300), st.integers(0, 3)), max_size=60))
def test_an_allowance_is_one_for_all_workers(workers: int, asks: list[tuple[float, int, int]]) -> None:
    cells = [0.0]
    theirs, alone = [Allowance(500, cells, 0) for _ in range(workers)], Allowance(500, [0.0], 0)
    now = 100.0
    for gap, amount, worker in asks:
        now += gap
        one = theirs[worker % workers]
        assert one.wait_s(amount, now) == alone.wait_s(amount, now)
        if not alone.wait_s(amount, now):
            one.take(amount, now)
            alone.take(amount, now)


@asynccontextmanager
async def workers_before(tmp_path: Path, *answers: Answer, **settings: object) -> AsyncIterator[tuple[list[Running], list[Fake]]]:
    """Two workers on one loop, each on a port of its own, so that a test chooses whom it asks."""
    fakes = [await Fake(answer).begin() for answer in answers]
    found = api.gateway_settings(backends=[fake.url for fake in fakes]).backends
    limits = Limits(health_s=0.2, health_timeout_s=0.3, in_flight=4)
    asked_for = Settings(backends=found, port=0, limits=limits, workers=2, **settings)
    async with AsyncExitStack() as stack:
        for fake in fakes:
            stack.push_async_callback(fake.end)
        places = [Place(worker=i, workers=2, board=tmp_path / "board") for i in range(2)]
        yield [await stack.enter_async_context(gateway(asked_for, place)) for place in places], fakes


def test_what_is_outstanding_is_known_to_all_workers(tmp_path: Path) -> None:
    async def test() -> None:
        async with workers_before(tmp_path, silent, silent) as ([one, other], fakes):
            async with talk(one) as first, talk(other) as second, talk(one) as third, talk(other) as fourth, talk(one) as fifth:
                for number, client in enumerate((first, second, third, fourth), start=1):
                    client.writer.write(post())
                    await until(lambda number=number: sum(len(fake.got) for fake in fakes) == number)
                    assert abs(len(fakes[0].got) - len(fakes[1].got)) == number % 2
                assert one.core.balancer.requests == other.core.balancer.requests == [2, 2]
                assert (one.core.in_flight, other.core.in_flight) == (2, 2)
                assert (await fifth.ask(post()))[0] == 429  # four at once are the limit of both together
            await until(lambda: one.core.balancer.requests == [0, 0])

    bounded(test())


def test_one_worker_s_health_checks_serve_all_and_all_take_their_requests_back(tmp_path: Path) -> None:
    async def test() -> None:
        async with workers_before(tmp_path, silent, fine, policy="round-robin") as (both, [frozen, _]):
            checks = frozen.connections
            await asyncio.sleep(1.0)
            assert 1 <= frozen.connections - checks <= 7  # one every 0.2 s: each worker alone would make as many
            async with talk(both[0]) as one, talk(both[1]) as other:
                one.writer.write(post(b"stuck"))
                await until(lambda: len(frozen.got) == 1)
                assert (await other.ask(post()))[0] == 200  # workers take their turns one apart
                other.writer.write(post(b"stuck too"))
                await until(lambda: len(frozen.got) == 2)
                frozen.frozen = True
                assert (await one.one())[0] == (await other.one())[0] == 200
            assert not any(running.core.backends[0].up for running in both)

    bounded(test())


def test_limits_of_a_key_and_metrics_are_those_of_all_workers(tmp_path: Path) -> None:
    async def test() -> None:
        keys = (key("a", "key-a", requests_per_minute=3),)
        async with workers_before(tmp_path, fine, keys=keys) as (both, _):
            got = [(await asked(both[i % 2], post(b"{}", "/v1/x", A)))[0] for i in range(5)]
            assert got == [200, 200, 200, 429, 429]
            for running in both:
                _, page = await asked(running, get("/metrics"))
                found = {
                    (sample.name, *sample.labels.values()): sample.value
                    for family in text_string_to_metric_families(page.decode())
                    for sample in family.samples
                }
                name = running.core.backends[0].name
                assert found["tonnage_gateway_requests_total", name, "ok"] == 3
                assert found["tonnage_gateway_key_requests_total", "no", "a"] == 2
                assert found["tonnage_gateway_refused_total", "429"] == 2
                assert found["tonnage_gateway_first_byte_seconds_count", name] == 3
                assert found[("tonnage_gateway_workers",)] == 2

    bounded(test())


def test_lines_of_several_workers_do_not_mix(tmp_path: Path) -> None:
    async def test() -> None:
        async with workers_before(tmp_path, fine, access_log=tmp_path / "access.log") as (both, _):
            for i in range(40):
                await asked(both[i % 2], post())
            (tmp_path / "access.log").rename(tmp_path / "old.log")
            await asyncio.sleep(0.6)
            assert (await asked(both[0], post()))[0] == (await asked(both[1], post()))[0] == 200
        lines = [*(tmp_path / "old.log").read_text().splitlines(), *(tmp_path / "access.log").read_text().splitlines()]
        assert [json.loads(line)["outcome"] for line in lines] == ["ok"] * 42
        assert len((tmp_path / "access.log").read_text().splitlines()) == 2

    bounded(test())


@pytest.mark.parametrize("count", ["0", "65"])
def test_a_number_of_workers_that_cannot_be_is_refused(count: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["gateway", "--backend", "a:1", "--workers", count]) == 2
    assert "--workers" in capsys.readouterr().err


def family(pid: int) -> set[int]:
    """The processes below one."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found: set[int] = set()
    while more := {one for one, parent in parents.items() if parent in {pid, *found}} - found:
        found |= more
    return found


def workers_of(pid: int) -> list[int]:
    """The workers of a gateway, as process ids."""
    return sorted(one for one in family(pid) if b"tonnage.gateway.worker" in _command(one) and b"guard.py" not in _command(one))


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def wait_until(true: Callable[[], bool], seconds: float = 15.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


@contextmanager
def command(*flags: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The gateway as a process, and its URL."""
    words = [sys.executable, "-m", "tonnage", "gateway", *flags]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stderr.readline() if process.stderr else ""
            found = re.search(r"http://127\.0\.0\.1:\d+", line)
            assert found, line
            yield process, found[0]
        finally:
            process.terminate()
            process.wait(timeout=20)


def status(url: str) -> int:
    data = json.dumps({"prompt": "a", "max_tokens": 2}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/completions", data), timeout=10) as answer:
        return int(answer.status)


def test_workers_share_a_port_and_end_with_their_supervisor(capsys: pytest.CaptureFixture[str]) -> None:
    with exact_server(Schedule(ttft_s=0.0, itl_s=0.001), seconds=60) as backend:
        with command("--backend", backend, "--port", "0", "--workers", "2") as (process, url):
            found = family(process.pid)
            assert len(workers_of(process.pid)) == 2
            assert [status(url) for _ in range(20)] == [200] * 20
            assert run(["gateway", "--backend", backend, "--port", url.rpartition(":")[2], "--workers", "2"]) == 2
            assert "cannot listen" in capsys.readouterr().err
        assert process.returncode == 0
        assert not any(_command(pid) for pid in found)


@pytest.mark.engines
def test_a_killed_worker_is_started_again_and_none_is_left_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    config = tmp_path / "gateway.yaml"
    with exact_server(Schedule(ttft_s=0.0, itl_s=0.001), seconds=120) as backend:
        config.write_text(f"backends: [{backend}]\nport: 0\nworkers: 2\n")
        with command("--config", str(config)) as (process, url):
            assert process.stderr is not None
            assert [status(url) for _ in range(10)] == [200] * 10
            one, other = workers_of(process.pid)
            os.kill(one, signal.SIGKILL)
            wait_until(lambda: len(workers_of(process.pid)) == 2 and one not in workers_of(process.pid))
            assert "ended with exit code" in process.stderr.readline()
            wait_until(lambda: _count(url, "tonnage_gateway_requests_total") == 10)  # what the killed one had counted is not lost
            config.write_text(f"backends: [{backend}, 127.0.0.1:1]\nport: 0\nworkers: 2\n")
            process.send_signal(signal.SIGHUP)
            assert "settings read again" in process.stderr.readline()
            time.sleep(1)
            names = {len(re.findall("tonnage_gateway_up{", _page(url))) for _ in range(20)}
            assert names == {2}
            found = family(process.pid)
            process.kill()
            process.wait()
            wait_until(lambda: not any(_command(pid) for pid in found))
            assert other in found


def _page(url: str) -> str:
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def _count(url: str, name: str) -> float:
    families = text_string_to_metric_families(_page(url))
    return sum(sample.value for family in families for sample in family.samples if sample.name == name)

"""Workers that are processes: one is killed, or frozen, under load."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from tests.gateway.failing import CLIENTS, fail_one
from tests.gateway.hostile import gateway_process, withstand
from tests.gateway.test_bounds import SMUGGLED
from tonnage import api
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.gateway.server import fitting, more_descriptors


@pytest.mark.engines
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_a_worker_fails_under_load_and_every_request_ends_and_is_counted_once(number: signal.Signals, tmp_path: Path) -> None:
    found = fail_one(tmp_path, number)
    assert set(found.seen) <= {"whole", "cut"}  # nothing hung, no error: what had not begun was answered elsewhere
    assert 0 < found.seen["cut"] <= CLIENTS
    assert found.seen.total() == found.asked
    assert (found.counted["ok"], found.counted["cut"]) == (found.seen["whole"], found.seen["cut"])
    assert found.counted["retried"] == found.retries > 0
    assert found.left == found.counted["failed"] == found.counted["cancelled"] == 0
    assert found.back_s <= 3


@pytest.mark.engines
def test_ten_thousand_idle_connections_and_hostile_ones_take_bounded_memory_and_leave_nothing() -> None:
    with exact_server(Schedule(ttft_s=0.02, itl_s=0.005), seconds=300) as url, gateway_process("--backend", url) as (pid, port):
        found = asyncio.run(withstand(pid, port, 10_000))
    assert found.idle == min(10_000, fitting(api.gateway_settings(backends=[url]), more_descriptors()).limits.connections)
    assert found.during.memory_mb - found.before.memory_mb < 100  # less than 10 kB each
    assert found.after.memory_mb < found.during.memory_mb + 50
    assert found.after.descriptors <= found.before.descriptors + 5
    assert (set(found.dripping), set(found.oversize), set(found.smuggled)) == ({408}, {413, 414, 431}, {400})
    assert found.smuggled.total() == len(SMUGGLED)
    assert found.left == found.reached == 0


def test_clients_and_backends_share_the_limit_of_open_files() -> None:
    settings = api.gateway_settings(backends=["a:1"])
    assert fitting(settings, 1_000_000).limits.connections == settings.limits.connections == 20_000
    assert fitting(settings, 20_000).limits.connections == 20_000 - 1_024 - 64
    assert fitting(settings, 1_024).limits.connections == 1_024 - 341 - 64
    assert fitting(settings, 20).limits.connections == 1

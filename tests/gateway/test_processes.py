"""Workers that are processes: one is killed, or frozen, under load."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.gateway.failing import CLIENTS, fail_one


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

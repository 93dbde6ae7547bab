"""Queries of a Prometheus server, by a stand-in that answers a day of requests a second;
``test_real_prometheus.py`` asks a real one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.watch.prometheus_server import Stand
from tests.workload.prometheus_history import MONDAY
from tonnage.api.compare import read_history
from tonnage.watch.drift import Server

DAY = 86_400.0


def test_a_day_is_read_by_the_hour(
    server: Stand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tonnage.watch.drift.time.time", lambda: MONDAY + 2 * DAY + 100)
    found = read_history(
        server.url.replace("//", "//me:pass@"),
        range="1d",
        select='model_name="llama"',
        save=tmp_path / "history.jsonl",
    )
    assert found.at(0).isoformat() == "2026-10-27T00:00:00+00:00"
    assert found.source == server.url  # without the password
    assert found.requests == pytest.approx(np.full(24, 3_600.0))
    assert (found.fine_s, set(found.instances), found.mean("isl"), found.mean("osl")) == (
        60.0,
        {2.0},
        600,
        40,
    )
    assert {header for _, header in server.asked} == {"Basic bWU6cGFzcw=="}
    assert all('model_name="llama"' in query for query, _ in server.asked)
    again = read_history(str(tmp_path / "history.jsonl"))
    assert again.requests == pytest.approx(found.requests)


def test_more_points_than_an_answer_holds_are_asked_for_in_parts(server: Stand) -> None:
    answers = Server(server.url, select='model_name="llama"').read(
        10 * DAY, until=MONDAY + 20 * DAY
    )
    sizes = [len(one["data"]["result"][0]["values"]) for one in answers[:2]]
    assert sizes == [10_001, 4_401]

"""Recorded sessions on instances."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tonnage.formats.sessions import read_sessions
from tonnage.sizing.loads.session_load import (
    clients_at,
    session_fleet,
    session_requests,
    session_traces,
)
from tonnage.spec.workload import ClosedLoop


def test_a_run_begins_in_the_midst_of_sessions(sessions):
    recorded = read_sessions(sessions, "trace")
    trace, rows = recorded.under_way(40, 20, seed=5)
    firsts, pause = trace.firsts(), trace.pause_ps
    assert len(firsts) == 60
    assert (trace.due_ps[firsts[:40]] >= 0).all()
    assert (np.delete(trace.due_ps, firsts[:40]) == -1).all()
    assert (
        len(set(rows[firsts[:40]] - recorded.starts[recorded.session[rows[firsts[:40]]]])) > 10
    ), "anywhere in them"
    assert (trace.isl == recorded.isl[rows]).all()
    graph = trace.graph()
    assert ((graph.waits > 0) == (pause >= 0)).all()
    assert (np.bincount(graph.rows, minlength=len(trace)) == graph.waits).all()


def test_a_closed_loop_of_sessions_keeps_as_many_at_once(sessions):
    """Simulated step by step by the reference as by the kernel; at any time of the run 6 sessions
    are under way."""
    from tests.simulator.kernel.compared import both
    from tests.simulator.reference.test_prefix_cache import ENGINE, STEP

    recorded = read_sessions(sessions, "trace")
    trace, _ = recorded.under_way(6, 6, seed=1)
    requests, _, _ = both(trace, STEP, replace(ENGINE, tokens_per_block=64), 2_000)
    session = trace.session()[requests.row]
    begins = np.array([requests.due_ns[session == one].min() for one in range(session.max() + 1)])
    ends = np.array(
        [requests.last_token_ns[session == one].max() for one in range(session.max() + 1)]
    )
    for at in np.linspace(begins[:6].max() + 1, begins.max() - 1, 50):
        assert ((begins <= at) & (ends > at)).sum() <= 6
    assert ClosedLoop(concurrency=6).concurrency == trace.concurrency


RECORDED = SimpleNamespace(pace=0.5)


def test_how_many_sessions_a_rate_stands_for_and_how_many_requests_their_run_has() -> None:
    assert [clients_at(RECORDED, rate) for rate in (0.01, 0.5, 3.2, 3.4)] == [1, 1, 6, 7]
    few = [session_requests(RECORDED, 0.5, length) for length in (0, 1, 2)]
    assert few == [1_500, 3_000, 12_000]
    many = [session_requests(RECORDED, 50.0, length) for length in (0, 1, 2)]
    assert many == [3_000, 6_000, 24_000], "30, 60 or 150 of each of a hundred sessions"


@pytest.mark.parametrize(
    ("rate", "instances", "sessions_of_each"),
    [
        (1.0, 3, [1, 1, 1]),  # one of each instance, though two would do
        (3.5, 2, [4, 3]),
        (3.5, 1, [7]),
        (9.0, 12, [2] * 4 + [1] * 4),  # 6 of 12 have one more: 4 of the 8 that are simulated
        (6.5, 12, [2] + [1] * 7),
        (8.5, 16, [2] + [1] * 7),
    ],
)
def test_sessions_of_a_fleet_are_shared_out_evenly(
    rate: float, instances: int, sessions_of_each: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "tonnage.sizing.loads.session_load.pooled",
        lambda parts: [row for part in parts for row in part],
    )
    calls: list[tuple[int, int]] = []

    def run(clients: int, place: int) -> list[int]:
        calls.append((clients, place))
        return [place] * clients

    record, requests = session_fleet(run, RECORDED, rate, instances)
    assert calls == [(clients, place) for place, clients in enumerate(sessions_of_each)]
    assert len(record) == requests == sum(sessions_of_each)


def test_the_sessions_of_each_attention_rank() -> None:
    calls: list[tuple[int, int, int]] = []

    def under_way(share: int, further: int, seed: int) -> tuple[str, str]:
        calls.append((share, further, seed))
        return f"trace {share}", f"rows {share}"

    recorded = SimpleNamespace(pace=0.5, requests=10.0, under_way=under_way)
    traces, rows, window_ps = session_traces(SimpleNamespace(ranks=3), recorded, 5, 100, 7)
    assert (traces, rows) == (["trace 2", "trace 2", "trace 1"], ["rows 2", "rows 2", "rows 1"])
    assert calls == [(2, 9, 21), (2, 9, 22), (1, 9, 23)]  # 1.3 * 100 / 10 / 3 are 5, and 4
    assert window_ps == 40 * 10**12
    calls.clear()
    session_traces(SimpleNamespace(ranks=8), recorded, 2, 100, 7)
    assert [share for share, _, _ in calls] == [1, 1]

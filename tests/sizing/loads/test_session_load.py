"""Recorded sessions on instances."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tonnage.formats.sessions import read_sessions
from tonnage.results.requests import COMPLETED, FAILED, Turns
from tonnage.sizing.loads.session_load import (
    MOST_TOGETHER,
    WARM,
    alone_run,
    clients_at,
    session_fleet,
    session_requests,
    session_run,
    session_traces,
    with_turns,
)
from tonnage.spec.workload import ClosedLoop, Trace


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
    assert len(sessions_of_each) == min(instances, MOST_TOGETHER)


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


@dataclass(frozen=True, kw_only=True)
class Record:
    """What is read of a run, a row for each request."""

    row: Any
    instance: Any = None
    status: Any = None
    due_ns: Any = None
    last_token_ns: Any = None
    turns: Any = None

    def __len__(self) -> int:
        return len(self.row)

    def some(self, rows: slice) -> Any:
        return self.row[rows]


def turns_of(pause_ps: list[int]) -> Trace:
    """Requests of sessions, each of which begins with a pause of -1."""
    nothing = np.zeros(len(pause_ps), np.int64)
    return Trace(
        due_ps=nothing,
        isl=nothing,
        osl=nothing,
        concurrency=1,
        turnaround_ps=0,
        pause_ps=np.array(pause_ps),
    )


TWO_SESSIONS = SimpleNamespace(isl=np.zeros(5), starts=np.array([0, 2, 5]))
"""Recorded sessions of two and of three requests."""


def test_each_request_of_a_run_knows_its_session() -> None:
    """One rank has the first session whole and the second from its second request on; another has
    the first two requests of the second. What a session under way sends first, and what failed,
    does not compare with the time of a lone answer."""
    record = Record(
        row=np.array([2, 0, 0, 1, 1, 3]),
        instance=np.array([0, 1, 0, 0, 1, -1]),
        status=np.array([COMPLETED] * 5 + [FAILED]),
    )
    traces = [turns_of([-1, 5, -1, 3]), turns_of([-1, 2])]
    rows = [np.array([0, 1, 3, 4]), np.array([2, 3])]
    turns = with_turns(record, traces, rows, TWO_SESSIONS, np.arange(10, 15)).turns
    assert isinstance(turns, Turns)
    assert turns.session.tolist() == [1, 2, 0, 0, 2, 1]
    assert turns.first.tolist() == [False, True, True, False, False, False]
    assert turns.alone_ns.tolist() == [-1, 12, 10, 11, 13, -1]
    with pytest.raises(ValueError, match="without the rows"):
        with_turns(Record(row=None), [], [], TWO_SESSIONS, np.arange(5))


def test_sessions_one_after_another_say_how_long_a_lone_answer_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At least a nanosecond each, at the recorded row of each request."""

    class Recorded(SimpleNamespace):
        def __len__(self) -> int:
            return 2

        def chosen(self, sessions: Any, *, concurrency: int) -> Trace:
            assert (sessions.tolist(), concurrency) == ([0, 1], 1)
            return turns_of([-1, 5, -1, 3, 4])

    record = Record(
        row=np.array([1, 0, 2, 4, 3]),
        instance=np.zeros(5, np.int64),
        status=np.full(5, COMPLETED),
        due_ns=np.array([10, 20, 30, 40, 50]),
        last_token_ns=np.array([37, 45, 30, 144, 156]),
    )
    module = "tonnage.sizing.loads.session_load"
    runs: list[Any] = []
    monkeypatch.setattr(
        f"{module}.run_instance", lambda spec, traces: (runs.append((spec, traces)) or record, None)
    )
    turns = alone_run("engine", Recorded(**vars(TWO_SESSIONS))).turns
    assert [(spec, len(traces)) for spec, traces in runs] == [("engine", 1)]
    assert turns.alone_ns.tolist() == [27, 25, 1, 104, 106]
    assert turns.session.tolist() == [0, 0, 1, 1, 1]
    assert turns.first.tolist() == [False, True, True, False, False]
    record = replace(record, row=None)
    with pytest.raises(ValueError, match="without the rows"):
        alone_run("engine", Recorded(**vars(TWO_SESSIONS)))


def test_the_first_fifth_of_a_run_of_sessions_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = "tonnage.sizing.loads.session_load"
    calls: list[Any] = []

    def traces(*args: Any) -> Any:
        calls.append(args)
        return "traces", "rows", 77

    def run(spec: Any, traces: Any, *, window_ps: int) -> Any:
        calls.append((spec, traces, window_ps))
        return Record(row=np.arange(14)), "steps"

    monkeypatch.setattr(f"{module}.session_traces", traces)
    monkeypatch.setattr(f"{module}.run_instance", run)
    monkeypatch.setattr(f"{module}.with_turns", lambda record, *args: calls.append(args) or record)
    rows = session_run("engine", "recorded", 3, 100, seed=9, alone_ns="alone")
    assert rows.tolist() == list(range(int(14 * WARM), 14)) == list(range(2, 14))
    assert calls == [
        ("engine", "recorded", 3, 100, 9),
        ("engine", "traces", 77),
        ("traces", "rows", "recorded", "alone"),
    ]

"""Recorded sessions on instances."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tonnage.formats.sessions import read_sessions
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

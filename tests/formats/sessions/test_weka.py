"""Sessions of WEKA's traces of agents."""

from __future__ import annotations

import numpy as np

from tests.spec.session_files import ENGINE, NS, STEP, request, session, write
from tests.strategies import MS
from tonnage.formats.sessions import read_sessions
from tonnage.simulator.reference import run_reference


def test_a_sub_agent_begins_behind_its_parents_request_and_runs_beside_the_next(tmp_path):
    sub = {
        "t": 5.0,
        "type": "subagent",
        "requests": [
            request(0.0, 64, [9]),
            request(4.0, 128, [9, 10], 2.0, input_types=["tool_result"]),
        ],
    }
    path = write(
        tmp_path / "s.jsonl",
        session(
            request(0.0, 100, [1]), sub, request(12.0, 200, [1, 2, 3], 10.0, input_types=["text"])
        ),
    )
    found = read_sessions(path, "trace")
    assert found.isl.tolist() == [100, 64, 128, 200]
    assert found.agent.tolist() == [0, 1, 1, 0]
    assert found.tool.tolist() == [False, False, True, False]
    assert found.pause_ns.tolist() == [-1, 3 * NS, 2 * NS, 10 * NS]
    assert found.follows.rows.tolist() == [1, 3, 2]
    assert found.found_tokens().tolist() == [0, 0, 64, 64]
    trace = found.chosen(np.zeros(1, np.int64), concurrency=1)
    jobs = run_reference(trace, STEP, ENGINE, 100).jobs
    ends = {job.id: job.last_token for job in jobs}
    assert {job.id: job.due for job in jobs} == {
        0: 0,
        1: ends[0] + 3000 * MS,
        2: ends[1] + 2000 * MS,
        3: ends[0] + 10_000 * MS,
    }

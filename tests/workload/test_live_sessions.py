"""A few recorded sessions that stand for all of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.spec.session_files import ANY, ENGINE, request, session, write
from tests.strategies import ROOFLINE
from tonnage.formats.sessions import read_sessions
from tonnage.perf.step import StepModel
from tonnage.simulator.kernel import run
from tonnage.spec.workload import OpenLoop, Workload
from tonnage.workload.live_sessions import chosen_sessions, live_sessions, written

WEKA = (
    Path(__file__).parents[3]
    / "shared"
    / "data"
    / "traces"
    / "agentic"
    / "claude_code_150.jsonl.gz"
)


@pytest.mark.accuracy
@pytest.mark.skipif(not WEKA.exists(), reason="the sessions are not part of the project")
def test_a_few_sessions_stand_for_all_in_a_simulation_too(tmp_path):
    recorded = read_sessions(str(WEKA), "trace")
    chosen = chosen_sessions(recorded)
    assert len(chosen.recorded) < 40
    assert max(chosen.errors.values()) <= 0.05
    path = tmp_path / "few.jsonl"
    path.write_text(written(chosen.recorded))
    again = read_sessions(str(path), "trace")
    for name in ("isl", "osl", "pause_ns", "tool", "agent"):
        assert (getattr(again, name) == getattr(chosen.recorded, name)).all()
    assert again.found_tokens().tolist() == chosen.recorded.found_tokens().tolist()
    step = StepModel(coefficients=ROOFLINE, frontend_s=0.0)
    means = []
    for one in (recorded, again):
        workload = Workload(
            isl=ANY, osl=ANY, arrivals=OpenLoop(rate=0.05), requests=len(recorded.isl), recorded=one
        )
        found = run(workload.trace(1), step, ENGINE, 3_000_000)
        ttft = found.first_token_ns - found.due_ns
        e2e = (found.last_token_ns - found.due_ns).mean()
        means.append(
            [
                found.isl.mean(),
                found.cached_tokens.sum() / found.isl.sum(),
                e2e,
                np.median(ttft),
                ttft.mean(),
            ]
        )
    off = np.abs(np.array(means[1]) / means[0] - 1)
    print("prompt, hit rate, E2E, TTFT's median and mean off by", [f"{each:.1%}" for each in off])
    assert off[:4].max() < 0.10
    assert off[4] < 0.25, "a few prompts of half a million tokens decide the mean"


def test_a_files_sessions_are_described(tmp_path):
    path = write(
        tmp_path / "s.jsonl",
        session(request(0.0, 128, [1, 2]), request(12.0, 200, [1, 2, 3], 10.0)),
    )
    found = live_sessions(read_sessions(path, "trace"))
    assert (found.sessions, found.hit_tokens, found.think_s.mean, found.session_s.mean) == (
        1,
        128 / 328,
        10.0,
        14.0,
    )
    assert found.kept_tokens.mean == pytest.approx((12 * 138 + 2 * 210) / 14)
    assert found.peak_tokens.most == 210

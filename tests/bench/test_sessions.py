"""Recorded sessions over the wire: prompts share what the recorded ones did, pauses are kept, and a
cache finds what the simulator says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.bench.recorded import ASKED, write
from tonnage import simulate
from tonnage.api.bench import bench
from tonnage.formats.sessions import read_sessions
from tonnage.testing import simulated_engine


def test_a_cache_finds_what_the_simulator_says(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", pause=0.01)
    engine = {"model": "llama-3.1-8b", "gpu": "h100", "precision": "fp8", "tp": 1}
    run = simulate(**engine, engine="vllm", trace=path, concurrency=2, requests=28)
    with simulated_engine(**engine, speed=20) as url:
        (found,) = bench(url=url, sessions=path, concurrency=2, output=tmp_path / "run", **ASKED)
    assert sorted(found.requests.isl.tolist()) == sorted(run.requests.isl.tolist())
    assert found.requests.cached_tokens.sum() == run.requests.cached_tokens.sum() > 0
    document = json.loads((tmp_path / "run" / "run.json").read_text())
    assert document["conversations"]["conversations"] == 4


SPEED = 0.25
"""The engine's clock is slower than the wall's, so that milliseconds of the machine are quarters of
one of the engine's."""


@pytest.mark.engines
def test_first_tokens_by_turn_are_the_simulated(tmp_path: Path) -> None:
    engine = {"model": "llama-3.1-8b", "gpu": "l40s", "precision": "fp8", "tp": 1}
    simulated = write(tmp_path / "engine.jsonl", pause=0.4, sessions=12, begins=40)
    sent = write(tmp_path / "wall.jsonl", pause=0.4 / SPEED, sessions=12, begins=40)
    run = simulate(**engine, engine="vllm", trace=simulated, concurrency=1, requests=84)
    with simulated_engine(**engine, speed=SPEED) as url:
        (found,) = bench(url=url, sessions=sent, concurrency=1, **ASKED)
    assert found.requests.cached_tokens.sum() == run.requests.cached_tokens.sum()
    recorded = read_sessions(simulated, "trace")
    turn = np.arange(len(recorded.isl)) - recorded.starts[recorded.session]
    expected, measured = np.zeros(len(turn)), np.zeros(len(turn))
    expected[run.requests.row] = (run.requests.first_token_ns - run.requests.due_ns) / 1e6
    row = recorded.starts[found.observed.turns.conversation] + found.observed.turns.turn
    measured[row] = (found.requests.first_token_ns - found.requests.due_ns) / 1e6 * SPEED
    both = [
        (expected[turn == each].mean(), measured[turn == each].mean())
        for each in range(turn.max() + 1)
    ]
    for each, (one, other) in enumerate(both, start=1):
        print(f"turn {each}: simulated {one:.2f} ms, measured {other:.2f} ms")
    for one, other in both:
        assert other == pytest.approx(one, rel=0.03, abs=2)

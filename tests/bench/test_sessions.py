"""Recorded sessions over the wire: prompts share what the recorded ones did, pauses are kept, and a
cache finds what the simulator says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.bench.test_conversations import parrot
from tests.bench.test_parts import words_tokenizer
from tonnage import simulate
from tonnage.api.bench import bench, prepare_bench
from tonnage.bench.prompts import prompts
from tonnage.bench.tiers import TIERS
from tonnage.errors import InputError
from tonnage.formats.sessions import read_sessions
from tonnage.testing import simulated_engine

ASKED: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "selftest": False,
    "metrics_url": ["none"],
    "endpoint_type": "completions",
}

PREPARED = {name: value for name, value in ASKED.items() if name != "selftest"}


def write(path: Path, *, pause: float, sessions: int = 4, turns: int = 5, begins: int = 20) -> str:
    """Sessions whose prompts grow by some blocks of 64 tokens and a part of one, with a sub-agent
    behind the second request."""
    lines = []
    for number in range(sessions):
        requests, ids = [], list(range(begins + 3 * number))
        for turn in range(turns):
            own = [10_000 * (turn + 1) + k for k in range(2 + turn)]
            ids = ids[: len(ids) - turn % 2] + own
            times = {"t": 10.0 * turn, "api_time": 1.0, "think_time": pause if turn else 0.0}
            requests.append(
                {
                    **times,
                    "type": "n",
                    "in": 64 * len(ids) + 13 + turn,
                    "out": 20 + turn,
                    "hash_ids": ids,
                }
            )
            if turn == 1:
                sub = [
                    {
                        "t": 5.0 * k,
                        "api_time": 1.0,
                        "think_time": pause,
                        "type": "n",
                        "in": 700 + 64 * k,
                        "out": 9,
                    }
                    for k in range(2)
                ]
                requests.append(
                    {
                        "t": 11.0,
                        "type": "subagent",
                        "requests": [
                            {**one, "hash_ids": [7, *range(90, 99 + k)]}
                            for k, one in enumerate(sub)
                        ],
                    }
                )
        lines.append(
            {"id": f"s{number}", "block_size": 64, "hash_id_scope": "local", "requests": requests}
        )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


@pytest.mark.parametrize("exact", [False, True])
def test_two_prompts_are_equal_as_far_as_their_pieces_are(exact: bool, tmp_path: Path) -> None:
    contents = read_sessions(write(tmp_path / "s.jsonl", pause=0.1), "sessions").contents
    recorded = read_sessions(str(tmp_path / "s.jsonl"), "sessions")
    tokenizer = tmp_path / "tokenizer.json"
    if exact:
        words_tokenizer(tokenizer)
    made = prompts(seed=3, tokenizer=tokenizer if exact else None)
    rows = [list(zip(*contents.of(row), strict=True)) for row in range(len(contents))]
    texts = [made.of_pieces(row, int(isl)) for row, isl in zip(rows, recorded.isl, strict=True)]
    for one in range(len(rows)):
        assert (made.counter.count(texts[one]) if exact else len(texts[one]) / 4) == recorded.isl[
            one
        ]
        for other in range(one):
            shared = 0
            for (piece, until), (theirs, reaches) in zip(rows[one], rows[other], strict=False):
                if piece != theirs:
                    break
                shared = min(until, reaches, int(recorded.isl[one]), int(recorded.isl[other]))
                if until != reaches:
                    break
            units = [
                text.split() if exact else [text[at : at + 4] for at in range(0, len(text), 4)]
                for text in (texts[one], texts[other])
            ]
            found = next(
                (
                    place
                    for place, pair in enumerate(zip(*units, strict=False))
                    if pair[0] != pair[1]
                ),
                len(units[1]),
            )
            assert shared <= found <= shared + 2, "as much as was recorded, and hardly more"


def test_requests_follow_the_ones_that_they_waited_for_after_their_pauses(tmp_path: Path) -> None:
    recorded = read_sessions(write(tmp_path / "s.jsonl", pause=0.03, sessions=2), "sessions")
    with parrot() as (url, bodies):
        asked = {**ASKED, "streaming": False, "endpoint_type": "chat"}
        (found,) = bench(url=url, sessions=str(tmp_path / "s.jsonl"), concurrency=1, **asked)
    log, requests = found.observed.turns, found.requests
    assert len(requests) == len(recorded.isl) == len(bodies)
    assert sorted(zip(log.conversation.tolist(), log.turn.tolist(), strict=True)) == [
        (session, turn) for session in range(2) for turn in range(7)
    ]
    row = recorded.starts[log.conversation] + log.turn
    due, end = np.zeros(len(row), np.int64), np.zeros(len(row), np.int64)
    due[row], end[row] = requests.due_ns, requests.last_token_ns
    starts, rows = recorded.follows.starts, recorded.follows.rows
    for before in range(len(row)):
        for after in rows[starts[before] : starts[before + 1]]:
            assert due[after] == end[before] + recorded.pause_ns[after]


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


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"isl": 100}, "have their own"),
        ({"shared_prefix": 10}, "share what they did"),
        ({"prompt_file": Path("x.txt")}, "prompt_file"),
        ({"request_count": 5}, "belongs to single requests"),
    ],
)
def test_what_sessions_say_themselves_is_refused(
    asked: dict[str, Any], said: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "s.jsonl", pause=0.1)
    with pytest.raises(InputError, match=said):
        prepare_bench(
            url="http://127.0.0.1:1", sessions=path, concurrency=1, **{**PREPARED, **asked}
        )


def test_a_file_that_names_no_blocks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plain.csv").write_text("timestamp,isl,osl\n0,10,5\n")
    with pytest.raises(InputError, match="no file of recorded sessions"):
        prepare_bench(
            url="http://127.0.0.1:1",
            sessions=str(tmp_path / "plain.csv"),
            concurrency=1,
            **PREPARED,
        )


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


def test_recorded_sessions_are_counted_by_the_tiers_of_agentperf_unless_others_are_named(
    tmp_path: Path,
) -> None:
    asked = {**PREPARED, "url": "http://127.0.0.1:1", "concurrency": 1}
    path = write(tmp_path / "s.jsonl", pause=0.1)
    assert prepare_bench(sessions=path, **asked).wanted.tiers == TIERS
    assert [
        str(tier) for tier in prepare_bench(sessions=path, tier=["60, 5s"], **asked).wanted.tiers
    ] == ["60 tokens/s, TTFT 5 s"]
    assert prepare_bench(isl=10, osl=10, request_count=2, **asked).wanted.tiers == ()

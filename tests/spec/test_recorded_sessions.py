"""Recorded sessions: what every form of file says of them, and that a cache without end finds what
a plain walk over the blocks finds."""

from __future__ import annotations

import gzip
import json
import operator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.spec.session_files import ANY, ENGINE, STEP, request, session, write
from tonnage.errors import InputError
from tonnage.formats.sessions import read_sessions
from tonnage.simulator.kernel import run
from tonnage.spec.recorded_sessions import PrefixTree
from tonnage.spec.workload import ClosedLoop, Workload

WEKA = (
    Path(__file__).parents[3]
    / "shared"
    / "data"
    / "traces"
    / "agentic"
    / "claude_code_150.jsonl.gz"
)


def test_what_cannot_be_read_is_said_with_its_line(tmp_path):
    path = write(
        tmp_path / "s.jsonl",
        session(request(0.0, 100, [1])),
        {"id": "two", "block_size": 64, "requests": [{"t": 0, "type": "n"}]},
    )
    with pytest.raises(InputError, match=r"s\.jsonl:2: is not a session"):
        read_sessions(path, "trace")
    text = {"session_id": "s", "messages": [], "output_length": 5}
    with pytest.raises(InputError, match=r"m\.jsonl:1: no request of a session \(texts"):
        read_sessions(write(tmp_path / "m.jsonl", text), "trace")
    broken = tmp_path / "b.jsonl.gz"
    broken.write_bytes(b"no gzip")
    with pytest.raises(InputError, match="cannot be read"):
        read_sessions(str(broken), "trace")
    assert (
        read_sessions(
            write(tmp_path / "t.jsonl", {"timestamp": 1, "input_length": 5, "output_length": 6}),
            "trace",
        )
        is None
    )


prompts = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=12)


@given(prompts)
@settings(max_examples=100, deadline=None)
def test_two_prompts_have_a_piece_in_common_where_they_have_the_same_blocks_before_it(lists):
    tree = PrefixTree(iter(range(1000)))
    paths = []
    for ids in lists:
        named, before = [], 0
        for piece, depth in tree.path(np.array(ids)):
            named += [(piece, place) for place in range(before, depth)]
            before = depth
        paths.append(named)
        assert len(named) == len(ids)
    for one, first in zip(lists, paths, strict=True):
        for other, second in zip(lists, paths, strict=True):
            for place in range(min(len(one), len(other))):
                assert (first[place] == second[place]) == (one[: place + 1] == other[: place + 1])


def walked(recorded, lists, size):
    """Prompt tokens that a cache without end finds, by every prefix that was there: the plain
    walk."""
    found, seen, own = [], set(), None
    for row, ids in enumerate(lists):
        if recorded.session[row] != own:
            own, seen = recorded.session[row], set()
        known, prefix = 0, ()
        for place, one in enumerate(ids):
            prefix = hash((prefix, one))
            if prefix in seen and known == place:
                known += 1
            seen.add(prefix)
        found.append(min(known * recorded.block_tokens, recorded.isl[row] - 1) // size * size)
    return found


def first_of(path, sessions, folder):
    """The first sessions of a file, and their lines."""
    with gzip.open(path) as file:
        lines = [next(file) for _ in range(sessions)]
    (folder / "some.jsonl").write_bytes(b"".join(lines))
    return read_sessions(str(folder / "some.jsonl"), "trace"), lines


@pytest.mark.skipif(not WEKA.exists(), reason="the sessions are not part of the project")
@pytest.mark.parametrize("sessions", [1, pytest.param(150, marks=pytest.mark.accuracy)])
def test_an_endless_cache_of_the_simulator_finds_what_a_plain_walk_over_the_hashes_finds(
    tmp_path, sessions
):
    """With blocks of 16 tokens in the cache and of 64 in the file."""
    recorded, lines = first_of(WEKA, sessions, tmp_path)
    lists = []
    for line in lines:
        calls = []
        for one in json.loads(line)["requests"]:
            inside = [(one["t"] + each["t"], each["hash_ids"]) for each in one.get("requests", ())]
            calls += inside if one["type"] == "subagent" else [(one["t"], one["hash_ids"])]
        lists += [ids for _, ids in sorted(calls, key=operator.itemgetter(0))]
    expected = walked(recorded, lists, 16)
    assert recorded.found_tokens(16).tolist() == expected
    trace = recorded.chosen(np.arange(len(recorded)), concurrency=8)
    requests = run(trace, STEP, ENGINE, min(30_000_000, int(recorded.isl.sum()) // 16))
    found = np.zeros(len(trace), np.int64)
    found[requests.row] = requests.cached_tokens
    assert found.tolist() == expected
    print(
        f"{sum(expected) / recorded.isl.sum():.4%} of {recorded.isl.sum():,} prompt tokens found,"
        " exactly"
    )


@pytest.mark.skipif(not WEKA.exists(), reason="the sessions are not part of the project")
def test_requests_beyond_a_context_are_left_out_and_the_next_wait_for_those_before(tmp_path):
    recorded, _ = first_of(WEKA, 20, tmp_path)
    fits = recorded.isl + recorded.osl <= 100_000
    assert 0 < fits.sum() < len(fits)
    found = recorded.within(100_000)
    assert found.isl.tolist() == recorded.isl[fits].tolist()
    assert (found.pause_ns[found.starts[:-1]] < 0).all()
    assert (np.delete(found.pause_ns, found.starts[:-1]) >= 0).all()
    assert (found.follows.waits > 0).sum() == len(found.isl) - len(found)
    trace = Workload(
        isl=ANY,
        osl=ANY,
        arrivals=ClosedLoop(concurrency=9),
        requests=len(found.isl),
        recorded=found,
    ).trace(0)
    assert len(run(trace, STEP, ENGINE, 200_000)) == len(found.isl)

"""Sessions of lines in Mooncake's form, from Dynamo and AIPerf."""

from __future__ import annotations

import numpy as np
import pytest

from tests.spec.session_files import NS, write
from tonnage.errors import InputError
from tonnage.formats.sessions import read_sessions


def test_dynamos_lines_wait_for_several_requests(tmp_path):
    def row(name, session, isl, ids, wait=(), **more):
        return {
            "request_id": name,
            "session_id": session,
            "input_length": isl,
            "output_length": 5,
            "hash_ids": ids,
            "wait_for": wait,
            **more,
        }

    path = write(
        tmp_path / "d.jsonl",
        row("a", "main", 64, [1, 2, 3, 4], timestamp=1000),
        row("b", "sub", 40, [5, 6, 7], ["a"], delay=500),
        row("c", "main", 80, [1, 2, 3, 4, 8], ["a", "b"], tool_wait_ms=2000),
        row("z", "other", 32, [1, 2], timestamp=3000),
    )
    found = read_sessions(path, "trace")
    assert (len(found), found.block_tokens, found.begins_ns.tolist()) == (2, 16, [0, 2 * NS])
    assert found.follows.waits.tolist() == [0, 1, 2, 0]
    assert found.pause_ns.tolist() == [-1, NS // 2, 2 * NS, -1]
    assert found.tool.tolist() == [False, False, True, False]
    assert found.found_tokens().tolist() == [0, 0, 64, 16]
    with pytest.raises(InputError, match="waits for 'nobody', which is not in the file"):
        read_sessions(
            write(tmp_path / "e.jsonl", row("a", "main", 64, [1, 2, 3, 4], ["nobody"])), "trace"
        )


def test_aiperfs_turns_add_to_their_history_and_share_their_first_blocks(tmp_path):
    first = {
        "session_id": "s",
        "input_length": 1024,
        "output_length": 100,
        "hash_ids": [0, 1],
        "timestamp": 0.0,
    }
    turn = {
        "session_id": "s",
        "input_length": 50,
        "output_length": 20,
        "hash_ids": [7],
        "delay": 1500.0,
    }
    other = {
        "session_id": "t",
        "input_length": 600,
        "output_length": 9,
        "hash_ids": [0, 4],
        "timestamp": 40.0,
    }
    found = read_sessions(write(tmp_path / "a.jsonl", first, turn, other), "trace")
    assert found.isl.tolist() == [1024, 1174, 600]
    assert found.pause_ns.tolist() == [-1, 3 * NS // 2, -1]
    assert found.found_tokens(16).tolist() == [0, 1120, 512]
    copies = found.chosen(np.array([0, 0]), concurrency=1).contents
    assert copies.of(0)[0][0] == copies.of(2)[0][0], "what sessions share, their copies share"
    assert copies.of(0)[0][-1] != copies.of(2)[0][-1]

"""What several test files of the room share."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.questions import question
from tests.sizing.explained import ASKED
from tests.sizing.sessions import _request
from tonnage.sizing.question import Question


@pytest.fixture(scope="module")
def asked() -> Question:
    return question(**ASKED)


@pytest.fixture(scope="module")
def sessions(tmp_path_factory):
    """Sixteen sessions of 14 requests that grow from some 4,000 to 20,000 tokens, with tools of 2
    to 20 s and a sub-agent each."""
    rng = np.random.default_rng(3)
    path = tmp_path_factory.mktemp("sessions") / "grown.jsonl"
    lines = []
    for number in range(16):
        requests, tokens, t = [], int(rng.integers(3_000, 6_000)), 0.0
        for turn in range(14):
            think = 0.0 if turn == 0 else float(rng.choice([2.0, 5.0, 20.0]))
            ids = list(range(tokens // 64))
            requests.append(_request(t, tokens, int(rng.integers(50, 300)), ids, think))
            if turn == 8:
                calls = ((0.0, 2_000, 31, 0.0), (5.0, 2_600, 40, 2.0))
                inside = [
                    _request(at, isl, 60, list(range(9_000, 9_000 + blocks)), think)
                    for at, isl, blocks, think in calls
                ]
                requests.append({"t": t + 4.0, "type": "subagent", "requests": inside})
            t += 3.0 + think
            tokens += int(rng.integers(400, 1_800))
        lines.append(
            {"id": f"s{number}", "block_size": 64, "hash_id_scope": "local", "requests": requests}
        )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)

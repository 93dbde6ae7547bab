"""Traffic that was recorded, in every format, and what its prompts share."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tonnage
from tonnage import api
from tonnage.errors import InputError
from tonnage.results.store import write_run

SHARED = Path(__file__).parents[3] / "shared" / "data" / "traces"

BURSTGPT = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type,Session ID\n"
    "5,ChatGPT,100,50,150,Conversation log,a\n45,ChatGPT,472,0,472,Conversation log,a\n"
    "46,GPT-4,200,20,220,API log,b\n60,ChatGPT,300,30,330,Conversation log,a\n"
)


def test_burstgpts_format_leaves_failures_out(tmp_path: Path) -> None:
    (tmp_path / "burst.csv").write_text(BURSTGPT)
    found = api.describe_workload(tmp_path / "burst.csv")
    recording = found.traffic.recording
    assert (recording.isl, recording.osl, recording.failed) == ((100, 200, 300), (50, 20, 30), 1)
    assert recording.due_ns == (0, 41_000_000_000, 55_000_000_000)
    shared = found.sharing
    assert (shared.by, shared.sessions, shared.turns_per_session) == ("sessions", 2, 1.5)
    assert shared.hit_tokens == 150 / 600, (
        "the third turn is long enough to begin with the 150 tokens of the first"
    )
    assert shared.requests_with_hits == pytest.approx(1 / 3)


def test_a_length_of_zero_is_refused_where_it_marks_no_failure(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("timestamp,isl,osl\n0,5,5\n1,5,0\n")
    with pytest.raises(InputError, match=r"trace.csv:3: osl '0'"):
        api.describe_workload(tmp_path / "trace.csv")


def test_shared_blocks_are_counted_by_hand(tmp_path: Path) -> None:
    """1000 tokens are two blocks of 512: [1, 2], then [1, 3], [1, 2], [4, 2], whose 2 was seen but
    stands behind a new block, and [2, 1], whose blocks were seen but never at the beginning."""
    rows = [(0, [1, 2]), (10, [1, 3]), (20, [1, 2]), (30, [4, 2]), (40, [2, 1])]
    text = "".join(
        json.dumps({"timestamp": t, "input_length": 1000, "output_length": 7, "hash_ids": ids})
        + "\n"
        for t, ids in rows
    )
    (tmp_path / "trace.jsonl").write_text(text)
    shared = api.describe_workload(tmp_path / "trace.jsonl").sharing
    assert (shared.block_tokens, shared.blocks) == (512, 10)
    assert shared.seen_blocks == 6 / 10
    assert shared.hit_blocks == 3 / 10
    assert shared.hit_tokens == (512 + 1000) / 5000
    assert shared.requests_with_hits == 2 / 5


def test_a_run_folder_is_described_by_its_requests(tmp_path: Path) -> None:
    made = tonnage.simulate(
        model="llama-3.1-8b", isl="lognormal:500,300", osl="100", request_rate=4, requests=200
    )
    write_run(tmp_path / "run", made.scenario(), made.requests, made.summary, {})
    found = api.describe_workload(tmp_path / "run")
    assert found.traffic.recording.isl == tuple(made.requests.isl.tolist())
    assert (
        np.diff(found.traffic.recording.due_ns).tolist() == np.diff(made.requests.due_ns).tolist()
    )


@pytest.mark.skipif(not SHARED.exists(), reason="the whole traces are not part of a checkout")
def test_mooncakes_prefixes() -> None:
    """Every prompt of the conversation trace begins with the same block; the hit rate is counted
    anew here, by whole prefixes."""
    shared = api.describe_workload(SHARED / "mooncake_conversation_2000.jsonl").sharing
    seen: set[tuple[int, ...]] = set()
    hits = total = 0
    for line in (SHARED / "mooncake_conversation_2000.jsonl").read_text().splitlines():
        ids = json.loads(line)["hash_ids"]
        total += len(ids)
        prefixes = [tuple(ids[: place + 1]) for place in range(len(ids))]
        hits += sum(prefix in seen for prefix in prefixes)
        seen.update(prefixes)
    assert (shared.block_tokens, shared.blocks) == (512, total)
    assert shared.hit_blocks == hits / total

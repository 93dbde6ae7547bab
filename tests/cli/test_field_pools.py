"""Cases of the field about pools and start lines, run as their authors would; the values are those
that engines reported."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tonnage.cli.main import run

CASES = Path(__file__).resolve().parents[3] / "shared" / "field" / "planning"
pytestmark = pytest.mark.skipif(
    not CASES.is_dir(), reason=f"THE FIELD'S CASES ARE ABSENT: no {CASES}"
)


def commands(case: str) -> list[list[str]]:
    return [
        shlex.split(line)
        for line in (CASES / case / "command.txt").read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]


def printed(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    code = run(words)
    found = capsys.readouterr()
    assert code == 0, found.err
    return found.out


@pytest.mark.parametrize(("place", "reported"), [(0, 614), (1, 524)])
def test_a_hybrid_is_started_with_no_more_sequences_than_any_version_had_pages(
    place: int, reported: int, capsys: pytest.CaptureFixture[str]
) -> None:
    line = printed(commands("f08-hybrid-max-num-seqs")[place], capsys)
    slots = re.search(r"--max-num-seqs (\d+)", line)
    assert slots is not None
    assert 32 <= int(slots[1]) <= reported


def test_requests_that_one_card_answered_have_room(capsys: pytest.CaptureFixture[str]) -> None:
    memory, simulate = commands("f11-qwen3-32b-on-one-h100")
    found = json.loads(printed([*memory, "--json"], capsys))
    assert found["kv_tokens"] >= 32_077
    assert found["concurrent_requests"] >= 1
    assert json.loads(printed([*simulate, "--json"], capsys))["requests"]["completed"] == 100
    longer = ["--isl", "40000", "--osl", "77"]
    for words in (memory, simulate):
        assert (
            run(
                [
                    *(word for word in words[: words.index("--isl")]),
                    *longer,
                    *(words[words.index("--osl") + 2 :]),
                ]
            )
            == 2
        )
        assert re.search(
            r"one request of 40,077 tokens does not fit .*what fits: --tp 2",
            capsys.readouterr().err,
        )


@pytest.mark.parametrize(
    ("place", "tokens"),
    [
        (0, 178_880),
        pytest.param(
            1,
            3_511_589,
            marks=pytest.mark.xfail(
                strict=True, reason="share and settings of the report are not known: +25 %"
            ),
        ),
    ],
)
def test_experts_leave_the_cache_that_the_engine_printed(
    place: int, tokens: int, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(printed([*commands("f12-moe-kv-pool")[place], "--json"], capsys))
    assert found["kv_tokens"] == pytest.approx(tokens, rel=0.1)


def test_the_share_and_the_step_are_taken(capsys: pytest.CaptureFixture[str]) -> None:
    plain = {
        engine: json.loads(
            printed(["memory", "--model", "llama-3.1-8b", "--engine", engine, "--json"], capsys)
        )
        for engine in ("vllm", "sglang")
    }
    for words in commands("f18-memory-share"):
        found, usual = (
            json.loads(printed([*words, "--json"], capsys)),
            plain[words[words.index("--engine") + 1]],
        )
        changed = found["kv_bytes"] - usual["kv_bytes"]
        # sampling is larger than the step
        assert changed > 0 or (changed == 0 and "--max-num-batched-tokens" in words)


def test_the_start_line_names_a_repository(capsys: pytest.CaptureFixture[str]) -> None:
    (words,) = commands("f19-start-line")
    assert re.search(r"Start +vllm serve [\w.-]+/[\w.-]+ --", printed(words, capsys))

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.bench.recorded import ASKED, write
from tonnage.api.bench import prepare_bench
from tonnage.bench.tiers import TIERS
from tonnage.errors import InputError

PREPARED = {name: value for name, value in ASKED.items() if name != "selftest"}


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


def test_there_are_not_more_processes_than_clients() -> None:
    asked = prepare_bench(
        url="127.0.0.1:9", model="m", isl=1, osl=1, concurrency="2,8", request_count=9, workers=4
    )
    assert asked.setup.workers == 2
    with pytest.raises(InputError, match="workers"):
        prepare_bench(
            url="127.0.0.1:9", model="m", isl=1, osl=1, concurrency=2, request_count=9, workers=0
        )


def test_a_deviation_without_a_mean_says_what_to_type() -> None:
    asked = {"url": "127.0.0.1:9", "model": "llama", "concurrency": 1, "osl": 9}
    for isl in (None, "uniform:5-9"):
        with pytest.raises(InputError, match="goes with a mean alone; give isl a number"):
            prepare_bench(**asked, isl=isl, isl_stddev=5)

"""The chain of docs/chain.md with a real server, client and wire between them, on fewer and shorter loads than the page's."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.chain import PAGE, run_chain
from tests.test_docs import examples_of

SHORTER = {
    "1,2,4,8,16,24,32,48": "1,8,32",
    "--benchmark-duration 2s": "--benchmark-duration 1s",
    "--request-count 75": "--request-count 40",
}


@pytest.mark.engines
def test_every_command_runs_and_the_slow_down_is_seen(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert all(old in page for old in SHORTER)
    chain = run_chain(tmp_path, SHORTER)
    assert len(chain.printed) == len(list(examples_of(PAGE)))
    assert (tmp_path / "deployment" / "deployment.yaml").is_file()
    assert {one.load for one in chain.loads} == {"1 client", "8 clients", "32 clients"}
    for metric in ("TPOT", "E2E"):
        assert chain.measured(metric) > 1.1  # late on a busy machine, never early
        assert 1.05 < chain.found(metric) < 1.05 * chain.measured(metric)

"""A run folder that several files of tests read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.test_cli import ASKED
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.cli.main import run


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with every export: 60 requests of 8 tokens, two an event, every tenth
    refused."""
    folder = tmp_path_factory.mktemp("exports") / "run"
    exports = [flag for name in ("genai-perf", "aiperf", "vllm") for flag in ("--export", name)]
    schedule = Schedule(ttft_s=0.01, itl_s=0.004, tokens_per_event=2, fault="500", fault_every=10)
    with exact_server(schedule, seconds=60) as url:
        load = [
            "--concurrency",
            "4",
            "--request-count",
            "60",
            "--osl",
            "8",
            "--artifact-dir",
            str(folder),
        ]
        assert run([*ASKED[:-3], "--no-selftest", "--url", url, *load, *exports]) == 3
    return folder

"""Files of other tools as runs, with the statistics that the tools state themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tonnage.cli.main import run
from tonnage.results.store import read_run

FILES = Path(__file__).parents[1] / "bench" / "fixtures"

CLOSE = 1e-4
"""Relative: stamps in seconds or milliseconds lose the nanoseconds that we keep."""


class Imported:
    """A run folder made of a tool's file."""

    def __init__(self, file: Path, folder: Path, *flags: str) -> None:
        assert run(["import", str(file), "--output", str(folder), *flags]) == 0
        self.summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
        self.theirs: dict[str, Any] = json.loads((folder / "run.json").read_text()).get(
            "other_definitions", {}
        )
        self.requests = read_run(folder).requests
        self.folder = folder


def has_their_statistics(found: Imported, said: dict[str, Any]) -> None:
    """Latencies and lengths of a run equal those that GenAI-Perf or AIPerf computed from it."""
    for name, ours in (
        ("time_to_first_token", found.summary["ttft_from_send_ms"]),
        ("request_latency", found.theirs["request_latency_ms"]),
        ("inter_token_latency", found.theirs["inter_token_latency_ms"]),
    ):
        assert ours["mean"] == pytest.approx(said[name]["avg"], rel=CLOSE), name
        for percentile in ("p50", "p90", "p99"):
            assert ours[percentile] == pytest.approx(said[name][percentile], rel=CLOSE), (
                name,
                percentile,
            )
    assert found.requests.isl.mean() == pytest.approx(said["input_sequence_length"]["avg"])
    assert found.requests.osl.mean() == pytest.approx(said["output_sequence_length"]["avg"])

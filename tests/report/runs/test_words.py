"""Loads and runs in words, for every load that a run folder knows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.report.runs import example_run
from tonnage.report.runs.shown_run import ShownRun, load_words, read_shown_runs


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> ShownRun:
    return read_shown_runs(example_run.simulated(tmp_path_factory.mktemp("runs") / "run"))[0]


@pytest.mark.parametrize(
    ("scenario", "words"),
    [
        ({"arrivals": {"concurrency": 16}}, "16 clients"),
        ({"arrivals": {"rate": 4.0, "process": "poisson", "cv": 1.0}}, "4 requests/s, Poisson arrivals"),
        ({"arrivals": {"rate": 0.5, "process": "gamma", "cv": 2.0}}, "0.5 requests/s, gamma arrivals with a CV of 2"),
        ({"arrivals": {"trace": "azure.csv", "rate": 2.6}}, "recorded arrivals of azure.csv"),
        (
            {"arrivals": {"rate": 2.0, "process": "constant"}, "conversations": {"turns": "4"}},
            "2 conversations/s, 4 turns each, evenly spaced arrivals",
        ),
        ({"arrivals": {"concurrency": 3}, "conversations": {"file": "chats.json"}}, "3 clients with conversations"),
        ({}, "recorded arrivals"),
    ],
)
def test_load_words(run: ShownRun, scenario: dict[str, Any], words: str) -> None:
    assert load_words(replace(run, scenario=scenario)) == words

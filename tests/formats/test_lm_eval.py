"""lm-eval's results: groups count in place of their tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import InputError
from tonnage.formats.lm_eval import TaskScore, task_scores

WRITTEN: dict[str, Any] = {
    "results": {
        "tiny_a": {
            "name": "tiny_a",
            "alias": "tiny_a",
            "sample_len": 20,
            "acc,none": 0.5,
            "acc_stderr,none": 0.11,
        },
        "tiny_b": {
            "name": "tiny_b",
            "alias": "tiny_b",
            "sample_len": 20,
            "acc,none": 0.7,
            "acc_stderr,none": 0.1,
        },
        "tiny_gen": {
            "alias": "tiny_gen",
            "exact_match,strict-match": 0.25,
            "exact_match_stderr,strict-match": 0.1,
            "exact_match,flexible-extract": 0.3,
            "exact_match_stderr,flexible-extract": 0.1,
        },
        "tiny": {
            "alias": "tiny",
            "name": "tiny",
            "acc,none": 0.6,
            "acc_stderr,none": 0.075,
            "sample_count": {"acc,none": 40},
        },
    },
    "group_subtasks": {"tiny": ["tiny_a", "tiny_b"]},
}
"""The keys that lm-eval 0.4.13 wrote for two tasks in a group and one by itself, with other
numbers."""


def test_a_group_counts_in_place_of_its_tasks_and_the_first_metric_alone(tmp_path: Path) -> None:
    folder = tmp_path / "out" / "model"
    folder.mkdir(parents=True)
    (folder / "results_2026-11-24.json").write_text("{}", encoding="utf-8")
    (folder / "results_2026-11-25.json").write_text(json.dumps(WRITTEN), encoding="utf-8")
    assert task_scores(tmp_path / "out") == {
        "tiny": TaskScore(metric="acc,none", score=0.6, error=0.075),
        "tiny_gen": TaskScore(metric="exact_match,strict-match", score=0.25, error=0.1),
    }
    for text in [
        "{}",
        '{"results": {"mmlu": {"acc,none": 0.5}}}',
        "[1]",
        '{"results": {"mmlu": 1}, "group_subtasks": []}',
    ]:
        (tmp_path / "results_x.json").write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match="give what lm_eval wrote"):
            task_scores(tmp_path / "results_x.json")

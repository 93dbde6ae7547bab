"""Runs of load clients that cannot be points: failures, loads that rose, nothing completed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.formats.field_files import GIVEN, SGLANG, VLLM_RUN, rows_of, written
from tonnage.api.compare import import_run
from tonnage.errors import InputError
from tonnage.formats.measured_files import read_measured, read_points

FIELD = Path(__file__).parents[3] / "shared" / "field" / "measuring"


def test_a_rate_that_rose_is_refused_by_its_name() -> None:
    path = FIELD / "049" / "vllm_ramp.json"
    rows, said = rows_of(path)
    assert not rows
    assert said == (
        (
            f"{path} is left out: its rate rose (ramp_up_strategy linear, 1–10/s), which is not"
            " simulated."
        ),
    )
    with pytest.raises(InputError, match=r"no valid measurement is left.*ramp_up_strategy"):
        read_measured(path, GIVEN)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("053/vllm_detail_fail.json", "4 of 40 requests (10 %)"),
        ("062/ai_err", "150 of 350 requests (43 %)"),
    ],
)
def test_failures_make_points_unfit(place: str, words: str) -> None:
    rows, said = rows_of(FIELD / place)
    assert not rows
    assert f"is left out, because {words} failed; allow_errors takes it all the same." in said[0]
    rows, said = rows_of(FIELD / place, allow_errors=True)
    assert rows[0]["e2e_ms"] == 1100
    assert f"counts, though {words} failed." in said[0]
    with pytest.raises(InputError, match="no valid measurement is left"):
        read_points(FIELD / place, GIVEN)


@pytest.mark.parametrize(("failed", "fits"), [(0, True), (1, True), (2, False), (40, False)])
@pytest.mark.parametrize("tool", [VLLM_RUN, SGLANG])
def test_one_per_cent_may_fail(
    tmp_path: Path, tool: dict[str, Any], failed: int, fits: bool
) -> None:
    rows, said = rows_of(
        written(
            tmp_path / "r.json",
            {**tool, "completed": 100, "num_prompts": 100 + failed, "failed": failed},
        )
    )
    assert bool(rows) == fits
    assert len(said) == bool(failed)


GUIDELLM = Path(__file__).parents[1] / "bench" / "fixtures" / "guidellm.json"


def with_a_run_that_completed_nothing(folder: Path, tool: str) -> Path:
    """A file of this tool with such a run, and another one that completed."""
    if tool == "guidellm":
        document = json.loads(GUIDELLM.read_text())
        empty = json.loads(json.dumps(document["benchmarks"][0]))
        empty["requests"]["errored"] = empty["requests"].pop("successful")
        for values in empty["metrics"].values():
            values["successful"] = None
        return written(
            folder / "r.json", {**document, "benchmarks": [empty, *document["benchmarks"]]}
        )
    base, count = {"vllm": (VLLM_RUN, 2), "sglang": (SGLANG, 2)}[tool]
    lists = {
        "input_lens": [9] * 2,
        "output_lens": [5] * 2,
        "ttfts": [0.1] * 2,
        "itls": [[0.01] * 4] * 2,
        "errors": [""] * 2,
    }
    good = {**base, **lists, "completed": count, **({"num_prompts": 2} if tool == "vllm" else {})}
    none = {
        "completed": 0,
        "failed": 2,
        "errors": ["refused"] * 2,
        "output_lens": [0] * 2,
        "ttfts": [0.0] * 2,
        "itls": [[], []],
    }
    none |= {name: 0.0 for name in good if name.startswith("mean_")} | {
        "total_output_tokens": 0,
        "total_input_tokens": 0,
    }
    return written(folder / "r.jsonl", "\n".join(map(json.dumps, ({**good, **none}, good))))


@pytest.mark.parametrize("tool", ["guidellm", "vllm", "sglang"])
def test_a_run_that_completed_nothing_is_left_out_and_the_others_count(
    tmp_path: Path, tool: str
) -> None:
    path = with_a_run_that_completed_nothing(tmp_path, tool)
    (row,), said = rows_of(path)
    assert row["requests"] or row["e2e_ms"]
    assert [sentence.split(" is left out: ")[1] for sentence in said] == [
        "none of its requests was completed."
    ]
    ((folder, summary, facts),) = import_run(path, tmp_path / "run")
    assert (folder.name, summary.counted > 0) == ("run-2", True)
    (remark,) = [text for text in facts["remarks"] if "left out" in text]
    assert remark.startswith("Run 1 of 2 is left out: none of its requests was completed")


def test_a_file_in_which_nothing_completed_is_refused_by_its_reason(tmp_path: Path) -> None:
    path = written(tmp_path / "r.json", {**VLLM_RUN, "completed": 0, "failed": 40})
    with pytest.raises(
        InputError, match=r"no valid measurement is left.*none of its requests was completed"
    ):
        read_measured(path, GIVEN)
    report = {
        "error_request_count": {"unit": "requests", "avg": 7},
        "input_config": {},
        "error_summary": [{"count": 7}],
    }
    rows, said = rows_of(written(tmp_path / "run" / "profile_export_aiperf.json", report))
    assert (rows, "none of its requests was completed" in said[0]) == ([], True)
    stage = {
        "load_summary": {"requested_rate": 2},
        "successes": {"count": 0},
        "failures": {"count": 9},
    }
    rows, said = rows_of(written(tmp_path / "stage_0_lifecycle_metrics.json", stage))
    assert (rows, "none of its requests was completed" in said[0]) == ([], True)

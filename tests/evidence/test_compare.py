"""Step models side by side, on the same rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.step_times import deployment, written
from tonnage.evidence.compare import ModelScores, compare
from tonnage.evidence.score import ErrorOf, score
from tonnage.perf.measured_steps import checked_source
from tonnage.perf.terms import step_model
from tonnage.sizing.loads.confidence import slower

CLOSED = {
    "model": "llama-3.1-8b",
    "gpu": "h100-sxm-80gb",
    "precision": "fp8",
    "engine": "vllm",
    "tp": 1,
    "isl": 400,
    "osl": 40,
}


def rows(**other: Any) -> list[dict[str, Any]]:
    return [
        CLOSED
        | {"concurrency": n, "requests": 40, "ttft_ms": 40.0, "itl_ms": 6.0, "line": n}
        | other
        for n in (1, 4, 16)
    ]


def test_a_table_of_our_own_steps_agrees_with_us(tmp_path: Path) -> None:
    source = checked_source(written(step_model(deployment()).coefficients, tmp_path / "ours.csv"))
    found = compare(rows(), [None, source])
    assert list(found.reports) == ["fitted", str(tmp_path / "ours.csv")]
    assert found.common == 3
    (apart,) = found.disagreement.values()
    assert 0 < apart["itl_ms"] < 1
    assert apart["ttft_ms"] < 3
    assert found.reports["fitted"].to_json() == score(rows()).to_json()
    assert any(
        "steps reduced with an error of" in remark
        for remark in found.reports[str(tmp_path / "ours.csv")].remarks
    )


def test_slower_steps_are_as_far_apart_as_they_are_slower(tmp_path: Path) -> None:
    step = step_model(deployment())
    found = compare(
        rows(),
        [None, checked_source(written(slower(step, 2.0).coefficients, tmp_path / "slow.csv"))],
    )
    (apart,) = found.disagreement.values()
    assert apart["itl_ms"] == pytest.approx(100, rel=0.05)


def test_rows_that_one_of_them_cannot_price_count_for_none(tmp_path: Path) -> None:
    file = written(step_model(deployment()).coefficients, tmp_path / "ours.csv")
    lines = file.read_text().splitlines()
    file.write_text("\n".join([lines[0] + ",tp", *(f"{line},1" for line in lines[1:]), ""]))
    mixed = [*rows(), rows(tp=2, line=99)[0]]
    found = compare(mixed, [None, checked_source(file)])
    assert [report.predicted for report in found.reports.values()] == [4, 3]
    assert found.common == 3
    assert [errors["itl_ms"].n for errors in found.errors.values()] == [3, 3]
    (skipped,) = found.reports[str(file)].skipped
    assert "has no step times of" in skipped.reason


def test_scores_of_several_models_as_json_name_rows_of_another_kind_where_there_are_any() -> None:
    error = ErrorOf(mape=3.0, median_ape=2.0, bias=-1.0, n=4)
    alone = ModelScores(
        reports={},
        common=4,
        errors={"fitted": {"itl_ms": error}},
        disagreement={"b against a": {"itl_ms": 7.0}},
        remarks=("One row is left out.",),
    )
    document = {
        "models": {},
        "common": 4,
        "errors": {"fitted": {"itl_ms": {"mape": 3.0, "median_ape": 2.0, "bias": -1.0, "n": 4}}},
        "disagreement": {"b against a": {"itl_ms": 7.0}},
        "remarks": ["One row is left out."],
    }
    assert alone.to_json() == document
    with_others = replace(alone, apart={"decode pools": alone})
    assert with_others.to_json() == {**document, "apart": {"decode pools": document}}

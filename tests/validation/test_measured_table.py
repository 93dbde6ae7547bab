"""Whatever a benchmark leaves its figures in can be scored, and so can a table that somebody else made."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.calibration.test_calibrate_formats import FORMS, curve
from tonnage.errors import InputError
from tonnage.evidence.predict import MeasuredTable, measured_table, predict, read_point
from tonnage.evidence.score import score

GIVEN = {"model": "llama-3-8b", "gpu": "h100-sxm-80gb", "precision": "fp16", "tp": 1, "engine": "nim-2024", "isl": 800, "osl": 100}
ROW = {"model": "llama-3-8b", "gpu": "h100-sxm-80gb", "precision": "fp16", "tp": 1, "isl": 200, "osl": 20, "concurrency": 4}

__all__ = ["curve"]  # a fixture


@pytest.mark.parametrize("form", [form for form in FORMS if form not in ("csv", "vllm")])
def test_every_form_is_scored_as_its_table_is(form: str, curve: list[dict[str, object]], tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "csv").mkdir()
    plain = score(FORMS["csv"](curve, tmp_path / "csv"))
    found = score(FORMS[form](curve, tmp_path / "source"), given=GIVEN)
    assert (found.rows, found.predicted) == (plain.rows, plain.predicted) == (3, 3)
    for name in ("ttft_ms", "itl_ms", "e2e_ms", "requests_s"):
        assert found.overall[name].n == 3
        assert found.overall[name].bias == pytest.approx(plain.overall[name].bias, abs=3), name


def test_a_result_of_vllm_bench_is_of_vllm(curve: list[dict[str, object]], tmp_path: Path) -> None:
    found = score(FORMS["vllm"](curve, tmp_path), given=GIVEN)
    assert (found.rows, found.predicted) == (3, 3)
    assert {row.point.deployment.knobs.scheduler for row in found.worst} == {"vllm"}


def test_what_neither_the_file_nor_the_caller_says_is_named(curve: list[dict[str, object]], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not say the gpu"):
        measured_table(FORMS["vllm"](curve, tmp_path), {name: value for name, value in GIVEN.items() if name != "gpu"})


def test_a_table_of_somebody_else_predicts_in_its_own_way() -> None:
    twice = MeasuredTable(
        rows=[ROW | {"e2e_ms": 100.0, "line": 7}],
        point=lambda _: read_point(ROW),
        predict=lambda _, point: {"e2e_ms": 2 * predict(point)["e2e_ms"]},
        remarks=("One line was left out.",),
    )
    assert measured_table(twice) is twice
    report = score(replace(twice, apart={"others": twice}))
    assert report.remarks == report.apart["others"].remarks == ("One line was left out.",)
    assert report.worst[0].line == 7
    assert report.worst[0].predicted["e2e_ms"] == 2 * predict(read_point(ROW))["e2e_ms"]

import json
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import InputError
from tonnage.evidence.predict import predict, read_point
from tonnage.evidence.score import ScoreReport, score

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"THE MEASURED FILES ARE ABSENT: no {DATA}; accuracy is not checked")

STATIC = {"model": "llama-2-7b", "gpu": "h100-sxm-80gb", "precision": "fp8", "tp": 1, "isl": 128, "osl": 128, "batch": 8}
CLOSED = {"model": "llama-3-8b", "gpu": "h100-sxm-80gb", "precision": "fp16", "tp": 1, "isl": 200, "osl": 20, "concurrency": 4}


def table(tmp_path: Path, *lines: str) -> Path:
    file = tmp_path / "measured.csv"
    file.write_text("\n".join(lines) + "\n")
    return file


def test_stages_are_named_in_the_report() -> None:
    row = {"model": "llama-3.1-70b", "gpu": "h100-sxm-80gb", "precision": "fp8", "tp": 4, "pp": 2, "isl": 1000, "osl": 50, "concurrency": 8}
    report = score([row | {"itl_ms": 12.0}])
    assert (report.predicted, report.worst[0].to_json()["pp"]) == (1, 2)
    assert report.worst[0].group["deployment"].endswith("tp4 pp2")
    assert "no measurement of a pipelined engine" in report.worst[0].reason


def rows(**measured: float) -> list[dict[str, Any]]:
    return [CLOSED | {"line": 2, "requests": 20} | measured]


def test_errors_are_relative_and_signed() -> None:
    truth = predict(read_point(rows()[0]))
    high, low = (rows(ttft_ms=truth["ttft_ms"] / f, e2e_ms=truth["e2e_ms"])[0] for f in (1.10, 0.80))
    report = score([high, low])
    error = report.overall["ttft_ms"]
    assert (error.mape, error.bias, error.median_ape, error.n) == pytest.approx((15.0, -5.0, 15.0, 2))
    assert report.overall["e2e_ms"].mape == pytest.approx(0.0, abs=1e-9)
    assert "requests_s" not in report.overall
    assert report.groups["model"]["llama-3-8b"]["ttft_ms"] == error
    assert report.groups["deployment"]["llama-3-8b × h100-sxm-80gb × fp16 × tp1"]["ttft_ms"].n == 2
    assert set(report.groups) >= {"family", "model", "gpu", "precision", "engine", "deployment"}
    assert report.worst[0].errors["ttft_ms"] == pytest.approx(-20.0)
    assert json.loads(json.dumps(report.to_json(), allow_nan=False))["overall"]["ttft_ms"]["n"] == 2


def test_rows_that_were_not_steady_are_apart() -> None:
    truth = predict(read_point(rows()[0]))
    steady = rows(ttft_ms=truth["ttft_ms"], e2e_ms=100.0, requests_s=0.96 * 40)[0]
    unsteady = rows(ttft_ms=truth["ttft_ms"] * 2, e2e_ms=100.0, requests_s=0.94 * 40)[0]
    report = score([steady, unsteady])
    assert report.overall["ttft_ms"].n == 2
    assert report.steady["ttft_ms"].mape == pytest.approx(0.0, abs=1e-9)
    assert report.not_steady["ttft_ms"].mape == pytest.approx(50.0)
    assert [row.steady for row in report.worst].count(False) == 1


def test_unknown_names_are_counted_and_named() -> None:
    known = rows(ttft_ms=10.0)[0]
    unseen = [known | {"model": "llama-9"}, known | {"gpu": "h900"}, known | {"model": "llama-9", "line": 9}, known]
    report = score(unseen)
    assert report.unknown == {"model": {"llama-9": 2}, "GPU": {"h900": 1}}
    assert (report.rows, report.predicted, len(report.skipped)) == (4, 1, 3)
    assert "llama-9" in report.skipped[0].reason


def test_rows_that_cannot_be_run_say_why() -> None:
    known = rows(ttft_ms=10.0)[0]
    stages = known | {"concurrency": None, "batch": 4, "pp": 2}
    report = score([known | {"model": "llama-3-70b"}, stages, known | {"isl": 10**7, "line": 5}])
    assert report.predicted == 0
    assert "do not fit" in report.skipped[0].reason
    assert "pipeline" in report.skipped[1].reason
    assert "no request completes" in report.skipped[2].reason
    assert report.overall == {}


def test_a_broken_table_names_file_line_and_column(tmp_path: Path) -> None:
    header = "model,gpu,precision,tp,isl,osl,concurrency,ttft_ms"
    good = "llama-3-8b,h100-sxm-80gb,fp16,1,200,20,1,12.5"
    with pytest.raises(InputError, match=r"measured\.csv, line 3, column 'isl'.*-5"):
        score(table(tmp_path, header, good, "llama-3-8b,h100-sxm-80gb,fp16,1,-5,20,1,12.5"))
    with pytest.raises(InputError, match=r"line 2.*7 cells"):
        score(table(tmp_path, header, "llama-3-8b,h100-sxm-80gb,fp16,1,200,20,1"))
    with pytest.raises(InputError, match=r"missing columns precision, tp, isl, osl; .*, or give precision, tp, isl, osl"):
        score(table(tmp_path, "model,gpu,concurrency,ttft_ms", "a,b,1,2"))
    assert score(table(tmp_path, header, good)).predicted == 1


def test_threads_and_progress_change_nothing() -> None:
    many = [CLOSED | {"requests": 12, "concurrency": c, "ttft_ms": 20.0, "line": c} for c in (1, 2, 3, 4, 5, 6)]
    seen: list[tuple[int, int, str]] = []
    one, four = score(many, workers=1), score(many, workers=4, progress=lambda d, n, name: seen.append((d, n, name)))
    assert one.to_json() == four.to_json()
    assert [d for d, _, _ in seen] == [1, 2, 3, 4, 5, 6]
    assert {(n, name) for _, n, name in seen} == {(6, "llama-3-8b")}


@pytest.fixture(scope="module")
def static() -> ScoreReport:
    return score(DATA / "trtllm_static_batch.csv")


@pytest.fixture(scope="module")
def nim() -> ScoreReport:
    return score(DATA / "nim_inflight.csv")


@needs_data
def test_static_batches_within_the_targets(static: ScoreReport) -> None:
    assert (static.rows, static.predicted) == (2790, 2790)
    dense, experts = static.groups["family"]["dense"], static.groups["family"]["moe"]
    assert dense["ttft_ms"].mape < 6
    assert dense["itl_ms"].mape < 6
    assert experts["ttft_ms"].mape < 8
    assert experts["itl_ms"].mape < 11
    for errors in static.groups["gpu"].values():
        assert abs(errors["itl_ms"].bias) < 6


@needs_data
def test_nim_within_the_targets(nim: ScoreReport) -> None:
    assert (nim.rows, nim.predicted) == (240, 240)
    limits = {"ttft_ms": 9, "ttft_p95_ms": 11, "itl_ms": 4, "itl_p95_ms": 7, "e2e_ms": 4, "requests_s": 4, "e2e_p95_ms": 4}
    for name, limit in limits.items():
        assert nim.steady[name].n == 212
        assert nim.steady[name].mape < limit, name
        assert abs(nim.steady[name].bias) < 5, name
    assert nim.not_steady["requests_s"].n == 28
    assert nim.not_steady["requests_s"].mape < 8


@needs_data
def test_throughput_within_the_target() -> None:
    report = score(DATA / "trtllm_throughput.csv")
    assert (report.rows, report.predicted) == (388, 388)
    assert report.overall["output_tok_s"].mape < 10
    assert report.overall["output_tok_s"].median_ape < 6


def test_expert_parallel_rows_are_predicted() -> None:
    row = {"model": "mixtral-8x7b", "gpu": "h100-sxm-80gb", "precision": "fp8", "tp": 4, "ep": 4, "isl": 200, "osl": 20, "batch": 4}
    report = score([{**row, "ttft_ms": 100.0}])
    assert report.predicted == 1
    assert report.remarks == ()


def test_rows_of_equal_requests_under_load_are_remarked_on() -> None:
    row = {"model": "llama-3-8b", "gpu": "h100-sxm-80gb", "precision": "fp8", "tp": 1, "isl": 200, "osl": 20, "ttft_ms": 50.0}
    report = score([{**row, "request_rate": 2.0}, {**row, "concurrency": 16}, {**row, "concurrency": 15}])
    (told,) = report.to_json()["remarks"]
    assert told.startswith("2 rows of open loops or of 16 clients or more are predicted for requests of exactly the stated lengths")
    assert "isl 200+-20% osl 20+-20%" in told
    assert score([{**row, "concurrency": 15}, {**row, "batch": 4}]).remarks == ()

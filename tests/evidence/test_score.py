import json
from dataclasses import replace
from pathlib import Path
from time import sleep
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.deployments import knobs_of
from tests.evidence.score_cases import CLOSED, rows
from tests.strategies import step_models
from tonnage.errors import InputError
from tonnage.evidence.compare import _between
from tonnage.evidence.predict import (
    OPEN_MOST,
    MeasuredTable,
    joules_per_token,
    predict,
    read_point,
    reported_metrics,
    static_latencies_s,
    workload_of,
)
from tonnage.evidence.reasons import reason
from tonnage.evidence.score import (
    AttainedErrors,
    ErrorOf,
    ScoredRow,
    ScoreReport,
    Skipped,
    _coverage,
    _groups,
    _in_step,
    _score_row,
    attained_errors,
    errors_json,
    errors_of,
    report_of,
    score,
)
from tonnage.perf.memory import memory_plan
from tonnage.perf.step import StepModel
from tonnage.perf.terms import step_model
from tonnage.results.metrics import Attained
from tonnage.results.requests import COMPLETED, REJECTED, Requests
from tonnage.simulator.kernel import run
from tonnage.spec.deployment import Limit
from tonnage.spec.workload import MANY_CLIENTS, Trace

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason=f"THE MEASURED FILES ARE ABSENT: no {DATA}; accuracy is not checked"
)


STATIC = {
    "model": "llama-2-7b",
    "gpu": "h100-sxm-80gb",
    "precision": "fp8",
    "tp": 1,
    "isl": 128,
    "osl": 128,
    "batch": 8,
}


def test_a_rank_has_its_share_of_the_load_and_the_fullest_of_what_does_not_divide() -> None:
    ranks = CLOSED | {
        "model": "deepseek-v3",
        "gpu": "h200-sxm-141gb",
        "precision": "fp8",
        "dp": 8,
        "ep": 8,
        "engine": "vllm-0.32",
    }
    del ranks["concurrency"]
    closed = read_point(ranks | {"concurrency": 20, "requests": 41}).of_rank
    assert (closed.concurrency, closed.requests, closed.request_rate, closed.batch) == (
        3,
        6,
        None,
        None,
    )
    assert read_point(ranks | {"request_rate": 4.0}).of_rank.request_rate == 0.5
    assert read_point(CLOSED).of_rank == read_point(CLOSED)


def test_errors_are_relative_and_signed() -> None:
    truth = predict(read_point(rows()[0]))
    high, low = (
        rows(ttft_ms=truth["ttft_ms"] / f, e2e_ms=truth["e2e_ms"])[0] for f in (1.10, 0.80)
    )
    report = score([high, low])
    error = report.overall["ttft_ms"]
    assert (error.mape, error.bias, error.median_ape, error.n) == pytest.approx(
        (15.0, -5.0, 15.0, 2)
    )
    assert report.overall["e2e_ms"].mape == pytest.approx(0.0, abs=1e-9)
    assert "requests_s" not in report.overall
    assert report.groups["model"]["llama-3-8b"]["ttft_ms"] == error
    assert report.groups["deployment"]["llama-3-8b × h100-sxm-80gb × fp16 × tp1"]["ttft_ms"].n == 2
    assert set(report.groups) >= {"family", "model", "gpu", "precision", "engine", "deployment"}
    assert report.worst[0].errors["ttft_ms"] == pytest.approx(-20.0)
    assert json.loads(json.dumps(report.to_json(), allow_nan=False))["overall"]["ttft_ms"]["n"] == 2


def test_joules_of_a_token_are_scored_with_their_interval() -> None:
    row = rows(output_tok_s=200.0, itl_ms=10.0)[0]
    joules = joules_per_token(read_point(row), {"output_tok_s": 200.0})
    report = score(
        [row | {"joules_per_token": 1.1 * joules[0]}, row | {"joules_per_token": 3 * joules[0]}]
    )
    assert report.overall["joules_per_token"].n == 2
    assert sorted(each.errors["joules_per_token"] for each in report.worst) == pytest.approx(
        [100 / 3 - 100, 100 / 1.1 - 100]
    )
    assert report.worst[0].intervals["joules_per_token"] == joules[1:]
    assert report.coverage["joules_per_token"] == 50


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
    unseen = [
        known | {"model": "llama-9"},
        known | {"gpu": "h900"},
        known | {"model": "llama-9", "line": 9},
        known,
    ]
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
    limits = {
        "ttft_ms": 9,
        "ttft_p95_ms": 11,
        "itl_ms": 4,
        "itl_p95_ms": 7,
        "e2e_ms": 4,
        "requests_s": 4,
        "e2e_p95_ms": 4,
    }
    for name, limit in limits.items():
        assert nim.steady[name].n == 212
        assert nim.steady[name].mape < limit, name
        assert abs(nim.steady[name].bias) < 5, name
    assert nim.not_steady["requests_s"].n == 28
    assert nim.not_steady["requests_s"].mape < 8


@pytest.mark.accuracy
@needs_data
def test_throughput_within_the_target() -> None:
    report = score(DATA / "trtllm_throughput.csv")
    assert (report.rows, report.predicted) == (388, 388)
    assert report.overall["output_tok_s"].mape < 10
    assert report.overall["output_tok_s"].median_ape < 6


def test_rows_of_equal_requests_under_load_are_remarked_on() -> None:
    row = {
        "model": "llama-3-8b",
        "gpu": "h100-sxm-80gb",
        "precision": "fp8",
        "tp": 1,
        "isl": 200,
        "osl": 20,
        "ttft_ms": 50.0,
    }
    report = score(
        [{**row, "request_rate": 2.0}, {**row, "concurrency": 16}, {**row, "concurrency": 15}]
    )
    (told,) = report.to_json()["remarks"]
    assert told.startswith(
        "2 rows of open loops or of 16 clients or more are predicted for requests of exactly the"
        " stated lengths"
    )
    assert "isl 200+-20% osl 20+-20%" in told
    assert score([{**row, "concurrency": 15}, {**row, "batch": 4}]).remarks == ()


def test_engines_by_default_and_by_name() -> None:
    assert read_point(STATIC).deployment.engine == "tensorrt-llm-0.9"
    assert read_point(CLOSED).deployment.engine == "tensorrt-llm-0.15"
    assert read_point(CLOSED | {"engine": "nim (tensorrt-llm)"}).deployment.engine == "nim-2024"
    assert read_point(CLOSED | {"engine": "vllm 0.19"}).deployment.knobs.scheduler == "vllm"
    named = read_point(STATIC | {"engine": "tensorrt-llm 0.15.0"})
    assert named.deployment.knobs.scheduler == "static"
    assert predict(named)["ttft_ms"] != predict(read_point(STATIC))["ttft_ms"]


def test_a_closed_loop_says_how_many_requests_or_for_how_long() -> None:
    step = StepModel(coefficients=np.ones(20) * 1e-4, frontend_s=0.0)
    assert not workload_of(read_point(CLOSED | {"requests": 5}), step, turnaround_s=0.0).queued
    assert workload_of(read_point(CLOSED | {"requests": 4}), step, turnaround_s=0.0).queued
    counted = workload_of(read_point(CLOSED | {"requests": 7}), step, turnaround_s=0.0)
    assert counted.requests == 7
    assert workload_of(read_point(CLOSED), step, turnaround_s=0.0).requests == 40
    windowed = read_point(CLOSED | {"window_s": 5.0})
    found = predict(windowed)
    alone = predict(read_point(CLOSED | {"concurrency": 1, "requests": 1}))
    assert found["requests_s"] * 5 < 4 * (2 + 5e3 / alone["e2e_ms"])
    assert found["requests_s"] == pytest.approx(4e3 / found["e2e_ms"], rel=0.05)  # Little's law


def test_an_open_loop_has_enough_requests() -> None:
    step = StepModel(coefficients=np.ones(20) * 1e-4, frontend_s=0.0)
    base = {k: v for k, v in CLOSED.items() if k != "concurrency"}
    for rate, expected in ((1.0, 1000), (50.0, 3000), (1e6, OPEN_MOST)):
        assert (
            workload_of(read_point(base | {"request_rate": rate}), step, turnaround_s=0.0).requests
            == expected
        )
    found = predict(read_point(base | {"request_rate": 2.0}))
    assert found["requests_s"] == pytest.approx(2.0, rel=0.15)


def test_lengths_are_drawn_as_the_row_says() -> None:
    step = StepModel(coefficients=np.ones(20) * 1e-4, frontend_s=0.0)
    many = CLOSED | {"isl": 900, "osl": 900, "concurrency": 64}
    by_ratio = workload_of(
        read_point(many | {"isl": 1000, "osl": 1000, "range_ratio": 0.8}), step, turnaround_s=0.0
    )
    by_cells = workload_of(
        read_point(many | {"isl_drawn": "800-1000", "osl_drawn": "800-1000"}),
        step,
        turnaround_s=0.0,
    )
    assert (by_ratio.isl, by_ratio.osl) == (by_cells.isl, by_cells.osl)
    assert (by_ratio.isl.kind, by_ratio.isl.mean) == ("uniform", 900)
    assert read_point(many | {"range_ratio": 1.0}).drawn is None
    drawn = predict(read_point(many | {"isl_drawn": "800-1000", "osl_drawn": "800-1000"}))
    # clients of equal requests come back together
    assert predict(read_point(many))["ttft_ms"] > 1.5 * drawn["ttft_ms"]


def test_a_static_row_is_predicted_in_every_column() -> None:
    found = predict(read_point(STATIC))
    assert found["e2e_ms"] == pytest.approx(found["ttft_ms"] + 127 * found["tpot_ms"])
    assert found["itl_ms"] == found["tpot_ms"] == found["itl_p99_ms"]
    assert found["output_tok_s"] == pytest.approx(8 * 128 / found["e2e_ms"] * 1e3)
    assert found["requests_s"] * 128 == pytest.approx(found["output_tok_s"])
    assert 8 < found["peak_gpu_memory_gb"] < 10


@settings(max_examples=60, deadline=None)
@given(step_models(), st.integers(1, 40), st.integers(1, 500), st.integers(1, 60))
def test_the_closed_form_of_a_static_batch_is_the_simulator(
    step: StepModel, batch: int, isl: int, osl: int
) -> None:
    knobs = knobs_of(batch, batch * isl, block=64, scheduler="static")
    equal = np.full(batch, isl), np.full(batch, osl)
    trace = Trace(
        due_ps=np.zeros(batch, np.int64), isl=equal[0], osl=equal[1], concurrency=0, turnaround_ps=0
    )
    record = run(trace, step.in_process, knobs, 10**6)
    ttft, e2e = static_latencies_s(step, batch, isl, osl)
    assert set(record.status) == {COMPLETED}
    assert np.abs(record.first_token_ns / 1e9 - ttft).max() <= 1.001e-9
    assert np.abs(record.last_token_ns / 1e9 - e2e).max() <= 1.001e-9


def record(**changed: Any) -> Requests:
    """What a closed loop of 50 requests leaves behind."""
    point = read_point(CLOSED | {"requests": 50} | changed)
    step = step_model(point.deployment)
    trace = workload_of(point, step, turnaround_s=0.0).trace(0)
    return run(trace, step, point.deployment.knobs, memory_plan(point.deployment).blocks)


def test_latencies_are_over_the_completed_requests_and_rates_up_to_the_last_of_them() -> None:
    found, requests = reported_metrics(record()), record()
    assert set(requests.status) == {COMPLETED}
    values = {
        "ttft": (requests.first_token_ns - requests.due_ns) / 1e6,
        "e2e": (requests.last_token_ns - requests.due_ns) / 1e6,
        "tpot": (requests.last_token_ns - requests.first_token_ns) / 19e6,
    }
    for metric, each in values.items():
        assert found[f"{metric}_ms"] == pytest.approx(each.mean())
        for p in (50, 90, 95, 99):
            assert found[f"{metric}_p{p}_ms"] == pytest.approx(np.percentile(each, p))
    assert found["itl_ms"] == found["tpot_ms"]
    assert found["requests_s"] == pytest.approx(50e9 / requests.last_token_ns.max())
    assert found["output_tok_s"] == pytest.approx(20 * found["requests_s"])


def test_requests_that_were_not_completed_count_for_nothing() -> None:
    whole = record()
    status = whole.status.copy()
    status[25:] = REJECTED
    found, ends = reported_metrics(replace(whole, status=status)), whole.last_token_ns[:25]
    assert found["requests_s"] == pytest.approx(25e9 / ends.max())
    assert found["e2e_ms"] == pytest.approx((ends - whole.due_ns[:25]).mean() / 1e6)
    assert reported_metrics(replace(whole, status=np.full_like(status, REJECTED))) == {}


def row_of(line: int, steady: bool = True, **values: tuple[float, float, float, float]) -> Any:
    """A row by its columns: measured, predicted, and the bounds of the interval."""
    return ScoredRow(
        line=line,
        point=None,  # type: ignore[arg-type]
        measured={name: value[0] for name, value in values.items()},
        predicted={name: value[1] for name, value in values.items()},
        steady=steady,
        intervals={name: value[2:] for name, value in values.items()},
    )


def test_errors_are_relative_signed_and_in_percent() -> None:
    rows = [
        row_of(1, ttft_ms=(100.0, 110.0, 90.0, 120.0), itl_ms=(10.0, 8.0, 7.0, 9.0)),
        row_of(2, ttft_ms=(200.0, 150.0, 100.0, 200.0)),
        row_of(3, ttft_ms=(100.0, 104.0, 101.0, 120.0), steady=False),
    ]
    assert rows[0].errors == {"ttft_ms": pytest.approx(10.0), "itl_ms": pytest.approx(-20.0)}
    assert rows[0].worst_metric == "itl_ms"
    found = errors_of(row.errors for row in rows)
    assert list(found) == ["ttft_ms", "itl_ms"]
    assert found["ttft_ms"] == ErrorOf(
        mape=pytest.approx(13.0), median_ape=pytest.approx(10.0), bias=pytest.approx(-11 / 3), n=3
    )
    assert found["itl_ms"] == ErrorOf(
        mape=pytest.approx(20.0), median_ape=pytest.approx(20.0), bias=pytest.approx(-20.0), n=1
    )
    # both ends belong to an interval, and only steady rows count
    assert _coverage(rows) == {"ttft_ms": 100.0, "itl_ms": 0.0}
    assert _coverage([*rows, row_of(4, ttft_ms=(80.0, 90.0, 81.0, 99.0))])["ttft_ms"] == (
        pytest.approx(200 / 3)
    )
    empty = row_of(5)
    assert (empty.errors, empty.worst_metric) == ({}, "")
    assert _between(
        rows[:2], [row_of(1, ttft_ms=(1, 121.0, 0, 0)), row_of(2, ttft_ms=(1, 120.0, 0, 0))]
    ) == {"ttft_ms": pytest.approx((10 + 20) / 2)}


def attained_of(share: float, rate: float, low: float = 0.0, high: float = 1.0) -> Attained:
    return Attained(limits="", requests_per_second=rate, share=share, low=low, high=high)


def test_joint_attainment_is_compared_by_limit() -> None:
    """Two rows with two limits each: the words of the measured one name the limit."""

    def pair(limits: str, measured: Attained, predicted: Attained) -> tuple[Attained, Attained]:
        return replace(measured, limits=limits), replace(predicted, limits="predicted")

    rows = [
        SimpleNamespace(
            attained=(
                pair("tight", attained_of(0.5, 10.0, 0.45, 0.55), attained_of(0.55, 12.0)),
                pair("loose", attained_of(1.0, 0.0, 0.9, 1.0), attained_of(0.98, 1.0)),
            )
        ),
        SimpleNamespace(
            attained=(pair("tight", attained_of(0.8, 20.0, 0.75, 0.85), attained_of(0.7, 18.0)),)
        ),
    ]
    tight, loose = attained_errors(rows)  # type: ignore[arg-type]
    assert tight == AttainedErrors(
        limits="tight",
        n=2,
        measured=pytest.approx(0.65),
        predicted=pytest.approx(0.625),
        off=pytest.approx(7.5),
        bias=pytest.approx(-2.5),
        inside=50.0,
        goodput=ErrorOf(
            mape=pytest.approx(15.0), median_ape=pytest.approx(15.0), bias=pytest.approx(5.0), n=2
        ),
    )
    assert (loose.limits, loose.n, loose.inside, loose.goodput) == ("loose", 1, 100.0, None)
    assert loose.bias == pytest.approx(-2.0)


def test_rows_in_step_are_those_of_equal_lengths_under_a_load_of_many() -> None:
    def rows(*loads: tuple[str, int | None, Any]) -> list[Any]:
        return [
            SimpleNamespace(
                point=SimpleNamespace(
                    load=load, concurrency=clients, drawn=drawn, isl=800 + place, osl=90
                )
            )
            for place, (load, clients, drawn) in enumerate(loads)
        ]

    closed, drawn = ("closed", MANY_CLIENTS, None), ("closed", 500, object())
    assert _in_step(rows(("closed", MANY_CLIENTS - 1, None), drawn, ("static", None, None))) == ()
    (one,) = _in_step(rows(closed, drawn))
    assert one.startswith(f"1 row of open loops or of {MANY_CLIENTS} clients or more is predicted")
    assert "write isl as 800+-20%" in one
    (two,) = _in_step(rows(closed, ("open", None, None)))
    assert two.startswith("2 rows of open loops")
    assert " are predicted " in two
    assert "write isl as 800+-20%" in two
    assert " 800+-20% " in two
    assert " 90+-20% says" in two


def test_a_row_that_cannot_be_predicted_says_why_on_its_line() -> None:
    def raises(index: int, point: Any) -> dict[str, float]:
        raise InputError("too long")

    table = MeasuredTable(
        rows=[{"line": 7, "ttft_ms": 3.0}, {"ttft_ms": 3.0}],
        point=lambda index: read_point(CLOSED),
        predict=raises,
    )
    point = read_point(CLOSED)
    assert _score_row(table, 0, point) == Skipped(line=7, reason="too long")
    assert _score_row(table, 1, point) == Skipped(line=2, reason="too long")
    nothing = replace(table, predict=lambda index, point: {})
    skipped = _score_row(nothing, 0, point)
    assert isinstance(skipped, Skipped)
    assert skipped.reason.startswith("no request completes")
    row = _score_row(
        replace(table, predict=lambda *asked: {"ttft_ms": 4.0, "e2e_ms": 9.0}), 0, point
    )
    assert isinstance(row, ScoredRow)
    assert (row.line, row.measured, row.predicted) == (7, {"ttft_ms": 3.0}, {"ttft_ms": 4.0})
    assert (row.steady, row.attained, list(row.intervals)) == (True, (), ["ttft_ms"])


def test_a_score_that_is_interrupted_predicts_no_further_rows() -> None:
    """One thread has begun the next row or two by then; forty were waiting."""
    begun: list[int] = []

    def slow(place: int, _: Any) -> dict[str, float]:
        begun.append(place)
        sleep(0.005)
        return {"ttft_ms": 1.0}

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    point = read_point(STATIC)
    table = MeasuredTable(
        rows=[STATIC | {"ttft_ms": 2.0}] * 40, point=lambda _: point, predict=slow
    )
    with pytest.raises(KeyboardInterrupt):
        score(table, workers=1, progress=interrupted)
    assert 1 <= len(begun) <= 5


def scored(row: dict[str, Any], **changed: Any) -> ScoredRow:
    return ScoredRow(
        **{
            "line": 4,
            "point": read_point(row),
            "measured": {"ttft_ms": 100.0, "itl_ms": 10.0, "e2e_ms": 7.0},
            "predicted": {"ttft_ms": 90.0, "itl_ms": 12.0},
            "steady": False,
            "intervals": {"ttft_ms": (80.0, 120.0)},
            **changed,
        }
    )


def test_a_row_belongs_to_a_group_of_each_kind() -> None:
    closed = scored(CLOSED | {"concurrency": 9, "requests": 20})
    assert closed.group == {
        "family": "dense",
        "model": "llama-3-8b",
        "gpu": "h100-sxm-80gb",
        "precision": "fp16",
        "tp": "1",
        "engine": "tensorrt-llm-0.15",
        "load": "closed",
        "lengths": "200/20",
        "regime": f"{closed.regime.load}, {closed.regime.mix}",
        "cache": "holds all clients",
        "deployment": "llama-3-8b × h100-sxm-80gb × fp16 × tp1",
    }
    rate = {name: value for name, value in CLOSED.items() if name != "concurrency"}
    split = rate | {"model": "mixtral-8x7b", "tp": 2, "pp": 2, "request_rate": 1.0}
    group = scored(split).group
    assert (group["family"], group["load"], group["regime"]) == ("moe", "open", "open")
    assert "cache" not in group
    assert group["deployment"] == "mixtral-8x7b × h100-sxm-80gb × fp16 × tp2 pp2"
    latent = rate | {"model": "deepseek-v3", "gpu": "h200-sxm-141gb", "precision": "fp8", "tp": 8}
    assert scored(latent | {"batch": 4}).group["family"] == "mla"
    current = CLOSED | {"engine": "vllm", "concurrency": 64}
    apart = [scored(current | {"requests": requests}).regime.apart for requests in (64, 65)]
    assert ["burst" in properties for properties in apart] == [True, False]


def test_a_row_as_json_has_its_place_its_load_and_what_was_compared() -> None:
    row = scored(CLOSED)
    document = row.to_json()
    assert document == {
        "line": 4,
        "model": "llama-3-8b",
        "gpu": "h100-sxm-80gb",
        "precision": "fp16",
        "engine": "tensorrt-llm-0.15",
        **row.point.deployment.parallelism.degrees,
        "isl": 200,
        "osl": 20,
        "concurrency": 4,
        "steady": False,
        "errors": {"ttft_ms": pytest.approx(-10.0), "itl_ms": pytest.approx(20.0)},
        "measured": {"ttft_ms": 100.0, "itl_ms": 10.0, "e2e_ms": 7.0},
        "predicted": {"ttft_ms": 90.0, "itl_ms": 12.0},
        "intervals": {"ttft_ms": [80.0, 120.0]},
        "reason": row.reason,
    }
    assert row.worst_metric == "itl_ms"
    assert row.reason == reason(row.point, "itl_ms", steady=False)
    pair = (attained_of(0.5, 10.0), attained_of(0.25, 5.0))
    met = scored(CLOSED, attained=(pair,)).to_json()["attained"]
    assert met == [{"measured": pair[0].to_json(), "predicted": pair[1].to_json()}]


def test_rows_are_grouped_by_every_kind_in_the_order_of_their_names() -> None:
    rows = [scored(CLOSED | {"gpu": gpu}) for gpu in ("l40s", "h100-sxm-80gb", "l40s")]
    groups = _groups(rows)
    assert list(groups["gpu"]) == ["h100-sxm-80gb", "l40s"]
    assert [groups["gpu"][name]["itl_ms"].n for name in groups["gpu"]] == [1, 2]
    assert groups["model"]["llama-3-8b"]["ttft_ms"] == ErrorOf(
        mape=pytest.approx(10.0), median_ape=pytest.approx(10.0), bias=pytest.approx(-10.0), n=3
    )


def test_a_report_of_rows_by_hand_and_as_json() -> None:
    """Of five rows two are predicted, 10 % too low and 50 % too high; one is of an unknown model,
    one is refused, and one answers nothing."""
    values: list[Any] = [{"ttft_ms": 90.0}, {"ttft_ms": 150.0}, None, InputError("no"), {}]
    rows = [CLOSED | {"ttft_ms": 100.0, "line": 9 - place} for place in range(5)]
    rows[2]["model"] = "llama-9"
    seen: list[tuple[int, int, str]] = []

    def predicted(place: int, _: Any) -> dict[str, float]:
        if isinstance(values[place], InputError):
            raise values[place]
        return values[place]  # type: ignore[no-any-return]

    table = MeasuredTable(
        rows=rows, point=lambda i: read_point(rows[i]), predict=predicted, remarks=("One is odd.",)
    )
    report, ordered = report_of(
        replace(table, apart={"others": replace(table, rows=rows[:1])}),
        worst=1,
        workers=1,
        progress=lambda done, total, name: seen.append((done, total, name)),
    )
    assert [row.line for row in ordered] == [9, 8]
    assert (report.rows, report.predicted) == (5, 2)
    error = ErrorOf(
        mape=pytest.approx(30.0), median_ape=pytest.approx(30.0), bias=pytest.approx(20.0), n=2
    )
    assert report.overall == report.steady == {"ttft_ms": error}
    assert (report.not_steady, report.attained) == ({}, ())
    assert [row.line for row in report.worst] == [8]
    assert report.unknown == {"model": {"llama-9": 1}}
    assert [skipped.line for skipped in report.skipped] == [5, 6, 7]
    assert report.skipped[1].reason == "no"
    assert report.remarks == ("One is odd.",)
    assert (report.apart["others"].rows, report.apart["others"].predicted) == (1, 1)
    assert seen == [*((done, 4, "llama-3-8b") for done in range(1, 5)), (1, 1, "llama-3-8b")]
    document = report.to_json()
    assert document["overall"] == {
        "ttft_ms": {
            name: pytest.approx(value)
            for name, value in (("mape", 30), ("median_ape", 30), ("bias", 20), ("n", 2))
        }
    }
    assert document["steady"] == document["overall"]
    assert document["coverage"] == report.coverage
    assert document["groups"]["gpu"]["h100-sxm-80gb"] == errors_json(report.overall)
    assert document["worst"] == [report.worst[0].to_json()]
    assert document["skipped"][1] == {"line": 6, "reason": "no"}
    assert (document["rows"], document["predicted"], document["not_steady"]) == (5, 2, {})
    assert (document["unknown"], document["remarks"]) == (report.unknown, ["One is odd."])
    assert document["apart"]["others"]["predicted"] == 1
    assert "attained" not in document
    assert "apart" not in document["apart"]["others"]
    assert report_of(table, worst=-1, workers=1)[0].worst == ()
    with pytest.raises(InputError, match="no row has single requests; score run folders"):
        score(table, slo=(Limit(metric="ttft", statistic="p95", seconds=1.0),))

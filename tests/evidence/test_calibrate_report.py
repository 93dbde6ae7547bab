"""What a calibration reports, and the rows that it refuses, by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.evidence.calibrate_cases import MACHINE, Row
from tonnage.errors import InputError
from tonnage.evidence.calibrate import (
    CalibrationReport,
    TtftError,
    _Calibrating,
    _check_loads,
    _fits,
    _one_of_each,
    _row,
    ttft_errors,
)
from tonnage.results.metrics import TtftParts
from tonnage.spec.calibration import Calibration

SLOW_QUEUE = TtftError(part="queue", seconds=-0.03, predicted=0.07, width=0.004, off=True)
SLOW_QUEUE_WORDS = (
    "TTFT: the queue is off, by -30 ms (±4) of a predicted 70 in the mean of the points; with what"
    " other requests cost, it grows with the load, and with slower steps"
)


def made_report(**changed: Any) -> CalibrationReport:
    """A report of four terms, of which the points determine one, one in part, and two not."""
    return CalibrationReport(
        **{
            "calibration": Calibration(
                preset="vllm",
                gpu="l40s",
                multipliers=(("compute", 1.1),),
                terms=(("step_s", 0.002),),
                data="four points",
                deployments=("m fp8 tp1",),
                left_out=(("itl_ms", 0.05, 4),),
            ),
            "kept": True,
            "strength": 0.5,
            "factors": {"compute": 1.1, "memory": 0.9, "step_s": 0.002071, "kv_bandwidth": 1.0},
            "shrinkage": {"compute": 0.599, "memory": 0.6, "step_s": 0.9, "kv_bandwidth": 1.2},
            "before": {"itl_ms": 12.0},
            "after": {"itl_ms": 3.0},
            "left_out_before": {"itl_ms": 12.34, "e2e_ms": 20.0},
            "left_out": {"itl_ms": 4.06, "e2e_ms": 5.0},
            "units": "curve",
            "points": 4,
            "not_steady": 2,
            "rows": ({"line": 7},),
            "ttft": (
                TtftError(part="prefill", seconds=0.001, predicted=0.02, width=0.01, off=False),
                SLOW_QUEUE,
            ),
            "remarks": ("One run is left out.",),
            **changed,
        }
    )


def test_the_verdict_says_what_the_points_tell_and_which_part_of_the_ttft_is_off() -> None:
    change = "itl_ms 12.3 → 4.1 %, e2e_ms 20.0 → 5.0 %"
    factors = [
        "determined: compute ×1.1",
        "in part: memory ×0.9",
        "not determined: step_s, kv_bandwidth",
        SLOW_QUEUE_WORDS,
    ]
    kept = "calibrated: each curve predicted without itself, "
    assert made_report().verdict() == [kept + change, *factors]
    shipped_stay = "the shipped terms stay: fitted factors did not predict a left-out curve better"
    assert made_report(kept=False).verdict() == [f"{shipped_stay}, {change}", *factors]
    own = made_report(
        own=True, shrinkage={"compute": 0.0, "step_s": 0.3, "memory": 0.899}, units="load", ttft=()
    )
    assert own.verdict() == [
        f"terms of its own: each load predicted without itself, {change}",
        "determined: compute 1.1, step_s 2.07 ms",
        "in part: memory 0.9",
    ]
    transferred = "the transferred terms stay: fitted terms did not predict a left-out load better"
    assert replace(own, kept=False).verdict()[0] == f"{transferred}, {change}"


def test_the_file_of_a_report_field_by_field() -> None:
    report = made_report()
    document = report.to_json("2026-11-29")
    assert document == {
        "schema": "tonnage.calibration/1",
        "preset": "vllm",
        "gpu": "l40s",
        "multipliers": {"compute": 1.1},
        "deployments": ["m fp8 tp1"],
        "left_out_by": "curve",
        "left_out_errors": {"itl_ms": {"rms": 0.05, "points": 4}},
        "data": "four points",
        "date": "2026-11-29",
        "points": 4,
        "not_steady": 2,
        "verdict": report.verdict(),
        "remarks": ["One run is left out."],
        "fitted": {
            "compute": {"factor": 1.1, "posterior_over_prior": 0.599},
            "memory": {"factor": 0.9, "posterior_over_prior": 0.6},
            "step_s": {"factor": 0.002071, "posterior_over_prior": 0.9},
            "kv_bandwidth": {"factor": 1.0, "posterior_over_prior": 1.2},
        },
        "ttft": {
            "prefill": {"seconds": 0.001, "predicted": 0.02, "width": 0.01, "off": False},
            "queue": {"seconds": -0.03, "predicted": 0.07, "width": 0.004, "off": True},
        },
        "residuals": {
            "mape_before": {"itl_ms": 12.0},
            "mape_after": {"itl_ms": 3.0},
            "rows": [{"line": 7}],
        },
        "loo": {
            "left_out": "curve",
            "strength": 0.5,
            "mape_before": {"itl_ms": 12.34, "e2e_ms": 20.0},
            "mape_after": {"itl_ms": 4.06, "e2e_ms": 5.0},
        },
    }
    own = replace(report, own=True).to_json("2026-11-29")
    assert own["terms"] == {"step_s": 0.002}
    assert own["fitted"]["memory"] == {"value": 0.9, "posterior_over_prior": 0.6}
    assert (report.own, made_report(ttft=(), remarks=()).to_json("")["ttft"]) == (False, {})


def test_the_row_of_a_point_has_its_load_and_the_errors_that_were_measured() -> None:
    row = {"line": 9, **MACHINE, "isl": 800, "osl": 100, "concurrency": 4, "batch": None}
    before = {"itl_ms": np.log([9.0, 1.5]), "ttft_ms": np.array([0.0, np.nan])}
    after = {"itl_ms": np.log([9.0, 0.9876543])}
    assert _row(row, 1, before, after) == {
        "line": 9,
        "model": "llama-3-8b",
        "tp": 1,
        "isl": 800,
        "osl": 100,
        "concurrency": 4,
        "before": {"itl_ms": 50.0},
        "after": {"itl_ms": -1.23},
    }
    bare = {**MACHINE, "isl": 8, "osl": 1, "batch": 2, "request_rate": 0.5}
    found = _row(bare, 0, before, {})
    assert (found["line"], found["batch"], found["request_rate"]) == (None, 2, 0.5)
    assert found["before"]["ttft_ms"] == 0.0
    assert found["after"] == {}


def test_which_points_belong_together_and_how_many_are_needed() -> None:
    row = {**MACHINE, "isl": 800, "osl": 100, "concurrency": 4}
    assert _one_of_each([row] * 3, 3, ()) == ("nim-2024", "h100-sxm-80gb")
    for rows, of, remarks, words in (
        (2, 2, (), "calibrate: 2 usable points; give at least 3 of one deployment"),
        (
            1,
            4,
            ("2 are odd.", "1 is late."),
            "calibrate: 1 usable points (3 of 4 are not steady: requests/s × E2E / clients below"
            " 0.95); give at least 3 of one deployment, better 8 to 10 loads; 2 are odd; 1 is late",
        ),
    ):
        with pytest.raises(InputError) as refused:
            _one_of_each([row] * rows, of, remarks)
        assert str(refused.value).startswith(words)
    with pytest.raises(InputError, match=r"several GPUs \(h100-sxm-80gb, l40s\)"):
        _one_of_each([row, row | {"gpu": "l40s"}, row], 3, ())
    assert _fits(row)
    assert not _fits(row | {"osl": 10_000_000})
    assert _fits({**row, "batch": 4, "osl": 10_000_000})


def test_terms_of_one_s_own_need_eight_loads_with_both_times() -> None:
    row = {**MACHINE, "isl": 800, "osl": 100, "ttft_ms": 40.0, "itl_ms": 8.0}
    loads: list[Row] = [{**row, "concurrency": n} for n in (1, 2, 4)]
    loads += [{**row, "request_rate": rate} for rate in (1.0, 2.0, 3.0)]
    loads += [{**row, "isl": 400, "concurrency": 1}, {**row, "osl": 50, "concurrency": 1}]
    _check_loads(loads)
    with pytest.raises(InputError, match=r"^calibrate: 7 different loads; .* need at least 8,"):
        _check_loads([*loads[:7], loads[0]])
    with pytest.raises(InputError, match="not to static batches; leave out"):
        _check_loads([*loads, {**row, "batch": 0}])
    for name in ("ttft_ms", "itl_ms"):
        with pytest.raises(InputError, match="need a mean TTFT and a mean TPOT of every load"):
            _check_loads([*loads[1:], {**loads[0], name: None}])


def ttft_parts(count: int = 1) -> list[TtftParts]:
    """The predicted parts of five rows, each so many times: TTFTs of 40, 60, 120, 130 and 375 ms."""
    return [
        TtftParts(
            statistic="mean",
            front_end_ms=10.0,
            queue_ms=queue,
            prefill_ms=prefill,
            shared_ms=5.0,
            handover_ms=0.0,
            saved_ms=0.0,
        )
        for prefill, queue in ((20.0, 5.0), (40.0, 5.0), (80.0, 25.0), (20.0, 95.0), (160.0, 200.0))
    ] * count


def measured_with(front_ms: float, count: int = 1) -> list[float]:
    """The same measured, with so much more in front of every row and some scatter."""
    sums = (part.front_end_ms + part.prefill_ms + part.queue_ms + 5.0 for part in ttft_parts())
    scatter = (1.0, -1.5, 2.0, -2.0, 1.0)
    return [total + front_ms + more for total, more in zip(sums, scatter, strict=True)] * count


@pytest.mark.parametrize(
    ("measured", "scattered", "off"),
    [
        (measured_with(30.0), False, [True, False, False]),
        ([90.0, 45.0, 240.0, 70.0, 600.0], True, [False, False, False]),
    ],
)
def test_the_errors_of_a_ttft_are_those_of_least_squares_with_priors_as_rows(
    measured: list[float], scattered: bool, off: list[bool]
) -> None:
    """Reference: numpy's least squares of the rows in units of 9 % of their TTFT, and a row for the
    prior of each part: one second of the front end, half of the prefill and half of the queue."""
    parts, ttft = ttft_parts(), np.array(measured) / 1e3
    prefill, queue = (
        np.array([getattr(part, name) / 1e3 for part in parts])
        for name in ("prefill_ms", "queue_ms")
    )
    shape = np.column_stack([np.ones(5), prefill, queue + 0.005])
    error = (ttft - 0.01 - prefill - queue - 0.005) / (0.09 * ttft)
    rows = np.vstack([shape / (0.09 * ttft)[:, None], np.diag([1.0, 2.0, 2.0])])
    solution = np.linalg.lstsq(rows, np.append(error, np.zeros(3)), rcond=None)[0]
    residual = error - rows[:5] @ solution
    scatter = float(residual @ residual) / 2  # of five rows and three parts
    assert (scatter > 1) is scattered
    widths = np.sqrt(max(scatter, 1.0) * np.diag(np.linalg.inv(rows.T @ rows)))
    found = ttft_errors(measured, parts)
    assert [part.part for part in found] == ["front end", "prefill", "queue"]
    assert [part.seconds for part in found] == pytest.approx(
        (solution * shape.mean(axis=0)).tolist()
    )
    assert [part.width for part in found] == pytest.approx((widths * shape.mean(axis=0)).tolist())
    assert [part.predicted for part in found] == pytest.approx([0.01, 0.064, 0.071])
    assert [part.off for part in found] == off


@pytest.mark.parametrize(
    ("front_ms", "count", "off"),
    [
        (12.0, 1, False),  # 1.98 of its standard errors
        (14.0, 1, True),  # 2.25
        (3.5, 60, False),  # sure, and a twelfth of the shortest TTFT
        (5.0, 60, True),
        (-8.0, 60, True),
        (-11.0, 60, False),  # more than there is of it
    ],
)
def test_a_front_end_is_off_where_that_is_sure_felt_and_possible(
    front_ms: float, count: int, off: bool
) -> None:
    front, *others = ttft_errors(measured_with(front_ms, count), ttft_parts(count))
    assert front.off is off
    assert front.seconds == pytest.approx(front_ms / 1e3, abs=8e-4)
    assert not any(other.off for other in others)


def test_what_is_left_out_in_turn_is_a_curve_where_there_are_several_and_else_a_point() -> None:
    row = {**MACHINE, "isl": 800, "osl": 100, "concurrency": 4}

    def left_out(*rows: Row) -> tuple[str, list[list[bool]], int]:
        sample: Any = SimpleNamespace(rows=list(rows), parts=[], names=())
        made = _Calibrating(sample, data="", set_aside=0, progress=None)
        return made.units, [fold.tolist() for fold in made.folds], made.total

    points = left_out(row, row | {"concurrency": 8})
    assert points == ("point", [[True, False], [False, True]], 2 * 3)
    for name, value in (("isl", 9), ("osl", 9), ("tp", 2), ("model", "m"), ("precision", "fp8")):
        curves = left_out(row, row | {name: value}, row | {"concurrency": 8})
        assert curves == ("curve", [[True, False, True], [False, True, False]], 2 * 3)

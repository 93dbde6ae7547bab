import numpy as np
import pytest

from tonnage.evidence.predict import OPEN_MOST, predict, read_point, workload_of
from tonnage.perf.step import StepModel

CLOSED = {"model": "llama-3-8b", "gpu": "h100-sxm-80gb", "precision": "fp16", "tp": 1, "isl": 200, "osl": 20, "concurrency": 4}


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
        assert workload_of(read_point(base | {"request_rate": rate}), step, turnaround_s=0.0).requests == expected
    found = predict(read_point(base | {"request_rate": 2.0}))
    assert found["requests_s"] == pytest.approx(2.0, rel=0.15)


def test_lengths_are_drawn_as_the_row_says() -> None:
    step = StepModel(coefficients=np.ones(20) * 1e-4, frontend_s=0.0)
    many = CLOSED | {"isl": 900, "osl": 900, "concurrency": 64}
    by_ratio = workload_of(read_point(many | {"isl": 1000, "osl": 1000, "range_ratio": 0.8}), step, turnaround_s=0.0)
    by_cells = workload_of(read_point(many | {"isl_drawn": "800-1000", "osl_drawn": "800-1000"}), step, turnaround_s=0.0)
    assert (by_ratio.isl, by_ratio.osl) == (by_cells.isl, by_cells.osl)
    assert (by_ratio.isl.kind, by_ratio.isl.mean) == ("uniform", 900)
    assert read_point(many | {"range_ratio": 1.0}).drawn is None
    drawn = predict(read_point(many | {"isl_drawn": "800-1000", "osl_drawn": "800-1000"}))
    assert predict(read_point(many))["ttft_ms"] > 1.5 * drawn["ttft_ms"]  # clients of equal requests come back together

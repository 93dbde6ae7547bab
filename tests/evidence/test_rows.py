"""Measured rows: their scatter, and the knobs that they ran with."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.evidence.calibrate_cases import MACHINE, METRICS, TRUTH, measured, with_factors
from tonnage import api
from tonnage.evidence.rows import SIGMA, LoadedRows
from tonnage.formats.measured_files import read_measured
from tonnage.perf.terms_file import shipped


def test_each_metric_counts_by_its_own_scatter() -> None:
    """A metric that is as many of its sigmas off as another counts as much, however much more it
    scatters."""
    truth = with_factors(TRUTH)
    loaded = LoadedRows(measured(800, 100, truth, clients=(8,)))
    loaded.simulate(truth)
    for name in loaded.measured:
        loaded.measured[name] = loaded.measured[name] * np.exp(-2 * SIGMA[name])
    np.testing.assert_allclose(loaded.residuals(truth), np.sqrt(2 * (np.sqrt(5) - 1)), rtol=1e-6)


def test_rows_whose_lengths_were_drawn_vary_without_a_run_of_their_own() -> None:
    row = {**MACHINE, "isl": 800, "osl": 100, "concurrency": 1, "requests": 8}
    row |= dict.fromkeys(METRICS, 1.0)
    loaded = LoadedRows([row, {**row, "range_ratio": 0.8}])
    assert loaded.varied.tolist() == [False, True]


WHAT: dict[str, Any] = {
    "model": "llama-3-8b",
    "engine": "nim-2024",
    "isl": "uniform:100-900",
    "osl": "uniform:10-90",
    "seed": 7,
}


def rows_of(folder: Path, **load: Any) -> LoadedRows:
    """The row of one run of the shipped machine, simulated again with the shipped terms."""
    (run,) = api.simulate_sweep(**WHAT, **load)
    api.write_runs(folder, [run], {"seed": 7})
    loaded = LoadedRows(
        read_measured(folder, {"gpu": "h100-sxm-80gb", "precision": "fp16", "tp": 1})
    )
    loaded.simulate(shipped())
    return loaded


@pytest.mark.parametrize(
    "load", [{"concurrency": 5, "requests": 60}, {"request_rate": 6.0, "requests": 60}]
)
def test_a_run_of_the_shipped_machine_comes_back_exactly(
    load: dict[str, Any], tmp_path: Path
) -> None:
    """Drawn anew, the lengths and arrivals would differ; as recorded, every latency is what it
    was."""
    loaded = rows_of(tmp_path / "run", **load)
    for name in ("ttft_ms", "ttft_p95_ms", "e2e_ms", "itl_ms"):
        assert loaded.simulated(name)[0] == pytest.approx(loaded.measured[name][0], rel=1e-6), name
    assert loaded.predict(shipped())["itl_ms"][0] == pytest.approx(
        loaded.measured["itl_ms"][0], rel=1e-6
    )


def test_a_folder_that_is_measured_again_is_read_again(tmp_path: Path) -> None:
    first = rows_of(tmp_path / "run", request_rate=6.0, requests=40)
    shutil.rmtree(tmp_path / "run")
    second = rows_of(tmp_path / "run", request_rate=6.0, requests=20)
    assert [
        len(each.workload(0, model=None, turnaround_s=0.0).trace(0)) for each in (first, second)
    ] == [20, 20]


def test_a_row_with_knobs_ran_with_these(tmp_path: Path) -> None:
    (run,) = api.simulate_sweep(**WHAT, concurrency=40, requests=80, max_batch_size=4)
    api.write_runs(tmp_path / "run", [run], {})
    (row,) = read_measured(tmp_path / "run", {"gpu": "h100-sxm-80gb", "precision": "fp16", "tp": 1})
    for knobs, near in ({"knobs": run.deployment.knobs}, True), ({}, False):
        loaded = LoadedRows([{**row, **knobs}])
        loaded.simulate(shipped())
        assert (
            bool(
                loaded.simulated("ttft_ms")[0]
                == pytest.approx(loaded.measured["ttft_ms"][0], rel=1e-6)
            )
            is near
        )

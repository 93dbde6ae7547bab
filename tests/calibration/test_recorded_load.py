"""A run folder is simulated as it was: the same lengths in the same order, and in an open loop the same moments."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tonnage import api
from tonnage.evidence.rows import LoadedRows
from tonnage.formats.measured_files import read_measured
from tonnage.perf.terms_file import shipped
from tonnage.results.store import read_run

WHAT: dict[str, Any] = {"model": "llama-3-8b", "engine": "nim-2024", "isl": "uniform:100-900", "osl": "uniform:10-90", "seed": 7}


def rows_of(folder: Path, **load: Any) -> LoadedRows:
    """The row of one run of the shipped machine, simulated again with the shipped terms."""
    (run,) = api.simulate_sweep(**WHAT, **load)
    api.write_runs(folder, [run], {"seed": 7})
    loaded = LoadedRows(read_measured(folder, {"gpu": "h100-sxm-80gb", "precision": "fp16", "tp": 1}))
    loaded.simulate(shipped())
    return loaded


@pytest.mark.parametrize("load", [{"concurrency": 5, "requests": 60}, {"request_rate": 6.0, "requests": 60}])
def test_a_run_of_the_shipped_machine_comes_back_exactly(load: dict[str, Any], tmp_path: Path) -> None:
    """Drawn anew, the lengths and arrivals would differ; as recorded, every latency is what it was."""
    loaded = rows_of(tmp_path / "run", **load)
    for name in ("ttft_ms", "ttft_p95_ms", "e2e_ms", "itl_ms"):
        assert loaded.simulated(name)[0] == pytest.approx(loaded.measured[name][0], rel=1e-6), name
    assert loaded.predict(shipped())["itl_ms"][0] == pytest.approx(loaded.measured["itl_ms"][0], rel=1e-6)


def test_the_lengths_and_moments_are_those_of_the_record(tmp_path: Path) -> None:
    loaded = rows_of(tmp_path / "run", request_rate=6.0, requests=40)
    trace = loaded.workload(0, model=None, turnaround_s=0.0).trace(0)
    record = read_run(tmp_path / "run").requests
    order = np.argsort(record.due_ns, kind="stable")
    assert trace.isl.tolist() == record.isl[order].tolist()
    assert trace.osl.tolist() == record.osl[order].tolist()
    assert trace.due_ps.tolist() == (record.due_ns[order] * 1000).tolist()


def test_a_folder_that_is_measured_again_is_read_again(tmp_path: Path) -> None:
    first = rows_of(tmp_path / "run", request_rate=6.0, requests=40)
    shutil.rmtree(tmp_path / "run")
    second = rows_of(tmp_path / "run", request_rate=6.0, requests=20)
    assert [len(each.workload(0, model=None, turnaround_s=0.0).trace(0)) for each in (first, second)] == [20, 20]


def test_a_row_with_knobs_ran_with_these(tmp_path: Path) -> None:
    (run,) = api.simulate_sweep(**WHAT, concurrency=40, requests=80, max_batch_size=4)
    api.write_runs(tmp_path / "run", [run], {})
    (row,) = read_measured(tmp_path / "run", {"gpu": "h100-sxm-80gb", "precision": "fp16", "tp": 1})
    for knobs, near in ({"knobs": run.deployment.knobs}, True), ({}, False):
        loaded = LoadedRows([{**row, **knobs}])
        loaded.simulate(shipped())
        assert bool(loaded.simulated("ttft_ms")[0] == pytest.approx(loaded.measured["ttft_ms"][0], rel=1e-6)) is near

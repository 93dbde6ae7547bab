"""Measured rows: their scatter, and the knobs that they ran with."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.evidence.calibrate_cases import MACHINE, METRICS, TRUTH, measured, with_factors
from tonnage import api
from tonnage.evidence.predict import read_point
from tonnage.evidence.rows import (
    SIGMA,
    STATIC_SIGMA,
    Deployments,
    LoadedRows,
    RecordedLoad,
    StaticRows,
    column,
    errors,
    gather,
    recorded_load,
    robust,
)
from tonnage.formats.measured_files import read_measured
from tonnage.perf.step import step_seconds
from tonnage.perf.terms import step_model
from tonnage.perf.terms_file import shipped
from tonnage.results.requests import COMPLETED, FAILED
from tonnage.simulator import request as record


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


STATIC = {**MACHINE, "isl": 512, "osl": 100, "ttft_ms": 50.0, "itl_ms": 8.0}


def test_a_static_batch_is_one_step_of_prompts_and_one_of_tokens_at_half_of_the_outputs() -> None:
    rows = [{**STATIC, "batch": batch, "isl": isl} for batch, isl in ((1, 512), (8, 512), (8, 96))]
    static = StaticRows(rows)
    assert static.batch.tolist() == [1.0, 8.0, 8.0]
    predicted = static.predict(shipped())
    model = step_model(read_point(rows[0]).deployment)
    for place, row in enumerate(rows):
        batch, isl, osl = row["batch"], row["isl"], row["osl"]
        first = step_seconds(model.coefficients, batch * isl, batch, 0, batch * isl**2, 0)
        token = step_seconds(model.coefficients, 0, 0, batch, 0, batch * (isl + osl // 2))
        front = predicted["ttft_ms"][place] / 1e3 - first
        assert front == pytest.approx(shipped()["engines"]["nim-2024"]["frontend_s"])
        assert predicted["itl_ms"][place] == pytest.approx(1e3 * token)
    found = errors(static, shipped())
    assert found["ttft_ms"] == pytest.approx(predicted["ttft_ms"] / 50.0 - 1)
    off = {
        name: np.log(predicted[name] / row) for name, row in (("ttft_ms", 50.0), ("itl_ms", 8.0))
    }
    scaled = np.concatenate([off["ttft_ms"], off["itl_ms"]]) / STATIC_SIGMA
    assert static.residuals(shipped()) == pytest.approx(
        np.sign(scaled) * np.sqrt(2 * (np.sqrt(1 + scaled**2) - 1))
    )


def test_a_recorded_load_comes_as_it_was_and_begins_again_for_a_window(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of four requests one failed; the others come by their due times, the first 2 µs early."""
    (tmp_path / "requests.parquet").touch()
    run = SimpleNamespace(
        status=np.array([COMPLETED, COMPLETED, FAILED, COMPLETED]),
        due_ns=np.array([5_000, -2_000, 0, 1_000]),
        isl=np.array([10, 0, 7, 30]),
        osl=np.array([1, 2, 9, 0]),
    )
    monkeypatch.setattr(
        "tonnage.evidence.rows.read_run", lambda path: SimpleNamespace(requests=run)
    )

    def load(requests: int = 5, **point: Any) -> RecordedLoad:
        what = SimpleNamespace(**{"concurrency": None, "window_s": None} | point)
        return recorded_load(str(tmp_path), what, requests, 2e-3)

    drawn = load()
    assert (drawn.isl.tolist(), drawn.osl.tolist()) == ([1, 30, 10], [2, 1, 1])
    assert drawn.due_ps.tolist() == [0, 3_000_000, 7_000_000]
    assert (drawn.concurrency, drawn.turnaround_ps, drawn.queued) == (0, 0, False)
    closed = load(concurrency=2)
    assert closed.isl.tolist() == [1, 30, 10]
    assert closed.due_ps.tolist() == [-1, -1, -1]
    assert (closed.concurrency, closed.turnaround_ps) == (2, 2_000_000_000)
    assert [load(concurrency=count).queued for count in (2, 3, 4)] == [False, True, True]
    again = load(concurrency=2, window_s=60.0)
    assert again.isl.tolist() == [1, 30, 10, 1, 30]
    assert again.osl.tolist() == [2, 1, 1, 2, 1]
    assert load(requests=0, concurrency=2, window_s=60.0).isl.tolist() == [1]
    trace = again.trace(9)
    assert (trace.concurrency, trace.seed, trace.turnaround_ps) == (2, 9, 2_000_000_000)
    assert trace.isl is again.isl
    assert trace.due_ps is again.due_ps


def four_steps(ranks: int) -> Any:
    """Four steps of 10 ms. The first request is prefilled in the first step and decodes in the next
    two; the second comes in the second step, is prefilled in the third and decodes in the fourth;
    the third fails. Each token is a millisecond on its way."""
    columns = {
        record.START: [0, 10, 20, 30],
        record.DURATION: [10, 10, 10, 10],
        record.PREFILL_TOKENS: [100, 0, 50, 0],
        record.PREFILL_SEQUENCES: [1, 0, 1, 0],
        record.DECODE_SEQUENCES: [0, 1, 1, 1],
        record.PAIRS_2: [10_000, 0, 2_500, 0],
        record.CONTEXT_TOKENS: [0, 101, 102, 51],
        record.ALL_TOKENS: [150, 1, 102, 2],
    }
    steps = np.zeros((4, max(columns) + 1), dtype=np.int64)
    for place, values in columns.items():
        steps[:, place] = values
    steps[:, [record.START, record.DURATION]] *= 10**9
    log = SimpleNamespace(
        steps=steps, first_step=np.array([0, 2, -1]), last_step=np.array([2, 3, -1])
    )
    ms = 1_000_000
    run = SimpleNamespace(
        status=np.array([COMPLETED, COMPLETED, FAILED]),
        due_ns=np.array([0, 12, 3]) * ms,
        first_token_ns=np.array([11, 31, -1]) * ms,
        last_token_ns=np.array([31, 41, -1]) * ms,
    )
    return gather(run, log, {"ttft_p95_ms": 19.0}, ranks)  # type: ignore[arg-type]


def test_the_steps_of_a_run_in_bins_by_hand() -> None:
    """The second and the fourth step are alike. Of each span: steps, attention pairs and context
    tokens of a request."""
    bins = four_steps(1)
    assert bins.shape.tolist() == [[0, 50, 100], [0, 1, 1], [1, 1, 0], [1, 1, 1]]
    ttft, decode, whole, near = bins.weights
    assert ttft.tolist() == [[0.5, 0.5, 0.5], [0, 625, 2_500], [50.5, 51, 0]]
    assert decode.tolist() == [[1, 0.5, 0], [0, 625, 0], [76, 51, 0]]
    assert whole.tolist() == [[2, 1, 1], [0, 1_250, 5_000], [152, 102, 0]]
    assert near.tolist() == [[1, 1, 0], [0, 1_250, 0], [101, 102, 0]]
    # mean TTFT 15 ms, decode 15 ms, four steps, and of the slow one 19 ms for two steps
    assert bins.rest == pytest.approx([0.0, 0.0, 0.0, -0.001], abs=1e-12)
    assert bins.metrics == {"ttft_p95_ms": 19.0}
    # of two attention ranks the slowest has more than its half: all tokens over twice its own
    assert four_steps(2).shape.tolist() == [
        [0, 0, 50, 100],
        [0, 0, 1, 1],
        [1, 1, 1, 0],
        [0.5, 1, 1, 0.75],
    ]


def test_columns_of_rows_and_their_robust_residuals() -> None:
    values = column([{"a": 3}, {"a": None}, {}, {"a": "4.5"}], "a")
    assert values.dtype == np.float64
    assert np.isnan(values).tolist() == [False, True, True, False]
    assert values[[0, 3]].tolist() == [3.0, 4.5]
    # nearly the residual where it is small, and the root of twice its size where it is large
    found = robust(np.array([0.0, 1e-3, -np.sqrt(3.0), np.sqrt(24.0), 1e8]))
    assert found == pytest.approx([0.0, 1e-3, -np.sqrt(2), np.sqrt(8), np.sqrt(2e8)], rel=1e-6)


def test_how_far_each_metric_is_believed_to_scatter() -> None:
    """A residual of one sigma is the root of 2 · (root of 2 − 1)."""
    loaded = LoadedRows([{**MACHINE, "isl": 800, "osl": 100, "concurrency": 1, "ttft_ms": 1.0}])
    assert loaded.sigma is SIGMA
    assert {name: round(100 * sigma, 6) for name, sigma in SIGMA.items()} == {
        "ttft_ms": 9.0,
        "ttft_p95_ms": 14.0,
        "itl_ms": 4.5,
        "e2e_ms": 4.5,
        "requests_s": 6.0,
        "output_tok_s": 6.0,
    }
    static = StaticRows([{**STATIC, "batch": 4}])
    measured = static.predict(shipped())
    static.measured = {name: values * np.exp(-0.05) for name, values in measured.items()}
    assert static.residuals(shipped()) == pytest.approx([np.sqrt(2 * (np.sqrt(2) - 1))] * 2)
    assert static.rows == [{**STATIC, "batch": 4}]


def test_deployments_are_told_apart_by_all_that_changes_a_step() -> None:
    row = {**MACHINE, "engine": "vllm", "isl": 10, "osl": 10, "concurrency": 1}
    rows = [
        row,
        row | {"isl": 99},  # the same deployment
        row | {"model": "llama-3.1-8b"},
        row | {"gpu": "l40s"},
        row | {"precision": "fp8"},
        row | {"tp": 2},
        row | {"engine": "sglang"},
    ]
    found = Deployments.among([read_point(one) for one in rows])
    assert found.of.tolist() == [0, 0, 1, 2, 3, 4, 5]
    assert [(d.model.name, d.gpu.name, d.parallelism.tp) for d in found.unique[:3]] == [
        ("llama-3-8b", "h100-sxm-80gb", 1),
        ("llama-3.1-8b", "h100-sxm-80gb", 1),
        ("llama-3-8b", "l40s", 1),
    ]
    knobs = replace(found.unique[0].knobs, graph_tokens=7)
    other = Deployments.among([read_point(row), read_point(row | {"knobs": knobs})])
    assert other.of.tolist() == [0, 1]


def test_metrics_that_are_the_same_number_are_fitted_once() -> None:
    row = {**MACHINE, "isl": 8, "osl": 1, "concurrency": 1, "ttft_ms": 5.0, "requests_s": 2.0}
    both = LoadedRows([row | {"output_tok_s": 2.0}])
    assert list(both.measured) == ["ttft_ms", "requests_s"]
    assert both.gaps.tolist() == [1.0]
    some = LoadedRows([row | {"output_tok_s": 2.0, "osl": 9}, row | {"requests_s": None}])
    assert list(some.measured) == ["ttft_ms", "requests_s", "output_tok_s"]
    assert some.gaps.tolist() == [8.0, 1.0]
    assert some.varied.tolist() == [False, False]

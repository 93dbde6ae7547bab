from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.formats.result_files import GUIDELLM, ROW_KEYS, VLLM_RESULT, file_of
from tonnage import api
from tonnage.errors import TonnageError
from tonnage.formats.measured_files import read_measured


def test_run_folders_give_what_was_simulated(tmp_path: Path) -> None:
    runs = api.simulate_sweep(
        model="llama-3-8b", isl=200, osl=20, engine="nim-2024", concurrency="1,4", requests=40
    )
    api.write_runs(tmp_path / "sweep", runs, {"seed": 0})
    rows = read_measured(tmp_path / "sweep")
    assert [row["concurrency"] for row in rows] == [1, 4]
    for row, simulated in zip(rows, runs, strict=True):
        assert (row["model"], row["gpu"], row["engine"], row["requests"]) == (
            "llama-3-8b",
            "h100-sxm-80gb",
            "nim-2024",
            40,
        )
        assert (row["isl"], row["osl"]) == (200, 20)
        assert row["ttft_ms"] == pytest.approx(simulated.summary.ttft_ms.mean)
        assert row["itl_ms"] == pytest.approx(simulated.summary.tpot_ms.mean)
        assert row["requests_s"] == pytest.approx(simulated.summary.requests_per_second, rel=1e-6)
    from tonnage.evidence.predict import reported_metrics

    (run,) = api.simulate_sweep(
        model="llama-3-8b", isl=200, osl=50, engine="nim-2024", concurrency=4, window="7s"
    )
    api.write_runs(tmp_path / "run", [run], {"seed": 0})
    (row,) = read_measured(tmp_path / "run")
    assert row["window_s"] == 7.0
    assert row["requests_s"] == pytest.approx(
        reported_metrics(run.requests)["requests_s"], rel=1e-6
    )
    assert row["requests_s"] > run.summary.requests_per_second  # which is over the whole window


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["successful", "mean", "type_", "rate"]), inner, max_size=2
        )
    ),
    max_leaves=4,
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(st.sampled_from(sorted(VLLM_RESULT)), ANY, max_size=3),
    st.dictionaries(st.sampled_from(["config", "metrics"]), ANY),
)
def test_any_report_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, vllm: dict[str, Any], benchmark: dict[str, Any]
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    for document in (
        {**VLLM_RESULT, **vllm},
        {"benchmarks": [{**GUIDELLM["benchmarks"][1], **benchmark}]},
    ):
        message, rows = "", []
        try:
            rows = read_measured(file_of(folder, document), ROW_KEYS)
        except TonnageError as error:
            message = str(error)
        assert "\n" not in message
        assert bool(rows) != ("result.json" in message)
        assert all(row["requests_s"] is None or row["requests_s"] > 0 for row in rows)


def test_lines_of_json_are_a_point_each_and_a_foreign_line_is_named(tmp_path: Path) -> None:
    lines = [json.dumps({**VLLM_RESULT, "max_concurrency": clients}) for clients in (1, 2, 4)]
    rows = read_measured(file_of(tmp_path, "\n".join([*lines, ""]), "all.jsonl"), ROW_KEYS)
    assert [(row["concurrency"], row["line"]) for row in rows] == [(1, 1), (2, 2), (4, 3)]
    for second in ('{"a": 1}', "{", "[" * 10_000):
        with pytest.raises(TonnageError, match=r"all\.jsonl, line 2: not "):
            read_measured(file_of(tmp_path, f"{lines[0]}\n{second}\n", "all.jsonl"), ROW_KEYS)

"""vLLM's bench: its lists, loads and definitions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.formats.field_files import VLLM_RUN, rows_of, written
from tests.formats.imported_runs import CLOSE, FILES, Imported
from tests.formats.result_files import ROW_KEYS, VLLM_RESULT, file_of
from tonnage.errors import TonnageError
from tonnage.formats.measured_files import read_measured


def test_vllm_s_own_summary_comes_out_of_its_lists(tmp_path: Path) -> None:
    found = Imported(FILES / "vllm.json", tmp_path / "run")
    said = json.loads((FILES / "vllm.json").read_text())
    assert len(found.requests) == said["completed"] == 24
    for statistic, key in (("mean", "mean"), ("median", "p50"), ("p99", "p99")):
        assert found.summary["ttft_from_send_ms"][key] == pytest.approx(
            said[f"{statistic}_ttft_ms"], rel=CLOSE
        ), statistic
        tpot = found.theirs["inter_token_latency_ms"][key]
        # its latency ends a little after the last token
        assert tpot == pytest.approx(said[f"{statistic}_tpot_ms"], rel=1e-3), statistic
    # Two of its gaps a request are those of the chunk with the role and of the one that finishes,
    # which carry no token and are left out.
    assert found.summary["itl_ms"]["mean"] == pytest.approx(10.0, rel=0.01)
    every = [gap for gaps in said["itls"] for gap in gaps]
    assert len(every) - 2 * len(said["itls"]) == said["total_output_tokens"] - said["completed"]
    assert (
        1e3 * sum(every) / len(every)
        == pytest.approx(said["mean_itl_ms"])
        == pytest.approx(8.77, abs=0.01)
    )
    assert found.theirs["gap_by_event_ms"]["mean"] == pytest.approx(10.0, rel=0.01)
    assert found.requests.isl.sum() == said["total_input_tokens"]
    assert found.requests.osl.sum() == said["total_output_tokens"]
    # its clock starts a little earlier
    assert found.summary["requests_per_second"] == pytest.approx(
        said["request_throughput"], rel=0.02
    )


def test_lists_lines_and_folders_of_vllm_are_a_point_each(tmp_path: Path) -> None:
    runs = [{**VLLM_RUN, "max_concurrency": clients} for clients in (1, 2, 4)]
    written(tmp_path / "list.json", runs)
    written(tmp_path / "lines.json", "\n".join(map(json.dumps, runs)))
    for place, run in enumerate(runs):
        written(tmp_path / "sweep" / "20261128" / f"BENCH--{place}" / "run=0.json", run)
        written(tmp_path / "sweep" / "20261128" / f"BENCH--{place}" / "summary.json", [run])
    for path in (tmp_path / "list.json", tmp_path / "lines.json", tmp_path / "sweep"):
        assert [row["concurrency"] for row in rows_of(path)[0]] == [1, 2, 4]


def test_a_vllm_result_is_read_with_its_own_definitions(tmp_path: Path) -> None:
    (row,) = read_measured(file_of(tmp_path, VLLM_RESULT), ROW_KEYS)
    assert (row["model"], row["engine"], row["gpu"], row["tp"]) == (
        "meta-llama/Llama-3.1-8B-Instruct",
        "vllm",
        "h100-sxm-80gb",
        1,
    )
    assert (row["concurrency"], row["request_rate"], row["requests"]) == (8, None, 80)
    # 1,010 and 199 measured, within 5 % of what was given
    assert (row["isl"], row["osl"]) == (1000, 200)
    assert (row["ttft_ms"], row["ttft_p50_ms"], row["ttft_p99_ms"], row["ttft_p95_ms"]) == (
        100.0,
        90.0,
        300.0,
        None,
    )
    # itl_ms is scored as the TPOT
    assert (row["tpot_ms"], row["itl_ms"], row["itl_p99_ms"]) == (19.0, 19.0, 60.0)
    assert (row["e2e_ms"], row["requests_s"], row["output_tok_s"]) == (3900.0, 2.0, 398.0)
    detailed = VLLM_RESULT | {"input_lens": [1010] * 80, "output_lens": [100] * 40 + [300] * 40}
    (row,) = read_measured(file_of(tmp_path, detailed), ROW_KEYS)
    assert row["isl_drawn"] is None
    assert row["osl_drawn"] == "histogram:" + ",".join(["100:1"] * 5 + ["300:1"] * 5)
    given = {name: value for name, value in ROW_KEYS.items() if name not in ("isl", "osl")}
    (row,) = read_measured(file_of(tmp_path, VLLM_RESULT), {**given, "model": "llama-3-8b"})
    assert (row["model"], row["isl"], row["osl"]) == ("llama-3-8b", 1010, 199)
    with pytest.raises(TonnageError, match="give gpu"):
        read_measured(file_of(tmp_path, VLLM_RESULT), {"precision": "fp16", "tp": 1})


def test_vllm_loads(tmp_path: Path) -> None:
    def load(**change: Any) -> tuple[Any, Any]:
        (row,) = read_measured(file_of(tmp_path, {**VLLM_RESULT, **change}), ROW_KEYS)
        return row["concurrency"] or row["in_flight"], row["request_rate"]

    assert load(max_concurrency=None) == (80, None)  # all at once
    assert load(max_concurrency=None, request_rate=2.5) == (None, 2.5)
    assert load(request_rate="Infinity") == (8, None)
    assert load(request_rate=2.5) == (8, 2.5)  # an open loop with a cap
    for change in (
        {"request_rate": "often"},
        {"request_rate": -1, "max_concurrency": None},
        {"completed": 0},
    ):
        with pytest.raises(TonnageError, match=r"result\.json"):
            load(**change)

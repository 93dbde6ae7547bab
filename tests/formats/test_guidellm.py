"""GuideLLM's reports as runs: their own summaries come out of their requests."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.formats.imported_runs import CLOSE, FILES, Imported
from tests.formats.result_files import GUIDELLM, ROW_KEYS, file_of
from tonnage.api.compare import import_run
from tonnage.formats.invalid_runs import InvalidRuns
from tonnage.formats.measured_files import read_measured


def test_guidellm_s_own_summary_comes_out_of_its_requests(tmp_path: Path) -> None:
    found = Imported(FILES / "guidellm.json", tmp_path / "run")
    said = json.loads((FILES / "guidellm.json").read_text())["benchmarks"][0]
    done = said["requests"]["successful"]
    assert found.summary["requests"]["completed"] == len(done)
    assert said["config"]["strategy"]["type_"] == "concurrent", "whose clients keep no schedule"
    assert found.summary["ttft_ms"] == found.summary["ttft_from_send_ms"]
    timings = [request["info"]["timings"] for request in done]
    answers = [
        1e3 * (moment["last_token_iteration"] - moment["request_start"]) for moment in timings
    ]
    assert found.summary["e2e_ms"]["mean"] == pytest.approx(np.mean(answers), rel=CLOSE)
    assert found.summary["itl_ms"]["p50"] is None
    assert not (found.folder / "tokens.parquet").exists()
    first, gap = (
        said["metrics"][name]["successful"]
        for name in ("time_to_first_token_ms", "inter_token_latency_ms")
    )
    assert found.summary["ttft_from_send_ms"]["mean"] == pytest.approx(first["mean"], rel=CLOSE)
    # its median is one of the values
    assert found.summary["ttft_from_send_ms"]["p50"] == pytest.approx(first["median"], rel=0.05)
    assert found.summary["tpot_ms"]["mean"] == pytest.approx(
        sum(r["inter_token_latency_ms"] for r in done) / len(done), rel=CLOSE
    )
    # it weighs requests by their tokens
    assert gap["mean"] == pytest.approx(found.summary["tpot_ms"]["mean"], rel=0.05)
    assert found.requests.osl.mean() == pytest.approx(
        said["metrics"]["output_token_count"]["successful"]["mean"]
    )


@pytest.mark.parametrize("version", ["0.2", "0.3"])
def test_files_of_earlier_versions_of_guidellm_give_their_summaries_back(
    version: str, tmp_path: Path
) -> None:
    path = FILES / f"guidellm-{version}.json"
    benchmarks = json.loads(path.read_text())["benchmarks"]
    made = import_run(path, tmp_path / "run")
    assert len(made) == len(benchmarks) == {"0.2": 1, "0.3": 3}[version]
    for (_, summary, facts), said in zip(made, benchmarks, strict=True):
        own = {name: part["successful"]["mean"] for name, part in said["metrics"].items()}
        assert (summary.counted, facts["failed"]) == (said["request_totals"]["successful"], {})
        assert summary.ttft_from_send_ms.mean == pytest.approx(
            own["time_to_first_token_ms"], rel=0.01
        )
        assert summary.tpot_ms.mean == pytest.approx(own["inter_token_latency_ms"], rel=0.01)
        assert summary.requests_per_second == pytest.approx(own["requests_per_second"], rel=0.02)
        if "rate" not in said["args"]["strategy"]:
            assert summary.e2e_ms.mean == pytest.approx(1e3 * own["request_latency"], rel=0.02)
    invalid = InvalidRuns()
    rows = read_measured(path, {"gpu": "h100-sxm-80gb", "precision": "fp16", "tp": 1}, invalid)
    loads = {"0.2": [(2, None)], "0.3": [(1, None), (None, pytest.approx(16.01, rel=0.01))]}[
        version
    ]
    assert [(row["concurrency"], row["request_rate"]) for row in rows] == loads
    assert ["throughput" in sentence for sentence in invalid.sentences] == [True] * (
        version == "0.3"
    )
    assert {row["model"] for row in rows} == {"tiny"}


def test_a_guidellm_report_is_several_points_and_its_tpot_is_the_inter_token_latency(
    tmp_path: Path,
) -> None:
    rows = read_measured(file_of(tmp_path, GUIDELLM), {**ROW_KEYS, "engine": "vllm"})
    assert [(row["concurrency"], row["request_rate"]) for row in rows] == [
        (1, None),
        (8, None),
        (None, 2.5),
        (64, None),
    ]
    assert [row["line"] for row in rows] == [1, 2, 3, 4]
    row = rows[1]
    assert (row["model"], row["isl"], row["osl"]) == ("llama-3.1-8b", 1000, 200)
    assert (row["ttft_ms"], row["ttft_p95_ms"], row["itl_ms"], row["e2e_ms"]) == (
        100.0,
        150.0,
        19.0,
        3900.0,
    )
    assert (row["requests_s"], row["output_tok_s"]) == (2.0, 398.0)

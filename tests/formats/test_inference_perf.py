"""inference-perf's reports as runs: what they stamp, by version."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.formats.imported_runs import CLOSE, FILES, Imported
from tonnage.formats.measured_files import read_measured


@pytest.mark.parametrize("by_server", [False, True])
def test_inference_perf_s_own_summary_comes_out_of_its_requests(
    tmp_path: Path, by_server: bool
) -> None:
    folder = FILES / "inference-perf"
    found = Imported(folder, tmp_path / "run")
    said = json.loads((folder / "stage_0_lifecycle_metrics.json").read_text())
    done, latency = said["successes"], said["successes"]["latency"]
    assert len(found.requests) == done["count"] == 7
    # Its tokenizer of bytes counts four tokens for one of the server, and its latencies per token
    # are by those.
    assert (done["output_len"]["mean"], done["output_tokens"]["mean"]) == (32, 8)
    own_tpot_ms = 1e3 * latency["time_per_output_token"]["mean"] * 31 / 7
    assert found.summary["ttft_ms"]["mean"] == pytest.approx(
        1e3 * latency["time_to_first_token"]["mean"], rel=CLOSE
    )
    assert found.summary["tpot_ms"]["mean"] == pytest.approx(own_tpot_ms, rel=CLOSE)
    assert found.summary["itl_ms"]["mean"] == pytest.approx(own_tpot_ms, rel=CLOSE)
    # which ends with [DONE]
    assert found.summary["e2e_ms"]["mean"] == pytest.approx(
        1e3 * latency["request_latency"]["mean"], rel=0.01
    )
    assert found.requests.osl.tolist() == [8] * 7
    if by_server:  # as its option use_server_output_tokens writes the same run
        latency["time_per_output_token"]["mean"] *= 31 / 7
        latency["inter_token_latency"]["mean"] *= 31 / 7
        done["throughput"]["output_tokens_per_sec"] /= 4
    (tmp_path / "stage_0_lifecycle_metrics.json").write_text(json.dumps(said))
    (row,) = read_measured(
        tmp_path / "stage_0_lifecycle_metrics.json",
        {"model": "m", "gpu": "h100-sxm-80gb", "precision": "fp8", "tp": 1},
    )
    assert (row["concurrency"], row["isl"], row["osl"]) == (2, 5, 8)
    assert (row["tpot_ms"], row["output_tok_s"]) == (
        pytest.approx(own_tpot_ms),
        pytest.approx(8 * row["requests_s"]),
    )


def test_inference_perf_before_0_6_stamps_lines_and_not_tokens(tmp_path: Path) -> None:
    info = {
        "input_tokens": 100,
        "output_tokens": 5,
        "output_token_times": [1.1, 1.1001, 1.15, 1.1501, 1.2, 1.2001, 1.3, 1.3001],
    }
    entries = [
        {
            "start_time": 1.0,
            "end_time": 1.31,
            "request": "x",
            "response": "y",
            "info": info,
            "error": None,
        }
    ]
    entries.append({**entries[0], "info": {**info, "output_token_times": []}})  # not streamed
    entries.append(
        {**entries[0], "info": None, "error": {"error_type": "TimeoutError", "error_msg": "slow"}}
    )
    (tmp_path / "per_request_lifecycle_metrics.json").write_text(json.dumps(entries))
    found = Imported(tmp_path, tmp_path / "run")
    assert (found.summary["ttft_ms"]["mean"], found.summary["tpot_ms"]["mean"]) == (
        pytest.approx(100),
        pytest.approx(200.1 / 4),
    )
    assert found.summary["itl_ms"]["p50"] is None
    assert found.summary["errors_by_kind"] == {"TimeoutError": 1}
    assert found.summary["requests"]["completed"] == 2

"""Files of load clients as they occur: versions, failures, loads that few can simulate, and runs
that were not streamed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.formats.field_files import (
    GIVEN,
    LATENCIES,
    LLMPERF,
    SGLANG,
    VLLM_RUN,
    rows_of,
    table,
    written,
)
from tonnage.api.compare import import_run
from tonnage.errors import InputError
from tonnage.evidence.predict import predict, read_point
from tonnage.formats.measured_files import read_measured

FIELD = Path(__file__).parents[3] / "shared" / "field" / "measuring"


@pytest.mark.parametrize(
    ("place", "loads"),
    [
        ("048/vllm_rate_and_conc.json", [(None, 7.0, 64)]),
        (
            "051/vllm_append.json",
            [(1, None, None), (2, None, None), (4, None, None), (8, None, None)],
        ),
        ("058/guidellm_02.json", [(8, None, None)]),
        ("059/guidellm_sweep.json", None),
        ("061/ai_new", [(None, 2.0, 100)]),
        ("061/ai_old", [(None, 2.0, 100)]),
        ("065/stage_0_lifecycle_metrics.json", [(None, 2.0, None)]),
    ],
)
def test_loads_and_latencies_of_the_field(
    place: str, loads: list[tuple[int | None, float | None, int | None]] | None
) -> None:
    rows, said = rows_of(FIELD / place)
    assert [[row[name] for name in LATENCIES] for row in rows] == [
        pytest.approx([100, 10, 1100])
    ] * (3 if loads is None else len(loads))
    assert [(row["isl"], row["osl"]) for row in rows] == [(1000, 101)] * len(rows)
    if loads is not None:
        assert [
            (row["concurrency"], row["request_rate"], row["in_flight"]) for row in rows
        ] == loads
        assert not said
    else:
        (sentence,) = said
        assert "benchmark 2 is left out: its strategy throughput" in sentence


def test_a_run_without_streaming_has_no_ttft_and_no_times_of_tokens() -> None:
    (row,), said = rows_of(FIELD / "056" / "sglang_nostream.jsonl")
    assert (row["ttft_ms"], row["itl_ms"], row["e2e_ms"], row["requests_s"]) == (
        None,
        None,
        1100,
        pytest.approx(7.2727, rel=1e-3),
    )
    assert "has no moment of a first token" in said[0]


@pytest.mark.parametrize(
    ("place", "count", "failed"),
    [
        ("047/vllm_detail_2025.json", 40, 0),
        ("053/vllm_detail_fail.json", 36, 4),
        ("058/guidellm_02.json", 40, 0),
    ],
)
def test_single_requests_of_the_field(tmp_path: Path, place: str, count: int, failed: int) -> None:
    if not (FIELD / place).exists():
        pytest.skip("the cases from the field are not here")
    ((_, summary, facts),) = import_run(FIELD / place, tmp_path / "run")
    assert (summary.counted, sum(facts["failed"].values())) == (count, failed)
    values = [summary.ttft_ms.mean, summary.tpot_ms.mean, summary.e2e_ms.mean]
    assert values == [pytest.approx(value, rel=1e-3) for value in (100, 10, 1100)]


def test_inference_perf_counts_failures_and_llmperf_its_errors(tmp_path: Path) -> None:
    stage = (
        json.loads((FIELD / "065/stage_0_lifecycle_metrics.json").read_text())
        if FIELD.exists()
        else pytest.skip("no field")
    )
    stage["failures"]["count"] = 100
    assert (
        "100 of 200 requests (50 %) failed"
        in rows_of(written(tmp_path / "stage.json", stage))[1][0]
    )
    rows, said = rows_of(
        written(tmp_path / "s_summary.json", {**LLMPERF, "results_number_errors": 5})
    )
    assert (not rows, "5 of 105" in said[0]) == (True, True)


@pytest.mark.parametrize(
    "streamed", [{"mean_ttft_ms": 0.0}, {"mean_ttft_ms": 1100.0, "mean_tpot_ms": 0.0}]
)
@pytest.mark.parametrize("tool", [VLLM_RUN, SGLANG])
def test_an_answer_that_came_at_once_has_no_ttft(
    tmp_path: Path, tool: dict[str, Any], streamed: dict[str, float]
) -> None:
    (row,), said = rows_of(written(tmp_path / "r.json", {**tool, **streamed}))
    assert (row["ttft_ms"], row["itl_ms"], row["e2e_ms"], len(said)) == (None, None, 1100, 1)


def test_a_rate_without_moments_of_sending_is_refused(tmp_path: Path) -> None:
    lists = {"input_lens": [10], "output_lens": [2], "ttfts": [0.1], "itls": [[0.1]]}
    with pytest.raises(InputError, match="sent at a rate and keeps no start_times"):
        import_run(
            written(tmp_path / "r.json", {**VLLM_RUN, "request_rate": 2.0, **lists}),
            tmp_path / "run",
        )


def test_a_refusal_names_the_tool_and_what_is_missing(tmp_path: Path) -> None:
    record = {"metadata": {}, "metrics": {}}
    with pytest.raises(
        InputError,
        match=(
            r"line 1: recognised as AIPerf, with single requests and no measured points: run"
            r" tonnage import"
        ),
    ):
        read_measured(
            written(tmp_path / "profile_export.jsonl", "\n".join([json.dumps(record)] * 2)), GIVEN
        )
    raw = Path(__file__).parents[1] / "bench" / "fixtures" / "genai-perf" / "profile_export.json"
    with pytest.raises(
        InputError,
        match=(
            r"profile_export\.json: recognised as GenAI-Perf, with single requests and no measured"
            r" points"
        ),
    ):
        read_measured(raw, GIVEN)
    with pytest.raises(InputError, match="recognised as llmperf, with no single requests"):
        import_run(written(tmp_path / "x_summary.json", LLMPERF), tmp_path / "run")
    with pytest.raises(
        InputError, match=r"no file with single requests \(its keys are spam, eggs\)"
    ):
        import_run(written(tmp_path / "x.json", {"spam": 1, "eggs": 2}), tmp_path / "run")


def test_a_cap_is_simulated(tmp_path: Path) -> None:
    def ttft(**load: Any) -> float:
        (row,), _ = rows_of(written(tmp_path / "r.json", {**VLLM_RUN, "num_prompts": 40, **load}))
        return predict(read_point(row))["e2e_ms"]

    free = ttft(request_rate=20.0, max_concurrency=None)
    assert ttft(request_rate=20.0, max_concurrency=200) == free  # a cap that nothing reaches
    # the client's queue is not in it
    assert ttft(request_rate=20.0, max_concurrency=2) < 0.9 * free


def test_what_was_set_on_the_engine_reaches_its_knobs(tmp_path: Path) -> None:
    settings = {
        "max_num_seqs": 64,
        "max_num_batched_tokens": 2048,
        "gpu_memory_utilization": 0.8,
        "max_cudagraph_capture_size": 256,
    }
    first, second = rows_of(table(tmp_path, {"concurrency": 8, **settings}, {"concurrency": 8}))[0]
    knobs, plain = (read_point(row).deployment.knobs for row in (first, second))
    assert (knobs.max_batch_size, knobs.max_num_tokens, knobs.kv_fraction, knobs.graph_tokens) == (
        64,
        2048,
        0.8,
        256,
    )
    assert plain.max_batch_size != 64
    few = rows_of(table(tmp_path, *({"concurrency": 64, "slots": slots} for slots in (8, 64))))[0]
    slow, fast = (predict(read_point(row)) for row in few)
    assert slow["ttft_p99_ms"] > 2 * fast["ttft_p99_ms"]


REPORT = (
    'Metric,avg,p99\nTime To First Token (ms),"100.00",120\nRequest Latency'
    ' (ms),"1,100.00",1200\nOutput Sequence Length (tokens),101,101\n'
)


REPORT += (
    "Input Sequence Length (tokens),1000,1000\n\nMetric,Value\nRequest Throughput (per sec),7.27\n"
)


@pytest.mark.parametrize("name", ["profile_export_aiperf.csv", "profile_export_genai_perf.csv"])
def test_the_load_of_a_report_that_does_not_say_it_is_a_flag(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / name, REPORT)
    with pytest.raises(InputError, match="no load"):
        rows_of(path)
    loads = [{"concurrency": 8}, {"request_rate": 7.0}, {"request_rate": 7.0, "concurrency": 50}]
    rows = [rows_of(path, **load)[0][0] for load in loads]
    assert [(row["concurrency"], row["request_rate"], row["in_flight"]) for row in rows] == [
        (8, None, None),
        (None, 7, None),
        (None, 7, 50),
    ]
    assert [row["ttft_ms"] for row in rows] == [100, 100, 100]

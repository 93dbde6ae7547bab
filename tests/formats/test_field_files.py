"""Files of load clients as they occur: versions, failures, loads that few can simulate, and runs
that were not streamed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tonnage.api.compare import import_run
from tonnage.errors import InputError, in_python
from tonnage.evidence.predict import predict, read_point, workload_of
from tonnage.formats.invalid_runs import InvalidRuns
from tonnage.formats.measured_files import read_measured, read_points
from tonnage.perf.terms import step_model
from tonnage.spec.workload import OpenLoop

FIELD = Path(__file__).parents[3] / "shared" / "field" / "measuring"
GIVEN: dict[str, str | int] = {
    "model": "llama-3.1-8b",
    "gpu": "h100-sxm-80gb",
    "precision": "fp16",
    "tp": 1,
    "engine": "vllm",
}
LATENCIES = ("ttft_ms", "itl_ms", "e2e_ms")


def rows_of(
    path: Path, *, allow_errors: bool = False, **further: Any
) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """The rows of a file or folder, and what was said of it; skipped where a case from the field is
    absent."""
    if not path.exists():
        pytest.skip("the cases from the field are not here")
    invalid = InvalidRuns(allow_errors=allow_errors)
    return read_measured(path, GIVEN | further, invalid), tuple(map(in_python, invalid.sentences))


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


def test_a_rate_that_rose_is_refused_by_its_name() -> None:
    path = FIELD / "049" / "vllm_ramp.json"
    rows, said = rows_of(path)
    assert not rows
    assert said == (
        (
            f"{path} is left out: its rate rose (ramp_up_strategy linear, 1–10/s), which is not"
            " simulated."
        ),
    )
    with pytest.raises(InputError, match=r"no valid measurement is left.*ramp_up_strategy"):
        read_measured(path, GIVEN)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("053/vllm_detail_fail.json", "4 of 40 requests (10 %)"),
        ("062/ai_err", "150 of 350 requests (43 %)"),
    ],
)
def test_failures_make_points_unfit(place: str, words: str) -> None:
    rows, said = rows_of(FIELD / place)
    assert not rows
    assert f"is left out, because {words} failed; allow_errors takes it all the same." in said[0]
    rows, said = rows_of(FIELD / place, allow_errors=True)
    assert rows[0]["e2e_ms"] == 1100
    assert f"counts, though {words} failed." in said[0]
    with pytest.raises(InputError, match="no valid measurement is left"):
        read_points(FIELD / place, GIVEN)


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


# Further files of each kind, made here.


VLLM: dict[str, Any] = {
    "model_id": "m",
    "num_prompts": 40,
    "request_rate": "inf",
    "burstiness": 1.0,
    "max_concurrency": 8,
    "completed": 40,
    "total_input_tokens": 40_000,
    "total_output_tokens": 4_040,
    "request_throughput": 7.27,
    "output_throughput": 734.5,
    "mean_ttft_ms": 100.0,
    "mean_tpot_ms": 10.0,
    "mean_e2el_ms": 1100.0,
}
SGLANG = {
    name: value for name, value in VLLM.items() if name not in ("num_prompts", "mean_e2el_ms")
} | {"mean_e2e_latency_ms": 1100.0}


def written(path: Path, document: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


@pytest.mark.parametrize(("failed", "fits"), [(0, True), (1, True), (2, False), (40, False)])
@pytest.mark.parametrize("tool", [VLLM, SGLANG])
def test_one_per_cent_may_fail(
    tmp_path: Path, tool: dict[str, Any], failed: int, fits: bool
) -> None:
    rows, said = rows_of(
        written(
            tmp_path / "r.json",
            {**tool, "completed": 100, "num_prompts": 100 + failed, "failed": failed},
        )
    )
    assert bool(rows) == fits
    assert len(said) == bool(failed)


def test_errors_of_genai_perf_s_successor_are_counted_from_their_summary(tmp_path: Path) -> None:
    report = (
        json.loads((FIELD / "062/ai_err/profile_export_aiperf.json").read_text())
        if FIELD.exists()
        else pytest.skip("no field")
    )
    del report["error_request_count"]
    rows, said = rows_of(written(tmp_path / "run" / "profile_export_aiperf.json", report))
    assert not rows
    assert "150 of 350" in said[0]


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


LLMPERF = {
    "model": "m",
    "mean_input_tokens": 550,
    "mean_output_tokens": 150,
    "num_concurrent_requests": 5,
    "results_ttft_s_mean": 0.1,
    "results_ttft_s_quantiles_p99": 0.2,
    "results_end_to_end_latency_s_mean": 1.1,
    "results_inter_token_latency_s_mean": 0.0109,
    "results_number_input_tokens_mean": 1000,
    "results_number_output_tokens_mean": 101,
    "results_number_output_tokens_stddev": 0,
    "results_num_completed_requests": 100,
    "results_num_completed_requests_per_min": 300.0,
    "results_mean_output_throughput_token_per_s": 505.0,
    "results_number_errors": 0,
}


def test_llmperf_in_both_forms(tmp_path: Path) -> None:
    flat = {**LLMPERF, "results_number_input_tokens_mean": 1000}
    nested = {name: value for name, value in flat.items() if not name.startswith("results_")}
    nested["results"] = {
        "ttft_s": {"mean": 0.1, "quantiles": {"p99": 0.2}},
        "end_to_end_latency_s": {"mean": 1.1},
        "number_input_tokens": {"mean": 1000},
        "number_output_tokens": {"mean": 101, "stddev": 0},
        "num_completed_requests": 100,
        "num_completed_requests_per_min": 300.0,
        "mean_output_throughput_token_per_s": 505.0,
    }
    for document in (flat, nested):
        (row,), said = rows_of(written(tmp_path / "x_summary.json", document))
        assert [row[name] for name in (*LATENCIES, "ttft_p99_ms", "requests_s")] == pytest.approx(
            [100, 10, 1100, 200, 5]
        )
        assert (row["concurrency"], row["isl"], row["osl"], said) == (5, 1000, 101, ())


def test_lists_lines_and_folders_of_vllm_are_a_point_each(tmp_path: Path) -> None:
    runs = [{**VLLM, "max_concurrency": clients} for clients in (1, 2, 4)]
    written(tmp_path / "list.json", runs)
    written(tmp_path / "lines.json", "\n".join(map(json.dumps, runs)))
    for place, run in enumerate(runs):
        written(tmp_path / "sweep" / "20261128" / f"BENCH--{place}" / "run=0.json", run)
        written(tmp_path / "sweep" / "20261128" / f"BENCH--{place}" / "summary.json", [run])
    for path in (tmp_path / "list.json", tmp_path / "lines.json", tmp_path / "sweep"):
        assert [row["concurrency"] for row in rows_of(path)[0]] == [1, 2, 4]


@pytest.mark.parametrize(
    "streamed", [{"mean_ttft_ms": 0.0}, {"mean_ttft_ms": 1100.0, "mean_tpot_ms": 0.0}]
)
@pytest.mark.parametrize("tool", [VLLM, SGLANG])
def test_an_answer_that_came_at_once_has_no_ttft(
    tmp_path: Path, tool: dict[str, Any], streamed: dict[str, float]
) -> None:
    (row,), said = rows_of(written(tmp_path / "r.json", {**tool, **streamed}))
    assert (row["ttft_ms"], row["itl_ms"], row["e2e_ms"], len(said)) == (None, None, 1100, 1)


def test_details_of_sglang_are_requests(tmp_path: Path) -> None:
    lists = {
        "input_lens": [1000] * 3,
        "output_lens": [5, 5, 0],
        "ttfts": [0.1, 0.1, 0],
        "itls": [[0.01] * 4, [0.01] * 4, []],
    }
    path = written(
        tmp_path / "out.jsonl",
        {**SGLANG, "max_concurrency": 1, **lists, "errors": ["", "", "boom"]},
    )
    ((_, summary, facts),) = import_run(path, tmp_path / "run")
    assert (summary.counted, facts["failed"]) == (2, {"boom": 1})
    assert (summary.ttft_ms.mean, summary.tpot_ms.mean) == (pytest.approx(100), pytest.approx(10))
    assert summary.window_s == pytest.approx(0.28)  # one client: one request after the other


def test_a_rate_without_moments_of_sending_is_refused(tmp_path: Path) -> None:
    lists = {"input_lens": [10], "output_lens": [2], "ttfts": [0.1], "itls": [[0.1]]}
    with pytest.raises(InputError, match="sent at a rate and keeps no start_times"):
        import_run(
            written(tmp_path / "r.json", {**VLLM, "request_rate": 2.0, **lists}), tmp_path / "run"
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
        (row,), _ = rows_of(written(tmp_path / "r.json", {**VLLM, "num_prompts": 40, **load}))
        return predict(read_point(row))["e2e_ms"]

    free = ttft(request_rate=20.0, max_concurrency=None)
    assert ttft(request_rate=20.0, max_concurrency=200) == free  # a cap that nothing reaches
    # the client's queue is not in it
    assert ttft(request_rate=20.0, max_concurrency=2) < 0.9 * free


# Columns of a table for what decides a row.


def table(folder: Path, *rows: dict[str, Any]) -> Path:
    """A table of these rows; each has the columns of all."""
    base = {
        "model": "llama-3.1-8b",
        "gpu": "h100-sxm-80gb",
        "precision": "fp16",
        "tp": 1,
        "isl": 1000,
        "osl": 100,
        "e2e_ms": 1000,
    }
    every = list(dict.fromkeys(name for row in rows for name in {**base, **row}))
    lines = [",".join(str({**base, **row}.get(name, "")) for name in every) for row in rows]
    return written(folder / "t.csv", "\n".join([",".join(every), *lines, ""]))


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


def test_loads_of_a_table_as_people_write_them(tmp_path: Path) -> None:
    path = table(
        tmp_path,
        {"request_rate": "inf", "num_prompts": 200},
        {"request_rate": "inf", "num_prompts": 200, "concurrency": 16},
        {"request_rate": 6, "concurrency": 50, "burstiness": 0.25},
        {"request_rate": 6, "burstiness": "inf"},
        {"request_rate": 6, "ramp_up_strategy": "linear"},
        {"request_rate": "inf"},
        {"concurrency": 4, "enforce_eager": "True"},
        {"concurrency": 4, "range_ratio": 0},
        {"concurrency": 4, "range_ratio": 0, "engine": "trtllm"},
        {"concurrency": 4, "range_ratio": 0, "engine": "sglang"},
    )
    rows, said = rows_of(path)
    loads = [(row["concurrency"], row["request_rate"], row["in_flight"]) for row in rows]
    assert loads == [
        (200, None, None),
        (16, None, None),
        (None, 6, 50),
        (None, 6, None),
        (4, None, None),
        (4, None, None),
    ]
    assert [row["isl_drawn"] for row in rows] == [None] * 5 + ["1-1000"]
    points = [read_point(row) for row in rows[2:4]]
    arrivals = [
        workload_of(point, step_model(point.deployment), turnaround_s=0.0).arrivals
        for point in points
    ]
    assert arrivals == [
        OpenLoop(rate=6, process="gamma", cv=2.0, in_flight=50),
        OpenLoop(rate=6, process="constant", cv=0.0),
    ]
    why = [
        "ramp_up_strategy linear",
        "no column requests says how many",
        "CUDA graphs (eager)",
        "a range_ratio of 0 is equal lengths",
    ]
    assert [words in sentence for words, sentence in zip(why, said, strict=True)] == [True] * 4
    assert [sentence.split(" is left out")[0].split("line ")[1] for sentence in said] == [
        "6",
        "7",
        "8",
        "10",
    ]


def test_a_cached_share_saves_prompt_tokens(tmp_path: Path) -> None:
    shares = [
        {"concurrency": 4, "isl": 8000, "num_prompts": 40, "cached_share": share}
        for share in (0, 0.9, 1)
    ]
    none, most, whole = (predict(read_point(row)) for row in rows_of(table(tmp_path, *shares))[0])
    assert most["ttft_ms"] < 0.5 * none["ttft_ms"]
    assert whole["ttft_ms"] < most["ttft_ms"]
    with pytest.raises(InputError, match="cached_share: is simulated for prompts of one length"):
        predict(
            read_point(
                rows_of(
                    table(tmp_path, {"concurrency": 4, "cached_share": 0.5, "isl": "500-1500"})
                )[0][0]
            )
        )


def test_percentiles_of_a_table_are_scored(tmp_path: Path) -> None:
    (row,), _ = rows_of(
        table(tmp_path, {"concurrency": 4, "ttft_p99_ms": 120, "p99 TPOT (ms)": 12})
    )
    assert (row["ttft_p99_ms"], row["tpot_p99_ms"]) == (120, 12)


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


@pytest.mark.parametrize(
    ("phase", "row", "refused"),
    [
        ({"type": "constant", "rate": 6.0}, (None, 6, None, math.inf), ""),
        (
            {"type": "gamma", "rate": 6.0, "smoothness": 2.0, "concurrency": 5},
            (None, 6, 5, 2.0),
            "",
        ),
        ({"type": "concurrency", "concurrency": 2}, (2, None, None, None), ""),
        ({"type": "constant", "rate": 6.0, "rate_ramp": {"duration": 3.0}}, None, "its rate rose"),
        (
            {"type": "user_centric", "rate": 6.0},
            None,
            "its arrivals (user_centric) are not simulated",
        ),
    ],
)
def test_phases_of_aiperf(
    tmp_path: Path, phase: dict[str, Any], row: tuple[Any, ...] | None, refused: str
) -> None:
    """As AIPerf 0.13 writes them for a rate with a cap, constant arrivals, and a ramp."""
    fixture = (
        Path(__file__).parents[1] / "bench" / "fixtures" / "aiperf" / "profile_export_aiperf.json"
    )
    report = json.loads(fixture.read_text())
    report["input_config"]["phases"] = [
        {"name": "profiling", "kind": "profiling", "requests": 12, **phase}
    ]
    report["inter_token_latency"]["avg"] = 0.0  # all tokens in one read, as on a busy machine
    rows, said = rows_of(written(tmp_path / "run" / "profile_export_aiperf.json", report))
    loads = [
        (one["concurrency"], one["request_rate"], one["in_flight"], one["burstiness"])
        for one in rows
    ]
    assert loads == ([] if row is None else [row])
    assert [refused in sentence for sentence in said] == ([True] if refused else [])


GUIDELLM = Path(__file__).parents[1] / "bench" / "fixtures" / "guidellm.json"


def with_a_run_that_completed_nothing(folder: Path, tool: str) -> Path:
    """A file of this tool with such a run, and another one that completed."""
    if tool == "guidellm":
        document = json.loads(GUIDELLM.read_text())
        empty = json.loads(json.dumps(document["benchmarks"][0]))
        empty["requests"]["errored"] = empty["requests"].pop("successful")
        for values in empty["metrics"].values():
            values["successful"] = None
        return written(
            folder / "r.json", {**document, "benchmarks": [empty, *document["benchmarks"]]}
        )
    base, count = {"vllm": (VLLM, 2), "sglang": (SGLANG, 2)}[tool]
    lists = {
        "input_lens": [9] * 2,
        "output_lens": [5] * 2,
        "ttfts": [0.1] * 2,
        "itls": [[0.01] * 4] * 2,
        "errors": [""] * 2,
    }
    good = {**base, **lists, "completed": count, **({"num_prompts": 2} if tool == "vllm" else {})}
    none = {
        "completed": 0,
        "failed": 2,
        "errors": ["refused"] * 2,
        "output_lens": [0] * 2,
        "ttfts": [0.0] * 2,
        "itls": [[], []],
    }
    none |= {name: 0.0 for name in good if name.startswith("mean_")} | {
        "total_output_tokens": 0,
        "total_input_tokens": 0,
    }
    return written(folder / "r.jsonl", "\n".join(map(json.dumps, ({**good, **none}, good))))


@pytest.mark.parametrize("tool", ["guidellm", "vllm", "sglang"])
def test_a_run_that_completed_nothing_is_left_out_and_the_others_count(
    tmp_path: Path, tool: str
) -> None:
    path = with_a_run_that_completed_nothing(tmp_path, tool)
    (row,), said = rows_of(path)
    assert row["requests"] or row["e2e_ms"]
    assert [sentence.split(" is left out: ")[1] for sentence in said] == [
        "none of its requests was completed."
    ]
    ((folder, summary, facts),) = import_run(path, tmp_path / "run")
    assert (folder.name, summary.counted > 0) == ("run-2", True)
    (remark,) = [text for text in facts["remarks"] if "left out" in text]
    assert remark.startswith("Run 1 of 2 is left out: none of its requests was completed")


def test_a_file_in_which_nothing_completed_is_refused_by_its_reason(tmp_path: Path) -> None:
    path = written(tmp_path / "r.json", {**VLLM, "completed": 0, "failed": 40})
    with pytest.raises(
        InputError, match=r"no valid measurement is left.*none of its requests was completed"
    ):
        read_measured(path, GIVEN)
    report = {
        "error_request_count": {"unit": "requests", "avg": 7},
        "input_config": {},
        "error_summary": [{"count": 7}],
    }
    rows, said = rows_of(written(tmp_path / "run" / "profile_export_aiperf.json", report))
    assert (rows, "none of its requests was completed" in said[0]) == ([], True)
    stage = {
        "load_summary": {"requested_rate": 2},
        "successes": {"count": 0},
        "failures": {"count": 9},
    }
    rows, said = rows_of(written(tmp_path / "stage_0_lifecycle_metrics.json", stage))
    assert (rows, "none of its requests was completed" in said[0]) == ([], True)

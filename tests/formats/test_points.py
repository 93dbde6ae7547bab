"""Points from tables, from report files of GenAI-Perf and AIPerf, and from folders of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import InputError
from tonnage.formats.measured_files import is_steady, read_measured, read_points

GIVEN: dict[str, str | int] = {
    "model": "llama-3-8b",
    "gpu": "h100-sxm-80gb",
    "precision": "fp8",
    "tp": 1,
    "isl": 2000,
    "osl": 200,
}

REPORT_CSV = """\
Metric,avg,min,max,p99,p95,p90,p75,p50,p25
Time To First Token (ms),"1,020.50",200.25,"4,000.00","3,900.75","3,500.50","3,000.25","1,250.00",600.50,250.00
Time To Second Token (ms),20.50,0.00,90.00,80.00,40.00,30.00,25.00,20.00,10.00
Request Latency (ms),"7,000.25","5,000.00","9,900.00","9,800.50","9,400.00","9,000.75","7,500.00","6,500.50","6,000.00"
Inter Token Latency (ms),30.25,20.00,40.00,39.50,38.00,36.50,33.00,30.00,27.00
Output Token Throughput Per User (tokens/sec/user),33.06,25.00,50.00,49.00,47.00,45.00,40.00,33.00,28.00
Output Sequence Length (tokens),199.45,180.00,200.00,200.00,200.00,200.00,200.00,200.00,199.00
Input Sequence Length (tokens),"2,007.05","2,006.00","2,008.00","2,008.00","2,008.00","2,008.00","2,007.00","2,007.00","2,006.00"

Metric,Value
Output Token Throughput (per sec),299.50
Request Throughput (per sec),1.50
Request Count (count),45.00
"""

REPORT_JSON: dict[str, Any] = {
    "request_throughput": {"unit": "requests/sec", "avg": 1.5},
    "request_latency": {
        "unit": "ms",
        "avg": 7000.25,
        "p50": 6500.5,
        "p90": 9000.75,
        "p95": 9400.0,
        "p99": 9800.5,
        "max": 9900.0,
    },
    "request_count": {"unit": "count", "avg": 45.0},
    "time_to_first_token": {
        "unit": "ms",
        "avg": 1020.5,
        "p50": 600.5,
        "p90": 3000.25,
        "p95": 3500.5,
        "p99": 3900.75,
        "std": 9.0,
    },
    "inter_token_latency": {
        "unit": "ms",
        "avg": 30.25,
        "p50": 30.0,
        "p90": 36.5,
        "p95": 38.0,
        "p99": 39.5,
    },
    "output_token_throughput": {"unit": "tokens/sec", "avg": 299.5},
    "output_token_throughput_per_user": {"unit": "tokens/sec/user", "avg": 33.06},
    "output_sequence_length": {"unit": "tokens", "avg": 199.45},
    "input_sequence_length": {"unit": "tokens", "avg": 2007.05},
    "telemetry_stats": {},
    "input_config": {
        "model_names": ["meta/llama3-8b-instruct"],
        "perf_analyzer": {"stimulus": {"concurrency": 10}},
        "verbose": False,
    },
}


def written(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return path


def test_reports_in_csv_and_json_say_the_same(tmp_path: Path) -> None:
    path = written(
        tmp_path, "llama-openai-chat-concurrency10/profile_export_genai_perf.csv", REPORT_CSV
    )
    (p,) = read_points(path, GIVEN)
    assert (p.model, p.gpu, p.tp, p.isl, p.osl, p.concurrency) == (
        "llama-3-8b",
        "h100-sxm-80gb",
        1,
        2000,
        200,
        10,
    )
    assert p.latencies_ms["ttft"] == {
        "mean": 1020.5,
        "p50": 600.5,
        "p90": 3000.25,
        "p95": 3500.5,
        "p99": 3900.75,
    }
    assert p.latencies_ms["tpot"]["p99"] == 39.5
    assert p.latencies_ms["itl"] == {"mean": 30.25}
    assert (p.requests_s, p.output_tok_s) == (1.5, 299.5)
    assert p.engine == "not stated"
    assert p.source == str(path)
    (a,) = read_points(written(tmp_path, "concurrency10/x_genai_perf.csv", REPORT_CSV), GIVEN)
    (b,) = read_points(written(tmp_path, "y_genai_perf.json", json.dumps(REPORT_JSON)), GIVEN)
    assert b.model == "meta/llama3-8b-instruct"
    assert (b.concurrency, b.latencies_ms, b.requests_s) == (
        a.concurrency,
        a.latencies_ms,
        a.requests_s,
    )


def test_aiperf_report_with_its_load(tmp_path: Path) -> None:
    report = {
        **REPORT_JSON,
        "schema_version": "1.4",
        "input_config": {"endpoint": {"model_names": ["m"]}, "loadgen": {"request_rate": 2.5}},
    }
    (p,) = read_points(written(tmp_path, "profile_export_aiperf.json", json.dumps(report)), GIVEN)
    assert (p.model, p.concurrency, p.request_rate) == ("m", None, 2.5)
    assert p.load == "open loop at 2.5 requests/s"


def test_a_folder_of_artifacts_is_one_curve(tmp_path: Path) -> None:
    for clients in (1, 10, 250):
        report = {**REPORT_JSON, "input_config": {"concurrency": clients}}
        written(
            tmp_path, f"run-concurrency{clients}/profile_export_genai_perf.json", json.dumps(report)
        )
        written(tmp_path, f"run-concurrency{clients}/profile_export_genai_perf.csv", REPORT_CSV)
        written(tmp_path, f"run-concurrency{clients}/inputs.json", "[]")
    assert sorted(p.concurrency or 0 for p in read_points(tmp_path, GIVEN)) == [1, 10, 250]
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="holds no report"):
        read_points(tmp_path / "none", GIVEN)


def test_requests_follow_from_tokens_and_steadiness_from_both(tmp_path: Path) -> None:
    header = "model,gpu,precision,tp,isl,osl,concurrency,output_tok_s,e2e_ms,source"
    path = written(tmp_path, "t.csv", f"{header}\nm,g,fp16,1,100,200,10,1000,1000,the course\n")
    (p,) = read_points(path)
    assert (p.requests_s, p.source) == (5.0, "the course")
    assert p.steadiness == pytest.approx(0.5)
    for clients, rate, e2e_ms, steady in [
        (10, 9.5, 1000, True),
        (10, 9.4, 1000, False),
        (None, 1, 1, True),
    ]:
        assert is_steady({"concurrency": clients, "requests_s": rate, "e2e_ms": e2e_ms}) is steady
        assert is_steady({"concurrency": clients, "requests_s": None, "e2e_ms": e2e_ms})


TABLE = "model,gpu,precision,tp,isl,osl,concurrency,requests_s\nm,g,fp16,1,100,200,10,5\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", TABLE.replace("requests_s", "ttft_ms"), "missing column requests_s"),
        ("t.csv", TABLE.replace("concurrency", "batch"), "line 2: has a static batch"),
        (
            "t.csv",
            TABLE.replace("gpu", "y"),
            (
                "missing column gpu; it has model, precision, tp, isl, osl, concurrency,"
                " requests_s; add it, or give gpu"
            ),
        ),
        ("t.csv", TABLE.replace("concurrency", "y"), "no column says the load"),
        (
            "r.csv",
            REPORT_CSV.replace("1.50\nRequest C", "\nRequest C"),
            "has no request throughput",
        ),
        ("r.csv", REPORT_CSV.replace("600.50,", ""), "line 2: 9 cells, but its header has 10"),
        (
            "r.csv",
            REPORT_CSV.replace("600.50", "n/a"),
            "line 2, column 'p50': 'n/a' is not a number",
        ),
        ("r.csv", REPORT_CSV, "has no load"),
        ("r.json", "[1]", "not a report"),
        ("r.json", "{", "line 1: not JSON"),
        ("r.json", '{"request_throughput": {"unit": "requests/sec", "avg": NaN}}', "holds NaN"),
        (
            "r.json",
            '{"request_throughput": {"unit": "requests/sec", "avg": "1"}}',
            r'request_throughput.avg: "1" is not a number',
        ),
        (
            "r.json",
            '{"time_to_first_token": {"unit": "parsec", "avg": 1}}',
            "has the unit 'parsec'",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    path = written(tmp_path, name, content)
    with pytest.raises(InputError) as caught:
        read_points(path, {} if name == "t.csv" else GIVEN)
    assert message in str(caught.value)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["ms", "requests/sec", "avg", "10", ""])
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["unit", "avg", "p95", "input_config", "concurrency", "model", "request_rate", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(
    st.dictionaries(st.sampled_from(sorted(REPORT_JSON)) | st.text(max_size=5), JSON, max_size=4)
)
def test_any_json_gives_points_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, changes: dict[str, Any]
) -> None:
    check(
        tmp_path_factory.getbasetemp() / "fuzz.json",
        json.dumps({**REPORT_JSON, **changes}).encode(),
    )


@given(st.integers(0, len(REPORT_CSV)), st.integers(0, 40), st.text(max_size=10))
def test_any_damage_to_a_report_gives_points_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, at: int, cut: int, text: str
) -> None:
    damaged = REPORT_CSV[:at] + text + REPORT_CSV[at + cut :]
    check(
        tmp_path_factory.getbasetemp() / "concurrency7.csv",
        damaged.encode("utf-8", "surrogatepass"),
    )


def check(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    message = path.name
    try:
        points = read_points(path, GIVEN)
    except InputError as error:
        message = str(error)
    else:
        assert all(p.tp >= 1 and (p.requests_s is None or p.requests_s > 0) for p in points)
    assert path.name in message
    assert "\n" not in message


def test_sizing_reads_every_format_that_scoring_reads(tmp_path: Path) -> None:
    """One reader: a point that is sized from and a row that is scored say the same of one file."""
    from tests.formats.test_measured_files import GUIDELLM, VLLM

    for name, document in (
        ("vllm.json", VLLM),
        ("guidellm.json", GUIDELLM),
        ("report.json", REPORT_JSON),
    ):
        path = written(tmp_path, name, json.dumps(document))
        points, rows = read_points(path, GIVEN), read_measured(path, GIVEN)
        assert [
            (p.concurrency, p.request_rate, p.isl, p.requests_s, p.output_tok_s) for p in points
        ] == [
            (r["concurrency"], r["request_rate"], r["isl"], r["requests_s"], r["output_tok_s"])
            for r in rows
        ]
        assert [p.statistic_ms("ttft", "mean") for p in points] == [r["ttft_ms"] for r in rows]


# A report of ``trtllm-bench --report_json`` becomes a point with our definitions, which is sized
# from.


STATISTICS = {
    "minimum": 1.0,
    "maximum": 9.0,
    "average": 5.0,
    "p50": 4.0,
    "p90": 7.0,
    "p95": 8.0,
    "p99": 8.9,
}
REPORT: dict[str, Any] = {
    "engine": {"model": "meta-llama/Llama-3.1-8B-Instruct", "version": "1.2.0", "backend": "Pytorch", "quantization": "FP8"},
    "machine": {"name": "NVIDIA H100 80GB HBM3", "memory.total": 79.1, "clocks.mem": 2.6},
    "world_info": {"tp_size": 2, "pp_size": 1, "ep_size": 1, "world_size": 2, "max_batch_size": 2048, "issue_rate": 40e6 * 1e9},
    "request_info": {"num_requests": 1000, "avg_num_concurrent_requests": 63.7, "avg_input_length": 2000.2, "avg_output_length": 199.9},
    "performance": {
        "total_latency_ms": 40_500.0,
        "avg_request_latency_ms": 2500.0,
        "request_throughput_req_s": 24.7,
        "system_output_throughput_tok_s": 4940.0,
        "request_latency_percentiles_ms": {**STATISTICS, "average": 2500.0, "p95": 3100.0},
    },
    "streaming_metrics": {
        "avg_ttft_ms": 210.0,
        "avg_tpot_ms": 11.5,
        "tpot_percentiles": {**STATISTICS, "average": 11.5, "p99": 14.0},
        "ttft_percentiles": {**STATISTICS, "average": 210.0, "p95": 420.0},
    },
}  # fmt: skip


def written_of_trtllm_bench(folder: Path, **changed: Any) -> Path:
    file = folder / "report.json"
    file.write_text(
        json.dumps(
            {name: value for name, value in (REPORT | changed).items() if value is not None}
        ),
        encoding="utf-8",
    )
    return file


def test_a_report_is_a_point_with_its_own_deployment(tmp_path: Path) -> None:
    (row,) = (
        dict(each) for each in read_measured(written_of_trtllm_bench(tmp_path), {"gpu": "h100"})
    )
    assert (row["model"], row["precision"], row["tp"], row["engine"]) == (
        "meta-llama/Llama-3.1-8B-Instruct",
        "fp8",
        2,
        "tensorrt-llm",
    )
    assert (row["isl"], row["osl"], row["concurrency"], row["requests"]) == (2000, 200, 64, 1000)
    assert (row["ttft_ms"], row["ttft_p95_ms"], row["tpot_ms"], row["tpot_p99_ms"]) == (
        210.0,
        420.0,
        11.5,
        14.0,
    )
    assert (row["e2e_ms"], row["e2e_p95_ms"], row["requests_s"], row["output_tok_s"]) == (
        2500.0,
        3100.0,
        24.7,
        4940.0,
    )
    queued = {**REPORT["world_info"], "issue_rate": 0.05e6 * 1e9}
    (row,) = (
        dict(each)
        for each in read_measured(
            written_of_trtllm_bench(tmp_path, world_info=queued, streaming_metrics=None),
            {"gpu": "h100"},
        )
    )
    assert row["concurrency"] == 1000
    assert (row["ttft_ms"], row["e2e_ms"]) == (None, 2500.0)


# A line of SGLang's ``bench_serving`` becomes a point with its own definitions, or one line that
# says what is wrong.


SGLANG_BENCH_GIVEN: dict[str, str | int] = {
    "model": "llama-3.1-8b",
    "gpu": "h100",
    "precision": "fp8",
    "tp": 1,
}
LINE: dict[str, Any] = {
    "backend": "sglang",
    "request_rate": float("inf"),
    "max_concurrency": 16,
    "duration": 40.0,
    "completed": 80,
    "total_input_tokens": 80_800,
    "total_output_tokens": 15_920,
    "request_throughput": 2.0,
    "output_throughput": 398.0,
    "mean_e2e_latency_ms": 3900.0,
    "median_e2e_latency_ms": 3850.0,
    "mean_ttft_ms": 100.0,
    "p99_ttft_ms": 300.0,
    "mean_tpot_ms": 19.0,
    "p99_itl_ms": 60.0,
    "concurrency": 7.8,
}


def rows_of(folder: Path, *lines: dict[str, Any]) -> list[dict[str, Any]]:
    file = folder / "results.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return [dict(row) for row in read_measured(file, SGLANG_BENCH_GIVEN)]


def test_each_line_is_a_point_with_its_own_definitions(tmp_path: Path) -> None:
    first, second = rows_of(tmp_path, LINE, {**LINE, "request_rate": 2.5, "max_concurrency": None})
    assert (first["concurrency"], first["request_rate"], first["requests"]) == (16, None, 80)
    assert (second["concurrency"], second["request_rate"]) == (None, 2.5)
    assert (first["engine"], first["isl"], first["osl"]) == ("sglang", 1010, 199)
    assert (first["ttft_ms"], first["ttft_p99_ms"], first["tpot_ms"], first["itl_p99_ms"]) == (
        100.0,
        300.0,
        19.0,
        60.0,
    )
    assert (first["e2e_ms"], first["e2e_p50_ms"], first["requests_s"], first["output_tok_s"]) == (
        3900.0,
        3850.0,
        2.0,
        398.0,
    )
    random = {"random_input_len": 1000, "random_output_len": 200, "random_range_ratio": 0.8}
    varied, equal, other = rows_of(
        tmp_path,
        LINE | random,
        LINE | random | {"random_range_ratio": 1.0},
        LINE | random | {"dataset_name": "sharegpt"},
    )
    assert (varied["isl_drawn"], varied["osl_drawn"]) == ("800-1000", "160-200")
    assert equal["isl_drawn"] is None
    assert other["isl_drawn"] is None
    assert rows_of(tmp_path, {**LINE, "max_concurrency": None})[0]["concurrency"] == 80


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"request_rate": -2.5}, "request_rate"),
        ({"completed": None}, "does not say how many requests were completed"),
        ({"mean_ttft_ms": "quick"}, "mean_ttft_ms"),
    ],
)
def test_what_cannot_be_used_is_named(change: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"results\.jsonl, line 2.*{says}"):
        rows_of(tmp_path, LINE, {**LINE, **change})

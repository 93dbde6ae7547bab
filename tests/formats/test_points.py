"""Points from tables, from report files of GenAI-Perf and AIPerf, and from folders of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.report_files import REPORT_JSON, REPORT_KEYS, report_file
from tonnage.errors import InputError
from tonnage.formats.measured_files import is_steady, read_measured, read_points

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


def test_reports_in_csv_and_json_say_the_same(tmp_path: Path) -> None:
    path = report_file(
        tmp_path, "llama-openai-chat-concurrency10/profile_export_genai_perf.csv", REPORT_CSV
    )
    (p,) = read_points(path, REPORT_KEYS)
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
    (a,) = read_points(
        report_file(tmp_path, "concurrency10/x_genai_perf.csv", REPORT_CSV), REPORT_KEYS
    )
    (b,) = read_points(
        report_file(tmp_path, "y_genai_perf.json", json.dumps(REPORT_JSON)), REPORT_KEYS
    )
    assert b.model == "meta/llama3-8b-instruct"
    assert (b.concurrency, b.latencies_ms, b.requests_s) == (
        a.concurrency,
        a.latencies_ms,
        a.requests_s,
    )


def test_a_folder_of_artifacts_is_one_curve(tmp_path: Path) -> None:
    for clients in (1, 10, 250):
        report = {**REPORT_JSON, "input_config": {"concurrency": clients}}
        report_file(
            tmp_path, f"run-concurrency{clients}/profile_export_genai_perf.json", json.dumps(report)
        )
        report_file(tmp_path, f"run-concurrency{clients}/profile_export_genai_perf.csv", REPORT_CSV)
        report_file(tmp_path, f"run-concurrency{clients}/inputs.json", "[]")
    assert sorted(p.concurrency or 0 for p in read_points(tmp_path, REPORT_KEYS)) == [1, 10, 250]
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="holds no report"):
        read_points(tmp_path / "none", REPORT_KEYS)


def test_requests_follow_from_tokens_and_steadiness_from_both(tmp_path: Path) -> None:
    header = "model,gpu,precision,tp,isl,osl,concurrency,output_tok_s,e2e_ms,source"
    path = report_file(tmp_path, "t.csv", f"{header}\nm,g,fp16,1,100,200,10,1000,1000,the course\n")
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
    path = report_file(tmp_path, name, content)
    with pytest.raises(InputError) as caught:
        read_points(path, {} if name == "t.csv" else REPORT_KEYS)
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
        points = read_points(path, REPORT_KEYS)
    except InputError as error:
        message = str(error)
    else:
        assert all(p.tp >= 1 and (p.requests_s is None or p.requests_s > 0) for p in points)
    assert path.name in message
    assert "\n" not in message


def test_sizing_reads_every_format_that_scoring_reads(tmp_path: Path) -> None:
    """One reader: a point that is sized from and a row that is scored say the same of one file."""
    from tests.formats.result_files import GUIDELLM, VLLM_RESULT

    for name, document in (
        ("vllm.json", VLLM_RESULT),
        ("guidellm.json", GUIDELLM),
        ("report.json", REPORT_JSON),
    ):
        path = report_file(tmp_path, name, json.dumps(document))
        points, rows = read_points(path, REPORT_KEYS), read_measured(path, REPORT_KEYS)
        assert [
            (p.concurrency, p.request_rate, p.isl, p.requests_s, p.output_tok_s) for p in points
        ] == [
            (r["concurrency"], r["request_rate"], r["isl"], r["requests_s"], r["output_tok_s"])
            for r in rows
        ]
        assert [p.statistic_ms("ttft", "mean") for p in points] == [r["ttft_ms"] for r in rows]

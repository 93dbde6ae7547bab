"""Every form in which a benchmark leaves its figures, through ``calibrate`` to a file that every prediction takes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.evidence.test_calibrate import METRICS, TRUTH, csv_of, measured, with_factors
from tests.questions import plans_with
from tonnage.cli.main import run
from tonnage.spec.calibration import read_calibration

few_parts = plans_with()

SAID = ["--model=llama-3-8b", "--gpu=h100-sxm-80gb", "--precision=fp16", "--tp=1", "--engine=nim-2024", "--isl=800", "--osl=100"]
OF_MODEL = ["--model=llama-3-8b", "--gpu=h100-sxm-80gb", "--precision=fp16", "--tp=1", "--engine=nim-2024"]

Row = dict[str, Any]


@pytest.fixture(scope="module")
def curve() -> list[Row]:
    rows = measured(800, 100, with_factors(TRUTH), clients=(1, 8, 32))
    return [{name: round(value, 3) if name in METRICS else value for name, value in row.items()} for row in rows]


def report(row: Row) -> dict[str, Any]:
    """A report of GenAI-Perf or AIPerf, which call a TPOT inter token latency."""
    return {
        "request_throughput": {"unit": "requests/sec", "avg": row["requests_s"]},
        "request_latency": {"unit": "ms", "avg": row["e2e_ms"]},
        "request_count": {"unit": "count", "avg": row["requests"]},
        "time_to_first_token": {"unit": "ms", "avg": row["ttft_ms"], "p95": row["ttft_p95_ms"]},
        "inter_token_latency": {"unit": "ms", "avg": row["itl_ms"]},
        "output_sequence_length": {"unit": "tokens", "avg": 100.0},
        "input_sequence_length": {"unit": "tokens", "avg": 803.0},
    }


def report_csv(row: Row) -> str:
    return (
        "Metric,avg,p95\n"
        f"Time To First Token (ms),{row['ttft_ms']},{row['ttft_p95_ms']}\n"
        f'Request Latency (ms),"{row["e2e_ms"]:,}",\nInter Token Latency (ms),{row["itl_ms"]},\n'
        "Output Sequence Length (tokens),100,\nInput Sequence Length (tokens),803,\n\n"
        f"Metric,Value\nRequest Throughput (per sec),{row['requests_s']}\nRequest Count (count),{row['requests']}\n"
    )


def of_each(name: str, text: Callable[[Row], str]) -> Callable[[list[Row], Path], Path]:
    def write(rows: list[Row], folder: Path) -> Path:
        for row in rows:
            file = folder / f"concurrency{row['concurrency']}" / name
            file.parent.mkdir(parents=True)
            file.write_text(text(row), encoding="utf-8")
        return folder

    return write


def genai_perf(row: Row) -> str:
    return json.dumps({**report(row), "input_config": {"perf_analyzer": {"stimulus": {"concurrency": row["concurrency"]}}}})


def aiperf(row: Row) -> str:
    config = {"endpoint": {"model_names": ["served"]}, "loadgen": {"concurrency": row["concurrency"]}}
    return json.dumps({**report(row), "schema_version": "1.4", "input_config": config})


def vllm(rows: list[Row], folder: Path) -> Path:
    for row in rows:
        seconds = row["requests"] / row["requests_s"]
        result = {
            "backend": "vllm",
            "model_id": "served",
            "num_prompts": row["requests"],
            "request_rate": "inf",
            "max_concurrency": row["concurrency"],
            "duration": seconds,
            "completed": row["requests"],
            "total_input_tokens": 803 * row["requests"],
            "total_output_tokens": 100 * row["requests"],
            "request_throughput": row["requests_s"],
            "output_throughput": 100 * row["requests_s"],
            "mean_ttft_ms": row["ttft_ms"],
            "p95_ttft_ms": row["ttft_p95_ms"],
            "mean_tpot_ms": row["itl_ms"],
            "mean_e2el_ms": row["e2e_ms"],
        }
        (folder / f"c{row['concurrency']:03}.json").write_text(json.dumps(result), encoding="utf-8")
    return folder


def guidellm(rows: list[Row], folder: Path) -> Path:
    def summary(mean: float, p95: float | None = None) -> dict[str, Any]:
        return {"successful": {"mean": mean, "percentiles": {} if p95 is None else {"p95": p95}}}

    benchmarks = [
        {
            "type_": "generative_benchmark",
            "config": {"strategy": {"type_": "concurrent", "streams": row["concurrency"]}, "backend": {"model": "served"}},
            "metrics": {
                "requests_per_second": summary(row["requests_s"]),
                "request_latency": summary(row["e2e_ms"] / 1e3),
                "prompt_token_count": summary(803.0),
                "output_token_count": summary(100.0),
                "time_to_first_token_ms": summary(row["ttft_ms"], row["ttft_p95_ms"]),
                "inter_token_latency_ms": summary(row["itl_ms"]),
                "output_tokens_per_second": summary(100 * row["requests_s"]),
            },
        }
        for row in rows
    ]
    file = folder / "benchmarks.json"
    file.write_text(json.dumps({"metadata": {"version": 2}, "benchmarks": benchmarks}), encoding="utf-8")
    return file


FORMS: dict[str, Callable[[list[Row], Path], Path]] = {
    "csv": lambda rows, folder: csv_of(rows, folder / "points.csv"),
    "genai-perf json": of_each("profile_export_genai_perf.json", genai_perf),
    "genai-perf csv": of_each("profile_export_genai_perf.csv", report_csv),
    "aiperf json": of_each("profile_export_aiperf.json", aiperf),
    "aiperf csv": of_each("profile_export_aiperf.csv", report_csv),
    "vllm": vllm,
    "guidellm": guidellm,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_factors_of_the_same_machine(form: str, curve: list[Row], tmp_path: Path) -> None:
    source, mine = tmp_path / "source", tmp_path / "my.json"
    source.mkdir()
    assert run(["calibrate", str(FORMS[form](curve, source)), *SAID, "--output", str(mine)]) == 0
    document = json.loads(mine.read_text(encoding="utf-8"))
    assert document["points"] == 3
    assert document["deployments"] == ["llama-3-8b fp16 tp1"]
    fitted = {name: value["factor"] for name, value in document["fitted"].items()}
    assert fitted["step_s"] > 1.02  # 1.3 in truth
    known = set(METRICS) & set(document["residuals"]["mape_before"])
    assert known >= {"ttft_ms", "itl_ms", "e2e_ms", "requests_s"}
    assert document["residuals"]["mape_before"]["e2e_ms"] > 5


@pytest.mark.parametrize("form", FORMS)
def test_damaged_files_are_refused_in_one_line(form: str, curve: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = FORMS[form](curve, tmp_path)
    for file in sorted(tmp_path.rglob("*.*")):
        text = file.read_text(encoding="utf-8")
        file.write_text(text[:-30] if file.name == "points.csv" else text[: len(text) // 2], encoding="utf-8")
    mine = tmp_path / "my.out"
    assert run(["calibrate", str(source), *SAID, "--output", str(mine)]) == 2
    said = capsys.readouterr().err.strip()
    assert "\n" not in said
    assert str(tmp_path) in said
    assert not mine.exists()


def test_what_was_calibrated_is_taken_wherever_something_is_predicted(
    curve: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    points, mine = csv_of(curve, tmp_path / "points.csv"), tmp_path / "my.json"
    assert run(["calibrate", str(points), "--output", str(mine)]) == 0
    calibration = read_calibration(mine)
    if not calibration.multipliers:
        pytest.fail("three points of a machine 30 % off were not kept")
    capsys.readouterr()
    lengths = ["--isl=800", "--osl=100"]
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(
        "model: llama-3-8b\nlengths: {isl: 800, osl: 100}\ndemand: {peak_rps: 20}\n"
        "search: {gpu: h100-sxm-80gb, precision: fp16, tp: 1, engine: nim-2024, coefficients: my.json}\n",
        encoding="utf-8",
    )
    for asked in (
        ["simulate", *OF_MODEL, *lengths, "--concurrency=4", f"--coefficients={mine}", "--json"],
        ["size", *OF_MODEL, *lengths, "--peak-rps=20", f"--coefficients={mine}", "--json"],
        ["size", str(scenario), "--json"],
        ["score", str(points), f"--coefficients={mine}", "--json"],
    ):
        assert run(asked) == 0, asked
        assert "calibrated on 3 points of points.csv" in capsys.readouterr().out

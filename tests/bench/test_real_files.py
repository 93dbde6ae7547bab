"""Files that the other tools really wrote (``fixtures/README.md``): imported, they say what their own summaries say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tonnage.cli.main import run
from tonnage.formats.genai_perf import read_report
from tonnage.formats.measured_files import read_measured
from tonnage.results.store import read_run

FILES = Path(__file__).with_name("fixtures")
CLOSE = 1e-4
"""Relative: stamps in seconds or milliseconds lose the nanoseconds that we keep."""


class Imported:
    """A run folder made of a tool's file."""

    def __init__(self, file: Path, folder: Path, *flags: str) -> None:
        assert run(["import", str(file), "--output", str(folder), *flags]) == 0
        self.summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
        self.theirs: dict[str, Any] = json.loads((folder / "run.json").read_text()).get("other_definitions", {})
        self.requests = read_run(folder).requests
        self.folder = folder


def test_aiperf_s_own_summary_comes_out_of_its_records(tmp_path: Path) -> None:
    found = Imported(FILES / "aiperf", tmp_path / "run")
    said = json.loads((FILES / "aiperf" / "profile_export_aiperf.json").read_text())
    assert len(found.requests) == said["request_count"]["avg"] == 24
    for name, ours in (
        ("time_to_first_token", found.summary["ttft_from_send_ms"]),
        ("request_latency", found.theirs["request_latency_ms"]),
        ("inter_token_latency", found.theirs["inter_token_latency_ms"]),
    ):
        assert ours["mean"] == pytest.approx(said[name]["avg"], rel=CLOSE), name
        for percentile in ("p50", "p90", "p99"):
            assert ours[percentile] == pytest.approx(said[name][percentile], rel=CLOSE), (name, percentile)
    gaps = found.theirs["gap_by_event_ms"]["mean"]
    chunks = said["inter_chunk_latency"]
    assert 0.995 * gaps < chunks["avg"] <= gaps  # AIPerf counts the gap of two events that came at one moment, which is none
    assert found.requests.isl.mean() == pytest.approx(said["input_sequence_length"]["avg"])
    assert found.requests.osl.mean() == pytest.approx(said["output_sequence_length"]["avg"])
    row = read_measured(found.folder, {"gpu": "h100-sxm-80gb", "precision": "fp8", "tp": 1})[0]
    assert (row["model"], row["concurrency"]) == ("m", 4)


def test_vllm_s_own_summary_comes_out_of_its_lists(tmp_path: Path) -> None:
    found = Imported(FILES / "vllm.json", tmp_path / "run")
    said = json.loads((FILES / "vllm.json").read_text())
    assert len(found.requests) == said["completed"] == 24
    for statistic, key in (("mean", "mean"), ("median", "p50"), ("p99", "p99")):
        assert found.summary["ttft_from_send_ms"][key] == pytest.approx(said[f"{statistic}_ttft_ms"], rel=CLOSE), statistic
        tpot = found.theirs["inter_token_latency_ms"][key]
        assert tpot == pytest.approx(said[f"{statistic}_tpot_ms"], rel=1e-3), statistic  # its latency ends a little after the last token
    # Two of its gaps a request are those of the chunk with the role and of the one that finishes, which carry no token.
    every = [gap for gaps in said["itls"] for gap in gaps]
    assert len(every) - 2 * len(said["itls"]) == said["total_output_tokens"] - said["completed"]
    assert 1e3 * sum(every) / len(every) == pytest.approx(said["mean_itl_ms"]) == pytest.approx(8.77, abs=0.01)
    assert found.theirs["gap_by_event_ms"]["mean"] == pytest.approx(10.0, rel=0.01)
    assert found.requests.isl.sum() == said["total_input_tokens"]
    assert found.requests.osl.sum() == said["total_output_tokens"]
    assert found.summary["requests_per_second"] == pytest.approx(said["request_throughput"], rel=0.02)  # its clock starts a little earlier


def test_guidellm_s_own_summary_comes_out_of_its_requests(tmp_path: Path) -> None:
    found = Imported(FILES / "guidellm.json", tmp_path / "run")
    said = json.loads((FILES / "guidellm.json").read_text())["benchmarks"][0]
    done = said["requests"]["successful"]
    assert found.summary["requests"]["completed"] == len(done)
    first, gap = (said["metrics"][name]["successful"] for name in ("time_to_first_token_ms", "inter_token_latency_ms"))
    assert found.summary["ttft_from_send_ms"]["mean"] == pytest.approx(first["mean"], rel=CLOSE)
    assert found.summary["ttft_from_send_ms"]["p50"] == pytest.approx(first["median"], rel=0.05)  # its median is one of the values
    assert found.summary["tpot_ms"]["mean"] == pytest.approx(sum(r["inter_token_latency_ms"] for r in done) / len(done), rel=CLOSE)
    assert gap["mean"] == pytest.approx(found.summary["tpot_ms"]["mean"], rel=0.05)  # it weighs requests by their tokens
    assert found.requests.osl.mean() == pytest.approx(said["metrics"]["output_token_count"]["successful"]["mean"])


def test_genai_perf_s_own_statistics_come_out_of_its_raw_export(tmp_path: Path) -> None:
    found = Imported(FILES / "genai-perf", tmp_path / "run", "--tokenizer", str(FILES / "genai-perf" / "tokenizer.json"))
    said = json.loads((FILES / "genai-perf" / "statistics.json").read_text())
    assert len(found.requests) == said["request_count"]["avg"] == 10
    for name, ours in (
        ("time_to_first_token", found.summary["ttft_from_send_ms"]),
        ("request_latency", found.theirs["request_latency_ms"]),
        ("inter_token_latency", found.theirs["inter_token_latency_ms"]),
    ):
        assert ours["mean"] == pytest.approx(said[name]["avg"], rel=CLOSE), name
        for percentile in ("p50", "p90", "p99"):
            assert ours[percentile] == pytest.approx(said[name][percentile], rel=CLOSE), (name, percentile)
    assert found.requests.isl.mean() == pytest.approx(said["input_sequence_length"]["avg"])
    assert found.requests.osl.mean() == pytest.approx(said["output_sequence_length"]["avg"])
    assert found.summary["requests_per_second"] == pytest.approx(said["request_throughput"]["avg"], rel=CLOSE)


def test_without_a_tokenizer_an_event_is_a_token_and_a_prompt_has_none(tmp_path: Path) -> None:
    found = Imported(FILES / "genai-perf" / "profile_export.json", tmp_path / "run")
    assert found.requests.osl.mean() == pytest.approx(5.9)  # the exact server sends a token an event
    assert not found.requests.isl.any()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d.update(service_kind="triton"), "only those to OpenAI's API"),
        (lambda d: d["experiments"][0].pop("requests"), "experiment 1"),
        (lambda d: d["experiments"][0]["requests"][0].update(timestamp="soon"), "request 1, timestamp"),
        (lambda d: d["experiments"][0]["requests"][0]["request_inputs"].pop("payload"), "payload"),
    ],
)
def test_a_damaged_raw_export_is_refused_with_its_place(change: Any, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads((FILES / "genai-perf" / "profile_export.json").read_text())
    change(document)
    (tmp_path / "profile_export.json").write_text(json.dumps(document))
    assert run(["import", str(tmp_path), "--output", str(tmp_path / "run")]) == 2
    assert says in capsys.readouterr().err


def test_an_error_inside_a_stream_is_a_failed_request(tmp_path: Path) -> None:
    document = json.loads((FILES / "genai-perf" / "profile_export.json").read_text())
    request = document["experiments"][0]["requests"][0]
    request["response_outputs"][1]["response"] = 'data: {"error": {"message": "out of memory"}}\n\n'
    (tmp_path / "profile_export.json").write_text(json.dumps(document))
    found = Imported(tmp_path / "profile_export.json", tmp_path / "run")
    assert found.summary["errors_by_kind"] == {"out of memory": 1}


def keys(value: Any, depth: int = 2) -> Any:
    """The keys of a document with the kinds of their values, some levels deep."""
    if isinstance(value, dict) and depth:
        return {name: keys(inner, depth - 1) for name, inner in value.items()}
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def test_our_vllm_file_has_the_keys_of_a_real_one(measured: Path) -> None:
    ours = json.loads((measured / "export-vllm" / "vllm.json").read_text())
    real = json.loads((FILES / "vllm.json").read_text())
    assert set(real) <= set(ours)
    for name in set(real) & set(ours) - {"request_rate", "max_concurrency"}:
        assert keys(ours[name]) == keys(real[name]), name


def test_our_aiperf_report_and_records_have_the_keys_of_real_ones(measured: Path) -> None:
    real = json.loads((FILES / "aiperf" / "profile_export_aiperf.json").read_text())
    ours = json.loads((measured / "export-aiperf" / "profile_export_aiperf.json").read_text())
    for name in set(real) - {"input_config"}:
        assert name in ours, name
        assert keys(ours[name]) == keys(real[name]) or set(keys(ours[name])) <= set(keys(real[name])), name
    line = json.loads((FILES / "aiperf" / "profile_export.jsonl").read_text().splitlines()[0])
    mine = json.loads((measured / "export-aiperf" / "profile_export.jsonl").read_text().splitlines()[1])
    assert {name: one["unit"] for name, one in mine["metrics"].items() if name in line["metrics"]}.items() <= {
        name: one["unit"] for name, one in line["metrics"].items()
    }.items()


def test_the_report_of_a_real_aiperf_run_says_its_model_and_load() -> None:
    values = read_report(FILES / "aiperf" / "profile_export_aiperf.json").values
    assert (values["model"], values["concurrency"]) == ("m", 4)
    assert values["ttft_ms"] == pytest.approx(57.94, abs=0.01)

"""A run in the files of other tools, and per-request files of other tools as runs: the numbers stay the same."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.bench.test_cli import ASKED
from tonnage.bench.exact.schedule import Schedule
from tonnage.bench.exact.serve import exact_server
from tonnage.cli.main import run
from tonnage.results.importers.genai_perf import read_report
from tonnage.results.importers.vllm_bench import is_vllm, vllm_values


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with every export: 60 requests of 8 tokens, two an event, every tenth refused."""
    folder = tmp_path_factory.mktemp("exports") / "run"
    exports = [flag for name in ("genai-perf", "aiperf", "vllm") for flag in ("--export", name)]
    schedule = Schedule(ttft_s=0.01, itl_s=0.004, tokens_per_event=2, fault="500", fault_every=10)
    with exact_server(schedule, seconds=60) as url:
        load = ["--concurrency", "4", "--request-count", "60", "--osl", "8", "--artifact-dir", str(folder)]
        assert run([*ASKED[:-3], "--no-selftest", "--url", url, *load, *exports]) == 3
    return folder


def test_reports_of_genai_perf_and_aiperf_say_what_the_record_says(measured: Path) -> None:
    theirs = json.loads((measured / "run.json").read_text())["other_definitions"]
    summary = json.loads((measured / "summary.json").read_text())
    for path in ("export-genai-perf/profile_export_genai_perf.json", "export-aiperf/profile_export_aiperf.json"):
        report = json.loads((measured / path).read_text())
        assert report["request_count"]["avg"] == 54
        assert report["time_to_first_token"]["avg"] == pytest.approx(summary["ttft_from_send_ms"]["mean"])
        assert report["request_latency"]["p99"] == pytest.approx(theirs["request_latency_ms"]["p99"])
        assert report["inter_token_latency"]["p50"] == pytest.approx(theirs["inter_token_latency_ms"]["p50"])
        values = read_report(measured / path).values
        assert values["tpot_ms"] == pytest.approx(summary["tpot_ms"]["mean"])
        assert (values["concurrency"], values["model"], values["osl"]) == (4, "m", 8)
    for path in ("export-genai-perf/profile_export_genai_perf.csv", "export-aiperf/profile_export_aiperf.csv"):
        assert read_report(measured / path).values["ttft_ms"] == pytest.approx(summary["ttft_from_send_ms"]["mean"], abs=0.006)


def test_a_vllm_file_says_what_the_record_says(measured: Path) -> None:
    document = json.loads((measured / "export-vllm" / "vllm.json").read_text())
    assert is_vllm(document)
    values = vllm_values(document, Path("vllm.json"))
    theirs = json.loads((measured / "run.json").read_text())["other_definitions"]
    assert values["itl_ms"] == pytest.approx(theirs["gap_by_event_ms"]["mean"])
    assert (values["concurrency"], values["osl"], document["failed"]) == (4, 8, 6)
    assert sum(map(bool, document["errors"])) == 6
    events = {len(gaps) + 1 for gaps, error in zip(document["itls"], document["errors"], strict=True) if not error}
    assert max(events) == 4  # events that came in one piece share a stamp, and count as one
    assert np.mean([t for t in document["ttfts"] if t]) * 1e3 == pytest.approx(document["mean_ttft_ms"])


def test_aiperf_records_have_what_its_reader_requires(measured: Path) -> None:
    lines = [json.loads(line) for line in (measured / "export-aiperf" / "profile_export.jsonl").read_text().splitlines()]
    assert len(lines) == 60
    required = {"session_num", "request_start_ns", "request_end_ns", "worker_id", "record_processor_id", "benchmark_phase"}
    assert all(required <= line["metadata"].keys() for line in lines)
    assert sum(line["error"] is not None for line in lines) == 6
    good = [line["metrics"] for line in lines if line["error"] is None]
    assert max(len(m["inter_chunk_latency"]["value"]) for m in good) == 3
    assert all(m["request_latency"]["value"] >= m["time_to_first_token"]["value"] for m in good)

"""A run in the files of other tools, and per-request files of other tools as runs: the numbers stay
the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.bench.cli_cases import ASKED
from tonnage.api.compare import compare_runs
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.cli.main import run
from tonnage.errors import InputError
from tonnage.formats.genai_perf import read_report
from tonnage.formats.invalid_runs import InvalidRuns
from tonnage.formats.measured_files import read_measured
from tonnage.formats.vllm_bench import is_vllm, vllm_points
from tonnage.report.document import Drawing
from tonnage.report.drawing.figure import Plot
from tonnage.report.measured import two_runs_page
from tonnage.results.store import read_run


def test_reports_of_genai_perf_and_aiperf_say_what_the_record_says(measured: Path) -> None:
    theirs = json.loads((measured / "run.json").read_text())["other_definitions"]
    summary = json.loads((measured / "summary.json").read_text())
    for path in (
        "export-genai-perf/profile_export_genai_perf.json",
        "export-aiperf/profile_export_aiperf.json",
    ):
        report = json.loads((measured / path).read_text())
        assert report["request_count"]["avg"] == 54
        assert report["time_to_first_token"]["avg"] == pytest.approx(
            summary["ttft_from_send_ms"]["mean"]
        )
        assert report["request_latency"]["p99"] == pytest.approx(
            theirs["request_latency_ms"]["p99"]
        )
        assert report["inter_token_latency"]["p50"] == pytest.approx(
            theirs["inter_token_latency_ms"]["p50"]
        )
        values = read_report(measured / path)
        assert values["tpot_ms"] == pytest.approx(summary["tpot_ms"]["mean"])
        assert (values["concurrency"], values["model"], values["osl"]) == (4, "m", 8)
    for path in (
        "export-genai-perf/profile_export_genai_perf.csv",
        "export-aiperf/profile_export_aiperf.csv",
    ):
        assert read_report(measured / path)["ttft_ms"] == pytest.approx(
            summary["ttft_from_send_ms"]["mean"], abs=0.006
        )


def test_a_vllm_file_says_what_the_record_says(measured: Path) -> None:
    document = json.loads((measured / "export-vllm" / "vllm.json").read_text())
    assert is_vllm(document)
    values = next(vllm_points(document, "vllm.json"))[1]
    theirs = json.loads((measured / "run.json").read_text())["other_definitions"]
    assert values["itl_ms"] == pytest.approx(theirs["gap_by_event_ms"]["mean"])
    assert (values["concurrency"], values["osl"], document["failed"]) == (4, 8, 6)
    assert sum(map(bool, document["errors"])) == 6
    events = {
        len(gaps) + 1
        for gaps, error in zip(document["itls"], document["errors"], strict=True)
        if not error
    }
    assert max(events) == 4  # events that came in one piece share a stamp, and count as one
    assert np.mean([t for t in document["ttfts"] if t]) * 1e3 == pytest.approx(
        document["mean_ttft_ms"]
    )


def test_the_peaks_of_vllm_s_file_count_the_seconds_from_the_first_sending(measured: Path) -> None:
    document = json.loads((measured / "export-vllm" / "vllm.json").read_text())
    found = read_run(measured).requests
    assert 0 < document["max_output_tokens_per_s"] <= document["total_output_tokens"]
    assert 4 <= document["max_concurrent_requests"] <= document["completed"]
    if (found.last_token_ns.max() - found.sent_ns.min()) < 1e9:  # all of it in the first second
        assert document["max_output_tokens_per_s"] == document["total_output_tokens"]


def test_aiperf_records_have_what_its_reader_requires(measured: Path) -> None:
    lines = [
        json.loads(line)
        for line in (measured / "export-aiperf" / "profile_export.jsonl").read_text().splitlines()
    ]
    assert len(lines) == 60
    required = {
        "session_num",
        "request_start_ns",
        "request_end_ns",
        "worker_id",
        "record_processor_id",
        "benchmark_phase",
    }
    assert all(required <= line["metadata"].keys() for line in lines)
    assert sum(line["error"] is not None for line in lines) == 6
    good = [line["metrics"] for line in lines if line["error"] is None]
    assert max(len(m["inter_chunk_latency"]["value"]) for m in good) == 3
    for one in good:
        first, last, tokens = (
            one[name]["value"]
            for name in ("time_to_first_token", "request_latency", "output_sequence_length")
        )
        assert last >= first
        assert one["inter_token_latency"]["value"] == pytest.approx((last - first) / (tokens - 1))
        if last > first:
            assert one["output_token_throughput_per_user"]["value"] == pytest.approx(
                1e3 * (tokens - 1) / (last - first)
            )
    report = json.loads((measured / "export-aiperf" / "profile_export_aiperf.json").read_text())
    for name in ("time_to_first_token", "inter_token_latency", "request_latency"):
        assert np.mean([one[name]["value"] for one in good]) == pytest.approx(
            report[name]["avg"]
        ), name


@pytest.mark.parametrize("name", ["aiperf", "vllm"])
def test_an_export_comes_back_as_the_run_that_it_was(
    measured: Path, name: str, tmp_path: Path
) -> None:
    file = {"aiperf": "export-aiperf/profile_export.jsonl", "vllm": "export-vllm/vllm.json"}[name]
    assert run(["import", str(measured / file), "--output", str(tmp_path / "back")]) == 0
    ours, back = (
        json.loads((folder / "summary.json").read_text())
        for folder in (measured, tmp_path / "back")
    )
    assert back["errors"] == ours["errors"] == 6
    assert back["validity"]["verdict"] == "NOT JUDGED"
    for metric in ("ttft_from_send_ms", "tpot_ms"):
        assert back[metric] == pytest.approx(ours[metric], rel=1e-3), metric
    theirs, again = (
        json.loads((folder / "run.json").read_text())["other_definitions"]
        for folder in (measured, tmp_path / "back")
    )
    for metric in ("request_latency_ms", "inter_token_latency_ms", "gap_by_event_ms"):
        for statistic in ("mean", "p50", "p99"):
            assert again[metric][statistic] == pytest.approx(theirs[metric][statistic], rel=1e-3), (
                metric,
                statistic,
            )
    deployment = {"gpu": "h100-sxm-80gb", "precision": "fp8", "tp": 1}
    with pytest.raises(
        InputError, match=r"6 of 60 requests \(10 %\) failed; allow_errors takes it all the same"
    ):
        read_measured(tmp_path / "back", deployment)
    rows = read_measured(tmp_path / "back", deployment, InvalidRuns(allow_errors=True))
    assert (rows[0]["model"], rows[0]["concurrency"], rows[0]["osl"]) == ("m", 4, 8)
    found, original = read_run(tmp_path / "back").requests, read_run(measured).requests
    assert found.gaps.sum() == pytest.approx(original.gaps.sum(), abs=60)


BROKEN = {
    "not a known file": ("x.json", "{}", "no file with single requests"),
    "not JSON": ("x.json", "{", "not JSON"),
    "an AIPerf line that is none": ("x.jsonl", '{"metadata": 3}\n', "line 1"),
    "an empty AIPerf file": ("x.jsonl", "\n", "no request"),
    "vLLM without details": (
        "x.json",
        json.dumps({"num_prompts": 1, "total_output_tokens": 1, "mean_ttft_ms": 1.0}),
        "--save-detailed",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_imported_is_said_in_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, text, part = BROKEN[name]
    (tmp_path / file).write_text(text)
    assert run(["import", str(tmp_path / file), "--output", str(tmp_path / "run")]) == 2
    out, err = capsys.readouterr()
    assert part in err
    assert len(err.splitlines()) == 1
    assert not out
    assert not (tmp_path / "run").exists()


def test_a_run_is_like_itself_and_unlike_a_slower_one(
    measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with exact_server(Schedule(ttft_s=0.03, itl_s=0.004, tokens_per_event=2), seconds=60) as url:
        load = [
            "--concurrency",
            "4",
            "--request-count",
            "60",
            "--osl",
            "8",
            "--artifact-dir",
            str(tmp_path / "slow"),
        ]
        run([*ASKED[:-3], "--no-selftest", "--url", url, *load])
    capsys.readouterr()
    assert run(["compare", str(measured), str(measured), "--include-invalid", "--json"]) == 0
    same = json.loads(capsys.readouterr().out)
    assert all(ratio["ratio"] == pytest.approx(1) for ratio in same["ratios"])
    assert not any(ratio["differs"] for ratio in same["ratios"])
    assert run(["compare", str(measured), str(tmp_path / "slow"), "--include-invalid"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "TTFT mean ms" in shown
    assert "differs" in shown
    assert "10.0% of the requests did not complete in the first run" in shown


def test_quantiles_of_two_runs_are_drawn_against_each_other(
    measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert (
        run(["compare", str(measured), str(measured), "--include-invalid", "--report", str(page)])
        == 0
    )
    capsys.readouterr()
    first = compare_runs(measured, measured, include_invalid=True)
    sections = two_runs_page(first, "a", "b").sections
    figures = [block.figure for block in sections[1].blocks if isinstance(block, Drawing)]
    assert [figure.title for figure in figures] == ["TTFT", "TPOT", "E2E"]
    for figure in figures:
        assert isinstance(figure, Plot)
        dots, alike = figure.series
        assert len(dots.points) == 99
        assert all(point.x == point.y for point in (*dots.points, *alike.points))
    text = page.read_text(encoding="utf-8")
    assert text.count("<figure") == 3
    assert "because of include_invalid" in text
    assert run(["compare", str(measured), str(page), "--report", str(page)]) == 2
    assert "--report" in capsys.readouterr().err


FILES = Path(__file__).with_name("fixtures")


def keys(value: Any, depth: int = 2) -> Any:
    """The keys of a document with the kinds of their values, some levels deep."""
    if isinstance(value, dict) and depth:
        return {name: keys(inner, depth - 1) for name, inner in value.items()}
    return (
        "number"
        if isinstance(value, int | float) and not isinstance(value, bool)
        else type(value).__name__
    )


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
        assert keys(ours[name]) == keys(real[name]) or set(keys(ours[name])) <= set(
            keys(real[name])
        ), name
    line = json.loads((FILES / "aiperf" / "profile_export.jsonl").read_text().splitlines()[0])
    mine = json.loads(
        (measured / "export-aiperf" / "profile_export.jsonl").read_text().splitlines()[1]
    )
    assert {
        name: one["unit"] for name, one in mine["metrics"].items() if name in line["metrics"]
    }.items() <= {name: one["unit"] for name, one in line["metrics"].items()}.items()

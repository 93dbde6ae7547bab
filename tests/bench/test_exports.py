"""A run in the files of other tools, and per-request files of other tools as runs: the numbers stay
the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.bench.test_cli import ASKED
from tonnage.api.compare import compare_runs, import_run
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


# Files that the other tools really wrote (``fixtures/README.md``): imported, they say what their
# own summaries say.


FILES = Path(__file__).with_name("fixtures")
CLOSE = 1e-4
"""Relative: stamps in seconds or milliseconds lose the nanoseconds that we keep."""


class Imported:
    """A run folder made of a tool's file."""

    def __init__(self, file: Path, folder: Path, *flags: str) -> None:
        assert run(["import", str(file), "--output", str(folder), *flags]) == 0
        self.summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
        self.theirs: dict[str, Any] = json.loads((folder / "run.json").read_text()).get(
            "other_definitions", {}
        )
        self.requests = read_run(folder).requests
        self.folder = folder


def has_their_statistics(found: Imported, said: dict[str, Any]) -> None:
    """Latencies and lengths of a run equal those that GenAI-Perf or AIPerf computed from it."""
    for name, ours in (
        ("time_to_first_token", found.summary["ttft_from_send_ms"]),
        ("request_latency", found.theirs["request_latency_ms"]),
        ("inter_token_latency", found.theirs["inter_token_latency_ms"]),
    ):
        assert ours["mean"] == pytest.approx(said[name]["avg"], rel=CLOSE), name
        for percentile in ("p50", "p90", "p99"):
            assert ours[percentile] == pytest.approx(said[name][percentile], rel=CLOSE), (
                name,
                percentile,
            )
    assert found.requests.isl.mean() == pytest.approx(said["input_sequence_length"]["avg"])
    assert found.requests.osl.mean() == pytest.approx(said["output_sequence_length"]["avg"])


def test_aiperf_s_own_summary_comes_out_of_its_records(tmp_path: Path) -> None:
    found = Imported(FILES / "aiperf", tmp_path / "run")
    said = json.loads((FILES / "aiperf" / "profile_export_aiperf.json").read_text())
    assert len(found.requests) == said["request_count"]["avg"] == 24
    has_their_statistics(found, said)
    gaps = found.theirs["gap_by_event_ms"]["mean"]
    chunks = said["inter_chunk_latency"]
    # AIPerf counts the gap of two events that came at one moment, which is none
    assert 0.995 * gaps < chunks["avg"] <= gaps
    row = read_measured(found.folder, {"gpu": "h100-sxm-80gb", "precision": "fp8", "tp": 1})[0]
    assert (row["model"], row["concurrency"]) == ("m", 4)


def test_vllm_s_own_summary_comes_out_of_its_lists(tmp_path: Path) -> None:
    found = Imported(FILES / "vllm.json", tmp_path / "run")
    said = json.loads((FILES / "vllm.json").read_text())
    assert len(found.requests) == said["completed"] == 24
    for statistic, key in (("mean", "mean"), ("median", "p50"), ("p99", "p99")):
        assert found.summary["ttft_from_send_ms"][key] == pytest.approx(
            said[f"{statistic}_ttft_ms"], rel=CLOSE
        ), statistic
        tpot = found.theirs["inter_token_latency_ms"][key]
        # its latency ends a little after the last token
        assert tpot == pytest.approx(said[f"{statistic}_tpot_ms"], rel=1e-3), statistic
    # Two of its gaps a request are those of the chunk with the role and of the one that finishes,
    # which carry no token and are left out.
    assert found.summary["itl_ms"]["mean"] == pytest.approx(10.0, rel=0.01)
    every = [gap for gaps in said["itls"] for gap in gaps]
    assert len(every) - 2 * len(said["itls"]) == said["total_output_tokens"] - said["completed"]
    assert (
        1e3 * sum(every) / len(every)
        == pytest.approx(said["mean_itl_ms"])
        == pytest.approx(8.77, abs=0.01)
    )
    assert found.theirs["gap_by_event_ms"]["mean"] == pytest.approx(10.0, rel=0.01)
    assert found.requests.isl.sum() == said["total_input_tokens"]
    assert found.requests.osl.sum() == said["total_output_tokens"]
    # its clock starts a little earlier
    assert found.summary["requests_per_second"] == pytest.approx(
        said["request_throughput"], rel=0.02
    )


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


def test_sglang_s_own_summary_comes_out_of_its_lists(tmp_path: Path) -> None:
    found = Imported(FILES / "sglang.jsonl", tmp_path / "run")
    said = json.loads((FILES / "sglang.jsonl").read_text())
    assert len(found.requests) == said["completed"] == 10
    for ours, theirs in (
        ("ttft_from_send_ms", "ttft"),
        ("tpot_ms", "tpot"),
        ("itl_ms", "itl"),
        ("e2e_ms", "e2e_latency"),
    ):
        assert found.summary[ours]["mean"] == pytest.approx(said[f"mean_{theirs}_ms"], rel=0.01), (
            theirs
        )
    assert found.requests.osl.sum() == said["total_output_tokens"]
    # its clock starts a little earlier
    assert found.summary["requests_per_second"] == pytest.approx(
        said["request_throughput"], rel=0.05
    )


def test_genai_perf_s_own_statistics_come_out_of_its_raw_export(tmp_path: Path) -> None:
    found = Imported(
        FILES / "genai-perf",
        tmp_path / "run",
        "--tokenizer",
        str(FILES / "genai-perf" / "tokenizer.json"),
    )
    said = json.loads((FILES / "genai-perf" / "statistics.json").read_text())
    assert len(found.requests) == said["request_count"]["avg"] == 10
    has_their_statistics(found, said)
    assert found.summary["requests_per_second"] == pytest.approx(
        said["request_throughput"]["avg"], rel=CLOSE
    )


def test_without_a_tokenizer_an_event_is_a_token_and_a_prompt_has_none(tmp_path: Path) -> None:
    found = Imported(FILES / "genai-perf" / "profile_export.json", tmp_path / "run")
    # the exact server sends a token an event
    assert found.requests.osl.mean() == pytest.approx(5.9)
    assert not found.requests.isl.any()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d.update(service_kind="triton"), "only those to OpenAI's API"),
        (lambda d: d["experiments"][0].pop("requests"), "experiment 1"),
        (
            lambda d: d["experiments"][0]["requests"][0].update(timestamp="soon"),
            "request 1, timestamp",
        ),
        (lambda d: d["experiments"][0]["requests"][0]["request_inputs"].pop("payload"), "payload"),
    ],
)
def test_a_damaged_raw_export_is_refused_with_its_place(
    change: Any, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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

"""``tonnage bench`` as it is typed: files, exit codes, Ctrl-C, and a key that stays where it
was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.bench.cli_cases import ASKED
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.cli.main import run
from tonnage.formats.measured_files import InvalidRuns, read_measured
from tonnage.results.metrics import summarize
from tonnage.results.store import read_run, read_tokens

FILES = {
    "scenario.yaml",
    "requests.parquet",
    "gaps.parquet",
    "tokens.parquet",
    "summary.json",
    "run.json",
    "provenance.json",
    "server_metrics.parquet",
}


def test_a_run_leaves_a_folder_that_reads_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-a-test")
    folder = tmp_path / "run"
    load = ["--concurrency", "4", "--request-count", "40", "--artifact-dir", str(folder), "--json"]
    with exact_server(Schedule(ttft_s=0.01, itl_s=0.002), seconds=60) as url:
        code = run([*ASKED, "--url", url, "--endpoint-type", "chat", "--streaming", *load])
    printed = json.loads(capsys.readouterr().out)
    assert code == (3 if printed["validity"]["reasons"] else 0)
    assert {path.name for path in folder.iterdir()} == FILES
    found = read_run(folder)
    assert (
        found.summary["ttft_ms"]
        == printed["ttft_ms"]
        == summarize(found.requests).to_json()["ttft_ms"]
    )
    assert {"mean", "p50", "p90", "p95", "p99"} == printed["itl_ms"].keys()
    assert found.summary["errors"] == 0
    assert found.summary["validity"]["verdict"] in ("VALID", "INVALID")
    offsets, lengths = read_tokens(folder)
    assert list(lengths) == [5] * 40
    assert offsets[4] == found.requests.last_token_ns[0] - found.requests.sent_ns[0]
    assert not [path for path in folder.iterdir() if b"sk-secret" in path.read_bytes()]


@pytest.mark.live
@pytest.mark.parametrize(
    ("number", "workers"), [(signal.SIGINT, 1), (signal.SIGTERM, 1), (signal.SIGTERM, 2)]
)
def test_ctrl_c_and_sigterm_keep_what_was_measured(
    number: int, workers: int, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    with exact_server(Schedule(ttft_s=0.01, itl_s=0.01), seconds=60) as url:
        load = ["--concurrency", "4", "--benchmark-duration", "50s", "--workers", str(workers)]
        command = [sys.executable, "-m", "tonnage", *ASKED, "--url", url, *load]
        process = subprocess.Popen(
            [*command, "--artifact-dir", str(folder)], stdout=subprocess.PIPE, env=dict(os.environ)
        )
        deadline = time.monotonic() + 30
        while not list(tmp_path.glob(".run.partial*")) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(1.5 if workers == 1 else 4.0)
        process.send_signal(number)
        out, _ = process.communicate(timeout=30)
    assert b"ended by Ctrl-C" in out
    assert process.returncode in (0, 3)
    found = read_run(folder)
    assert found.summary["requests"]["completed"] > 4
    assert found.summary["requests"]["unfinished"] <= 4


ONE = "--url http://x --concurrency 1 --request-count 1"


BAD = {
    "no server": ("--concurrency 1", "--url"),
    "a scheme that is none": ("--url ftp://x --concurrency 1 --request-count 1", "ftp"),
    "a password in the address": (
        "--url http://a:b@x --concurrency 1 --request-count 1",
        "--api-key-env",
    ),
    "no load": ("--url http://x --request-count 1", "--concurrency"),
    "two loads": (f"{ONE} --request-rate 1 --trace x.csv", "--trace: give one of them"),
    "no end": ("--url http://x --concurrency 1", "--request-count"),
    "an endpoint that is none": (f"{ONE} --endpoint-type chart", "chat"),
    "streamed embeddings": (f"{ONE} --endpoint-type embeddings", "--streaming"),
    "a tokenizer that is not there": (f"{ONE} --tokenizer no", "--tokenizer"),
    "a limit that is none": (f"{ONE} --slo soon", "--slo"),
    "a flag of the self-test": (f"{ONE} --slots 3", "selftest"),
    "a percentile that is none": (f"{ONE} --percentiles 97", "--percentiles"),
    "a header that is none": (f"{ONE} --header x", "--header"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_used_gives_one_line_and_exit_code_2(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flags, part = BAD[name]
    assert run([*ASKED, *flags.split()]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert len(err.splitlines()) == 1
    assert part in err


def test_a_sweep_is_what_calibrate_and_score_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "sweep"
    with exact_server(Schedule(ttft_s=0.01, itl_s=0.002), seconds=60) as url:
        run(
            [
                *ASKED,
                "--url",
                url,
                "--concurrency",
                "1,2,4",
                "--request-count",
                "24",
                "--artifact-dir",
                str(folder),
            ]
        )
    assert "4 clients" in capsys.readouterr().out
    rows = read_measured(
        folder,
        {"model": "llama-3-8b", "gpu": "h100-sxm-80gb", "precision": "fp8", "tp": 1, "isl": 20},
        InvalidRuns(include=True),
    )
    assert [row["concurrency"] for row in rows] == [1, 2, 4]
    assert {(row["model"], row["gpu"], row["osl"]) for row in rows} == {
        ("llama-3-8b", "h100-sxm-80gb", 5)
    }
    summary = read_run(folder / "concurrency-2").summary
    assert rows[1]["ttft_p95_ms"] == summary["ttft_ms"]["p95"]
    assert (
        rows[1]["itl_ms"] == summary["itl_ms"]["mean"]
        or rows[1]["itl_ms"] == summary["tpot_ms"]["mean"]
    )


VARIED = [
    "bench",
    "--model",
    "m",
    "--isl",
    "uniform:20-400",
    "--osl",
    "5",
    "--no-selftest",
    "--request-count",
    "24",
]


def test_a_page_is_written_with_and_without_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, sweep, folder = tmp_path / "run.html", tmp_path / "sweep.html", tmp_path / "runs"
    with exact_server(Schedule(ttft_s=0.01, itl_s=0.002), seconds=60) as url:
        assert run([*VARIED, "--url", url, "--concurrency", "4", "--report", str(page)]) in (0, 3)
        assert run(
            [
                *VARIED,
                "--url",
                url,
                "--concurrency",
                "2,4",
                "--report",
                str(sweep),
                "--artifact-dir",
                str(folder),
            ]
        ) in (0, 3)
    assert capsys.readouterr().err == ""
    text = page.read_text(encoding="utf-8")
    for figure in (
        "Time to first token against prompt length",
        "Token-to-token latency against output position",
        "Requests one by one",
    ):
        assert figure in text
    assert "Latency against throughput" in sweep.read_text(encoding="utf-8")
    assert sorted(path.name for path in folder.iterdir()) == ["concurrency-2", "concurrency-4"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.html", "runs", "sweep.html"]


def test_more_clients_than_open_files_are_refused_before_the_start(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tonnage.api.bench.more_descriptors", lambda: 256)
    asked = [*ASKED, "--url", "127.0.0.1:1", "--request-count", "200", "--metrics-url", "none"]
    assert run([*asked, "--concurrency", "193"]) == 2
    words = (
        "--concurrency: 193 clients need 257 open files in each client process, and this user may"
        " open 256"
    )
    assert words in (err := capsys.readouterr().err)
    assert "--workers 2" in err
    assert run([*asked, "--concurrency", "192"]) == 3  # nobody listens there

"""Servers that answer oddly, measured as people type it: right figures, or a failure by its name,
and never a silent success."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bench.modes import MODES, Mode, ModeServer, mode_server
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.cli.main import run

FIELD = Path(__file__).parents[3] / "shared" / "field" / "measuring"
FIRST_MS, GAP_MS = 100.0, 10.0


def bench(url: str, model: str, *flags: str, requests: int = 8, clients: int = 4) -> int:
    load = [
        "--isl",
        "100",
        "--osl",
        "20",
        "--concurrency",
        str(clients),
        "--request-count",
        str(requests),
        "--no-selftest",
    ]
    return run(
        [
            "bench",
            "--url",
            url,
            "--model",
            model,
            "--endpoint-type",
            "chat",
            "--streaming",
            *load,
            *flags,
        ]
    )


def check(
    mode: Mode,
    code: int,
    said: dict[str, Any],
    *,
    first: float,
    gap: float,
    late: float,
    requests: int = 8,
) -> None:
    """The figures of a run, in milliseconds, next to the mode's; a busy machine lets the server be
    ``late``, and never early."""
    validity, notes = said["validity"], said["validity"]["notes"]
    # a busy machine may hold the client up
    client = [reason for reason in validity["reasons"] if "client" in reason]
    if mode.failure:
        assert said["errors_by_kind"] == {mode.failure: requests}
        assert code == 3
        assert mode.detail in said["failures"][0]["detail"]
        assert not mode.detail or any(mode.detail in note for note in notes)
    else:
        assert (said["requests"]["completed"], said["errors"]) == (requests, 0)
        assert said["output_tokens_per_second"] == pytest.approx(
            said["requests_per_second"] * mode.osl
        )
        assert -1 < said["ttft_ms"]["p50"] - (first + mode.ttft * gap) < late
        assert -1 < said["e2e_ms"]["p50"] - (first + mode.e2e * gap) < late
        assert (
            mode.tpot is None
            or abs(said["tpot_ms"]["p50"] - mode.tpot * gap) < gap / 10 + late / mode.osl
        )
        assert bool(mode.reason) == (len(validity["reasons"]) > len(client))
        assert bool(validity["reasons"]) == (code == 3)
    assert not mode.reason or any(mode.reason in reason for reason in validity["reasons"])
    assert not mode.note or client or any(mode.note in note for note in notes)


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, ModeServer]]:
    with mode_server(FIRST_MS / 1e3, GAP_MS / 1e3) as pair:
        yield pair


@pytest.mark.live
@pytest.mark.parametrize("name", MODES)
def test_every_mode_gives_its_figures_or_its_failure(
    name: str, served: tuple[str, ModeServer], capsys: pytest.CaptureFixture[str]
) -> None:
    mode = MODES[name]
    code = bench(served[0], name, *mode.flags, "--json")
    check(mode, code, json.loads(capsys.readouterr().out), first=FIRST_MS, gap=GAP_MS, late=20.0)


CORE = [
    *(
        "parts",
        "hidden",
        "usage of zeros",
        "a stop that came early",
        "an abort",
        "an end without a word",
    ),
    *(
        "all at once",
        "no stream but an error",
        "a field that it does not take",
        "late usage",
        "two choices",
    ),
]


@pytest.mark.parametrize("name", CORE)
def test_one_mode_of_each_kind(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with mode_server(0.03, 0.004) as (url, _):
        code = bench(url, name, *MODES[name].flags, "--json", clients=8)
    check(MODES[name], code, json.loads(capsys.readouterr().out), first=30.0, gap=4.0, late=150.0)


def test_the_terminal_says_what_the_server_said_and_what_to_type(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with mode_server(0.01, 0.001) as (url, _):
        assert bench(url, "a field that it does not take") == 3
        out = " ".join(capsys.readouterr().out.split())
        assert (
            "Unrecognized request argument supplied: min_tokens; --no-pin-output leaves out"
            " min_tokens and ignore_eos" in out
        )
        assert bench(url, "an option that it does not take") == 3
        assert "--omit-inputs stream_options leaves out what it does not take" in " ".join(
            capsys.readouterr().out.split()
        )
        bench(url, "a call in the old form")
        assert "8 completed (8 with a call of a function)" in capsys.readouterr().out


def test_whole_replies_have_an_end_to_end_latency_alone(capsys: pytest.CaptureFixture[str]) -> None:
    load = [
        "--isl",
        "10",
        "--osl",
        "5",
        "--concurrency",
        "2",
        "--request-count",
        "8",
        "--no-selftest",
        "--no-streaming",
    ]
    with exact_server(Schedule(ttft_s=0.01, itl_s=0.002), seconds=60) as url:
        run(["bench", "--url", url, "--model", "m", *load])
    out = " ".join(capsys.readouterr().out.split())
    assert "E2E ms" in out
    assert "TTFT ms" not in out
    assert "E2E alone counts" in out


def test_omitted_fields_are_not_sent_and_further_ones_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = [
        "--omit-inputs",
        "stream_options",
        "--omit-inputs",
        "max_tokens",
        "--extra-inputs",
        "max_completion_tokens:20",
        "--json",
    ]
    with mode_server(0.01, 0.001) as (url, server):
        bench(url, "ok", *flags)
        assert [sorted(body) for body in server.bodies] == [
            sorted(
                ["ignore_eos", "max_completion_tokens", "messages", "min_tokens", "model", "stream"]
            )
        ] * 8
    assert json.loads(capsys.readouterr().out)["endpoint"]["omitted_fields"] == [
        "stream_options",
        "max_tokens",
    ]
    assert (
        run(
            [
                "bench",
                "--url",
                "x",
                "--model",
                "m",
                "--isl",
                "1",
                "--osl",
                "1",
                "--concurrency",
                "1",
                "--request-count",
                "1",
                "--omit-inputs",
                "stream options",
            ]
        )
        == 2
    )
    assert "--omit-inputs: 'stream options' is no name of a field" in capsys.readouterr().err


# What expected.txt of each case asks: requests completed, its failure, TTFT, TPOT and E2E in ms,
# and words of the verdict
CASES: dict[str, tuple[int, str, dict[str, float], str]] = {
    "006": (12, "", {"ttft_ms": 100, "tpot_ms": 10}, ""),
    "007": (12, "", {"ttft_ms": 100, "tpot_ms": 10}, ""),
    "016": (0, "aborted", {}, "12 aborted"),
    "018": (0, "ended without a finish", {}, "12 ended without a finish"),
    "019": (
        12,
        "",
        {"ttft_ms": 100},
        "invalid: 12 of 12 outputs do not have the length at which they were pinned",
    ),
    "020": (
        12,
        "",
        {"ttft_ms": 500, "tpot_ms": 10},
        "2400 output tokens of 12 replies were not sent",
    ),
    "022": (12, "", {"e2e_ms": 290}, "2 clients: VALID"),
    "026": (
        12,
        "",
        {"e2e_ms": 290},
        (
            "12 of 12 replies came with all their tokens at one moment, so that TTFT is E2E and"
            " TPOT means nothing"
        ),
    ),
    "031": (0, "error in the reply", {}, "overloaded"),
    "039": (
        0,
        "HTTP 400",
        {},
        "Unrecognized request argument supplied: min_tokens; --no-pin-output",
    ),
}


@pytest.fixture(scope="module")
def field_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if not FIELD.exists():
        pytest.skip("the cases from the field are not here")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("field") / "log"
    process = subprocess.Popen([sys.executable, FIELD / "mock_server.py", str(port), log])
    for _ in range(100):
        time.sleep(0.05)
        with socket.socket() as attempt:
            if attempt.connect_ex(("127.0.0.1", port)) == 0:
                break
    yield f"127.0.0.1:{port}"
    process.kill()
    process.wait()


@pytest.mark.live
@pytest.mark.parametrize("case", CASES)
def test_cases_from_the_field(
    case: str, field_server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    completed, failure, figures, words = CASES[case]
    model = (FIELD / case / "mode.txt").read_text().strip()
    code = bench(
        field_server, model, "--artifact-dir", str(tmp_path / "run"), requests=12, clients=2
    )
    out = " ".join(capsys.readouterr().out.split())
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["requests"]["completed"] == completed
    assert summary["errors_by_kind"] == ({failure: 12} if failure else {})
    for metric, value in figures.items():
        assert summary[metric]["p50"] == pytest.approx(value, abs=15 if metric != "tpot_ms" else 1)
    assert words in re.sub(r" +", " ", out)
    assert failure == "" or code == 3

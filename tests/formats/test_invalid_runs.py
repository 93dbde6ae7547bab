"""Invalid runs are left out by name, and taken where that is asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tonnage import api
from tonnage.cli.main import run
from tonnage.formats.invalid_runs import InvalidRuns, why_invalid
from tonnage.formats.measured_files import read_measured

LATE = "the client's event loop was late by a mean of 7 ms, at most 2 ms would be right"


CLIENTS = (1, 4, 8, 16)


def say(folder: Path, verdict: str, *reasons: str) -> None:
    """Write a verdict into a run folder, as ``bench`` does."""
    file = folder / "summary.json"
    summary = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(
        json.dumps({**summary, "validity": {"verdict": verdict, "reasons": reasons}}),
        encoding="utf-8",
    )


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Four loads; the one of 8 clients is INVALID."""
    load = {"concurrency": ",".join(map(str, CLIENTS)), "requests": 60}
    runs = api.simulate_sweep(
        model="llama-3-8b", precision="fp16", isl=200, osl=20, engine="nim-2024", **load
    )
    api.write_runs(tmp_path / "sweep", runs, {"seed": 0})
    folders = {
        int(folder.name.rsplit("-", 1)[-1]): folder for folder in (tmp_path / "sweep").iterdir()
    }
    for clients, folder in folders.items():
        say(folder, *(("INVALID", LATE, "no steady state") if clients == 8 else ("VALID",)))
    return tmp_path / "sweep"


def test_an_invalid_run_is_no_row_unless_asked_for(sweep: Path) -> None:
    for include, counted in ((False, [1, 4, 16]), (True, [1, 4, 8, 16])):
        invalid = InvalidRuns(include=include)
        rows = read_measured(sweep, invalid=invalid)
        assert sorted(row["concurrency"] for row in rows) == counted
        (met,) = invalid.met
        assert (Path(met.run).name, met.counts) == ("concurrency-8", include)
        assert met.why.startswith(LATE)
    for summary, why in [
        ({}, ""),
        ({"validity": {"verdict": "INVALID", "reasons": [LATE]}}, LATE),
        (
            {"validity": {"verdict": "INVALID", "reasons": [LATE, "b", "c"]}},
            f"{LATE}; and 2 more reasons",
        ),
        ({"validity": {"verdict": "INVALID"}}, "it does not say why"),
    ]:
        assert why_invalid(summary) == why


def commands(sweep: Path) -> dict[str, list[str]]:
    measured = ["--model=llama-3-8b", "--isl=200", "--osl=20", "--peak-rps=20", "--json"]
    return {
        "score": ["score", str(sweep), "--json"],
        "calibrate": ["calibrate", str(sweep), "--json"],
        "size": ["size", f"--benchmarks={sweep}", *measured],
        "compare": [
            "compare",
            str(sweep / "concurrency-4"),
            str(sweep / "concurrency-8"),
            "--json",
        ],
    }


@pytest.mark.parametrize("verb", ["score", "calibrate", "size"])
def test_every_reader_leaves_it_out_by_name_and_takes_it_where_asked(
    verb: str, sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for flags, words in (
        ([], "is left out"),
        (["--include-invalid"], "counts because of --include-invalid"),
    ):
        command = [*commands(sweep)[verb], *flags]
        assert run(command) == 0
        document = json.loads(capsys.readouterr().out)
        told = json.dumps([document.get("remarks"), document.get("notes")])
        assert "concurrency-8" in told
        assert "event loop was late" in told
        assert run([part for part in command if part != "--json"]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert words in text
        assert "concurrency-8" in text
        assert "--include-invalid" in text


@pytest.mark.parametrize("verb", ["score", "calibrate", "size", "compare"])
def test_where_nothing_valid_is_left_the_command_refuses(
    verb: str, sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in sweep.iterdir():
        say(folder, "INVALID", LATE)
    assert run(commands(sweep)[verb]) == 2
    out, err = capsys.readouterr()
    assert not out
    (line,) = err.splitlines()
    assert LATE in line
    assert "--include-invalid" in line

"""``tonnage size``: files and flags, and the forms in which a plan is given out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.questions import plans_with
from tonnage.cli.main import flag, run
from tonnage.spec.scenario import leaves

ROOT = Path(__file__).parents[2]
few_parts = plans_with()
SMALL = [
    "--gpu",
    "h100",
    "--precision",
    "fp8",
    "--tp",
    "1",
    "--engine",
    "tensorrt-llm-0.15",
    "--ttft",
    "p95<=1s",
]
FLAGS = ["--model", "llama-3-8b", "--isl", "500", "--osl", "20", "--peak-rps", "5", *SMALL]
SCENARIO = """
model: llama-3-8b
lengths: {isl: 500, osl: 20}
demand: {peak_rps: 5}
limits: {ttft: p95<=1s}
where: on-prem
search: {gpu: h100, precision: fp8, tp: 1, engine: tensorrt-llm-0.15}
"""


def plan_of(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    assert run(["size", *arguments, "--json"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    path = tmp_path / "s.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    return str(path)


def test_a_file_and_flags_ask_the_same(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    by_file, by_flags = plan_of([scenario], capsys), plan_of([*FLAGS, "--where", "on-prem"], capsys)
    for plan in (by_file, by_flags):
        del plan["provenance"], plan["asked"]
    assert by_file == by_flags
    assert [way["where"] for way in by_file["cost"]["ways"]] == ["on-prem"]


def test_limits_that_nothing_meets_say_what_can_be_reached(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [
        "size",
        "--model",
        "llama-3.1-8b",
        "--isl",
        "500",
        "--osl",
        "50",
        "--peak-rps",
        "5",
        *SMALL[:-1],
        "p95<=1ms",
    ]
    assert run([*words, "--json"]) == 3
    (best,) = json.loads(capsys.readouterr().out)["reachable"]["best"]
    assert best["value_ms"] > best["asked_ms"] == 1
    assert best["deployment"]["gpu"] == "h100-sxm-80gb"
    assert run(words) == 3
    assert "Reachable    TTFT p95 " in capsys.readouterr().out


def test_flags_stand_in_place_of_the_file(
    scenario: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_of([scenario, "--mean-rps", "2", "--ttft", "p99<=3s", "--spare", "1"], capsys)
    assert plan["asked"]["demand"] == {"mean_rps": 2}
    assert plan["scenario"]["limits"] == [
        {"metric": "ttft", "statistic": "p99", "milliseconds": 3000.0}
    ]
    assert plan["choice"]["systems"] == 2


def test_what_was_understood_is_among_the_notes(capsys: pytest.CaptureFixture[str]) -> None:
    flags = [
        "--model",
        "llama-3-8b",
        "--use-case",
        "chatbot",
        "--retrieved",
        "2x100",
        "--isl",
        "75words",
        "--peak-rps",
        "3",
        *SMALL,
    ]
    notes = plan_of(flags, capsys)["notes"]
    assert isinstance(notes, list)
    said = {note["code"]: note for note in notes}
    assert (
        said["use-case-defaults"]["mode"],
        said["use-case-defaults"]["isl"],
        said["use-case-defaults"]["osl"],
    ) == (
        "streaming",
        "",
        "200",
    )
    assert (said["prompt-parts"]["tokens"], said["prompt-parts"]["parts"][0]["count"]) == (200, 2)
    assert (said["length-in-words"]["written"], said["length-in-words"]["tokens"]) == (
        "75words",
        100,
    )


def test_markdown_report_and_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, kept = tmp_path / "plan.html", tmp_path / "plan.json"
    assert run(["size", *FLAGS, "--markdown", "--report", str(page), "--output", str(kept)]) == 0
    assert capsys.readouterr().out.startswith("# ")
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert json.loads(kept.read_text(encoding="utf-8"))["cost"]


def test_benchmarks_alone_take_the_place_of_the_simulation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = [
        "--benchmarks",
        str(ROOT / "examples" / "nim-llama-3-8b-h100-fp8.csv"),
        "--ttft",
        "mean<=300ms",
    ]
    plan = plan_of(
        [*flags, "--calls-per-year", "30e6", "--requests-per-call", "30", "--peak-factor", "7"],
        capsys,
    )
    assert plan["choice"]["systems"] == 5
    assert plan["provenance"]["benchmarks"].startswith(str(ROOT))


def test_every_leaf_is_a_flag() -> None:
    wide = {**os.environ, "COLUMNS": "120"}  # at 80 the longest name takes two lines
    text = subprocess.run(
        [sys.executable, "-m", "tonnage", "size", "--help"],
        env=wide,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert [leaf.name for leaf in leaves() if f"{flag(leaf.path)} " not in text] == []


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["properties"]["model"]


@pytest.mark.parametrize("flag", ["--seed=3", "--load=closed", "--arrivals=gamma", "--cv=3"])
def test_what_only_a_simulation_takes_is_refused_beside_measurements(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [
        "size",
        "--benchmarks",
        str(ROOT / "examples" / "nim-llama-3-8b-h100-fp8.csv"),
        "--peak-rps=10",
        "--ttft=mean<=500ms",
    ]
    assert run([*asked, flag]) == 2
    assert f"{flag.partition('=')[0]}: does not go with --benchmarks" in capsys.readouterr().err

"""Every kind of ``tonnage size``: a first screen of forty lines at most at 80 and at 120 columns
that answers; --full holds the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tonnage.cli.main import run
from tonnage.errors import DONE, NO_ANSWER
from tonnage.report.plans.screen import MOST
from tonnage.report.writers.terminal import WIDEST

ROOT = Path(__file__).parents[2]
SMALL = "--gpu h100 --precision fp8 --engine vllm"
ANSWER, QUESTION = ("Answer", "Confidence", "Cost", "Risk"), ("Question", "Demand", "Limits")
SECTIONS = (
    "Question",
    "Deployment",
    "Latency and throughput",
    "Cost",
    "What would change the answer",
    "Candidates",
)
SECTIONS = (*SECTIONS, "Where time and memory go", "What it rests on", "Repeat it")
REJECTED = "Rejected, and why"
KINDS = {
    "one": (
        f"--model llama-3.1-8b --isl 2000 --osl 200 --peak-rps 20 --ttft p95<=500ms {SMALL}",
        (*QUESTION, *ANSWER),
        (*SECTIONS, REJECTED),
    ),
    "existing": (
        "examples/existing-fleet.yaml",
        (*QUESTION, "Have", *ANSWER),
        ("Systems that exist", *SECTIONS),
    ),
    "job": (
        "examples/nightly-job.yaml",
        (*QUESTION, "Finish", *ANSWER),
        ("Question", "Deployment", "Cost of the job", "What would change the answer", "Candidates"),
    ),
    "turns": (
        (
            "--model llama-3.1-8b --isl 300 --osl 100 --turns 3 --peak-rps 2 --ttft p95<=500ms"
            f" {SMALL} --tp 1"
        ),
        (*QUESTION, *ANSWER, "Prefix hits"),
        SECTIONS,
    ),
    "no answer": (
        f"--model llama-3.1-70b --isl 2000 --osl 200 --peak-rps 20 --ttft p95<=5ms {SMALL}",
        (*QUESTION, "Answer", "Reachable"),
        ("Question", REJECTED, "Repeat it"),
    ),
    "too much": (
        (
            f"--model llama-3.1-70b --isl 2000 --osl 200 --peak-rps 5 --ttft p95<=1s {SMALL} --tp 4"
            " --budget 40kUSD"
        ),
        (*QUESTION, "Answer"),
        ("Question", REJECTED, "Repeat it"),
    ),
    "several models": (
        f"--model llama-3.1-8b,qwen3-32b --isl 2000 --osl 200 --peak-rps 5 --ttft p95<=1s {SMALL}",
        (*QUESTION, "llama-3.1-8b", "qwen3-32b"),
        ("Models compared", *SECTIONS, REJECTED),
    ),
    "several use cases": (
        "examples/fleet/chat.yaml examples/fleet/documents.yaml",
        ("Chat", "Documents", *ANSWER, "Separate"),
        (
            "Use cases on one fleet",
            "Each by itself",
            "Chat, by itself",
            "Documents, by itself",
            *SECTIONS,
        ),
    ),
    "measured": (
        "--benchmarks examples/nim-llama-3-8b-h100-fp8.csv --peak-rps 20 --ttft mean<=500ms",
        (*QUESTION, "Answer", "Latency"),
        ("Question", "Deployment", "Candidates", "Repeat it"),
    ),
}

LATER = ("turns", "several models", "several use cases")
"""For which the core has no time; ./check --accuracy asks them."""

pytestmark = pytest.mark.usefixtures("plans_of_this_run")


def printed(
    words: list[str], columns: int, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, list[str]]:
    """Exit code and lines of a command in a terminal of so many columns, none of which is wider
    than that."""
    patch.setenv("COLUMNS", str(columns))
    code = run(words)
    lines = capsys.readouterr().out.splitlines()
    assert [
        line
        for line in lines
        if len(line) > min(columns, WIDEST) and not line.startswith(("  ./tonnage ", "  tonnage "))
    ] == []
    return code, lines


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.accuracy if kind in LATER else ()) for kind in KINDS],
)
def test_the_first_screen_answers_in_forty_lines_and_full_holds_every_section(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked, names, sections = KINDS[kind]
    monkeypatch.chdir(ROOT)
    saved = str(tmp_path / "plan.json")
    wanted = NO_ANSWER if kind in ("no answer", "too much") else DONE
    code, narrow = printed(["size", *asked.split(), "--output", saved], 80, monkeypatch, capsys)
    assert code == wanted
    for lines in (narrow, printed(["report", saved], 120, monkeypatch, capsys)[1]):
        assert len(lines) <= MOST
        assert [
            name for name in names if not any(line.startswith(f"{name} ") for line in lines)
        ] == []
        assert "--full prints" in " ".join(" ".join(lines).split())
    for columns in (80, 120):
        full = printed(["report", saved, "--full"], columns, monkeypatch, capsys)[1]
        assert [name for name in sections if name not in full] == []
        assert len(full) > len(narrow)


def test_two_forms_at_once_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["size", *KINDS["measured"][0].split(), "--full", "--brief"]) == 2
    assert "--brief and --full: each is a form of its own" in capsys.readouterr().err

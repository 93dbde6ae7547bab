"""``tonnage explain``, ``diff``, ``completion``, and the short forms of ``size``: what
docs/report.md runs and says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.saved import CHAT
from tests.questions import plans_with
from tonnage.cli.main import VERBS, run
from tonnage.report.drawing.figure import Axis, Plot, Point, Rule, Series
from tonnage.report.writers.terminal import HEIGHT, plot_text

ROOT = Path(__file__).parents[2]


few_parts = plans_with("explain")


def test_explain_says_why(saved: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", saved[1]]) == 0
    text = " ".join(capsys.readouterr().out.split())
    plan = json.loads(Path(saved[1]).read_text(encoding="utf-8"))
    assert "Chosen for the fewest GPUs: 2 × dgx-h100" in text
    counted = re.search(
        r"The load is 500 requests/s, and one instance is counted with ([\d.]+), to be 80% sure",
        text,
    )
    assert float(counted[1]) == pytest.approx(
        plan["choice"]["sized_requests_per_second_per_instance"], rel=0.01
    )
    assert "Where time and memory go" in text


def test_diff_names_what_differs_and_nothing_else(
    saved: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["diff", *saved, "--json"]) == 0
    found = {one["what"]: one for one in json.loads(capsys.readouterr().out)["differences"]}
    assert (found["systems"]["first"], found["systems"]["second"], found["systems"]["change"]) == (
        "1 × dgx-h100",
        "2 × dgx-h100",
        "+100%",
    )
    # of five times the load
    assert found["systems exactly"]["change"] in ("+399%", "+400%", "+401%")
    assert not {"model", "limits", "GPUs", "seed", "bound by"} & set(found)
    assert run(["diff", saved[0], saved[0]]) == 0
    assert "The plans say the same" in capsys.readouterr().out
    assert run(["diff", saved[0], CHAT]) == 2


@pytest.fixture(scope="module")
def fleets(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("fleets")
    before, after = str(folder / "before.json"), str(folder / "after.json")
    cases = [CHAT, CHAT.replace("chat", "documents"), "--tp", "1", "--quiet"]
    assert run(["size", *cases, "--objective", "power", "--output", before]) == 0
    repaired = ["--mtbf", "800h", "--repair-time", "24h", "--availability", "99.9%"]
    assert run(["size", *cases, "--objective", "power", *repaired, "--output", after]) == 0
    return before, after


def test_several_use_cases_are_explained_and_compared_one_by_one(
    fleets: tuple[str, str], saved: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", fleets[0]]) == 0
    text = capsys.readouterr().out
    titles = {
        "Use cases on one fleet": 1,
        "Chat, by itself": 1,
        "Documents, by itself": 1,
        "Why this answer": 2,
    }
    assert {title: text.count(title) for title in titles} == titles
    assert text.count("Chosen for the least power of the systems") == 2
    assert run(["diff", *fleets, "--json"]) == 0
    found = [
        (one.get("use_case"), one["what"], one["first"], one["second"])
        for one in json.loads(capsys.readouterr().out)["differences"]
    ]
    assert (None, "systems", "1 × dgx-h100", "2 × dgx-h100") in found
    assert [name for name, what, *_ in found if what == "standby.availability"] == [
        "Chat",
        "Documents",
    ]
    assert run(["diff", *fleets]) == 0
    assert "Documents, by itself: asked" in capsys.readouterr().out
    assert run(["diff", fleets[1], fleets[1]]) == 0
    assert "The plans say the same" in capsys.readouterr().out
    assert run(["diff", fleets[0], saved[0]]) == 2
    assert capsys.readouterr().err.startswith(f"tonnage: {fleets[0]}: holds several use cases")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--objective latency", "--objective: latency is of one use case"),
        ("--objective cost --gpu h100,l40s", "give one --gpu of h100-sxm-80gb, l40s"),
        (
            "--budget 500kUSD",
            (
                "Chat: --budget is for one use case alone; leave it out, or size this scenario by"
                " itself"
            ),
        ),
        ("--growth 5%/month", "Chat: --growth is for one use case alone"),
        ("--have 3xdgx-h100", "Chat: --have is for one use case alone"),
    ],
)
def test_what_a_fleet_of_use_cases_has_no_answer_to_is_refused_in_a_line(
    flags: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["size", CHAT, CHAT.replace("chat", "documents"), *flags.split()]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


def test_quiet_is_one_line_and_two_forms_are_refused(
    saved: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["size", CHAT, "--quiet"]) == 0
    found = capsys.readouterr()
    assert re.fullmatch(
        r"1 × dgx-h100 \(8 GPUs; [\d.]+ systems exactly\): 8 instances of FP8, TP 1, vllm-[\d.]+ on"
        r" h100-sxm-80gb\n",
        found.out,
    )
    assert found.err == ""
    assert run(["report", saved[0], "--csv", "--json"]) == 2
    assert "each is a form of its own" in capsys.readouterr().err


@pytest.mark.parametrize("columns", [40, 80, 100, 120])
def test_a_plot_of_characters_shows_each_series_within_the_columns(columns: int) -> None:
    points = tuple(Point(x=float(x), y=10.0 * x * x + 1, tip="") for x in range(1, 10))
    flat = tuple(Point(x=float(x), y=50.0, tip="") for x in range(1, 10))
    plot = Plot(
        key="curve",
        title="",
        x=Axis(title="load"),
        y=Axis(title="ms", log=True),
        series=(
            Series(name="rising", points=points, tone=0),
            Series(name="flat", points=flat, tone=1),
        ),
        rules=(
            Rule(along="y", value=500.0, label="limit"),
            Rule(along="x", value=5.0, label="peak"),
        ),
    )
    lines = plot_text(plot, columns).splitlines()
    drawn = lines[:HEIGHT]
    assert all(len(line) <= columns for line in drawn)
    assert lines[HEIGHT].startswith("         └")
    assert [letter for letter in "ab" if any(letter in line for line in drawn)] == ["a", "b"]
    rising = [line.index("a") for line in drawn if "a" in line]
    assert rising == sorted(rising, reverse=True)
    assert sum("b" in line for line in drawn) == 1
    assert (
        plot_text(Plot(key="", title="", x=Axis(title=""), y=Axis(title=""), series=()), 80) == ""
    )


def test_bash_takes_the_completion_and_it_knows_every_verb(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert [verb for verb in VERBS if verb not in script] == []
    bash = shutil.which("bash")
    assert bash is not None
    assert subprocess.run([bash, "-n"], input=script, text=True, check=False).returncode == 0

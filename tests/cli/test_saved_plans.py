"""A saved plan, written again, explained, and compared with another one."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest

from tests.questions import plans_with
from tests.report.example_plan import HERE, full
from tonnage.cli.main import run
from tonnage.report.drawing.figure import Axis, Plot, Point, Rule, Series
from tonnage.report.plans.plan_document import HEADER, report
from tonnage.report.writers.html import html
from tonnage.report.writers.terminal import HEIGHT, plot_text

ROOT = Path(__file__).parents[2]
CHAT = str(ROOT / "examples" / "fleet" / "chat.yaml")
few_parts = plans_with("explain")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("plans")
    before, after = str(folder / "before.json"), str(folder / "after.json")
    assert run(["size", CHAT, "--output", before, "--quiet"]) == 0
    assert run(["size", CHAT, "--peak-rps", "500", "--output", after, "--quiet"]) == 0
    return before, after


def test_csv_has_a_line_for_every_deployment(
    saved: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", saved[1], "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    plan = json.loads(Path(saved[1]).read_text(encoding="utf-8"))
    assert tuple(rows[0]) == HEADER
    assert len(rows) == len(plan["candidates"]) + len(plan["rejected"])
    assert rows[0]["status"] == "chosen"
    assert float(rows[0]["ttft_ms_p95"]) == pytest.approx(
        plan["choice"]["at_peak"]["ttft_ms"]["p95"], rel=1e-5
    )


PLAN = str(HERE / "plan.json")


def test_text_markdown_and_json_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", PLAN]) == 0
    assert capsys.readouterr().out.startswith("Question     llama-3-8b, 2,000 tokens in, 200 out\n")
    assert run(["report", PLAN, "--explain"]) == 0
    assert "Where time and memory go" in capsys.readouterr().out
    assert run(["report", PLAN, "--markdown"]) == 0
    assert capsys.readouterr().out.startswith("# 5 × dgx-h100 for llama-3-8b\n")
    assert run(["report", PLAN, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == full().to_json()


def test_a_page_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "plan.html"
    assert run(["report", PLAN, "--output", str(page)]) == 0
    assert page.read_text(encoding="utf-8") == html(report(full()))
    assert capsys.readouterr().out == ""


def test_what_is_no_plan_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content, said in (("{}", "no plan"), ("[", "is no JSON")):
        (tmp_path / "x.json").write_text(content, encoding="utf-8")
        assert run(["report", str(tmp_path / "x.json")]) == 2
        error = capsys.readouterr().err
        assert len(error.splitlines()) == 1
        assert said in error


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

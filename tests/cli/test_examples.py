"""Every example scenario answers what it answered: its whole output is kept in
tests/golden/examples, its numbers within 10 %.

After a change that means to change answers: ``TONNAGE_GOLDEN=write ./check -k examples``, and read
the difference."""

from __future__ import annotations

import datetime
import json
import shlex
from pathlib import Path

import pytest

from tests.tolerance import check_golden
from tonnage.cli.main import run
from tonnage.plan.plan import Plan

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "examples"
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.yaml"))
LATER = ("chat-day", "office-assistant", "summaries")
"""Those for which the core has no time; ./check --accuracy answers them."""

DAY = datetime.date(2026, 11, 21)
pytestmark = pytest.mark.usefixtures("plans_of_this_run")


@pytest.fixture(autouse=True)
def same_place_and_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.setattr("tonnage.cli.size.today", lambda: DAY)
    # which a plan names as the command that it came from
    monkeypatch.setattr("sys.argv", ["tonnage"])


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.accuracy if name in LATER else ()) for name in EXAMPLES],
)
def test_example_answers_as_it_did_and_its_plan_reads_back(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plan.json"
    assert run(["size", f"examples/{name}.yaml", "--full", "--output", str(file)]) == 0
    check_golden(capsys.readouterr().out, GOLDEN / f"{name}.txt")
    document = json.loads(file.read_text(encoding="utf-8"))
    for each in document.get("plans", [document]):
        plan = Plan.from_json(each)
        assert plan.to_json() == each
        assert Plan.from_json(plan.to_json()) == plan


def test_gpt_43b_has_the_figures_of_the_course(capsys: pytest.CaptureFixture[str]) -> None:
    """Source: NVIDIA course "Sizing LLM Inference Systems": 13 DGX, 2,606 ms to the first token and
    21.4 ms for each further one."""
    assert run(["size", "examples/gpt-43b.yaml", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    measured = plan["measured"]["plan"]["choice"]
    assert (measured["systems"], measured["system"]) == (13, "dgx-h100")
    assert (measured["ttft_ms"]["mean"], measured["tpot_ms"]["mean"]) == (2606, 21.4)
    assert plan["measured"]["predicted"][0]["systems_exact"] == pytest.approx(
        measured["systems_exact"], rel=0.1
    )


def test_no_golden_output_is_left_over() -> None:
    assert sorted(path.stem for path in GOLDEN.glob("*.txt")) == EXAMPLES


def test_the_call_centre_has_the_figures_of_the_course(capsys: pytest.CaptureFixture[str]) -> None:
    """Source: NVIDIA course "Sizing LLM Inference Systems"; 0.44 is what it prints, 0.64 what its
    figures make."""
    assert run(["size", "examples/rag-assistant.yaml", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["demand"]["mean_requests_per_second"] == pytest.approx(28.54, abs=0.005)
    assert plan["demand"]["peak_requests_per_second"] == pytest.approx(199.77, abs=0.005)
    measured = plan["measured"]
    assert (
        round(measured["plan"]["choice"]["systems_exact"], 3),
        measured["plan"]["choice"]["systems"],
    ) == (4.806, 5)
    ways = {way["where"]: way for way in measured["plan"]["cost"]["ways"]}
    owned, api = ways["on-prem"], ways["api"]
    assert owned["total_usd_per_year"] == pytest.approx(595_000, abs=500)
    assert owned["usd_per_year_exact"] == pytest.approx(572_000, abs=500)
    assert owned["usd_per_1000_requests"] == pytest.approx(0.66, abs=0.005)
    assert owned["usd_per_1000_requests_exact"] == pytest.approx(0.64, abs=0.005)
    assert api["usd_per_1000_requests"] == pytest.approx(2.6)
    course = next(
        note for note in measured["plan"]["cost"]["notes"] if note["code"] == "course-way"
    )
    assert course["course_usd_per_1000_requests"] == pytest.approx(0.44, abs=0.005)
    assert measured["predicted"][0]["systems_exact"] == pytest.approx(4.806, rel=0.2)
    assert plan["asked"]["demand"] == {
        "calls_per_year": 30_000_000,
        "requests_per_call": 30,
        "peak_factor": 7,
    }


@pytest.mark.accuracy
@pytest.mark.parametrize(
    ("number", "says"),
    [
        (0, ("4,000 users × 15 requests a day", "TTFT p95 ≤ 2 s", "USD a year")),
        (1, ("300 users × 150 requests a day", "TTFT p95 ≤ 1 s", "USD a year")),
        (2, ("2 million requests within 8 h", "lowest cost", "USD a job")),
    ],
)
def test_the_questions_of_readmes_first_60_lines_are_answered_on_one_screen(
    number: int, says: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:60]
    asked = [line for line in lines if line.startswith("./tonnage size")]
    assert len(asked) == 3
    assert run(shlex.split(asked[number])[1:]) == 0
    screen = capsys.readouterr().out
    assert len(screen.splitlines()) <= 40
    assert [words for words in says if words not in " ".join(screen.split())] == []

"""``tonnage score`` and ``--step-model`` on the command line.

After a change that means to change answers: ``TONNAGE_GOLDEN=write ./check -k golden``, and read
the difference."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.questions import plans_with
from tests.step_times import deployment, written
from tests.tolerance import Tolerance, check_golden
from tonnage.cli.main import run
from tonnage.perf import aiconfigurator
from tonnage.perf.terms import step_model

few_parts = plans_with()
ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "score-step-models.txt"
STEPS = """\
prefill_tokens,decode_sequences,context_tokens,seconds
0,1,1000,0.005
0,1,8000,0.0052
0,32,64000,0.009
0,128,256000,0.018
1024,0,0,0.02
4096,0,0,0.08
4096,32,64000,0.085
"""
SIMULATE = (
    "simulate",
    "--model",
    "llama-3.1-8b",
    "--precision",
    "fp8",
    "--engine",
    "vllm",
    "--isl",
    "500",
    "--osl",
    "50",
)
SIZE = (
    "size",
    "--model",
    "llama-3.1-8b",
    "--gpu",
    "h100",
    "--precision",
    "fp8",
    "--tp",
    "1",
    "--engine",
    "vllm",
)
ASKED = (*SIZE, "--isl", "500", "--osl", "50", "--peak-rps", "20", "--ttft", "1s", "--json")


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small table in the folder of the run, which is where it is named."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "110")
    (tmp_path / "steps.csv").write_text(STEPS)
    return tmp_path / "steps.csv"


@pytest.fixture
def _without_the_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiconfigurator, "find_spec", lambda _: None)


@pytest.mark.usefixtures("steps", "_without_the_wheel")
def test_golden_step_models_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    measured = ROOT / "examples" / "nim-llama-3-8b-h100-fp8.csv"
    assert run(["score", str(measured), "--step-model", "all,steps.csv"]) == 0
    answer = capsys.readouterr().out
    check_golden(answer, GOLDEN, Tolerance(share=0.1, absolute=2))  # its numbers are errors in %
    assert "aiconfigurator-core was skipped: it is not installed" in answer


@pytest.mark.usefixtures("steps", "_without_the_wheel")
def test_side_by_side_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    measured = ROOT / "examples" / "nim-llama-3-8b-h100-fp8.csv"
    assert run(["score", str(measured), "--step-model", "fitted,steps.csv", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"models", "common", "errors", "disagreement", "remarks"}
    assert list(found["models"]) == ["fitted", "steps.csv"]
    assert found["common"] == found["models"]["steps.csv"]["predicted"] == 10
    assert found["disagreement"]["steps.csv against fitted"]["ttft_ms"] > 0
    assert run(["score", str(measured), "--json"]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert alone == found["models"]["fitted"]
    assert all(row["reason"] for row in alone["worst"])


@pytest.mark.usefixtures("_without_the_wheel")
@pytest.mark.parametrize(
    "command",
    [
        ("score", str(ROOT / "examples" / "nim-llama-3-8b-h100-fp8.csv")),
        (*SIMULATE, "--concurrency", "1"),
        ASKED,
    ],
    ids=["score", "simulate", "size"],
)
def test_without_the_wheel_every_verb_says_what_to_install(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, "--step-model", "aiconfigurator"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "pip install 'tonnage[aiconfigurator]'" in said.err


@pytest.mark.usefixtures("steps")
@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--step-model", "steps.csv", "--tp", "1,2"), "does not say which of 2 deployments"),
        (("--step-model", "absent.csv"), "absent.csv: cannot be read"),
        (("--step-model", "magic"), "'magic' is not a step model"),
    ],
)
def test_a_step_model_that_cannot_be_used_is_one_line(
    more: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [*ASKED[:7], *ASKED[9:]] if "--tp" in more else list(ASKED)
    assert run([*command, *more]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


def test_a_plan_and_a_run_record_their_step_model(
    steps: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*ASKED, "--step-model", "steps.csv"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (
        plan["scenario"]["step_model"]
        == plan["provenance"]["step_model"]
        == plan["asked"]["search"]["step_model"]
        == "steps.csv"
    )
    assert any(
        "step times of steps.csv: 7 steps reduced" in mark for mark in plan["choice"]["marks"]
    )
    assert run(list(ASKED)) == 0
    fitted = json.loads(capsys.readouterr().out)
    assert fitted["scenario"]["step_model"] == "fitted"
    assert fitted["provenance"]["step_model"] == ""
    assert (
        run([*SIMULATE, "--concurrency", "2", "--step-model", "steps.csv", "--output", "kept"]) == 0
    )
    assert "step_model: steps.csv" in (steps.parent / "kept" / "scenario.yaml").read_text()


def test_our_own_steps_give_our_own_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same scheduler and memory: only the reduction's error is between the two."""
    file = written(step_model(deployment()).coefficients, tmp_path / "ours.csv")
    rates = []
    for more in ([], ["--step-model", str(file)]):
        assert run([*ASKED, *more]) == 0
        plan = json.loads(capsys.readouterr().out)
        rates.append(plan["choice"]["requests_per_second_per_instance"])
    assert rates[1] == pytest.approx(rates[0], rel=0.03)

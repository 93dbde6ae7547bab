"""``tonnage size --disaggregated``: the first screen of any other question, and a plan that every other verb reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.deploy.written import check_files, objects_of
from tonnage.cli.main import run

ASKED = [
    *("size", "--model", "llama-3.1-8b", "--gpu", "h100", "--precision", "fp8", "--tp", "1", "--engine", "vllm"),
    *("--isl", "2000", "--osl", "100", "--peak-rps", "120", "--router", "random", "--ttft", "p95<=1s", "--itl", "p99<=20ms"),
]


@pytest.fixture(scope="module")
def saved(plans_of_this_run: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The plan of instances that do both, and that of two pools."""
    folder = tmp_path_factory.mktemp("plans")
    found = {"both": folder / "both.json", "pools": folder / "pools.json"}
    assert run([*ASKED, "--output", str(found["both"]), "--quiet"]) == 0
    assert run([*ASKED, "--disaggregated", "--output", str(found["pools"]), "--quiet"]) == 0
    return found


def said(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a command prints, in one line."""
    capsys.readouterr()
    assert run(arguments) == 0
    return " ".join(capsys.readouterr().out.split())


def ratio(saved: dict[str, Path]) -> tuple[int, int]:
    prefill, decode = json.loads(saved["pools"].read_text(encoding="utf-8"))["choice"]["pools"]
    return prefill["instances"], decode["instances"]


def test_the_screen_is_that_of_any_other_question(saved: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    prefill, decode = ratio(saved)
    text = said(["report", str(saved["pools"])], capsys)
    assert "Answer 1 × dgx-h100 (8 GPUs; 0.7" in text
    assert f"{prefill} prefill and {decode} decode instances of FP8, TP 1, vllm-0.32 on h100-sxm-80gb" in text
    assert "Other way 8 more GPUs with 16 instances for both prefill and decode: 2 × dgx-h100" in text
    for line in ("Confidence", "At the peak", "Cost", "Risk", "Router"):
        assert f" {line} " in text
    assert "Answer" in said(["report", str(saved["pools"]), "--brief"], capsys)


def test_without_the_flag_the_answer_says_that_two_pools_need_fewer_gpus(
    saved: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    prefill, decode = ratio(saved)
    text = said(["report", str(saved["both"])], capsys)
    assert f"Other way 8 fewer GPUs with {prefill} prefill and {decode} decode instances: 1 × dgx-h100 (0.7" in text


def test_explain_and_diff_read_both_plans(saved: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(["explain", str(saved["pools"])], capsys)
    assert "Chosen for the fewest GPUs: 1 × dgx-h100" in text
    assert "instance, whose pool ends the load, takes" in text
    told = said(["diff", str(saved["both"]), str(saved["pools"])], capsys)
    assert "disaggregated" in told
    assert "2 × dgx-h100" in told
    assert "prefill and" in told
    page = tmp_path / "page.html"
    assert run(["report", str(saved["pools"]), "--output", str(page)]) == 0
    prefill, decode = ratio(saved)
    written = page.read_text(encoding="utf-8")
    assert f"{prefill} prefill and {decode} decode" in written
    assert "8 more GPUs with 16 instances for both" in written


@pytest.mark.parametrize("target", ["dynamo", "llm-d"])
def test_deploy_writes_both_pools(saved: dict[str, Path], target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "out"
    said(["deploy", str(saved["pools"]), "--target", target, "--output", str(folder)], capsys)
    files = {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in folder.rglob("*") if path.is_file()}
    check_files(files)
    objects = objects_of(files)
    if target == "dynamo":
        graph = next(one for (kind, _), one in objects.items() if kind == "DynamoGraphDeployment")
        found = [part["replicas"] for part in graph["spec"]["components"] if part["type"] in ("prefill", "decode")]
    else:
        found = [objects["Deployment", f"llama-3-1-8b-{role}"]["spec"]["replicas"] for role in ("prefill", "decode")]
    assert tuple(found) == ratio(saved)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["deploy", "PLAN", "--target", "compose", "--output", "OUT"], "write --target llm-d or --target dynamo, or size again without"),
        (["serve", "--plan", "PLAN"], "separate pools for prefill and decode"),
        (["gateway", "--plan", "PLAN"], "separate pools for prefill and decode"),
        (["watch", "127.0.0.1:1", "--once", "--plan", "PLAN"], "separate pools for prefill and decode"),
    ],
)
def test_what_runs_no_two_pools_says_so_in_a_line(
    saved: dict[str, Path], words: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = {"PLAN": str(saved["pools"]), "OUT": str(tmp_path / "out")}
    assert run([known.get(word, word) for word in words]) == 2
    told = capsys.readouterr().err
    assert line in told
    assert len(told.strip().splitlines()) == 1

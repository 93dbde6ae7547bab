"""What ``tonnage simulate`` prints and writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.questions import plans_with
from tonnage.cli.main import run

POINT = [
    "simulate",
    "--model",
    "llama-3-8b",
    "--isl",
    "300",
    "--osl",
    "20",
    "--requests",
    "60",
    "--seed",
    "5",
]


def test_one_point_prints_the_agreed_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*POINT, "--concurrency", "4", "--json"]) == 0
    point = json.loads(capsys.readouterr().out)
    assert {
        "requests_per_second",
        "output_tokens_per_second",
        "ttft_ms",
        "itl_ms",
        "tpot_ms",
        "e2e_ms",
    } <= set(point)
    assert point["concurrency"] == 4
    assert set(point["itl_ms"]) == {"mean", "p50", "p90", "p95", "p99"}


def test_a_sweep_prints_a_line_or_an_object_per_point(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*POINT, "--request-rate", "1,2.5", "--json"]) == 0
    points = json.loads(capsys.readouterr().out)["points"]
    assert [p["request_rate"] for p in points] == [1.0, 2.5]
    assert run([*POINT, "--request-rate", "1,2.5"]) == 0
    text = capsys.readouterr().out
    assert "1/s, Poisson" in text
    assert "2.5/s, Poisson" in text


def test_run_folders_hold_what_was_run_and_the_same_seed_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert run([*POINT, "--concurrency", "1,4", "--output", str(tmp_path / name)]) == 0
    files = sorted(
        p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*") if p.is_file()
    )
    expected = {
        "scenario.yaml",
        "requests.parquet",
        "gaps.parquet",
        "summary.json",
        "provenance.json",
    }
    assert {p.parts[0] for p in files} == {"concurrency-1", "concurrency-4"}
    assert {p.name for p in files} == expected
    assert all(
        (tmp_path / "a" / p).read_bytes() == (tmp_path / "b" / p).read_bytes()
        for p in files
        if p.name != "provenance.json"
    )


def test_the_lesson_prints_figures_and_slots(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "--ticks", "--batcher", "in-flight", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["requests_per_1k_ticks"] == 267.33
    assert (
        run(
            [
                "simulate",
                "--ticks",
                "--batcher",
                "one-prefill",
                "--prefill-chunks",
                "2",
                "--concurrency",
                "6",
            ]
        )
        == 0
    )
    text = capsys.readouterr().out
    assert "slot 4" in text
    assert "15.14" in text


def test_the_lesson_is_swept_over_one_setting(capsys: pytest.CaptureFixture[str]) -> None:
    lesson = ["simulate", "--ticks", "--batcher", "in-flight", "--concurrency", "1,2,4,8"]
    assert run([*lesson, "--json"]) == 0
    points = json.loads(capsys.readouterr().out)["points"]
    assert [(one["concurrency"], one["requests_per_1k_ticks"]) for one in points] == [
        (1, 70),
        (2, 170),
        (4, 267.33),
        (8, 267.33),
    ]
    assert [one["busy_slots"] for one in points] == [0.25, 0.5, 1, 1]
    assert all(one["useful_work"] <= one["busy_slots"] for one in points)
    assert run(lesson) == 0
    assert "a E2E, ticks" in capsys.readouterr().out
    assert run(["simulate", "--ticks", "--prefill-chunks", "1,2", "--timeline", "x.html"]) == 2
    assert (
        "--timeline: a sweep has many; give --prefill-chunks one value" in capsys.readouterr().err
    )


def test_a_scenario_is_simulated_with_the_load_that_is_given(
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = str(Path(__file__).parents[2] / "examples" / "rag-assistant.yaml")
    assert run(["simulate", path, "--request-rate", "2", "--requests", "50", "--json"]) == 0
    point = json.loads(capsys.readouterr().out)
    assert (point["model"], point["gpu"], point["engine_preset"], point["isl"]) == (
        "llama-3-8b",
        "h100-sxm-80gb",
        "nim-2024",
        "2000",
    )
    assert run(["simulate", path]) == 2
    assert (
        "--concurrency, --request-rate: neither given; the demand of 199.772 requests/s"
        in capsys.readouterr().err
    )
    assert run(["simulate", path, "--ticks"]) == 2
    assert "leave it out or leave out --ticks" in capsys.readouterr().err


def test_instances_share_a_load_behind_a_router(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = [*POINT, "--request-rate", "8", "--instances", "3"]
    assert (
        run([*fleet, "--router", "power-of-two", "--output", str(tmp_path / "run"), "--json"]) == 0
    )
    point = json.loads(capsys.readouterr().out)
    assert (point["instances"], point["router"]) == (3, "power-of-two")
    assert run(fleet) == 0
    assert "3 instances, least-outstanding" in " ".join(capsys.readouterr().out.split())
    import pyarrow.parquet as pq

    assert set(pq.read_table(tmp_path / "run" / "requests.parquet")["instance"].to_pylist()) == {
        0,
        1,
        2,
    }


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (["--request-rate", "8", "--instances", "0"], "--instances"),
        (["--request-rate", "8", "--instances", "2", "--router", "best"], "--router"),
        (["--request-rate", "8", "--instances", "2", "--router", "session"], "--router"),
        (["--concurrency", "8", "--instances", "2"], "--instances"),
    ],
)
def test_a_fleet_that_cannot_be_is_refused(
    flags: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*POINT, *flags]) == 2
    assert capsys.readouterr().err.startswith(f"tonnage: {word}")


def test_equal_lengths_that_decide_the_ttft_of_a_fleet_are_remarked_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Against a run with the lengths that the remark says to type."""
    fleet = [
        "simulate",
        "--model",
        "llama-3.1-8b",
        "--precision",
        "fp8",
        "--engine",
        "vllm",
        "--instances",
        "4",
    ]
    fleet += ["--requests", "6000", "--seed", "3", "--request-rate"]

    def found(*flags: str) -> dict[str, Any]:
        assert run([*fleet, *flags, "--json"]) == 0
        point: dict[str, Any] = json.loads(capsys.readouterr().out)
        return point

    equal, varied = (
        found("68", "--isl", "2000", "--osl", "200"),
        found("68", "--isl", "2000+-20%", "--osl", "200+-20%"),
    )
    told = equal["equal_lengths"]
    assert (told["ttft_p95_ms"], told["varied_ttft_p95_ms"]) == pytest.approx(
        (equal["ttft_ms"]["p95"], varied["ttft_ms"]["p95"])
    )
    assert abs(told["varied_ttft_p95_ms"] / told["ttft_p95_ms"] - 1) > 0.2
    assert "equal_lengths" not in varied
    assert "equal_lengths" not in found("68", "--isl", "exact:2000", "--osl", "exact:200")
    assert "equal_lengths" not in found("4", "--isl", "2000", "--osl", "200")
    assert run([*fleet, "68", "--isl", "2000", "--osl", "200"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert (
        "! Requests of equal length fall into step: with lengths within ±20 % (--isl 2000+-20%"
        " --osl 200+-20%) TTFT p95 is" in text
    )
    assert f"{told['varied_ttft_p95_ms']:.0f} ms in place of {told['ttft_p95_ms']:.0f} ms." in text


# ``tonnage size --disaggregated``: the first screen of any other question, and a plan that every
# other verb reads.


few_parts = plans_with("explain", "pools_instead", "together_instead")
ASKED = [
    *(
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
    ),
    *(
        "--isl",
        "2000",
        "--osl",
        "100",
        "--peak-rps",
        "140",
        "--router",
        "random",
        "--ttft",
        "p95<=1s",
        "--itl",
        "p99<=20ms",
    ),
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
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


def test_the_screen_is_that_of_any_other_question(
    saved: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    prefill, decode = ratio(saved)
    text = said(["report", str(saved["pools"])], capsys)
    assert "Answer 1 × dgx-h100 (8 GPUs; 0.9" in text
    assert (
        f"{prefill} prefill and {decode} decode instances of FP8, TP 1, vllm-0.32 on h100-sxm-80gb"
        in text
    )
    assert (
        "Other way 8 more GPUs with 16 instances for both prefill and decode: 2 × dgx-h100" in text
    )
    for line in ("Confidence", "At the peak", "Cost"):
        assert f" {line} " in text
    assert "Answer" in said(["report", str(saved["pools"]), "--brief"], capsys)


def test_without_the_flag_the_answer_says_that_two_pools_need_fewer_gpus(
    saved: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    prefill, decode = ratio(saved)
    text = said(["report", str(saved["both"])], capsys)
    assert (
        f"Other way 8 fewer GPUs with {prefill} prefill and {decode} decode instances: 1 × dgx-h100"
        " (0.9" in text
    )


def test_explain_and_diff_read_both_plans(
    saved: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["deploy", "PLAN", "--target", "compose", "--output", "OUT"],
            "; write --target llm-d or --target dynamo; nearest: ",
        ),
        (["serve", "--plan", "PLAN"], "separate pools for prefill and decode"),
        (["gateway", "--plan", "PLAN"], "separate pools for prefill and decode"),
        (
            ["watch", "127.0.0.1:1", "--once", "--plan", "PLAN"],
            "separate pools for prefill and decode",
        ),
    ],
)
def test_what_runs_no_two_pools_says_so_in_a_line(
    saved: dict[str, Path],
    words: list[str],
    line: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    known = {"PLAN": str(saved["pools"]), "OUT": str(tmp_path / "out")}
    assert run([known.get(word, word) for word in words]) == 2
    told = capsys.readouterr().err
    assert line in told
    assert len(told.strip().splitlines()) == 1

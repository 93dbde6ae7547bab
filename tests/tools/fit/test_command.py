"""The command line of the fit, and what the package says of the file that it alone reads."""

import json
from pathlib import Path

import pytest

from tests.silicon_sample import NVIDIA, sample
from tonnage.cli.main import run as run_tonnage
from tools.fit.command import run


def test_silicon_sample_is_scored_by_its_own_rules(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = sample(
        tmp_path,
        NVIDIA,
        NVIDIA | {"mode": "disagg"},
        NVIDIA | {"system": "unheard_of"},
        name="some_sample.csv",
    )
    assert run(["score", str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["rows"], found["predicted"]) == (1, 1)
    assert set(found["overall"]) == {"ttft_ms", "itl_ms"}
    assert found["overall"]["itl_ms"]["mape"] < 30
    assert list(found["groups"]["cache"]) == ["holds all clients"]
    assert list(found["groups"]["regime"]) == ["middle, prompt"]
    dense, experts = found["remarks"]
    assert dense.startswith("some_sample.csv, dense models: 1 rows are used; other lines: ")
    assert "1 disaggregated" in dense
    assert "mixtures of experts: 0 rows are used" in experts
    assert run(["score", str(file), "--worst", "0"]) == 0
    assert "1 of 1 row predicted" in capsys.readouterr().out


def test_tonnage_score_names_the_command_that_reads_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = sample(tmp_path, NVIDIA)
    for name in (str(file), "silicon_sample.csv"):
        assert run_tonnage(["score", name]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.count("\n") == 1
        assert f"./fit score {name}" in said.err


def test_bad_input_is_one_line_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for command, says in (
        ("score absent.csv", "absent.csv cannot be read"),
        (".", "trtllm_static_batch.csv"),
        ("score", "FILE"),
        ("--magic", "--magic"),
    ):
        assert run(command.split()) == 2
        said = capsys.readouterr()
        assert (said.out, said.err.count("\n")) == ("", 1)
        assert says in said.err

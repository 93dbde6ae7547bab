"""The verb serve, with an engine on this machine's GPUs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from tests.serve.launch.machines import of
from tonnage.cli.main import run

if TYPE_CHECKING:
    import pytest


def test_the_command_shows_it_and_starts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "machine.yaml"
    path.write_text(yaml.safe_dump(json.loads(json.dumps(of().to_json()))), encoding="utf-8")
    where = ["serve", "--engine", "vllm", "--model", "llama-3.1-70b", "--machine", str(path)]
    assert run([*where, "--list-profiles", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert {one["kind"] for one in said["profiles"]} == {"runnable", "low memory", "incompatible"}
    assert run([*where, "--list-profiles"]) == 0
    assert "Runs here with a shorter context" in capsys.readouterr().out
    assert run([*where, "--dry-run", "--tp", "4"]) == 0
    shown = capsys.readouterr().out
    assert "CUDA_VISIBLE_DEVICES=0,1,2,3" in shown
    assert "--tensor-parallel-size 4" in shown
    assert run([*where, "--dry-run", "--tp", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["instances"][0]["gpus"] == [0, 1, 2, 3]
    assert run(where) == 2
    assert "--machine: belongs to --list-profiles or --dry-run" in capsys.readouterr().err
    assert run(["serve", "--engine", "vllm", "--model", "x", "--fault", "500 share=0.1"]) == 2
    assert "--fault: says nothing to --engine vllm" in capsys.readouterr().err
